//! Parts that the command's tests share: the command with a preload that does nothing, programs
//! compiled for a test, and temporary folders.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const RADDLE: &str = env!("CARGO_BIN_EXE_raddle");

/// A folder of this test alone.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("folder-{}-{number}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let written = path.with_extension("written");
        fs::write(&written, content).unwrap();
        copy(&written, &path, mode);
        fs::remove_file(written).unwrap();
        path
    }

    /// Compiles a C program or library with these flags.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        name: &str,
        source: &str,
        flags: &[&str],
    ) -> PathBuf {
        let c = self.file(&format!("{name}.c"), source, 0o644);
        let program = self.0.join(name);
        let mut command = Command::new(compiler);
        let output = command
            .arg("-o")
            .arg(&program)
            .arg(c)
            .args(flags)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a file by a process of its own. A file that this process has open for writing is open in
/// the children, too, that other tests start at that moment, and the kernel executes no such file.
pub(crate) fn copy(from: &Path, to: &Path, mode: u32) {
    assert!(
        Command::new("cp")
            .arg(from)
            .arg(to)
            .status()
            .unwrap()
            .success()
    );
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

/// A shared library in the place of the preloaded one: it does nothing.
pub(crate) fn preload() -> &'static Path {
    static PRELOAD: OnceLock<PathBuf> = OnceLock::new();
    PRELOAD.get_or_init(|| {
        let folder = Folder::new();
        let library = folder.compile("cc", "preload", "", &["-shared", "-fPIC", "-nostdlib"]);
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload/libraddle_preload.so");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::rename(library, &place).unwrap();
        place
    })
}

/// The command, with that library and none of the caller's variables.
pub(crate) fn raddle(arguments: &[&str]) -> Command {
    let mut command = Command::new(RADDLE);
    command.args(arguments).stdin(Stdio::null());
    for variable in [
        "LD_PRELOAD",
        "RADDLE_CARRIERS",
        "RADDLE_EXTRA_CARRIERS",
        "RADDLE_QUANTUM_US",
        "RADDLE_MAX_THREADS",
        "RADDLE_MAX_RUNNABLE",
        "RADDLE_FLIGHT_RECORDER",
        "RADDLE_VERBOSE",
        "RADDLE_EXCLUDE",
    ] {
        command.env_remove(variable);
    }
    command.env("RADDLE_PRELOAD", preload());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the command and asserts that it printed this one sentence, nothing else, and ended with
/// this status.
#[track_caller]
pub(crate) fn refuses(command: &mut Command, status: i32, sentence: &str) {
    let output = command.output().unwrap();
    assert_eq!(text(&output.stderr), format!("raddle: {sentence}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(status));
}

/// Runs the command and asserts that it succeeded.
#[track_caller]
pub(crate) fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        text(&output.stderr)
    );
    output
}

/// Returns whether a tool that a test needs is present; prints a line when not.
pub(crate) fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    if !found {
        eprintln!("skipped: {tool} is not installed");
    }
    found
}

pub(crate) fn is_root() -> bool {
    // SAFETY: it has no argument and can't fail.
    unsafe { libc::geteuid() == 0 }
}
