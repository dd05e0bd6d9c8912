//! A process that records events for a tool, which reads them from outside.
//!
//! The process is asked again and again: it stops by itself some seconds after the last request. A
//! thread of its own asks, because another tool may have the process's attention for a while.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use anyhow::Result;
use raddle_inspect::{Event, Layout, Request, RequestKind, ThreadRecord, WAKES_SHIFT};
use raddle_record::clock::{Clock, Moment};
use raddle_record::order::Order;
use raddle_record::rings::{From, Lane, Rings};
use raddle_stacks::{Memory, Modules, ProcessMemory, Target, threads};

use crate::dump::connect;
use crate::dump::locate::Location;
use crate::dump::understand;
use crate::failure::{Failure, say};

/// For how many seconds more the process records after a request.
const LASTS_S: u64 = 5;
/// How many events of each carrier the process keeps: a tenth of a second of them, if two threads
/// do nothing but wake each other.
const EVENTS: u64 = 1 << 19;
/// After how long it is asked again.
const RENEW: Duration = Duration::from_secs(1);

/// How often the rings are read at the end, while the process writes to them.
const ROUNDS_MAX: usize = 1 << 10;

/// See the module.
pub(crate) struct Recording {
    pid: u32,
    layout: Layout,
    started_ns: u64,
    memory: ProcessMemory,
    modules: Modules,
    rings: Rings,
    order: Order,
    clock: Clock,
    /// All events up to this time of CLOCK_BOOTTIME were told.
    told_ns: u64,
    /// Asks for more events, if they are asked for and not only read.
    asker: Option<Asker>,
    /// With it ends the right to read the memory, if it was given for this time.
    connection: Option<UnixStream>,
}

/// An event at a time.
pub(crate) struct Timed {
    pub boot_ns: u64,
    pub lane: Lane,
    pub event: Event,
}

impl Recording {
    /// Has the process record from now on.
    pub(crate) fn start(pid: u32) -> Result<Recording> {
        Self::open(pid, &Request::new(RequestKind::RECORD, LASTS_S), From::Now)
    }

    /// As [`Recording::start`]; the process keeps many events, for a tool that needs each of them.
    pub(crate) fn start_dense(pid: u32) -> Result<Recording> {
        let request = Request::new(RequestKind::RECORD, LASTS_S | EVENTS << 32);
        Self::open(pid, &request, From::Now)
    }

    /// Reads what the process has recorded already.
    pub(crate) fn of_the_past(pid: u32) -> Result<Recording> {
        Self::open(pid, &Request::new(RequestKind::LAYOUT, 1), From::Oldest)
    }

    fn open(pid: u32, request: &Request, from: From) -> Result<Recording> {
        let first = Moment::now();
        let (answer, connection) = match request.kind {
            RequestKind::LAYOUT => {
                let location = Location::of(pid)?;
                if let Some(silence) = location.silence {
                    say(&silence);
                }
                (location.answer, location.connection)
            }
            // The connection is not needed any more.
            _ => (connect::ask(pid, request)?, None),
        };
        let snapshot = understand(pid, &answer)?;
        let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
        let layout = answer.get(behind..).and_then(Layout::parse);
        let layout = layout.ok_or_else(|| {
            Failure::input(
                format!("process {pid} runs under another version of raddle"),
                "use that one's trace",
            )
        })?;
        let started_ns = snapshot.header().started_ns;
        let memory = ProcessMemory::of(pid);
        memory.probe(layout.used).map_err(|refusal| {
            Failure::input(
                format!("the memory of process {pid} can't be read: {refusal}"),
                "run this as root",
            )
        })?;
        let modules = Modules::of(pid).map_err(|error| {
            Failure::input(
                format!("the mappings of process {pid} can't be read ({error})"),
                "see whether it has ended",
            )
        })?;
        std::thread::sleep(Duration::from_nanos(Clock::LEAST_NS));
        let mut rings = Rings::new(layout, from);
        if from == From::Now {
            rings.poll(&memory, |_, _| {});
        }
        rings.lost(&memory); // from now on
        Ok(Recording {
            pid,
            layout,
            started_ns,
            memory,
            modules,
            rings,
            order: Order::default(),
            clock: Clock::between(first, Moment::now()),
            told_ns: first.boot_ns,
            asker: (request.kind == RequestKind::RECORD).then(|| Asker::start(pid, layout)),
            connection,
        })
    }

    /// Calls `each` with the events since the last call, in the order of time; after the last call
    /// `all`, else up to the time of the call before. Returns false if the process has ended.
    pub(crate) fn poll(
        &mut self,
        all: bool,
        mut each: impl FnMut(&Timed, &dyn Memory),
    ) -> Result<bool> {
        let end = Moment::now().stamp;
        for _ in 0..ROUNDS_MAX {
            let (goes_on, is_whole) = self.poll_once(all.then_some(end), &mut each);
            if !all || !goes_on || is_whole {
                return Ok(goes_on);
            }
        }
        Ok(true)
    }

