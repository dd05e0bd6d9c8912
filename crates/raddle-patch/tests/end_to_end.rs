//! Patches glibc in a child process and lets it work.
//!
//! Patching must happen while one thread exists, and near libc. So the cases are in a library, the
//! example `patched_child`, preloaded into a program as the runtime is.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs a case of the library, which must print `expected` at its end.
fn run(case: &str, expected: &str) {
    let output = start(case);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let status = output.status;
    assert!(
        status.success() && stdout.trim_end().ends_with(expected),
        "{case}: {status} (signal {:?})\n{stdout}\n{stderr}",
        status.signal()
    );
}

fn start(case: &str) -> Output {
    let mut program = Command::new("/bin/false");
    program
        .env("LD_PRELOAD", library())
        .env("RADDLE_PATCH_TEST_CASE", case);
    program.output().expect("the program starts")
}

/// The library, which Cargo builds with the tests: `examples` is beside this test's folder.
fn library() -> PathBuf {
    let this = std::env::current_exe().expect("the test knows its own path");
    let profile = this
        .ancestors()
        .nth(2)
        .expect("it is in target/PROFILE/deps");
    let library = profile.join("examples/libpatched_child.so");
    assert!(
        library.exists(),
        "{} is missing: cargo build -p raddle-patch --examples",
        library.display()
    );
    library
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_patched_glibc_works() {
    run("work", "work done");
}

#[test]
fn threads_and_processes_start_through_patched_clones() {
    run("clones", "clones done");
}

#[test]
fn stack_traces_pass_through_stubs() {
    run("backtrace", "backtrace done");
}

#[test]
fn asynchronous_cancellation_unwinds_through_a_stub() {
    run("cancel", "cancel done");
}

#[test]
fn a_signal_at_any_instruction_of_a_stub_can_be_unwound() {
    run("step", "step done");
}

#[test]
fn registers_survive_a_stub() {
    run("registers", "registers done");
}

#[test]
fn stubs_know_their_sites() {
    run("sites", "sites done");
}

#[test]
fn each_failing_step_is_undone() {
    run("failures", "failures done");
}

#[test]
fn text_that_is_far_is_patched_through_islands() {
    run("islands", "islands done");
}

#[test]
fn an_unknown_case_fails() {
    let output = start("nonsense");
    assert_eq!(
        output.status.code(),
        Some(2),
        "the cases above could not fail"
    );
}
