//! The stacks of all threads, read from outside, with names.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::Result;
use raddle_inspect::{Layout, Request, RequestKind, Snapshot};
use raddle_stacks::{
    Captured, Frame, Java, Kind, ManagedFrame, Modules, Named, ProcessMemory, Refusal, Stack,
    Stacks, Symbols, Target, capture_with,
};

use super::connect;
use super::filter::{Filter, rebuild};
use super::{managed, understand};

/// The stacks, and what was read with them.
pub(super) struct Taken {
    /// A snapshot with the threads that the filter picks.
    pub snapshot: Vec<u8>,
    pub threads: HashMap<u32, Captured>,
    pub stacks: Vec<NamedStack>,
    /// Why there are no Java frames, if there is a Java virtual machine that was asked for them.
    pub java_missing: Option<String>,
}

/// A stack with the names of its frames.
pub(super) struct NamedStack {
    pub stack: Stack,
    pub frames: Vec<NamedFrame>,
    /// Managed frames of which it isn't known which native frame executes them.
    pub unplaced: Vec<Rc<ManagedFrame>>,
}

pub(super) struct NamedFrame {
    pub frame: Frame,
    pub named: Rc<Named>,
    /// True if the frame is the runtime's own code.
    pub is_runtime: bool,
    /// The managed frames that it executes, from the inside out.
    pub managed: Vec<Rc<ManagedFrame>>,
}

impl Taken {
    /// Returns a thread's stack.
    pub(super) fn stack(&self, captured: &Captured) -> Option<&NamedStack> {
        self.stacks.get(captured.stack? as usize)
    }
}

/// Reads the stacks; the inner error is why they can't be had, and the cure.
pub(super) fn take(pid: u32, filter: &Filter, may_attach: bool) -> Result<Result<Taken, String>> {
    let (answer, connection) = connect::open(pid, &Request::new(RequestKind::LAYOUT, 1))?;
    let snapshot = understand(pid, &answer)?;
    let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
    let Some(layout) = answer.get(behind..).and_then(Layout::parse) else {
        return Ok(Err(format!(
            "no stacks: process {pid} runs under another version of raddle (use that one's dump)"
        )));
    };
    let memory = ProcessMemory::of(pid);
    if let Err(refusal) = memory.probe(layout.used) {
        return Ok(Err(refused(pid, refusal)));
    }
    let modules = match Modules::of(pid) {
        Ok(modules) => modules,
        Err(error) => {
            return Ok(Err(format!(
                "no stacks: its mappings can't be read ({error})"
            )));
        }
    };
    let carriers: Vec<_> = snapshot.carriers().collect();
    let target = Target {
        pid,
        memory: &memory,
        layout: &layout,
        carriers: &carriers,
        modules: &modules,
        started_ns: snapshot.header().started_ns,
    };
    let (java, java_missing) = match may_attach.then(|| Java::ask(&target)).flatten() {
        None => (None, None),
        Some(Ok(java)) => (Some(java), None),
        Some(Err(reason)) => (
            None,
            Some(format!("no Java frames of process {pid}: {reason}")),
        ),
    };
    let is_wanted = |record: &_| filter.picks(record);
    let Some(taken) = capture_with(&target, &is_wanted, java.as_ref()) else {
        return Ok(Err(
            "no stacks: what the process says of its tables makes no sense".into(),
        ));
    };
    drop(connection); // and with it the right to read the memory, if it was given for this time
    Ok(Ok(Taken {
        java_missing,
        ..named(&snapshot, taken, &memory, &modules, &layout)
    }))
}

/// Says what is missing, and the cure.
fn refused(pid: u32, refusal: Refusal) -> String {
    let cure = match refusal {
        Refusal::Forbidden => "run this as root, or with CAP_SYS_PTRACE",
        Refusal::Gone => "look for the process with pidof or ps",
        Refusal::Missing => "run this outside of the container or filter",
        Refusal::Unmapped => "use the raddle that started it",
    };
    format!("no stacks of process {pid}: {refusal} ({cure})")
}

