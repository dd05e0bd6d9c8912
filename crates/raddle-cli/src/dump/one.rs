//! What one thread waits for, and its stack, as lines.

use anyhow::Result;

use super::filter::Filter;
use super::process::Process;
use super::stacks::{self, OldWaits, Subject, doing};
use super::{Shown, groups};

/// Reads the stack of a thread from outside, without asking a Java virtual machine for locks. The
/// lines say if there is none.
pub(crate) fn stack_of(pid: u32, tid: u32) -> Result<Vec<String>> {
    let filter = Filter {
        tids: vec![tid],
        ..Filter::default()
    };
    let process = Process::find(pid)?;
    let subject = match Subject::open(pid)? {
        Ok(subject) => subject,
        Err(missing) => return Ok(vec![missing]),
    };
    let Some((taken, _)) = subject.take(&filter, OldWaits::LeftOut, false)? else {
        return Ok(vec![stacks::NONSENSE.into()]);
    };
    process.check_program()?;
    let Some(captured) = taken.threads.get(&tid) else {
        return Ok(vec!["it has ended".into()]);
    };
    let mut text = Vec::new();
    if let Some(doing) = doing(captured.kind) {
        text.extend_from_slice(format!("    ({doing})\n").as_bytes());
    }
    groups::write_wait(&taken, &[captured], &mut text)?;
    groups::write_stack(&Shown::PLAIN, &taken, captured, &mut text)?;
    if let Some(missing) = &taken.names_missing {
        text.extend_from_slice(missing.as_bytes());
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().map(ToOwned::to_owned).collect())
}
