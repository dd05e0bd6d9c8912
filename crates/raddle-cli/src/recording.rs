//! A process that records events for a tool, which reads them from outside.
//!
//! The process is asked again and again: it stops by itself some seconds after the last request. A
//! thread of its own asks, because another tool may have the process's attention for a while.

mod sequence;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::{
    Event, EventKind, Layout, Request, RequestKind, ThreadFlags, ThreadRecord, ThreadState,
    WAKES_SHIFT,
};
use raddle_record::clock::{Clock, Moment};
use raddle_record::rings::{From, Lane, Rings, Words};
use raddle_stacks::{BoundThread, Memory, Modules, ProcessMemory, Target, threads_and_bound};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::dump::connect;
use crate::dump::locate::Location;
use crate::dump::readable::Readable;
use crate::dump::understand;
use crate::failure::say;
pub(crate) use sequence::{Reading, Sequence, Timed};

/// For how many seconds more the process records after a request.
const LASTS_S: u64 = 5;
/// How many events of each carrier the process keeps: a tenth of a second of them, if two threads
/// do nothing but wake each other.
const EVENTS: u64 = 1 << 19;
/// After how long it is asked again.
const RENEW: Duration = Duration::from_secs(1);

/// Which part of a ring is to be filled between two readings, and from which on it is read at once.
const FILLS: f64 = 0.25;
const FULL: f64 = 0.5;
/// A pause is at most so many times the one before.
const LONGER: f64 = 1e3;

/// After how long it is looked whether a ring fills up: two threads that do nothing but wake each
/// other on one carrier fill it in 25 ms.
const GLANCE: Duration = Duration::from_millis(10);
/// A time is quiet if no more than this part of a ring was filled: some hundred events.
const QUIET: f64 = 1.0 / 4096.0;

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
    /// Bound threads.
    bound: Vec<BoundThread>,
    sequence: Sequence,
    /// When the rings were read last, and how long after the time before.
    polled: Instant,
    filled: Duration,
    /// Asks for more events, if they are asked for and not only read.
    asker: Option<Asker>,
    /// With it ends the right to read the memory, if it was given for this time.
    connection: Option<UnixStream>,
}

/// Takes the events of rings as they are read.
pub(crate) trait Copies {
    /// Takes an event. Those of one ring come in order, and one ring after the other.
    fn event(&mut self, lane: Lane, words: Words);

    /// All rings were read.
    fn read(&mut self, reading: &Reading, memory: &dyn Memory);
}

