//! The process: where its tables are, and what it is doing.
//!
//! The tables are read from outside. The process is asked for one thing: to count the CPU time of
//! its threads for some seconds more ([`COUNTED_S`]). A thread of this tool asks every few seconds,
//! so that a process that doesn't answer doesn't hold up the screen. If the tool is killed, the
//! process stops counting by itself.
//!
//! The process serves one client at a time, so the connection is closed at once. Where the right to
//! read depends on it (Yama), there is a connection for each look instead.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::{Header, Layout, Request, RequestKind};
use raddle_stacks::{Modules, ProcessMemory, Target, kernel_numbers};
use rustix::time::{ClockId, clock_gettime};

use crate::dump::connect;
use crate::dump::process::Process;
use crate::dump::readable::Readable;

/// For how many seconds more the process counts CPU time after a request.
const COUNTED_S: u32 = 10;
/// After how long it is asked again.
const RENEW: Duration = Duration::from_secs(4);
/// Clocks that differ by less are the same one, read at different moments.
const SAME_CLOCK_NS: u64 = 100_000_000;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Runs,
    /// By a signal or a debugger.
    Stopped,
    Ended,
    /// It has executed another program.
    Executed,
}

impl Condition {
    /// Returns the word for it, as the JSON document has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Condition::Runs => "running",
            Condition::Stopped => "stopped",
            Condition::Ended => "ended",
            Condition::Executed => "executed",
        }
    }

    /// Returns true if the process can be read.
    pub(super) fn is_there(self) -> bool {
        matches!(self, Condition::Runs | Condition::Stopped)
    }
}

/// See the module.
pub(super) struct Source {
    pub pid: u32,
    pub command: String,
    /// CPUs that the process may use; 0 if that isn't known.
    pub cpus: u32,
    process: Process,
    /// When the kernel started the process: another one with its number has another time.
    begun: u64,
    layout: Layout,
    memory: ProcessMemory,
    modules: Modules,
    /// What the process said last.
    header: Header,
    /// How far its clock is ahead of this process's: they may be in different time namespaces.
    ahead_ns: i64,
    /// Each look needs a connection.
    needs_right: bool,
    connection: Option<UnixStream>,
    renewed: Instant,
    renewal: Option<Receiver<Option<Header>>>,
    /// The numbers here of its kernel threads, if it has another PID namespace.
    tids: RefCell<HashMap<u32, u32>>,
}

impl Source {
    /// Has the process count CPU time, and finds its tables.
    pub(super) fn open(pid: u32) -> Result<Source> {
        let process = Process::find(pid)?;
        let (answer, connection) = connect::open(pid, &request())?;
        let asked_ns = now_ns();
        let Readable {
            header,
            layout,
            memory,
            modules,
        } = Readable::of(pid, &answer)?;
        process.check_program()?;
        let mut source = Source {
            pid,
            command: command(pid),
            cpus: cpus(pid),
            begun: Stat::of(pid).map_or(0, |stat| stat.begun),
            process,
            layout,
            memory,
            modules,
            header,
            ahead_ns: ahead_ns(header.now_ns, asked_ns),
            needs_right: false,
            connection: None,
            renewed: Instant::now(),
            renewal: None,
            tids: RefCell::default(),
        };
        drop(connection);
        source.needs_right = source.is_refused();
        Ok(source)
    }

    /// The server takes the right back when it sees that the connection is closed.
    fn is_refused(&self) -> bool {
        const PAUSE: Duration = Duration::from_millis(5);
        (0..4).any(|_| {
            let is_refused = self.memory.probe(self.layout.used).is_err();
            thread::sleep(if is_refused { Duration::ZERO } else { PAUSE });
            is_refused
        })
    }

    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// Returns the process's time.
    pub(super) fn now_ns(&self) -> u64 {
        now_ns().saturating_add_signed(self.ahead_ns)
    }

