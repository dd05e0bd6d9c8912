//! The end of a command that has failed: one sentence, `raddle: what: cure`, on standard error, and
//! an exit status.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// The status for faults that the user can mend on the command line, as in shells.
pub(crate) const BAD_INPUT: u8 = 2;
/// The status for a standard output that was closed before its end.
const CUT_OUTPUT: u8 = 1;
/// The status for a program that was found and could not be executed, as in shells.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The status for a program that was not found, as in shells.
pub(crate) const NOT_FOUND: u8 = 127;

/// A fault and its cure.
#[derive(Debug)]
pub(crate) struct Failure {
    pub status: u8,
    pub what: String,
    pub cure: String,
}

impl Failure {
    pub(crate) fn new(status: u8, what: impl Into<String>, cure: impl Into<String>) -> Failure {
        Failure {
            status,
            what: what.into(),
            cure: cure.into(),
        }
    }

    pub(crate) fn input(what: impl Into<String>, cure: impl Into<String>) -> Failure {
        Failure::new(BAD_INPUT, what, cure)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.what, self.cure)
    }
}

impl std::error::Error for Failure {}

/// Prints the sentence and returns the status. A closed standard output (`raddle dump | head`)
/// needs no sentence: its reader has all that it wants. The status tells that it isn't whole.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    let io_error = error.downcast_ref::<io::Error>();
    if io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::from(CUT_OUTPUT);
    }
    let status = error
        .downcast_ref::<Failure>()
        .map(|failure| failure.status);
    say(&format!("{error:#}"));
    ExitCode::from(status.unwrap_or(BAD_INPUT))
}

/// Returns how a user gets the right to look into a process.
pub(crate) fn more_rights() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "give this command CAP_SYS_PTRACE, outside of containers and filters"
    } else {
        "run this as root"
    }
}

/// Prints one line on standard error; if that is closed, the line is lost.
pub(crate) fn say(sentence: &str) {
    use io::Write;
    let line = format!("raddle: {sentence}\n");
    let _ = io::stderr().write_all(line.as_bytes());
}