/// What one reading of the rings has found.
struct Read {
    reading: Reading,
    /// The process goes on.
    goes_on: bool,
    /// All events up to the wanted stamp were read.
    is_whole: bool,
    /// A thread has become bound.
    has_bound: bool,
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
        let Readable {
            header,
            layout,
            memory,
            modules,
        } = Readable::of(pid, &answer)?;
        std::thread::sleep(Duration::from_nanos(Clock::LEAST_NS));
        let mut recording = Recording {
            pid,
            layout,
            started_ns: header.started_ns,
            memory,
            modules,
            rings: Rings::new(layout, from),
            bound: Vec::new(),
            sequence: Sequence::new(Clock::between(first, Moment::now()), first.boot_ns),
            polled: Instant::now(),
            filled: Duration::ZERO,
            asker: (request.kind == RequestKind::RECORD).then(|| Asker::start(pid, layout)),
            connection,
        };
        recording.threads(); // which of them are bound
        if from == From::Now {
            recording.rings.poll(&recording.memory, |_, _| {});
        }
        recording.lost(); // from now on
        Ok(recording)
    }

    /// Calls `each` with the events since the last call, in the order of time; after the last call
    /// `all`, else up to the time of the call before. If a thread has become bound, [`Self::bound`]
    /// has it afterwards. Returns false if the process has ended.
    pub(crate) fn poll(
        &mut self,
        all: bool,
        mut each: impl FnMut(&Timed, &dyn Memory),
    ) -> Result<bool> {
        let end = Moment::now().stamp;
        for _ in 0..ROUNDS_MAX {
            let mut order = self.sequence.take_order();
            let read = self.read(all.then_some(end), |lane, words| order.add(lane, words));
            self.sequence.put_order(order);
            let memory = &self.memory;
            self.sequence
                .tell(&read.reading, |timed| each(timed, memory));
            if read.has_bound {
                self.threads();
            }
            if !all || !read.goes_on || read.is_whole {
                return Ok(read.goes_on);
            }
        }
        Ok(true)
    }

    /// Reads events as [`Recording::poll`], but tells none of them: a [`Sequence`] can do that
    /// later. Returns false if the process has ended.
    pub(crate) fn copy(&mut self, all: bool, to: &mut impl Copies) -> bool {
        let end = Moment::now().stamp;
        for _ in 0..ROUNDS_MAX {
            let read = self.read(all.then_some(end), |lane, words| to.event(lane, words));
            if read.has_bound {
                self.threads();
            }
            to.read(&read.reading, &self.memory);
            if !all || !read.goes_on || read.is_whole {
                return read.goes_on;
            }
        }
        true
    }

    /// Reads so many events of each ring at most, all up to `end` if that is given.
    fn read(&mut self, end: Option<u64>, mut each: impl FnMut(Lane, Words)) -> Read {
        let begun = Moment::now();
        let polled = Instant::now();
        self.filled = polled.duration_since(self.polled);
        self.polled = polled;
        let mut has_bound = false;
        let is_read = self.rings.poll(&self.memory, |lane, words| {
            has_bound |= Event::from_words(words).is_some_and(|it| it.kind == EventKind::BIND);
            each(lane, words);
        });
        let done = Moment::now();
        let goes_on = is_read && self.asker.as_ref().is_none_or(Asker::is_answered);
        let read_to = self.rings.read_to();
        Read {
            reading: Reading {
                begun,
                done,
                read_to,
                is_last: end.is_some() || !goes_on,
            },
            goes_on,
            is_whole: read_to.is_none_or(|read_to| end.is_some_and(|end| end <= read_to)),
            has_bound,
        }
    }

    /// Returns the time up to which all events were told, by CLOCK_BOOTTIME.
    pub(crate) fn told_ns(&self) -> u64 {
        self.sequence.told_ns()
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
        self.sequence.clock().boot_ns(stamp)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the time from which on all events were read, by a clock.
    pub(crate) fn whole_from_ns(&self, clock: Clock) -> u64 {
        match self.rings.whole_from() {
            0 => 0,
            stamp => clock.boot_ns(stamp),
        }
    }

    /// Returns what gives the stamps of events that were kept their times: a longer time goes by
    /// between its moments than at the begin of this recording.
    pub(crate) fn clock_of_the_past(&self) -> Clock {
        let now = Moment::now();
        let moment = |at: u64| {
            let word = |at| self.memory.word(self.layout.event_moments.wrapping_add(at));
            let words = [word(at * 8)?, word(at * 8 + 8)?, 0, 0];
            Clock::of_the_past(words, now)
        };
        // The later one is a second old, or as old as the last event.
        moment(2).or_else(|| moment(0)).unwrap_or(self.clock())
    }

    /// Returns what gives a stamp its time.
    pub(crate) fn clock(&self) -> Clock {
        self.sequence.clock()
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
    pub(crate) fn names(&mut self) -> impl Iterator<Item = (u32, String, u32)> {
        self.threads().into_iter().map(|thread| {
            let name = String::from_utf8_lossy(thread.name_bytes());
            (thread.tid, name.into_owned(), thread.group)
        })
    }

    /// Returns the carriers that run a thread now, with the threads.
    pub(crate) fn running(&mut self) -> Vec<(Lane, u32)> {
        let threads = self.threads().into_iter();
        let runs = |it: &ThreadRecord| {
            it.state == ThreadState::RUNNING && !it.flags.contains(ThreadFlags::BOUND)
        };
        let threads = threads.filter(runs);
        let threads = threads.map(|it| (Lane::Carrier(it.carrier), it.tid));
        let bound = self.bound.iter().filter(|it| it.is_running);
        let bound = bound.map(|it| (Lane::Bound(it.id), it.tid));
        threads.chain(bound).collect()
    }

    /// Has the next call of [`Recording::copy`] begin with the oldest events that are kept.
    pub(crate) fn begin_again(&mut self) {
        self.rings = Rings::new(self.layout, From::Oldest);
        self.threads(); // which of them are bound
    }

    /// Returns all threads that live now. Events of those that are bound are read from now on.
    pub(crate) fn threads(&mut self) -> Vec<ThreadRecord> {
        let target = Target {
            pid: self.pid,
            memory: &self.memory,
            layout: &self.layout,
            carriers: &[],
            modules: &self.modules,
            started_ns: self.started_ns,
            stopped: None,
        };
        let (threads, bound) = threads_and_bound(&target).unwrap_or_default();
        self.rings.follow_bound(bound.iter().map(|it| it.carrier));
        self.bound = bound;
        threads
    }

    /// Returns the bound threads of the last look at the threads.
    pub(crate) fn bound(&self) -> &[BoundThread] {
        &self.bound
    }

    /// Returns for how long the rings may be left alone: until one is so full that it must be read,
    /// if it fills as fast as before the last call of [`Recording::poll`].
    pub(crate) fn patience(&self) -> Duration {
        match self.rings.fullness() {
            _ if self.rings.read_to().is_some() => Duration::ZERO,
            fullness if fullness >= FULL => Duration::ZERO,
            fullness => self.filled.mul_f64(FILLS / fullness.max(FILLS / LONGER)),
        }
    }

    /// Waits for so long. In a quiet time, after which events may come all at once, waits no longer
    /// than until a ring fills up: the rings' states alone are looked at meanwhile.
    pub(crate) fn rest(&self, pause: Duration) {
        if self.rings.fullness() > QUIET {
            return std::thread::sleep(pause);
        }
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(GLANCE));
            if left <= GLANCE || self.rings.are_filled(&self.memory, FILLS) {
                return;
            }
        }
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

/// Returns what becomes true with the first signal that asks for the end. The second one ends this
/// command at once.
pub(crate) fn ends_by_signal() -> io::Result<Arc<AtomicBool>> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&ends))?;
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
    }
    Ok(ends)
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
