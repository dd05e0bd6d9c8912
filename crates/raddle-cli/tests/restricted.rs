//! The command where `/proc` is not mounted, or where a filter of system calls refuses what the
//! command itself asks for: the program starts all the same.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Folder, RADDLE, has, is_root, preload, text};

/// The command and its library as they are installed.
struct Installed {
    folder: Folder,
    command: PathBuf,
    library: PathBuf,
}

impl Installed {
    fn new() -> Installed {
        let folder = Folder::new();
        Installed {
            command: folder.file("bin/raddle", fs::read(RADDLE).unwrap(), 0o755),
            library: folder.file(
                "lib/raddle/libraddle_preload.so",
                fs::read(preload()).unwrap(),
                0o644,
            ),
            folder,
        }
    }

    /// Asserts that the program has printed this library as its preload, and nothing else.
    #[track_caller]
    fn assert_preloaded(&self, output: &Output, way: &str) {
        let (said, printed) = (text(&output.stderr), text(&output.stdout));
        assert!(output.status.success(), "{way}: {}: {said}", output.status);
        assert_eq!(said, "", "{way}");
        // Without `readlink(2)` the path has `..` in it.
        let printed = fs::canonicalize(printed.trim_end_matches('\n')).ok();
        assert_eq!(printed, fs::canonicalize(&self.library).ok(), "{way}");
    }
}

/// A shell script in a namespace where `/proc` is an empty folder. `None` without the right or the
/// tool to make one.
fn without_procfs(folder: &Folder, script: &str) -> Option<Command> {
    if !is_root() || !has("unshare") {
        eprintln!("skipped: only root can hide /proc");
        return None;
    }
    let empty = folder.0.join("empty");
    fs::create_dir_all(&empty).unwrap();
    let script = format!("mount --bind {} /proc && {script}", empty.display());
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    command
        .env_remove("RADDLE_PRELOAD")
        .env_remove("LD_PRELOAD");
    Some(command)
}

#[test]
fn the_library_is_found_without_procfs() {
    let installed = Installed::new();
    let (folder, bin) = (&installed.folder, installed.folder.0.join("bin"));
    let (command, bin) = (installed.command.display(), bin.display());
    let prints = "run -- sh -c 'echo $LD_PRELOAD'";
    std::os::unix::fs::symlink(&installed.command, folder.0.join("link")).unwrap();
    for way in [
        format!("{command} {prints}"),
        format!("cd {bin} && ./raddle {prints}"),
        format!("cd {bin}/.. && bin/raddle {prints}"),
        format!("PATH={bin}:$PATH && raddle {prints}"),
        format!("{}/link {prints}", folder.0.display()),
    ] {
        let Some(mut command) = without_procfs(folder, &way) else {
            return;
        };
        installed.assert_preloaded(&command.output().unwrap(), &way);
    }
}

#[test]
fn commands_say_that_procfs_is_missing() {
    let installed = Installed::new();
    let command = installed.command.display();
    let script = format!("{command} run -v -- true; {command} dump 1; {command} ctl 1 carriers 2");
    let Some(mut run) = without_procfs(&installed.folder, &script) else {
        return;
    };
    let said = text(&run.output().unwrap().stderr);
    let silent = "raddle: /proc is not mounted here, so process 1 can't be found: mount -t proc \
                  proc /proc, or use this command where it is mounted\n";
    let expected = format!(
        "raddle: /proc is not mounted: raddle dump and other tools can't find the program from \
         here\n{silent}{silent}"
    );
    assert_eq!(said, expected);
    let script = format!("{command} doctor");
    let output = without_procfs(&installed.folder, &script).map(|mut it| it.output().unwrap());
    let lines = text(&output.unwrap().stdout);
    let finding = |name: &str, starts: &str| {
        let found = lines.lines().find(|line| line.contains(name)).unwrap();
        assert!(found.starts_with(starts), "{found}");
    };
    finding(" /proc ", "degraded");
    finding(" text patching ", "ok");
}

/// Runs `raddle run` under a filter that gives this answer to one call.
fn filtered(installed: &Installed, filter: &Path, word: &str) -> Command {
    let mut command = Command::new(filter);
    command.arg(word).arg(&installed.command);
    command.args(["run", "--", "printenv", "LD_PRELOAD"]);
    command
        .env_remove("RADDLE_PRELOAD")
        .env_remove("LD_PRELOAD");
    command
}

#[test]
fn refused_calls_of_the_command_stop_no_program() {
    let installed = Installed::new();
    let source = include_str!("../../raddle-tests/programs/refused.c");
    let filter = installed.folder.compile("cc", "refused", source, &[]);
    let calls = [
        libc::SYS_poll,
        libc::SYS_lseek,
        libc::SYS_rt_sigaction,
        libc::SYS_fcntl,
        libc::SYS_readlink,
        libc::SYS_getcwd,
        libc::SYS_getuid,
        libc::SYS_geteuid,
        libc::SYS_getgid,
        libc::SYS_sigaltstack,
        libc::SYS_statfs,
        libc::SYS_prctl,
        libc::SYS_getxattr,
        libc::SYS_prlimit64,
        libc::SYS_statx,
        libc::SYS_faccessat,
        libc::SYS_faccessat2,
    ];
    for (call, error) in calls.into_iter().flat_map(|call| [(call, 1), (call, 38)]) {
        let word = format!("{call}={error}");
        let output = filtered(&installed, &filter, &word).output().unwrap();
        installed.assert_preloaded(&output, &word);
    }
}

#[test]
fn a_command_without_a_null_device_runs_programs() {
    let installed = Installed::new();
    if !is_root() || !has("unshare") {
        eprintln!("skipped: only root can hide /dev");
        return;
    }
    let empty = installed.folder.0.join("empty");
    fs::create_dir_all(&empty).unwrap();
    let script = format!(
        "mount --bind {} /dev && exec {} run -- sh -c 'echo $LD_PRELOAD' <&-",
        empty.display(),
        installed.command.display()
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]);
    command
        .env_remove("RADDLE_PRELOAD")
        .env_remove("LD_PRELOAD");
    installed.assert_preloaded(&command.output().unwrap(), "without /dev");
}
