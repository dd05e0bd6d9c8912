//! Our own client: connections with one request each at a time, over epoll, from native threads.
//!
//! At full speed every connection sends its next request as soon as it has an answer.
//!
//! At a constant rate each thread has a schedule: request n is due at `start + n * gap`. A due
//! request takes an idle connection; while none is idle it waits, and those after it. Its latency
//! counts from the time at which it was due, so a server that stalls is charged with every request
//! that was due meanwhile. (A client that waits for an answer before it goes on hides these:
//! "coordinated omission".)
//!
//! After the last due time there is [`GRACE`] for outstanding answers. Requests without an answer
//! then have the latency that they have reached: a lower bound, which is no gain for a server.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::protocol::{ANSWER_MOST_BYTES, Protocol};
use crate::bench::process::readable_within;
use crate::machine::cpus_allowed;

/// Time for answers after the end, at a constant rate.
const GRACE: Duration = Duration::from_secs(1);
/// Sleeps end this precisely; the kernel's usual 50 us would be added to latencies.
const TIMER_SLACK_NS: u64 = 1000;
const READ_BYTES: usize = 16 << 10;
const EVENTS: usize = 64;

pub(super) struct Load {
    pub port: u16,
    pub protocol: Protocol,
    pub connections: u32,
    pub time: Duration,
    /// Requests a second; `None` for full speed.
    pub rate: Option<f64>,
}

/// A client's figures of one window.
#[derive(Debug, PartialEq)]
pub(super) struct Window {
    pub requests: u64,
    /// Answers a second.
    pub rate: f64,
    /// `None` where no request was answered, as in a large server's first second.
    pub latency: Option<Latency>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
}

/// One thread's figures.
#[derive(Default)]
struct Tally {
    /// Answers before the time was over.
    in_time: u64,
    /// All answers.
    answers: u64,
    latencies_ns: Vec<u64>,
}

/// Threads of a client with so many connections.
pub(super) fn threads(connections: u32) -> u32 {
    let half = u32::try_from(cpus_allowed() / 2).unwrap_or(1);
    half.clamp(2, 16).min(connections)
}

/// Loads the server for the time.
pub(super) fn run(load: &Load) -> Result<Window, String> {
    let threads = threads(load.connections);
    let mut groups: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, group) in (0..load.connections).zip((0..threads).cycle()) {
        let connection = Connection::open(load.port);
        let why = |error| format!("connection {}: {error}", number + 1);
        groups[group as usize].push(connection.map_err(why)?);
    }
    let start = Instant::now();
    let tallies = std::thread::scope(|scope| {
        let drives = groups.into_iter().zip(0u32..).map(|(connections, index)| {
            let schedule = load.rate.map(|rate| Schedule::new(rate, index, threads));
            scope.spawn(move || Drive::new(load, connections, start, schedule)?.run())
        });
        let drives: Vec<_> = drives.collect();
        drives
            .into_iter()
            .map(|drive| drive.join().map_err(|_| "a client's thread panicked")?)
            .collect::<Result<Vec<Tally>, String>>()
    })?;
    let mut sum = Tally::default();
    for tally in tallies {
        sum.in_time += tally.in_time;
        sum.answers += tally.answers;
        sum.latencies_ns.extend(tally.latencies_ns);
    }
    Ok(sum.window(load.time))
}

impl Tally {
    fn window(mut self, time: Duration) -> Window {
        let mut quantile_us = |part: f64| {
            let last = self.latencies_ns.len().checked_sub(1)?;
            let index = (last as f64 * part) as usize;
            Some(*self.latencies_ns.select_nth_unstable(index).1 as f64 / 1e3)
        };
        let quantiles = (quantile_us(0.5), quantile_us(0.99));
        Window {
            latency: match quantiles {
                (Some(p50_us), Some(p99_us)) => Some(Latency { p50_us, p99_us }),
                _ => None,
            },
            requests: self.answers,
            rate: self.in_time as f64 / time.as_secs_f64(),
        }
    }
}

struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    /// When its request was due; `None` while it is idle.
    due: Option<Instant>,
}

