//! Where the tables of a process are: the process says it, or they are found in its memory.
//!
//! The second way is for a process that doesn't answer, because it is stopped, has a full queue of
//! clients or hangs. Where Yama forbids the reading of its memory, it can't permit it then.

use std::os::unix::net::UnixStream;

use raddle_inspect::{Request, RequestKind, Wire};
use raddle_stacks::{Modules, ProcessMemory, Tables, TablesError};

use super::connect::{self, Unanswered};
use super::process::Process;
use crate::failure::Failure;

/// Where the tables are.
pub(crate) struct Location {
    /// A snapshot without threads, and behind it the layout.
    pub answer: Vec<u8>,
    /// With it ends the right to read the memory, if it was given for this time.
    pub connection: Option<UnixStream>,
    /// One sentence on a process that has not answered.
    pub silence: Option<String>,
}

impl Location {
    /// Asks the process; finds the tables in its memory if it doesn't answer.
    pub(crate) fn of(pid: u32) -> Result<Location, Failure> {
        match connect::try_open(pid, &Request::new(RequestKind::LAYOUT, 1)) {
            Ok((answer, connection)) => Ok(Location {
                answer,
                connection: Some(connection),
                silence: None,
            }),
            Err(Unanswered::Silent(why)) => {
                let answer = search(pid, &why)?;
                let silence = format!("{}: it is read without its help ({})", why.what, why.cure);
                Ok(Location {
                    answer,
                    connection: None,
                    silence: Some(silence),
                })
            }
            Err(Unanswered::Refused(failure)) => Err(failure),
        }
    }
}

/// Finds the tables in the memory of a process that is silent.
fn search(pid: u32, why: &Failure) -> Result<Vec<u8>, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::input(format!("{}, and {error}", why.what), why.cure.clone())
    };
    let process = Process::find(pid)?;
    let modules = Modules::of(pid).map_err(|error| failed(&error))?;
    let memory = ProcessMemory::of(pid);
    if let Some(program) = modules.modules.first() {
        memory
            .probe(program.start())
            .map_err(|refusal| failed(&refusal))?;
    }
    let tables = Tables::of_process(&memory, process.own_pid, &modules);
    let tables = tables.map_err(|error| match error {
        TablesError::None => process.explain_silence(),
        error => failed(&error),
    })?;
    let mut answer = tables.snapshot();
    answer.extend_from_slice(tables.layout.as_bytes());
    Ok(answer)
}
