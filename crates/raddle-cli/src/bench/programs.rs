//! The benchmark programs: their sources, built into this command, and the tools that make them
//! run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::run::resolve;
use crate::stdout::note;

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../bench/", $name)))),*]
    };
}

const SOURCES: &[(&str, &str)] = sources![
    "common.h",
    "pingpong.c",
    "yield.c",
    "create.c",
    "fork.c",
    "wakeup.c",
    "fairness.c",
    "handoff.c",
    "stuck.c",
    "calls.c",
    "compute.c",
    "turns.c",
    "disk.c",
    "httpd.c",
    "httpd.rs",
    "httpd.py",
    "httpd.cs",
    "sockets.cs",
    "application.py",
    "TomcatServer.java",
    "PingPong.java",
    "VirtualPingPong.java",
    "pingpong.py",
    "pingpong.cs",
    "dotnet.json",
    "pingpong.go",
    "pingpong.cc",
    "threads.go",
    "threads.cc",
];

/// Where distributions put JDKs.
const JDKS: &str = "/usr/lib/jvm";

/// A temporary folder with the sources and the built programs; removed when this is dropped.
pub(super) struct Workshop {
    folder: PathBuf,
    fraction: f64,
    /// C programs that are compiled already.
    compiled: RefCell<BTreeMap<&'static str, PathBuf>>,
}

/// A JDK that can compile.
pub(super) struct Jdk {
    pub home: PathBuf,
    pub version: String,
}

impl Jdk {
    pub(super) fn tool(&self, name: &str) -> OsString {
        self.home.join("bin").join(name).into()
    }

