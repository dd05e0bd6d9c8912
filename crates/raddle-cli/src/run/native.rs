//! The program started by `execve(2)` alone, without a look at it and without green threads: where
//! a filter kills for the look, or where there is no memory for the preloaded library.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use super::{filtered, inherit};
use crate::cli::RunArguments;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, say};
use crate::machine;

/// Bytes of data (RLIMIT_DATA) that the library and a small program need. The library has two
/// megabytes of tables; a loader that can't map them starts no program.
const DATA_BYTES: u64 = 4 << 20;

/// Returns why the program must start so, if it must.
pub(super) fn reason() -> Option<String> {
    let filter = filtered::find().map(|call| {
        format!(
            "a filter of system calls (seccomp) kills for {call}, which raddle run needs; allow it"
        )
    });
    filter.or_else(|| {
        (machine::limit(libc::RLIMIT_DATA) < DATA_BYTES).then(|| {
            let kilobytes = DATA_BYTES >> 10;
            format!(
                "the limit on data leaves raddle too little; raise it (ulimit -d) to {kilobytes} \
                 or more"
            )
        })
    })
}

/// Becomes the program. Returns only the failure.
pub(super) fn exec(arguments: &RunArguments, why: &str) -> Failure {
    let command: Option<Vec<CString>> = arguments.command.iter().map(c_string).collect();
    let Some([name, ..]) = command.as_deref() else {
        return Failure::input("no program given", "write it behind --");
    };
    let shown = name.to_string_lossy();
    if arguments.verbose {
        say(&format!("{shown}: runs on kernel threads: {why}"));
    }
    let list = command.iter().flatten().map(|text| text.as_ptr());
    let list: Vec<_> = list.chain([ptr::null()]).collect();
    inherit::restore();
    // SAFETY: a string and a null-terminated array of such, alive until the call returns.
    unsafe { libc::execvp(name.as_ptr(), list.as_ptr()) };
    let error = io::Error::last_os_error();
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    Failure::new(status, format!("{shown}: {error}"), "check the path")
}

fn c_string(text: &OsString) -> Option<CString> {
    CString::new(text.as_bytes()).ok()
}
