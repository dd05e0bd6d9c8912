//! `raddle run` becomes the program: the files it finds, the state it passes on, its changes.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use common::{Folder, RADDLE, preload, raddle, refuses, succeeds, text};

fn shell(script: &str) -> Command {
    raddle(&["run", "--", "sh", "-c", script])
}

#[test]
fn the_program_has_the_process_id_of_the_command() {
    let mut command = shell("echo $$");
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), format!("{pid}\n"));
}

#[test]
fn exit_status_and_death_by_signal_are_the_programs_own() {
    assert_eq!(shell("exit 42").status().unwrap().code(), Some(42));
    assert_eq!(shell("kill -TERM $$").status().unwrap().signal(), Some(15));
}

#[test]
fn arguments_arrive_unchanged_and_the_name_is_as_typed() {
    let script = "tr '\\0' '\\n' < /proc/$$/cmdline; echo end";
    let output = succeeds(raddle(&["run", "sh", "-c", script]).args(["-v", "--", "a b", ""]));
    let lines = text(&output.stdout);
    assert_eq!(lines, format!("sh\n-c\n{script}\n-v\n--\na b\n\nend\n"));
}

#[test]
fn flags_become_variables_and_the_preload_goes_first() {
    let mut command = raddle(&["run", "-n", "3", "-v", "--exclude", "name:GC*"]);
    command.args(["--exclude", "lib:libx.so;start:go", "--", "env"]);
    command
        .env("LD_PRELOAD", "libother.so")
        .env("RADDLE_CARRIERS", "7");
    let output = succeeds(&mut command);
    let variables = text(&output.stdout);
    let own = preload().display();
    for expected in [
        &format!("LD_PRELOAD={own}:libother.so"),
        "RADDLE_CARRIERS=3",
        "RADDLE_VERBOSE=1",
        "RADDLE_EXCLUDE=name:GC*;lib:libx.so;start:go",
    ] {
        assert!(
            variables.lines().any(|line| line == expected),
            "{expected}\n{variables}"
        );
    }
}

#[test]
fn a_plug_in_is_preloaded_behind_the_runtime() {
    let file = std::env::current_exe().expect("this test's path");
    let file = file.canonicalize().expect("it exists");
    let mut command = raddle(&["run", "--policy", &file.to_string_lossy(), "env"]);
    let own = preload().display();
    let list = format!("LD_PRELOAD={own}:{}:libother.so", file.display());
    let output = succeeds(command.env("LD_PRELOAD", format!("{}:libother.so", file.display())));
    let variables = text(&output.stdout);
    assert!(variables.lines().any(|line| line == list), "{variables}");
    let policy = format!("RADDLE_POLICY={}", file.display());
    assert!(variables.lines().any(|line| line == policy), "{variables}");
}

#[test]
fn variables_stay_as_they_are_without_flags() {
    let mut command = raddle(&["run", "env"]);
    command
        .env("RADDLE_CARRIERS", "7")
        .env("RADDLE_EXCLUDE", "name:a;name:b");
    let variables = text(&succeeds(&mut command).stdout);
    assert!(variables.lines().any(|line| line == "RADDLE_CARRIERS=7"));
    assert!(
        variables
            .lines()
            .any(|line| line == "RADDLE_EXCLUDE=name:a;name:b")
    );
    assert!(!variables.contains("RADDLE_VERBOSE"));
}

#[test]
fn a_run_within_a_run_preloads_once() {
    let output = succeeds(&mut raddle(&["run", RADDLE, "run", "env"]));
    let expected = format!("LD_PRELOAD={}", preload().display());
    assert!(text(&output.stdout).lines().any(|line| line == expected));
}

/// A program's view of signals and descriptors, started by `sh` directly and through raddle.
#[track_caller]
fn assert_inherited(setup: &str, look: &str) {
    let seen = |start: &str| {
        let script = format!("{setup} exec {start} {look}");
        let mut command = Command::new("sh");
        let output = command
            .args(["-c", &script])
            .env("RADDLE_PRELOAD", preload())
            .output();
        text(&output.unwrap().stdout)
    };
    let native = seen("");
    assert!(!native.is_empty());
    assert_eq!(seen(&format!("{RADDLE} run --")), native);
}

#[test]
fn signal_dispositions_and_masks_are_inherited_exactly() {
    let look = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status";
    assert_inherited("", look);
    assert_inherited("trap '' PIPE;", look);
    assert_inherited("trap '' INT TERM;", look);
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let look = "sh -c 'for fd in 0 2; do test -e /proc/$$/fd/$fd; echo $fd $?; done'";
    assert_inherited("", look);
    assert_inherited("exec <&-;", look);
    assert_inherited("exec <&- 2>&-;", look);
}

