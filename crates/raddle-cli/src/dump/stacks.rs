//! The stacks of all threads, read from outside, with names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use anyhow::Result;
use raddle_inspect::{Layout, Snapshot, ThreadFlags};
use raddle_record::text;
use raddle_stacks::locks::{self, Edge, Owner, Variables, Waits};
use raddle_stacks::{
    Captured, Frame, Java, Kind, Language, ManagedFrame, Modules, Named, ProcessMemory, Refusal,
    Stack, Stacks, Symbols, Target, capture_with,
};

use super::filter::{Filter, rebuild};
use super::locate::Location;
use super::process::Process;
use super::{lights, managed, start, understand};
use crate::failure::{Failure, more_rights};

/// The stacks, and what was read with them.
pub(super) struct Taken {
    /// A snapshot with the threads that the filter picks.
    pub snapshot: Vec<u8>,
    pub threads: HashMap<u32, Captured>,
    pub stacks: Vec<NamedStack>,
    /// One sentence on files that could not be read for names, if there are any.
    pub names_missing: Option<String>,
    /// What each thread waits for.
    pub edges: HashMap<u32, Edge>,
    /// The names of static variables that threads wait for, by their addresses.
    pub variables: HashMap<u64, String>,
    /// The number of light threads of the process.
    pub lights: u64,
    /// Why there are no Java locks or frames, if there is a virtual machine that was asked.
    pub java_missing: Option<String>,
    /// One sentence on a process that has not answered.
    pub silence: Option<String>,
}

/// A stack with the names of its frames.
pub(crate) struct NamedStack {
    pub stack: Stack,
    pub frames: Vec<NamedFrame>,
    /// Managed frames of which it isn't known which native frame executes them.
    pub unplaced: Vec<Rc<ManagedFrame>>,
}

pub(crate) struct NamedFrame {
    pub frame: Frame,
    pub named: Rc<Named>,
    /// True if the frame is the runtime's own code.
    pub is_runtime: bool,
    /// True if that is a function that the runtime exports, for the program to call.
    pub is_exported: bool,
    /// The managed frames that it executes, from the inside out.
    pub managed: Vec<Rc<ManagedFrame>>,
}

impl Taken {
    /// Returns a thread's stack.
    pub(super) fn stack(&self, captured: &Captured) -> Option<&NamedStack> {
        self.stacks.get(captured.stack? as usize)
    }

    /// Returns how many of the threads are green ones.
    pub(super) fn green(&self) -> usize {
        let is_light = |it: &Captured| it.record.flags.contains(ThreadFlags::LIGHT);
        self.threads.values().filter(|it| !is_light(it)).count()
    }
}

/// What is made of waits that may have ended since the other runtime named them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OldWaits {
    /// They are left out.
    LeftOut,
    /// They are kept: a second reading confirms them.
    Kept,
}

/// A process that can be read from outside.
pub(crate) struct Subject {
    pid: u32,
    answer: Vec<u8>,
    layout: Layout,
    memory: ProcessMemory,
    modules: Modules,
    /// With it ends the right to read the memory, if it was given for this time.
    connection: Option<UnixStream>,
    /// One sentence on a process that has not answered.
    silence: Option<String>,
}

impl Subject {
    /// Finds out where the tables of the process are; the inner error is why it can't be read, and
    /// the cure.
    pub(crate) fn open(pid: u32) -> Result<Result<Subject, String>> {
        let location = Location::of(pid)?;
        let answer = location.answer;
        let snapshot = understand(pid, &answer)?;
        let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
        let Some(layout) = answer.get(behind..).and_then(Layout::parse) else {
            return Ok(Err(format!(
                "no stacks: process {pid} runs under another version of raddle (use that one's \
                 dump)"
            )));
        };
        let memory = ProcessMemory::of(pid);
        if let Err(refusal) = memory.probe(layout.used) {
            return Ok(Err(refused(pid, refusal)));
        }
        match Modules::of(pid) {
            Ok(modules) => Ok(Ok(Subject {
                pid,
                answer,
                layout,
                memory,
                modules,
                connection: location.connection,
                silence: location.silence,
            })),
            Err(error) => Ok(Err(format!(
                "no stacks: its mappings can't be read ({error})"
            ))),
        }
    }

