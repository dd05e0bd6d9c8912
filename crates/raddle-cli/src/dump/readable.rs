//! A process that can be read from outside: where its tables are, its memory and its code.

use raddle_inspect::{Header, Layout};
use raddle_stacks::{Modules, ProcessMemory};

use super::understand;
use crate::failure::{Failure, more_rights};

/// See the module.
pub(crate) struct Readable {
    pub header: Header,
    pub layout: Layout,
    pub memory: ProcessMemory,
    pub modules: Modules,
}

impl Readable {
    /// Takes the answer of a process to a request for its layout.
    ///
    /// # Errors
    /// One sentence, if it can't be read.
    pub(crate) fn of(pid: u32, answer: &[u8]) -> Result<Readable, Failure> {
        let header = *understand(pid, answer)?.header();
        let behind = header.total_bytes().unwrap_or(answer.len());
        let layout = answer.get(behind..).and_then(Layout::parse);
        let layout = layout.ok_or_else(|| {
            Failure::input(
                format!("process {pid} runs under another version of raddle"),
                "use that one's command",
            )
        })?;
        let memory = ProcessMemory::of(pid);
        memory.probe(layout.used).map_err(|refusal| {
            Failure::input(
                format!("the memory of process {pid} can't be read: {refusal}"),
                more_rights(),
            )
        })?;
        let modules = Modules::of(pid).map_err(|error| {
            Failure::input(
                format!("the mappings of process {pid} can't be read ({error})"),
                "see whether it has ended",
            )
        })?;
        Ok(Readable {
            header,
            layout,
            memory,
            modules,
        })
    }
}