    pub(super) fn major(&self) -> u32 {
        let first = self.version.split(['.', '-', '+']).next();
        first.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Workshop {
    pub(super) fn open(fraction: f64) -> Result<Workshop, Failure> {
        let folder = std::env::temp_dir().join(format!("raddle-bench-{}", std::process::id()));
        Workshop::at(folder, fraction)
    }

    /// Makes another one in this one's folder.
    pub(super) fn another(&self, name: &str) -> Result<Workshop, Failure> {
        Workshop::at(self.path(name), self.fraction)
    }

    fn at(folder: PathBuf, fraction: f64) -> Result<Workshop, Failure> {
        let write = || -> io::Result<()> {
            fs::create_dir(&folder)?;
            SOURCES
                .iter()
                .try_for_each(|(name, text)| fs::write(folder.join(name), text))
        };
        write().map_err(|error| {
            Failure::input(
                format!("{}: {error}", folder.display()),
                "point TMPDIR to a folder that you can write to",
            )
        })?;
        Ok(Workshop {
            folder,
            fraction,
            compiled: RefCell::default(),
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the requested fraction of `full` rounds, as an argument.
    pub(super) fn rounds(&self, full: u32) -> OsString {
        let rounds = (f64::from(full) * self.fraction).ceil();
        format!("{rounds:.0}").into()
    }

    pub(super) fn fraction(&self) -> f64 {
        self.fraction
    }

    /// Compiles `NAME.c`, once.
    pub(super) fn c_program(&self, name: &'static str) -> Result<OsString, String> {
        if let Some(program) = self.compiled.borrow().get(name) {
            return Ok(program.into());
        }
        let program = self.path(name);
        let cc = find("cc").ok_or("cc is not installed")?;
        let mut compile = Command::new(cc);
        compile.args(["-O2", "-pthread", "-o"]).arg(&program);
        self.make(compile.arg(self.path(&format!("{name}.c"))))?;
        self.compiled.borrow_mut().insert(name, program.clone());
        Ok(program.into())
    }

    /// Compiles `NAME.go`; the program and its compiler's version.
    pub(super) fn go_program(&self, name: &str) -> Result<(OsString, String), String> {
        let go = find("go").ok_or("go is not installed")?;
        let program = self.path(&format!("{name}-go"));
        let mut compile = Command::new(&go);
        compile.args(["build", "-o"]).arg(&program);
        compile.arg(format!("{name}.go"));
        compile.env("GOFLAGS", "").env("GO111MODULE", "off");
        self.make(&mut compile)?;
        Ok((program.into(), version(&go, "version")))
    }

    /// Compiles `NAME.cc` with Boost.Fiber; the program and its compiler's version.
    pub(super) fn boost_program(&self, name: &str) -> Result<(OsString, String), String> {
        let cxx = find("c++").ok_or("c++ is not installed")?;
        let program = self.path(&format!("{name}-boost"));
        let mut compile = Command::new(&cxx);
        compile
            .args(["-O2", "-std=c++17", "-pthread", "-o"])
            .arg(&program);
        compile.arg(format!("{name}.cc"));
        self.make(compile.args(["-lboost_fiber", "-lboost_context"]))?;
        Ok((program.into(), version(&cxx, "--version")))
    }

    /// Runs a compiler in the folder; its last line is the reason if it fails.
    pub(super) fn make(&self, command: &mut Command) -> Result<(), String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let error = text
            .lines()
            .find(|line| line.contains("error"))
            .or(text.lines().next());
        Err(format!(
            "{program} failed: {}",
            error.unwrap_or("it said nothing").trim()
        ))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program in `PATH`.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    resolve::resolve(OsStr::new(name), std::env::var_os("PATH").as_deref()).ok()
}

/// The first line that a program says about its version.
pub(super) fn version(program: &Path, flag: &str) -> String {
    let output = Command::new(program)
        .arg(flag)
        .stdin(Stdio::null())
        .output();
    let text = output
        .map(|output| [output.stdout, output.stderr].concat())
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .next()
        .unwrap_or("unknown version")
        .trim()
        .to_owned()
}

/// The interpreter behind `python3`, which may be a script that chooses one.
pub(super) fn python() -> Option<PathBuf> {
    let mut command = Command::new(find("python3")?);
    command
        .args(["-c", "import sys; print(sys.executable)"])
        .stdin(Stdio::null());
    let output = command.output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    path.is_file().then_some(path)
}

/// Every JDK below `/usr/lib/jvm`, and the one in `PATH`; each version once, oldest first.
pub(super) fn jdks() -> Vec<Jdk> {
    let installed = fs::read_dir(JDKS)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let in_path = find("javac")
        .and_then(|javac| Some(javac.canonicalize().ok()?.parent()?.parent()?.to_path_buf()));
    let mut found: Vec<_> = installed.chain(in_path).filter_map(jdk).collect();
    found.sort_by_key(|jdk| (jdk.major(), jdk.version.clone()));
    found.dedup_by(|a, b| a.version == b.version);
    found
}

fn jdk(home: PathBuf) -> Option<Jdk> {
    let release = fs::read_to_string(home.join("release")).ok()?;
    let version = release
        .lines()
        .find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    let version = version.trim_matches('"').to_owned();
    home.join("bin/javac")
        .exists()
        .then_some(Jdk { home, version })
}

/// Reports that something is left out, so that its absence is not taken for a result.
pub(super) fn skipped(what: &str, why: &str) {
    let _ = note(&format!("{what} is skipped: {why}")); // then the tables can't be written, either
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workshop_leaves_nothing_behind() {
        let workshop = Workshop::open(0.25).unwrap();
        let folder = workshop.folder.clone();
        assert_eq!(workshop.rounds(1000), "250");
        assert_eq!(workshop.rounds(1), "1");
        assert!(folder.join("pingpong.c").is_file());
        drop(workshop);
        assert!(!folder.exists());
    }

    #[test]
    fn majors_are_read_from_any_version() {
        let major = |version: &str| {
            Jdk {
                home: PathBuf::new(),
                version: version.into(),
            }
            .major()
        };
        assert_eq!(
            (major("17.0.15"), major("25"), major("26-ea"), major("x")),
            (17, 25, 26, 0)
        );
    }
}