    /// As [`Subject::open`], for a watcher: `None` if the process can't be read. The connection is
    /// closed, so that other clients have their turns, unless the right to read depends on it.
    pub(crate) fn of_watched(pid: u32) -> Result<Option<Subject>> {
        let mut subject = match Subject::open(pid)? {
            Ok(subject) => subject,
            Err(_) => return Ok(None),
        };
        let connection = subject.connection.take();
        if !subject.is_readable() {
            subject.connection = connection;
        }
        Ok(Some(subject))
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.memory.probe(self.layout.used).is_ok()
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>, Failure> {
        understand(self.pid, &self.answer)
    }

    /// Calls `act` with what the tables are read by.
    pub(crate) fn with_target<R>(&self, act: impl FnOnce(&Target<'_>) -> R) -> Result<R, Failure> {
        let snapshot = self.snapshot()?;
        let carriers: Vec<_> = snapshot.carriers().collect();
        Ok(act(&Target {
            pid: self.pid,
            memory: &self.memory,
            layout: &self.layout,
            carriers: &carriers,
            modules: &self.modules,
            started_ns: snapshot.header().started_ns,
            stopped: None,
        }))
    }

    /// Reads the stacks of the threads that the filter picks, and what these wait for. `None` if
    /// the tables make no sense.
    pub(super) fn take(
        &self,
        filter: &Filter,
        old_waits: OldWaits,
        may_attach: bool,
    ) -> Result<Option<(Taken, Waits)>> {
        let snapshot = self.snapshot()?;
        let taken = self.with_target(|target| {
            let may_attach = may_attach && self.silence.is_none();
            let (java, java_missing) = match may_attach.then(|| Java::ask(target)).flatten() {
                None => (None, None),
                Some(Ok(java)) => (Some(java), None),
                Some(Err(reason)) => (None, Some(reason)),
            };
            let stacks = capture_with(target, &|record| filter.may_pick(record), java.as_ref())?;
            let mut symbols = Symbols::new(&self.memory, &self.modules);
            let mut edges = locks::edges(target, &stacks, &mut symbols);
            let is_asleep =
                filter.is_open() && locks::wakers(target, &stacks, &edges).leave_asleep(&edges);
            let count = |it: &Captured| (it.record.tid, it.record.switches);
            let switches: HashMap<u32, u64> = stacks.green().map(count).collect();
            let mut said = Vec::new();
            if let Some(java) = &java {
                let is_of_now = |tid: u32| {
                    let active = switches.get(&tid);
                    active.is_some_and(|&active| java.is_of_now(tid, active))
                };
                let is_kept = |edge: &Edge| old_waits == OldWaits::Kept || is_of_now(edge.waiter);
                said.extend(locks::java_edges(java).into_iter().filter(is_kept));
            }
            edges.extend(locks::monitor_edges(&stacks, &said));
            edges.extend(said);
            let waits = Waits {
                switches,
                edges,
                is_asleep,
            };
            let is_java = |frame: &ManagedFrame| frame.language == Language::Java;
            let has_frames = stacks.managed.iter().any(is_java);
            let java_missing = java_missing.map(|reason| {
                let what = if has_frames { "locks" } else { "frames" };
                format!("no Java {what} of process {}: {reason}", self.pid)
            });
            let taken = Taken {
                java_missing,
                silence: self.silence.clone(),
                ..named(
                    &snapshot,
                    stacks,
                    &waits.edges,
                    target,
                    &mut symbols,
                    filter,
                )
            };
            Some((taken, waits))
        })?;
        Ok(taken)
    }
}

/// Says that a layout makes no sense.
pub(super) const NONSENSE: &str =
    "no stacks: what the process says of its tables makes no sense (use its own raddle)";

/// Reads the stacks; the inner error is why they can't be had, and the cure.
pub(super) fn take(pid: u32, filter: &Filter, may_attach: bool) -> Result<Result<Taken, String>> {
    let process = Process::find(pid)?;
    let read = match Subject::open(pid)? {
        Ok(subject) => subject.take(filter, OldWaits::LeftOut, may_attach)?,
        Err(missing) => {
            process.check_program()?;
            return Ok(Err(missing));
        }
    };
    process.check_program()?;
    Ok(match read {
        Some((taken, _)) => Ok(taken),
        None => Err(NONSENSE.into()),
    })
}

/// Says what is missing, and the cure.
fn refused(pid: u32, refusal: Refusal) -> String {
    let cure = match refusal {
        Refusal::Forbidden => more_rights(),
        Refusal::Gone => "look for the process with pidof or ps",
        Refusal::Missing => "run this outside of the container or filter",
        Refusal::Unmapped => "use the raddle that started it",
    };
    format!("no stacks of process {pid}: {refusal} ({cure})")
}

/// Names all frames, and the variables of locks.
pub(super) fn named(
    snapshot: &Snapshot<'_>,
    mut taken: Stacks,
    edges: &[Edge],
    target: &Target<'_>,
    symbols: &mut Symbols<'_>,
    filter: &Filter,
) -> Taken {
    let code = target.layout.code.text_start..target.layout.code.text_end;
    let mut variables = Variables::new(target.memory, target.modules);
    let mut names: HashMap<u64, String> = HashMap::new();
    for address in edges.iter().map(|edge| edge.object.address) {
        if let Entry::Vacant(entry) = names.entry(address)
            && let Some(name) = variables.name(address)
        {
            entry.insert(name);
        }
    }
    let stacks = name_all(taken.stacks, taken.managed, symbols, code);
    for captured in &mut taken.threads {
        let stack = captured.stack.and_then(|it| stacks.get(it as usize));
        lights::name_wait(&mut captured.record, stack);
    }
    taken.threads.retain(|it| filter.picks(&it.record));
    let lights = taken.lights;
    let records = taken.threads.iter().map(|it| it.record);
    Taken {
        snapshot: rebuild(snapshot, records),
        threads: taken
            .threads
            .iter()
            .map(|it| (it.record.tid, *it))
            .collect(),
        stacks,
        // One with an owner says more than the others of its thread.
        edges: edges
            .iter()
            .rev()
            .filter(|edge| edge.owner == Owner::Unknown)
            .chain(edges.iter().filter(|edge| edge.owner != Owner::Unknown))
            .map(|edge| (edge.waiter, edge.clone()))
            .collect(),
        variables: names,
        names_missing: symbols.shortcoming(),
        lights,
        java_missing: None,
        silence: None,
    }
}

/// Names the frames of stacks. `code` is the runtime's.
pub(crate) fn name_all(
    stacks: Vec<Stack>,
    managed: Vec<ManagedFrame>,
    symbols: &mut Symbols<'_>,
    code: Range<u64>,
) -> Vec<NamedStack> {
    symbols.prepare(stacks.iter().flat_map(|stack| stack.frames.iter()));
    let managed: Vec<_> = managed.into_iter().map(Rc::new).collect();
    let mut name = |stack: Stack| {
        let managed = |number| managed::at(&stack, &managed, number);
        let is_own = |frame: &Frame| code.contains(&frame.inside());
        let frames = stack.frames.iter().enumerate();
        let frames = frames.map(|(number, frame)| {
            let named = symbols.name(frame);
            let is_own_code = is_own(frame);
            // The kernel's code for the clock, called by the runtime.
            let caller = stack.frames.get(number + 1);
            let is_called = named.module.as_deref() == Some("[vdso]") && caller.is_some_and(is_own);
            NamedFrame {
                frame: *frame,
                named,
                is_runtime: is_own_code || is_called,
                is_exported: is_own_code && symbols.is_exported(code.start, frame),
                managed: managed(number),
            }
        });
        let mut frames: Vec<NamedFrame> = frames.collect();
        start::name(&mut frames);
        NamedStack {
            frames,
            unplaced: managed(stack.frames.len()),
            stack,
        }
    };
    stacks.into_iter().map(&mut name).collect()
}

/// What is shown in place of a stack that has frames of the runtime alone.
pub(crate) const IN_RUNTIME: &str = "[in the runtime]";

/// Returns the frames that a reader wants: without the runtime's own, except the one by which the
/// program called the runtime, if that is a function that the runtime exports, and the marks of
/// signals. None are left of a stack that is the runtime's alone.
pub(crate) fn shown(stack: &NamedStack) -> Vec<&NamedFrame> {
    let frames = &stack.frames;
    let inner = frames.iter().take_while(|frame| frame.is_runtime).count();
    let is_shown = |&(number, frame): &(usize, &NamedFrame)| match frame.is_runtime {
        true if number < inner => {
            number + 1 == inner && !frame.frame.is_signal && frame.is_exported
        }
        true => frame.frame.is_signal,
        false => true,
    };
    let all = frames.iter().enumerate();
    let shown = all.filter(is_shown).map(|(_, frame)| frame);
    managed::without_covered(shown)
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
    const MOST: usize = 512;
    text::plain(&name.chars().take(MOST).collect::<String>())
}

/// Returns what a thread does beside waiting.
pub(super) fn doing(kind: Kind) -> Option<String> {
    match kind {
        Kind::InKernel(Some(call)) => Some(format!("in system call {call}")),
        Kind::InKernel(None) => Some("in a page fault, or stopped".into()),
        Kind::LentToChild => {
            Some("waits until its child, which has borrowed the memory, executes a program".into())
        }
        Kind::New => Some("has not run yet".into()),
        Kind::Stopped => Some("on its carrier".into()),
        Kind::Preempted => Some("preempted".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_stacks::{End, Function};

    /// A stack of frames with these names, from the inside out: `r` begins those of the runtime,
    /// `R` those that it exports.
    fn stack(names: &[&str]) -> NamedStack {
        let frame = Frame {
            address: 0,
            is_return: true,
            is_signal: false,
            is_guessed: false,
        };
        let named = |name: &&str| NamedFrame {
            frame,
            named: Rc::new(Named {
                functions: vec![Function {
                    name: (*name).to_owned(),
                    file: None,
                    line: None,
                    is_inlined: false,
                }],
                ..Named::default()
            }),
            is_runtime: name.starts_with(['r', 'R']),
            is_exported: name.starts_with('R'),
            managed: Vec::new(),
        };
        NamedStack {
            stack: Stack {
                frames: Box::default(),
                end: End::Lost,
                managed: Box::default(),
                monitor: 0,
            },
            frames: names.iter().map(named).collect(),
            unplaced: Vec::new(),
        }
    }

    #[test]
    fn of_the_runtime_only_the_function_is_shown_that_the_program_has_called() {
        let shown = |names: &[&str]| -> Vec<String> {
            let stack = stack(names);
            let frames = shown(&stack);
            let names = frames.iter().map(|it| it.named.functions[0].name.clone());
            names.collect()
        };
        assert_eq!(shown(&["r_park", "R_wait", "main"]), ["R_wait", "main"]);
        assert_eq!(
            shown(&["r_note", "r_entry", "libc", "main"]),
            ["libc", "main"]
        );
        assert_eq!(shown(&["r_note", "main", "r_start"]), ["main"]);
        assert!(shown(&["r_note", "r_loop"]).is_empty());
    }
}