    /// Returns what the tables are read by.
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            pid: self.pid,
            memory: &self.memory,
            layout: &self.layout,
            carriers: &[],
            modules: &self.modules,
            started_ns: self.header.started_ns,
            stopped: None,
        }
    }

    /// Says what the process is doing, and has it count on. Before each look.
    pub(super) fn begin_look(&mut self) -> Condition {
        let condition = self.condition();
        if condition == Condition::Runs {
            self.renew();
        }
        condition
    }

    /// Gives the right to read back.
    pub(super) fn end_look(&mut self) {
        self.connection = None;
    }

    pub(super) fn condition(&self) -> Condition {
        match Stat::of(self.pid) {
            None => Condition::Ended,
            Some(stat) if stat.begun != self.begun || matches!(stat.state, 'Z' | 'X') => {
                Condition::Ended
            }
            Some(_) if self.process.check_program().is_err() => Condition::Executed,
            Some(stat) if matches!(stat.state, 'T' | 't') => Condition::Stopped,
            Some(_) => Condition::Runs,
        }
    }

    /// Returns the number here of a kernel thread, by its number in the process's own namespace.
    pub(super) fn here(&self, own_tid: u32) -> u32 {
        if self.process.own_pid == self.pid {
            return own_tid;
        }
        let mut tids = self.tids.borrow_mut();
        if !tids.contains_key(&own_tid) {
            *tids = kernel_numbers(self.pid);
        }
        tids.get(&own_tid).copied().unwrap_or(0)
    }

    fn renew(&mut self) {
        if self.needs_right {
            if let Ok((answer, connection)) = connect::open(self.pid, &request()) {
                self.connection = Some(connection);
                self.is_told(Header::parse(&answer).ok());
            }
            return;
        }
        if let Some(header) = self.renewal.as_ref().and_then(|it| it.try_recv().ok()) {
            self.renewal = None;
            self.is_told(header);
        }
        if self.renewed.elapsed() < RENEW || self.renewal.is_some() {
            return;
        }
        self.renewed = Instant::now();
        let (sender, receiver) = channel();
        let pid = self.pid;
        let asks = thread::Builder::new().spawn(move || {
            let answer = connect::open(pid, &request());
            let header = answer
                .ok()
                .and_then(|(bytes, _)| Header::parse(&bytes).ok());
            let _ = sender.send(header);
        });
        self.renewal = asks.is_ok().then_some(receiver);
    }

    fn is_told(&mut self, header: Option<Header>) {
        if let Some(header) = header {
            self.header = header;
        }
    }
}

fn request() -> Request {
    Request {
        reserved: COUNTED_S,
        ..Request::new(RequestKind::LAYOUT, 1)
    }
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn ahead_ns(its_ns: u64, own_ns: u64) -> i64 {
    let ahead_ns = its_ns.wrapping_sub(own_ns) as i64;
    if ahead_ns.unsigned_abs() < SAME_CLOCK_NS {
        0
    } else {
        ahead_ns
    }
}

/// A process's `/proc/PID/stat`.
pub(super) struct Stat {
    state: char,
    begun: u64,
    /// CPU time of all its kernel threads.
    pub cpu_ns: u64,
}

impl Stat {
    pub(super) fn of(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in parentheses, may contain anything.
    fn parse(stat: &str) -> Option<Stat> {
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let ticks = number(11)?.saturating_add(number(12)?);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Stat {
            state: fields.first()?.chars().next()?,
            begun: number(19)?,
            cpu_ns: ticks.saturating_mul(tick_ns),
        })
    }
}

/// Returns the first words of a process's command line.
fn command(pid: u32) -> String {
    const MOST: usize = 200;
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words = text.trim_end_matches('\0').replace('\0', " ");
    words.chars().take(MOST).collect()
}

fn cpus(pid: u32) -> u32 {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    let set = rustix::thread::sched_getaffinity(pid);
    set.map_or(0, |set| set.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_parsed() {
        let fields: Vec<String> = (3..40).map(|number| number.to_string()).collect();
        let line = format!("42 (a) b (c)) S {}", fields.join(" "));
        let stat = Stat::parse(&line).unwrap();
        assert_eq!((stat.state, stat.begun), ('S', 21));
        assert!(Stat::parse("42 (x").is_none() && Stat::parse("1 (x) S 1").is_none());
    }

    #[test]
    fn this_process_is_there() {
        let own = Stat::of(std::process::id()).unwrap();
        assert!(own.begun > 0 && matches!(own.state, 'R' | 'S'));
        assert!(command(std::process::id()).contains("raddle"));
        assert_eq!(ahead_ns(5_000_000, 3_000_000), 0);
        assert_eq!(ahead_ns(1, 1_000_000_001), -1_000_000_000);
    }
}