#[test]
fn what_is_not_found_ends_with_127() {
    refuses(
        &mut raddle(&["run", "no-such-program"]),
        127,
        "no-such-program: command not found: check the spelling, or give the program's path",
    );
    refuses(
        &mut raddle(&["run", "./no-such-program"]),
        127,
        "./no-such-program: no such file: check the path",
    );
    let folder = Folder::new();
    let flag = "-Wl,--dynamic-linker=/nowhere/ld.so";
    let program = folder.compile("cc", "orphan", "int main() { return 0; }", &[flag]);
    let shown = program.display();
    refuses(
        &mut raddle(&["run", program.to_str().unwrap()]),
        127,
        &format!(
            "{shown}: the loader (ld.so) that it names is not there: install the libc that it \
             was built for"
        ),
    );
}

#[test]
fn what_is_found_and_not_executable_ends_with_126() {
    let folder = Folder::new();
    let plain = folder.file("plain", "#!/bin/sh\n", 0o644);
    let orphan = folder.file("orphan", "#!/nowhere/interpreter -x\n", 0o755);
    let garbage = folder.file("garbage", b"\x7fELF\x02\x01garbage", 0o755);
    let binary = folder.file("binary", b"\x01\x00\x02", 0o755);
    for (file, what) in [
        (&folder.0, "is a folder: name a program in it".to_owned()),
        (
            &plain,
            format!(
                "permission denied: make it executable: chmod +x {}",
                plain.display()
            ),
        ),
        (
            &orphan,
            "its interpreter /nowhere/interpreter is not there: install that, or mend the first \
             line of the script"
                .to_owned(),
        ),
        (
            &garbage,
            "this kernel can't execute it: name a program for this machine".to_owned(),
        ),
        (
            &binary,
            "this kernel can't execute it: name a program for this machine".to_owned(),
        ),
    ] {
        let sentence = format!("{}: {what}", file.display());
        refuses(
            &mut raddle(&["run", file.to_str().unwrap()]),
            126,
            &sentence,
        );
    }
}

#[test]
fn a_text_without_a_first_line_is_run_by_the_shell() {
    let folder = Folder::new();
    let script = folder.file("script", "echo \"$1 from $0\"\n", 0o755);
    let script = script.to_str().unwrap();
    let output = succeeds(&mut raddle(&["run", script, "hello"]));
    assert_eq!(text(&output.stdout), format!("hello from {script}\n"));
}

#[test]
fn a_preload_that_can_not_be_used_stops_the_run() {
    let folder = Folder::new();
    let text_file = folder.file(
        "libraddle_preload.so",
        "this is not a shared library\n",
        0o644,
    );
    let spaced = folder.file("a folder/libraddle_preload.so", "", 0o644);
    fs::copy(preload(), &spaced).unwrap();
    for (path, sentence) in [
        (
            "/nowhere/x.so",
            "RADDLE_PRELOAD names /nowhere/x.so, which can't be used (No such file or directory \
             (os error 2)): set it to the path of libraddle_preload.so, or unset it"
                .to_owned(),
        ),
        (
            text_file.to_str().unwrap(),
            format!(
                "{} is no x86-64 shared library: install raddle again, or set RADDLE_PRELOAD to \
                 another path",
                text_file.display()
            ),
        ),
        (
            spaced.to_str().unwrap(),
            format!(
                "{} has a space or a colon in it, and LD_PRELOAD can't hold that: install \
                 raddle in another folder",
                spaced.display()
            ),
        ),
    ] {
        refuses(
            raddle(&["run", "true"]).env("RADDLE_PRELOAD", path),
            2,
            &sentence,
        );
    }
}

#[test]
fn the_preload_is_found_beside_the_command_or_in_the_library_folder() {
    let folder = Folder::new();
    let command = folder.file("bin/raddle", fs::read(RADDLE).unwrap(), 0o755);
    let library = fs::read(preload()).unwrap();
    let run = || {
        let mut run = Command::new(&command);
        run.args(["run", "env"])
            .env_remove("RADDLE_PRELOAD")
            .env_remove("LD_PRELOAD");
        run
    };
    let bin = command.parent().unwrap();
    refuses(
        &mut run(),
        2,
        &format!(
            "libraddle_preload.so is neither in {} nor in ../lib/raddle from there: install \
             raddle again, or set RADDLE_PRELOAD to its path",
            bin.display()
        ),
    );
    let preloaded = |place: &str| {
        let library = folder.file(place, &library, 0o644);
        let line = format!("LD_PRELOAD={}", library.display());
        let variables = text(&succeeds(&mut run()).stdout);
        assert!(variables.lines().any(|other| other == line), "{variables}");
    };
    preloaded("lib/raddle/libraddle_preload.so");
    preloaded("bin/libraddle_preload.so");
}
