//! `raddle gdb`: gdb with a script that knows green threads.
//!
//! gdb replaces this command. The script is part of the command, so that both are of one version;
//! gdb reads it from a memory file, which it closes at once. A program is started by `raddle run`,
//! as gdb's `exec-wrapper`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Result;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::cli::GdbArguments;
use crate::dump::process::Process;
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND};

const SCRIPT: &str = concat!(
    include_str!("gdb/raddle_gdb_memory.py"),
    include_str!("gdb/raddle_gdb_light.py"),
    include_str!("gdb/raddle_gdb.py"),
);

pub(crate) fn run(arguments: &GdbArguments) -> Result<ExitCode> {
    let script = script()?;
    let mut gdb = Command::new("gdb");
    gdb.arg("-q");
    if arguments.batch {
        gdb.args(["-nx", "-batch"]);
    }
    let read = format!(
        "python exec(__import__('os').fdopen({}).read())",
        script.as_raw_fd()
    );
    gdb.args(["-iex", &read]);
    let pid = match arguments.target.as_slice() {
        [only] if arguments.core.is_none() => process_of(only)?,
        _ => None,
    };
    match (pid, &arguments.core) {
        (Some(pid), _) => {
            add_commands(&mut gdb, &arguments.ex);
            gdb.arg("-p").arg(pid.to_string());
        }
        (None, Some(core)) => {
            add_commands(&mut gdb, &arguments.ex);
            gdb.arg(arguments.target[0].as_os_str()).arg(core);
        }
        (None, None) => {
            gdb.arg("-iex").arg(wrapper(arguments.carriers)?);
            add_commands(&mut gdb, &arguments.ex);
            gdb.arg("--args").args(&arguments.target);
        }
    }
    let error = gdb.exec();
    let (status, cure) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "install gdb 12 or later"),
        _ => (NOT_EXECUTABLE, "see whether it is a program"),
    };
    Err(Failure::new(status, format!("gdb can't be started ({error})"), cure).into())
}

fn add_commands(gdb: &mut Command, commands: &[String]) {
    for command in commands {
        gdb.args(["-ex", command]);
    }
}

/// Returns the process that is meant, which runs under raddle; `None` for a program.
fn process_of(target: &OsStr) -> Result<Option<u32>, Failure> {
    let Some(pid) = target.to_str().and_then(|text| text.parse().ok()) else {
        return Ok(None);
    };
    let process = Process::find(pid)?;
    match process.is_preloaded() {
        Ok(true) => Ok(Some(pid)),
        _ => Err(process.explain_silence()),
    }
}

/// Returns a file that gdb inherits.
fn script() -> Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("raddle-gdb", MemfdFlags::empty())?);
    file.write_all(SCRIPT.as_bytes())?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file.into())
}

/// Returns the command that makes gdb start programs by this one.
fn wrapper(carriers: Option<u16>) -> Result<OsString> {
    let own = crate::own_path::executable()?;
    let mut line = OsString::from("set exec-wrapper ");
    line.push(quoted(own.as_os_str()));
    line.push(" run");
    if let Some(carriers) = carriers {
        line.push(format!(" -n {carriers}"));
    }
    line.push(" --");
    Ok(line)
}

/// Quotes a path for the shell by which gdb starts programs.
fn quoted(path: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for &byte in path.as_bytes() {
        match byte {
            b'\'' => bytes.extend_from_slice(b"'\\''"),
            byte => bytes.push(byte),
        }
    }
    bytes.push(b'\'');
    OsStr::from_bytes(&bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(OsStr::new("/a b/c")), "'/a b/c'");
        assert_eq!(quoted(OsStr::new("it's")), "'it'\\''s'");
    }
}