    /// Reads so many events of each ring at most. Returns whether the process goes on, and whether
    /// all events up to `end` were told, if that is given.
    fn poll_once(
        &mut self,
        end: Option<u64>,
        each: &mut impl FnMut(&Timed, &dyn Memory),
    ) -> (bool, bool) {
        let now = Moment::now();
        let order = &mut self.order;
        let is_read = self
            .rings
            .poll(&self.memory, |lane, event| order.add(lane, event));
        self.clock.go_on_to(Moment::now());
        let goes_on = is_read && self.asker.as_ref().is_none_or(Asker::is_answered);
        let read_to = self.rings.read_to();
        let is_whole = read_to.is_none_or(|read_to| end.is_some_and(|end| end <= read_to));
        let up_to = match read_to {
            Some(read_to) => read_to.min(now.stamp),
            None if end.is_some() || !goes_on => u64::MAX,
            None => now.stamp,
        };
        let (clock, memory) = (self.clock, &self.memory);
        self.told_ns = clock.boot_ns(up_to.min(now.stamp));
        order.tell(up_to, |lane, event| {
            let timed = Timed {
                boot_ns: clock.boot_ns(event.stamp),
                lane,
                event,
            };
            each(&timed, memory);
        });
        (goes_on, is_whole)
    }

    /// Returns the time up to which all events were told, by CLOCK_BOOTTIME.
    pub(crate) fn told_ns(&self) -> u64 {
        self.told_ns
    }

    /// Has the runtime sample carriers as well, so many times a second.
    pub(crate) fn sample(&self, frequency: u32) {
        if let Some(asker) = &self.asker {
            asker.sample(frequency.min((1 << WAKES_SHIFT) - 1));
        }
    }

    /// Has the runtime sample wake-ups as well, so many times a second.
    pub(crate) fn sample_wakes(&self, frequency: u32) {
        if let Some(asker) = &self.asker {
            asker.sample(frequency.clamp(1, u16::MAX.into()) << WAKES_SHIFT);
        }
    }

    /// Returns the time of a stamp, by CLOCK_BOOTTIME.
    pub(crate) fn boot_ns(&self, stamp: u64) -> u64 {
        self.clock.boot_ns(stamp)
    }

    /// Returns what gives a stamp its time.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns when the process's engine started, by CLOCK_MONOTONIC.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Returns the threads that live now, with their names, and the numbers of their engines or
    /// shares.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, String, u32)> {
        self.threads().into_iter().map(|thread| {
            let name = String::from_utf8_lossy(thread.name_bytes());
            (thread.tid, name.into_owned(), thread.group)
        })
    }

    /// Has the next call of [`Recording::poll`] begin with the oldest events that are kept.
    pub(crate) fn begin_again(&mut self) {
        self.rings = Rings::new(self.layout, From::Oldest);
        self.order = Order::default();
    }

    /// Returns all threads that live now.
    pub(crate) fn threads(&self) -> Vec<ThreadRecord> {
        let target = Target {
            pid: self.pid,
            memory: &self.memory,
            layout: &self.layout,
            carriers: &[],
            modules: &self.modules,
            started_ns: self.started_ns,
            stopped: None,
        };
        threads(&target).unwrap_or_default()
    }

    /// Returns true if a ring may be full again soon.
    pub(crate) fn is_behind(&self) -> bool {
        self.rings.is_behind()
    }

    /// Returns how many events were lost.
    pub(crate) fn lost(&mut self) -> u64 {
        self.rings.lost(&self.memory)
    }

    /// Gives the right to read back.
    pub(crate) fn close(&mut self) {
        self.connection = None;
    }
}

/// Asks a process for more events until it is dropped.
struct Asker {
    ends: Arc<AtomicBool>,
    /// False once the process has not answered, or is another program now.
    is_answered: Arc<AtomicBool>,
    /// How often in a second the runtime is to sample carriers, and wake-ups ([`WAKES_SHIFT`]); 0
    /// for not.
    samples: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Asker {
    fn start(pid: u32, layout: Layout) -> Asker {
        let ends = Arc::new(AtomicBool::new(false));
        let is_answered = Arc::new(AtomicBool::new(true));
        let samples = Arc::new(AtomicU32::new(0));
        let shared = (Arc::clone(&ends), Arc::clone(&is_answered));
        let wanted = Arc::clone(&samples);
        let thread = spawn(move || {
            let (ends, is_answered) = shared;
            while !ends.load(Ordering::Relaxed) {
                std::thread::park_timeout(RENEW);
                let samples = wanted.load(Ordering::Relaxed);
                if !ends.load(Ordering::Relaxed) && !ask(pid, &layout, samples) {
                    is_answered.store(false, Ordering::Relaxed);
                    return;
                }
            }
        });
        Asker {
            ends,
            is_answered,
            samples,
            thread: Some(thread),
        }
    }

    fn sample(&self, frequency: u32) {
        self.samples.fetch_or(frequency, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It may wait for an answer for some seconds, and is left to itself.
            thread.thread().unpark();
        }
    }
}

/// Returns false if the process is gone, or executes another program. One that is stopped, or talks
/// with another tool, is still there.
fn ask(pid: u32, layout: &Layout, samples: u32) -> bool {
    let request = Request {
        reserved: samples,
        ..Request::new(RequestKind::RECORD, LASTS_S)
    };
    let Ok((answer, _)) = connect::open(pid, &request) else {
        return std::fs::exists(format!("/proc/{pid}/exe")).unwrap_or(false)
            && ProcessMemory::of(pid).probe(layout.used).is_ok();
    };
    let Ok(snapshot) = understand(pid, &answer) else {
        return false;
    };
    let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
    answer.get(behind..).and_then(Layout::parse) == Some(*layout)
}

/// The command line of a process.
pub(crate) fn command(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
