//! Compiling and running programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Seconds after which a program counts as hung.
const LIMIT: &str = "60";

/// The folder of the installation.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        if let Some(prefix) = std::env::var_os("RADDLE_PREFIX") {
            return prefix.into();
        }
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(folder())
            .args(["run", "--package", "xtask", "--"]);
        succeeds(cargo.args(["install", "--prefix"]).arg(&prefix));
        prefix
    })
}

/// The package's own folder.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that must succeed. Returns its output.
pub(crate) fn succeeds(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{errors}",
        output.status
    );
    text
}

pub(crate) fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns whether a tool is present. In CI all are.
pub(crate) fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(there || !in_ci, "{tool} is missing, and CI skips nothing");
    if !there {
        eprintln!("skipped: {tool} is missing");
    }
    there
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Linked {
    Shared,
    Static,
}

pub(crate) const LINKAGES: [Linked; 2] = [Linked::Shared, Linked::Static];

/// Returns a compiler for C or C++ that warns of everything, with the library's header.
pub(crate) fn compiler(source: &Path) -> Command {
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let mut compiler = Command::new(if is_c { "cc" } else { "c++" });
    compiler.arg(if is_c { "-std=c99" } else { "-std=c++17" });
    compiler.args([
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-pthread",
        "-I",
    ]);
    compiler.arg(prefix().join("include"));
    compiler
}

/// Compiles a program of this package, once. Returns its path.
pub(crate) fn compile(source: &str, linked: Linked) -> PathBuf {
    let name = source.replace(['/', '.'], "-");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{linked:?}"));
    // Other tests may be running it already.
    static COMPILED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.contains(&program) {
        return program;
    }
    let source = folder().join(source);
    let lib = prefix().join("lib");
    let mut compiler = compiler(&source);
    compiler.arg("-o").arg(&program).arg(&source);
    match linked {
        Linked::Shared => {
            let path = format!("-Wl,-rpath,{}", lib.display());
            compiler
                .arg("-L")
                .arg(&lib)
                .args(["-lraddle", "-ldl"])
                .arg(path)
        }
        Linked::Static => {
            compiler
                .arg(lib.join("libraddle.a"))
                .args(["-lgcc_s", "-lpthread", "-ldl", "-lm"])
        }
    };
    succeeds(&mut compiler);
    compiled.push(program.clone());
    program
}

/// The mode of a program's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// It loads the runtime itself.
    Explicit(u32),
    /// Under `raddle run`.
    Raddle(u32),
}

pub(crate) const MODES: [Mode; 5] = [
    Mode::Explicit(1),
    Mode::Explicit(2),
    Mode::Explicit(3),
    Mode::Raddle(1),
    Mode::Raddle(2),
];

/// Returns a command that runs a program in a mode, and ends it when it hangs.
pub(crate) fn in_mode(mode: Mode, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "2", LIMIT]);
    match mode {
        Mode::Explicit(carriers) => {
            command
                .env("RADDLE_CARRIERS", carriers.to_string())
                .arg(program);
        }
        Mode::Raddle(carriers) => {
            command.arg(prefix().join("bin/raddle"));
            command
                .args(["run", "-n", &carriers.to_string(), "--"])
                .arg(program);
        }
    }
    command
}

/// Runs a program in each mode, linked in each way.
pub(crate) fn everywhere(source: &str, arguments: &[&str], expected: &str) {
    for linked in LINKAGES {
        let program = compile(source, linked);
        for mode in MODES {
            let output = succeeds(in_mode(mode, &program).args(arguments));
            assert!(output.ends_with(expected), "{linked:?}, {mode:?}: {output}");
        }
    }
}
