//! Standard output of the commands. `println!` would panic when a disk is full.

use std::io::{self, ErrorKind, StdoutLock, Write};
use std::ops::RangeInclusive;

use crate::failure::Failure;
use crate::run::inherit;

/// Standard output, for this thread alone. Its errors say what can't be written, and the cure.
pub(crate) struct StandardOutput(StdoutLock<'static>);

/// Returns standard output.
///
/// # Errors of its writes
/// A closed one, a full disk, a pipe without a reader.
pub(crate) fn stdout() -> StandardOutput {
    StandardOutput(io::stdout().lock())
}

/// The columns of a terminal that doesn't say its width, and where there is none.
const USUAL_WIDTH: usize = 80;
/// Tables make no sense in fewer columns, and no line is read that is longer.
const WIDTHS: RangeInclusive<usize> = 40..=400;

/// Returns the columns that lines on standard output may have.
pub(crate) fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => USUAL_WIDTH,
        columns => columns.clamp(*WIDTHS.start(), *WIDTHS.end()),
    }
}

/// Prints a text on standard output.
///
/// # Errors
/// Those of [`stdout`].
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a line on standard output.
///
/// # Errors
/// Those of [`stdout`].
pub(crate) fn note(line: &str) -> io::Result<()> {
    print(&format!("{line}\n"))
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if inherit::was_closed(libc::STDOUT_FILENO) {
            let failure =
                Failure::input("standard output is closed", "open it, or give >/dev/null");
            return Err(io::Error::other(failure));
        }
        self.0.write(bytes).map_err(explain)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(explain)
    }
}

/// A reader that has gone has all that it wants, and needs no sentence.
fn explain(error: io::Error) -> io::Error {
    if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) {
        return error;
    }
    let what = format!("standard output can't be written ({error})");
    let cure = "write it to a place with room";
    io::Error::new(error.kind(), Failure::input(what, cure))
}