impl Connection {
    fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            answer: Vec::new(),
            due: None,
        })
    }

    /// Reads the available bytes. Returns true if the answer is complete.
    fn receive(&mut self, protocol: Protocol) -> Result<bool, String> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err("it closed a connection".into()),
            Ok(count) => self.answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
        match protocol.answer_bytes(&self.answer)? {
            Some(length) if length == self.answer.len() => {
                self.answer.clear();
                Ok(true)
            }
            Some(_) => Err("it answered more than it was asked".into()),
            None if self.answer.len() > ANSWER_MOST_BYTES => Err("its answer is too long".into()),
            None => Ok(false),
        }
    }
}

/// The times at which one thread's requests are due.
struct Schedule {
    gap: Duration,
    /// From the start to the first.
    first: Duration,
    sent: u32,
}

impl Schedule {
    /// The threads take turns.
    fn new(rate: f64, index: u32, threads: u32) -> Schedule {
        let gap = Duration::from_secs_f64(f64::from(threads) / rate.max(1e-3));
        Schedule {
            gap,
            first: gap * index / threads,
            sent: 0,
        }
    }

    fn next(&self, start: Instant) -> Instant {
        start + self.first + self.gap.mul_f64(f64::from(self.sent))
    }
}

/// One thread with its connections.
struct Drive<'a> {
    load: &'a Load,
    request: Vec<u8>,
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    epoll: OwnedFd,
    start: Instant,
    schedule: Option<Schedule>,
    tally: Tally,
}

