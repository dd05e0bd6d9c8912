//! The Java frames and locks of a process with HotSpot, which the virtual machine says itself.
//!
//! Its attach service is asked for a thread dump (`jstack -l`), which it makes at a safepoint: Java
//! threads that run stop for it, and those that wait don't notice. A thread's Java stack is joined
//! to its native one by the id (`nid`), and is of the same moment if the thread hasn't run between
//! ([`Java::is_of_now`]).
//!
//! The Java frames stand where the native stack has frames in code without a file: interpreted and
//! compiled methods. If Java has called native code that has called Java, then there are several
//! such runs: a native method begins one, and the initializer of a class ends one. If the numbers
//! of runs differ, because the virtual machine has called Java otherwise, all frames stand at the
//! innermost run.

mod attach;
mod hotspot;
mod print;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use attach::Service;
pub(crate) use hotspot::{HotSpot, WantedMonitor, WatchedLock, WatchedMachine};
pub use hotspot::{Monitor, MonitorObjects};

use crate::capture::Target;
use crate::locks::has_handler;
use crate::managed::{ManagedFrame, ManagedFrames, Run};
use crate::modules::Modules;
use crate::table::Table;
use crate::unwind::Frame;

/// How long the virtual machine may take to begin its answer, and between its parts.
const PATIENCE: Duration = Duration::from_secs(2);

/// A note at a stack that may be of another moment than the native one.
const MAY_HAVE_RUN: &str = "the thread may have run since";

/// The Java threads of a process, and their locks.
pub struct Java {
    threads: HashMap<u32, JavaThread>,
    /// How often each thread had been switched to before the virtual machine was asked; absent for
    /// those that were on carriers.
    before: HashMap<u32, u64>,
}

/// A Java thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JavaThread {
    pub tid: u32,
    pub name: String,
    /// As `java.lang.Thread.State` and the virtual machine's remark.
    pub state: Option<String>,
    /// From the inside out.
    pub frames: Vec<ManagedFrame>,
    /// The lock that it waits for.
    pub waits_for: Option<JavaLock>,
    pub owns: Vec<JavaLock>,
}

/// A monitor, or an owned synchronizer of `java.util.concurrent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JavaLock {
    /// The object's address at the safepoint.
    pub address: u64,
    pub class: String,
    pub is_monitor: bool,
}

impl Java {
    /// Asks the virtual machine. `None` if there is none; else its answer, or why there is none.
    pub fn ask(target: &Target<'_>) -> Option<Result<Java, String>> {
        let is_jvm = |module: &crate::Module| module.name() == "libjvm.so";
        if !target.modules.modules.iter().any(is_jvm) {
            return None;
        }
        let mut table = Table::new(target)?;
        let mut before = HashMap::new();
        let mut service = Service {
            handles_quit: has_handler(target, libc::SIGQUIT as u32),
            ..Service::default()
        };
        table.for_each(|slot| {
            // The kernel keeps 15 bytes of a name.
            let name = slot.record.name_bytes();
            service.has_dispatcher |= name.starts_with(b"Signal Dispatch");
            service.has_listener |= name.starts_with(b"Attach Listener");
            if !slot.is_on_cpu {
                before.insert(slot.record.tid, slot.record.switches);
            }
        });
        let is_off = || {
            let flag = hotspot::flag(target.memory, target.modules, "DisableAttachMechanism");
            flag == Some(true)
        };
        let answer = attach::thread_dump(target.pid, service, &is_off, PATIENCE);
        Some(answer.map(|text| Java {
            threads: print::threads(&text),
            before,
        }))
    }

    /// As if the virtual machine had answered with this text.
    #[cfg(test)]
    pub(crate) fn of_print(text: &str) -> Java {
        Java {
            threads: print::threads(text),
            before: HashMap::new(),
        }
    }

    /// Returns all Java threads, by their ids: locks that are waited for and owned are in them.
    pub fn threads(&self) -> &HashMap<u32, JavaThread> {
        &self.threads
    }

    /// Returns true if a thread that was switched to so often hasn't run since the virtual machine
    /// was asked.
    pub fn is_of_now(&self, tid: u32, switches: u64) -> bool {
        self.before.get(&tid) == Some(&switches)
    }

    /// Returns what the virtual machine says of these methods of a thread, with lines and locks;
    /// `None` if it has another stack, or says nothing of the thread.
    pub(crate) fn with_locks(
        &self,
        tid: u32,
        active: u64,
        methods: &[(u32, Rc<ManagedFrame>)],
    ) -> Option<Vec<ManagedFrame>> {
        let thread = self.threads.get(&tid)?;
        let is_same = |(said, (_, found)): (&ManagedFrame, &(u32, Rc<ManagedFrame>))| {
            // The loader's name may come first.
            let before = said.name.strip_suffix(&found.name);
            before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        let mut pairs = thread.frames.iter().zip(methods);
        if thread.frames.len() != methods.len() || !pairs.all(is_same) {
            return None;
        }
        let mut frames = thread.frames.clone();
        if let Some(first) = frames.first_mut().filter(|_| !self.is_of_now(tid, active)) {
            first.notes.push(MAY_HAVE_RUN.into());
        }
        Some(frames)
    }

    /// Returns the Java frames of a thread with these native ones, and the positions of native
    /// frames where runs of them begin.
    pub(crate) fn runs(
        &self,
        tid: u32,
        switches: u64,
        frames: &[Frame],
        modules: &Modules,
        all: &mut ManagedFrames,
    ) -> (Vec<Run>, Vec<usize>) {
        let Some(thread) = self.threads.get(&tid) else {
            return Default::default();
        };
        let places = places(frames, modules);
        let is_of_now = self.is_of_now(tid, switches);
        let mut runs: Vec<Run> = Vec::new();
        for (number, frame) in thread.frames.iter().enumerate() {
            let mut frame = frame.clone();
            if number == 0 && !is_of_now {
                frame.notes.push(MAY_HAVE_RUN.into());
            }
            let before = number.checked_sub(1).and_then(|it| thread.frames.get(it));
            if before.is_none_or(is_called_natively) || is_native(&frame) {
                let frames = Vec::new();
                runs.push(Run { at: None, frames });
            }
            if let (Some(run), Some(number)) = (runs.last_mut(), all.number(frame)) {
                run.frames.push(number);
            }
        }
        if runs.len() == places.len() {
            return (runs, places);
        }
        let frames = runs.into_iter().flat_map(|run| run.frames).collect();
        let places = places.into_iter().take(1).collect();
        (vec![Run { at: None, frames }], places)
    }
}

fn is_native(frame: &ManagedFrame) -> bool {
    frame.file.as_deref() == Some(print::NATIVE)
}

/// The virtual machine itself calls the initializer of a class.
fn is_called_natively(frame: &ManagedFrame) -> bool {
    frame.name.ends_with(".<clinit>")
}

/// Returns where runs of frames in code without a file begin.
fn places(frames: &[Frame], modules: &Modules) -> Vec<usize> {
    let is_inside = |frame: &Frame| modules.find(frame.inside()) == Some(None);
    let begins = |&number: &usize| {
        let before = number.checked_sub(1).and_then(|before| frames.get(before));
        is_inside(&frames[number]) && !before.is_some_and(is_inside)
    };
    (0..frames.len()).filter(begins).collect()
}
