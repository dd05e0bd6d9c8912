//! A process that records events for a tool, which reads them from outside.
//!
//! The process is asked again and again: it stops by itself some seconds after the last request.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::{Event, Layout, Request, RequestKind, ThreadRecord};
use raddle_record::clock::{Clock, Moment};
use raddle_record::order::Order;
use raddle_record::rings::{From, Lane, Rings};
use raddle_stacks::{Memory, Modules, ProcessMemory, Target, threads};

use crate::dump::{connect, understand};
use crate::failure::Failure;

/// For how many seconds more the process records after a request.
const LASTS_S: u64 = 5;
/// How many events of each carrier the process keeps: a tenth of a second of them, if two threads
/// do nothing but wake each other.
const EVENTS: u64 = 1 << 19;
/// After how long it is asked again.
const RENEW: Duration = Duration::from_secs(1);

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
    asked: Instant,
    /// Events are asked for, and not only read.
    asks: bool,
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
        Self::open(
            pid,
            &Request::new(RequestKind::RECORD, LASTS_S | EVENTS << 32),
            From::Now,
        )
    }

    /// Reads what the process has recorded already.
    pub(crate) fn of_the_past(pid: u32) -> Result<Recording> {
        Self::open(pid, &Request::new(RequestKind::LAYOUT, 1), From::Oldest)
    }

    fn open(pid: u32, request: &Request, from: From) -> Result<Recording> {
        let first = Moment::now();
        let (answer, connection) = connect::open(pid, request)?;
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
            asked: Instant::now(),
            asks: request.kind == RequestKind::RECORD,
            connection: (request.kind == RequestKind::LAYOUT).then_some(connection),
        })
    }

    /// Calls `each` with the events since the last call, in the order of time; after the last call
    /// `all`, else up to the time of the call before. Returns false if the process has ended.
    pub(crate) fn poll(
        &mut self,
        all: bool,
        mut each: impl FnMut(&Timed, &dyn Memory),
    ) -> Result<bool> {
        let mut lives = true;
        if self.asks && self.asked.elapsed() >= RENEW {
            self.asked = Instant::now();
            let request = Request::new(RequestKind::RECORD, LASTS_S | EVENTS << 32);
            lives = connect::open(self.pid, &request).is_ok();
        }
        let now = Moment::now();
        let order = &mut self.order;
        let is_read = self
            .rings
            .poll(&self.memory, |lane, event| order.add(lane, event));
        self.clock.go_on_to(Moment::now());
        let goes_on = is_read && lives;
        let up_to = if all || !goes_on { u64::MAX } else { now.stamp };
        let (clock, memory) = (self.clock, &self.memory);
        order.tell(up_to, |lane, event| {
            let timed = Timed {
                boot_ns: clock.boot_ns(event.stamp),
                lane,
                event,
            };
            each(&timed, memory);
        });
        Ok(goes_on)
    }

    /// Returns the threads that live now, with their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, String)> {
        self.threads().into_iter().map(|thread| {
            let name = String::from_utf8_lossy(thread.name_bytes());
            (thread.tid, name.into_owned())
        })
    }

    /// Has the next call of [`Recording::poll`] begin with the oldest events that are kept.
    pub(crate) fn begin_again(&mut self) {
        self.rings = Rings::new(self.layout, From::Oldest);
        self.order = Order::default();
    }

    /// Returns all threads that live now.
    fn threads(&self) -> Vec<ThreadRecord> {
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