impl<'a> Drive<'a> {
    fn new(
        load: &'a Load,
        connections: Vec<Connection>,
        start: Instant,
        schedule: Option<Schedule>,
    ) -> Result<Drive<'a>, String> {
        let make = || -> rustix::io::Result<OwnedFd> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            for (index, connection) in connections.iter().enumerate() {
                let data = epoll::EventData::new_u64(index as u64);
                epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN)?;
            }
            rustix::thread::set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS))?;
            Ok(epoll)
        };
        Ok(Drive {
            request: load.protocol.request(load.port),
            idle: (0..connections.len()).collect(),
            epoll: make().map_err(|error| error.to_string())?,
            load,
            connections,
            start,
            schedule,
            tally: Tally::default(),
        })
    }

    fn run(mut self) -> Result<Tally, String> {
        let end = self.start + self.load.time;
        let limit = match self.schedule {
            Some(_) => end + GRACE,
            None => end,
        };
        loop {
            let now = Instant::now();
            self.send_due(now, end)?;
            let next = self.next_due(end);
            if now >= limit || (now >= end && next.is_none() && self.is_all_idle()) {
                break;
            }
            let wake = next.filter(|_| !self.idle.is_empty()).unwrap_or(limit);
            // At full speed the window ends with unanswered requests, which are no latency yet.
            let wake = wake.min(if now < end { end } else { limit });
            self.wait(wake.saturating_duration_since(now))?;
            self.receive(end)?;
        }
        self.charge_unanswered(end);
        Ok(self.tally)
    }

    fn is_all_idle(&self) -> bool {
        self.idle.len() == self.connections.len()
    }

    /// When the next request is due, if one is left before the end.
    fn next_due(&self, end: Instant) -> Option<Instant> {
        let next = self.schedule.as_ref()?.next(self.start);
        (next < end).then_some(next)
    }

    /// Sends the due requests, as far as connections are idle.
    fn send_due(&mut self, now: Instant, end: Instant) -> Result<(), String> {
        loop {
            let due = match self.schedule {
                Some(_) => self.next_due(end).filter(|due| *due <= now),
                None => (now < end).then_some(now),
            };
            let (Some(due), Some(&index)) = (due, self.idle.front()) else {
                return Ok(());
            };
            self.idle.pop_front();
            let connection = &mut self.connections[index];
            let sent = connection.stream.write_all(&self.request);
            sent.map_err(|error| format!("it took no request: {error}"))?;
            connection.due = Some(due);
            if let Some(schedule) = &mut self.schedule {
                schedule.sent += 1;
            }
        }
    }

    fn wait(&self, time: Duration) -> Result<(), String> {
        readable_within(&self.epoll, time)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Takes the available answers.
    fn receive(&mut self, end: Instant) -> Result<(), String> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (events, _) = match epoll::wait(&self.epoll, &mut events, Some(&zero)) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        for event in events {
            let index = event.data.u64() as usize;
            let connection = &mut self.connections[index];
            if !connection.receive(self.load.protocol)? {
                continue;
            }
            let now = Instant::now();
            let Some(due) = connection.due.take() else {
                return Err("it answered without a request".into());
            };
            self.tally.latencies_ns.push((now - due).as_nanos() as u64);
            self.tally.answers += 1;
            self.tally.in_time += u64::from(now < end);
            self.idle.push_back(index);
        }
        Ok(())
    }

    /// At a constant rate, requests without an answer count with the time that has passed.
    fn charge_unanswered(&mut self, end: Instant) {
        let now = Instant::now();
        let mut due = Vec::new();
        if self.schedule.is_some() {
            due.extend(
                self.connections
                    .iter()
                    .filter_map(|connection| connection.due),
            );
        }
        while let Some(next) = self.next_due(end) {
            due.push(next);
            if let Some(schedule) = &mut self.schedule {
                schedule.sent += 1;
            }
        }
        let latencies = due.iter().map(|due| (now - *due).as_nanos() as u64);
        self.tally.latencies_ns.extend(latencies);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// Answers each connection in a thread; one request in `every` takes `pause`.
    fn server(every: usize, pause: Duration) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 1024];
                    for number in 1.. {
                        if !matches!(stream.read(&mut bytes), Ok(1..)) {
                            return;
                        }
                        if number % every == 0 {
                            std::thread::sleep(pause);
                        }
                        stream.write_all(ANSWER).unwrap();
                    }
                });
            }
        });
        port
    }

    fn load(port: u16, connections: u32, rate: Option<f64>) -> Load {
        Load {
            port,
            protocol: Protocol::Http,
            connections,
            time: Duration::from_millis(500),
            rate,
        }
    }

    #[test]
    fn full_speed_asks_again_after_each_answer() {
        let window = run(&load(server(usize::MAX, Duration::ZERO), 3, None)).unwrap();
        assert!(window.requests > 50 && window.rate >= window.requests as f64);
        let latency = window.latency.unwrap();
        assert!(latency.p50_us > 0.0 && latency.p99_us >= latency.p50_us);
    }

    #[test]
    fn a_constant_rate_is_kept() {
        let window = run(&load(server(usize::MAX, Duration::ZERO), 4, Some(200.0))).unwrap();
        assert_eq!(window.requests, 100);
    }

    #[test]
    fn a_stall_is_charged_to_every_request_that_was_due() {
        // One connection; its 20th request takes 0.2 s, so 40 of 100 requests are due meanwhile
        // and later ones wait behind these. A client that hides this sees one late request.
        let port = server(20, Duration::from_millis(200));
        let window = run(&load(port, 1, Some(200.0))).unwrap();
        let latency = window.latency.unwrap();
        assert!(latency.p99_us > 150e3, "{latency:?}");
        assert!(latency.p50_us > 10e3, "{latency:?}");
    }

    #[test]
    fn threads_take_turns() {
        let start = Instant::now();
        let mut due = Vec::new();
        for index in 0..2 {
            let mut schedule = Schedule::new(1000.0, index, 2);
            for _ in 0..3 {
                due.push((schedule.next(start) - start).as_micros());
                schedule.sent += 1;
            }
        }
        assert_eq!(due, [0, 2000, 4000, 1000, 3000, 5000]);
    }

    #[test]
    fn silence_has_no_latency() {
        let window = Tally::default().window(Duration::from_secs(1));
        assert_eq!((window.requests, window.latency), (0, None));
    }

    #[test]
    fn a_server_that_closes_is_no_result() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(run(&load(port, 1, None)).is_err());
    }
}
