//! Other processes that have ended waits: the end of such a wait says which process it was. A
//! process that is known for sure has a track with its wake-ups, from each of which an arrow leads
//! to the thread that it woke.

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::PerfettoWriter;
use super::encode::{Flow, TrackKind, Value, put_annotation};
use super::messages::{self, ProcessDescriptor, ProcessTree, TracePacket, TrackDescriptor};
use super::names::{Known, Name};

/// The id of another process's track is this with the process's id.
pub(super) const OTHER_TRACK: u64 = 1 << 41;
/// The most processes that have a track.
const OTHERS_MAX: usize = 1 << 12;
/// Fields of a track event: the ids of arrows that begin, and of those that end.
const FLOWS: u32 = 47;
const ENDING_FLOWS: u32 = 48;

/// Another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    pub pid: u32,
    pub name: String,
}

impl Display for OtherProcess {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ({})", self.name, self.pid)
    }
}

/// What other processes have ended a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WokenBy {
    /// The process, if no other one can have ended the wait.
    process: Option<OtherProcess>,
    /// What is known in words, else.
    guess: Option<Box<str>>,
    /// The annotations of the wait's end, encoded.
    pub(super) annotations: Rc<[u8]>,
}

impl WokenBy {
    /// A wait that this process has ended.
    pub fn one(process: OtherProcess) -> WokenBy {
        let mut annotations = Vec::new();
        let text = process.to_string();
        put_annotation("woken_by", Value::Text(&text), &mut annotations);
        let pid = Value::Number(process.pid.into());
        put_annotation("waker_pid", pid, &mut annotations);
        WokenBy {
            process: Some(process),
            guess: None,
            annotations: annotations.into(),
        }
    }

    /// A wait of which only a guess in words is known.
    pub fn guess(text: &str) -> WokenBy {
        let mut annotations = Vec::new();
        put_annotation("woken_by", Value::Text(text), &mut annotations);
        WokenBy {
            process: None,
            guess: Some(text.into()),
            annotations: annotations.into(),
        }
    }

    /// Returns what [`WokenBy::one`] was given.
    pub fn process(&self) -> Option<&OtherProcess> {
        self.process.as_ref()
    }

    /// Returns what [`WokenBy::guess`] was given.
    pub fn guessed(&self) -> Option<&str> {
        self.guess.as_deref()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Others {
    shown: FxHashSet<u32>,
    /// The one of the last wake-up.
    last: Option<u32>,
    flows: u64,
    /// The names of the last marks.
    wake_up: Known,
    woken_by: Known,
}

impl<W: Write> PerfettoWriter<W> {
    /// Tells what ended the wait of a thread, which the last event has woken.
    ///
    /// # Errors
    /// Those of the output.
    pub fn woken_by(&mut self, tid: u32, by: &WokenBy, boot_ns: u64) -> io::Result<()> {
        let Some(place) = self.threads.find(tid) else {
            return Ok(());
        };
        let thread = self.threads.at_mut(place);
        if !thread.is_waiting {
            return Ok(());
        }
        thread.woken_by = Some(Rc::clone(&by.annotations));
        let Some(process) = &by.process else {
            return Ok(());
        };
        let Some(other) = self.other_track(process)? else {
            return Ok(());
        };
        self.others.flows += 1;
        let number = self.others.flows;
        let flow = |field| Some(Flow { field, number });
        let track = self.track(place)?;
        let Others {
            mut wake_up,
            mut woken_by,
            ..
        } = self.others;
        let kind = |track| (TrackKind::Instant, track);
        self.on_track(
            kind(other),
            Name::WakeUp,
            &mut wake_up,
            flow(FLOWS),
            boot_ns,
        )?;
        let name = Name::WokenBy(process.pid);
        self.on_track(
            kind(track),
            name,
            &mut woken_by,
            flow(ENDING_FLOWS),
            boot_ns,
        )?;
        (self.others.wake_up, self.others.woken_by) = (wake_up, woken_by);
        Ok(())
    }

    /// Returns the track of another process.
    fn other_track(&mut self, process: &OtherProcess) -> io::Result<Option<u64>> {
        let uuid = OTHER_TRACK | u64::from(process.pid);
        if self.others.last == Some(process.pid) {
            return Ok(Some(uuid));
        }
        if self.others.shown.contains(&process.pid) {
            self.others.last = Some(process.pid);
            return Ok(Some(uuid));
        }
        if self.others.shown.len() == OTHERS_MAX {
            return Ok(None);
        }
        self.others.shown.insert(process.pid);
        let pid = Some(process.pid as i32);
        self.encoder.packet(&TracePacket {
            process_tree: Some(ProcessTree {
                processes: vec![messages::Process {
                    pid,
                    cmdline: vec![process.name.clone()],
                }],
                threads: Vec::new(),
            }),
            ..TracePacket::default()
        })?;
        self.encoder.track(TrackDescriptor {
            uuid: Some(uuid),
            process: Some(ProcessDescriptor { pid }),
            ..TrackDescriptor::default()
        })?;
        Ok(Some(uuid))
    }
}