fn named(
    snapshot: &Snapshot<'_>,
    taken: Stacks,
    memory: &ProcessMemory,
    modules: &Modules,
    layout: &Layout,
) -> Taken {
    let mut symbols = Symbols::new(memory, modules);
    let code = layout.code.text_start..layout.code.text_end;
    let managed: Vec<_> = taken.managed.into_iter().map(Rc::new).collect();
    let name = |stack: Stack| {
        let managed = |number| managed::at(&stack, &managed, number);
        let frames = stack.frames.iter().enumerate();
        let frames = frames.map(|(number, frame)| NamedFrame {
            frame: *frame,
            named: symbols.name(frame),
            is_runtime: code.contains(&frame.inside()),
            managed: managed(number),
        });
        NamedStack {
            frames: frames.collect(),
            unplaced: managed(stack.frames.len()),
            stack,
        }
    };
    let stacks = taken.stacks.into_iter().map(name).collect();
    let records = taken.threads.iter().map(|it| it.record);
    Taken {
        snapshot: rebuild(snapshot, records),
        threads: taken
            .threads
            .iter()
            .map(|it| (it.record.tid, *it))
            .collect(),
        stacks,
        java_missing: None,
    }
}

/// Returns the frames that a reader wants: without the runtime's own, except the one by which the
/// program called the runtime, if that is a function that the program knows, and the marks of
/// signals.
pub(super) fn shown(stack: &NamedStack) -> Vec<&NamedFrame> {
    let frames = &stack.frames;
    let inner = frames.iter().take_while(|frame| frame.is_runtime).count();
    let is_known = |frame: &NamedFrame| {
        let function = frame.named.functions.last();
        function.is_some_and(|it| !it.name.contains("::") && !it.name.starts_with("raddle"))
    };
    let is_shown = |&(number, frame): &(usize, &NamedFrame)| match frame.is_runtime {
        true if number < inner => number + 1 == inner && !frame.frame.is_signal && is_known(frame),
        true => frame.frame.is_signal,
        false => true,
    };
    let all = frames.iter().enumerate();
    let shown = all.filter(is_shown).map(|(_, frame)| frame);
    let shown = managed::without_covered(shown);
    if shown.is_empty() {
        frames.iter().collect()
    } else {
        shown
    }
}

/// Returns the lines of a frame, the innermost function first. Of the runtime's frames only the
/// function itself is shown, unless all are; and in place of a frame that executes managed ones,
/// these.
pub(super) fn lines(frame: &NamedFrame, all: bool) -> Vec<String> {
    let mut lines: Vec<String> = frame
        .managed
        .iter()
        .flat_map(|it| managed::lines(it))
        .collect();
    if lines.is_empty() || all {
        lines.extend(native(frame, all));
    }
    lines
}

fn native(frame: &NamedFrame, all: bool) -> Vec<String> {
    let guessed = if frame.frame.is_guessed {
        " (guessed)"
    } else {
        ""
    };
    if frame.frame.is_signal && !all {
        return vec![format!("<signal handler called>{guessed}")];
    }
    let named = &frame.named;
    if named.functions.is_empty() {
        let place = match &named.module {
            Some(module) => format!("{}+{:#x}", plain(module), named.offset),
            None => format!("{:#x}", frame.frame.address),
        };
        let remark = named.remark.map(|it| format!("  ({it})"));
        return vec![format!("{place}{}{guessed}", remark.unwrap_or_default())];
    }
    let line = |function: &raddle_stacks::Function| {
        let at = match (&function.file, function.line, &named.module) {
            (Some(file), Some(line), _) => {
                format!(
                    "  {}:{line}",
                    plain(file.rsplit('/').next().unwrap_or(file))
                )
            }
            (_, _, Some(module)) => format!("  {}", plain(module)),
            _ => String::new(),
        };
        let inlined = if function.is_inlined {
            " (inlined)"
        } else {
            ""
        };
        format!("{}{at}{inlined}{guessed}", plain(&function.name))
    };
    let own = named.functions.len() - 1;
    if frame.is_runtime && !all {
        vec![format!("{}{guessed}", plain(&named.functions[own].name))]
    } else {
        named.functions.iter().map(line).collect()
    }
}

/// A name as the terminal may have it: it comes from a file that may hold anything.
pub(super) fn plain(name: &str) -> String {
    let is_plain = |character: char| !character.is_control();
    name.chars()
        .filter(|&character| is_plain(character))
        .take(512)
        .collect()
}

/// Returns what a thread does beside waiting.
pub(super) fn doing(kind: Kind) -> Option<String> {
    match kind {
        Kind::InKernel(Some(call)) => Some(format!("in system call {call}")),
        Kind::InKernel(None) => Some("in a page fault, or stopped".into()),
        Kind::New => Some("has not run yet".into()),
        Kind::Preempted => Some("preempted".into()),
        _ => None,
    }
}
