//! The inspection server: a snapshot of carriers and green threads for who asks, if he may.
//!
//! Sysmon serves it on the abstract socket of [`SocketName`]. Only the process's own effective user
//! and root get an answer. Records are read while the threads run: each field is true by itself,
//! and a thread that parks meanwhile may show its old wait. A client that doesn't read is dropped
//! after a second.

use crate::carrier::{Carrier, CarrierState};
use crate::engine::{ENGINE, MAX_CARRIERS, MAX_WANTED};
use crate::thread::{Life, Thread};
use crate::{clock, latency};
use core::sync::atomic::Ordering;
use raddle_inspect::{
    CarrierRecord, Header, NO_CARRIER, PolicyKind, REQUEST_MAGIC, Request, RequestKind, SocketName,
    ThreadFlags, ThreadRecord, Wire,
};
use raddle_sched::policies::Kind;
use raddle_sched::quota::MAX_PERCENT;
use raddle_sys::{is_err, nr, sys};

const AF_UNIX: u16 = 1;
const CLOEXEC_STREAM: usize = 0o2000000 | 1;
const SOL_SOCKET: usize = 1;

/// Opens the socket; -1 if that can't be done, and then there is no inspection.
pub(crate) fn listen() -> i32 {
    let name = SocketName::of(ENGINE.pid.load(Ordering::Relaxed));
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    let bytes = name.as_bytes();
    address[3..3 + bytes.len()].copy_from_slice(bytes);
    let len = 3 + bytes.len();
    // SAFETY: plain calls with live buffers.
    unsafe {
        let socket = sys!(nr::__NR_socket, AF_UNIX, CLOEXEC_STREAM, 0usize);
        let Ok(socket) = crate::pump::hide(socket) else {
            return -1;
        };
        if is_err(sys!(nr::__NR_bind, socket, address.as_ptr(), len))
            || is_err(sys!(nr::__NR_listen, socket, 4usize))
        {
            sys!(nr::__NR_close, socket);
            return -1;
        }
        socket as i32
    }
}

/// Answers one client.
pub(crate) fn serve(listener: i32) {
    const NONBLOCK_CLOEXEC: usize = 0o2000000;
    // SAFETY: plain calls on our own descriptors.
    unsafe {
        let client = sys!(nr::__NR_accept4, listener, 0usize, 0usize, NONBLOCK_CLOEXEC);
        if is_err(client) {
            return;
        }
        if may_ask(client) {
            limit_waiting(client);
            let request = obey(client);
            Answer {
                client,
                alive: true,
            }
            .write(request);
        }
        sys!(nr::__NR_close, client);
    }
}

/// The peer's effective user is ours, or root.
fn may_ask(client: isize) -> bool {
    const SO_PEERCRED: usize = 17;
    let (mut credentials, mut len) = ([0u32; 3], 12u32);
    // SAFETY: the kernel fills live words.
    let (result, own) = unsafe {
        let to = credentials.as_mut_ptr();
        let got = sys!(
            nr::__NR_getsockopt,
            client,
            SOL_SOCKET,
            SO_PEERCRED,
            to,
            &raw mut len
        );
        (got, sys!(nr::__NR_geteuid) as u32)
    };
    result == 0 && (credentials[1] == own || credentials[1] == 0)
}

fn limit_waiting(client: isize) {
    const SO_RCVTIMEO: usize = 20;
    const SO_SNDTIMEO: usize = 21;
    let second = [1u64, 0];
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
        // SAFETY: the kernel reads a live structure.
        unsafe {
            sys!(
                nr::__NR_setsockopt,
                client,
                SOL_SOCKET,
                option,
                second.as_ptr(),
                16usize
            );
        }
    }
}

/// Reads the request and does it. One that is cut short or says nonsense changes nothing.
fn obey(client: isize) -> Request {
    const WAITALL: usize = 0x100;
    let mut bytes = [0u8; size_of::<Request>()];
    // SAFETY: a live buffer.
    let got = unsafe {
        sys!(
            nr::__NR_recvfrom,
            client,
            bytes.as_mut_ptr(),
            bytes.len(),
            WAITALL,
            0usize,
            0usize
        )
    };
    let request = Request::from_prefix(&bytes).filter(|_| got == bytes.len() as isize);
    let Some(request) = request.filter(|request| request.magic == REQUEST_MAGIC) else {
        return Request::new(RequestKind::SNAPSHOT, 0);
    };
    match request.kind {
        RequestKind::CARRIERS => ENGINE.set_wanted(request.value.min(u64::from(MAX_WANTED)) as u32),
        RequestKind::POLICY => change_policy(request.value),
        RequestKind::SHARE => change_share(request.reserved, request.value),
        RequestKind::QUANTUM => ENGINE.set_quantum_ns(request.value),
        _ => {}
    }
    request
}

/// To a built-in one; a plug-in that holds its lock is waited for by whoever asks again.
fn change_policy(kind: u64) {
    match Kind::from_code(kind.min(99) as u32) {
        Kind::Fifo if kind != 0 => {}
        Kind::Plugin => {}
        kind => {
            ENGINE.choose_policy(kind); // the answer says what came of it
        }
    }
}

/// The quota of an engine in percent, 0 for none; or with the highest bit the weight of a group.
fn change_share(number: u32, value: u64) {
    const WEIGHT: u64 = 1 << 63;
    let percent = (value & !WEIGHT).min(u64::from(MAX_PERCENT)) as u32;
    if value & WEIGHT == 0 {
        if let Some(side) = ENGINE.sides.get(number) {
            side.set_quota(percent);
        }
    } else if ENGINE.injector.kind() != Kind::Plugin {
        let mut weights = ENGINE.injector.shares();
        let is_group = (number as usize) < weights.len() && weights[number as usize] != 0;
        if is_group && number != 0 && (1..=99).contains(&percent) {
            weights[number as usize] = percent;
            let others: u32 = weights[1..].iter().sum();
            weights[0] = 100u32.saturating_sub(others).max(1);
            ENGINE.injector.set_shares(&weights);
        }
    }
}

struct Answer {
    client: isize,
    alive: bool,
}

impl Answer {
    fn write(&mut self, request: Request) {
        let asked = ENGINE.sides.get(request.reserved);
        let answer = match request.kind {
            RequestKind::SHARE => asked.map_or(0, |side| side.quota() + 1),
            _ => 0,
        };
        if request.kind == RequestKind::STATS {
            self.write_snapshot(0, answer);
            self.send(&latency::histogram());
            self.send(&ENGINE.pins.latest());
            ENGINE.pins.places().for_each(|place| self.send(&place));
        } else {
            self.write_snapshot(ENGINE.threads.iter().count(), answer);
        }
    }

    fn write_snapshot(&mut self, threads: usize, answer: u32) {
        let all = || ENGINE.carriers().chain(ENGINE.sides.carriers()).enumerate();
        let mut exists = [0u64; MAX_CARRIERS / 32]; // those that have ended may begin again
        let lives = |(_, carrier): &(usize, &Carrier)| carrier.state() != CarrierState::Ended;
        all()
            .filter(lives)
            .for_each(|(at, _)| exists[at / 64] |= 1 << (at % 64));
        let carriers: u32 = exists.iter().map(|bits| bits.count_ones()).sum();
        let now_ns = clock::now_ns();
        self.send(&Header {
            pid: ENGINE.pid.load(Ordering::Relaxed),
            carriers,
            threads: threads as u64,
            now_ns,
            started_ns: ENGINE.started_ns.load(Ordering::Relaxed),
            live_threads: ENGINE.threads.live() as u64,
            wanted: u64::from(ENGINE.wanted()),
            quantum_ns: ENGINE.quantum_ns(),
            flags: match ENGINE.alarms.are_permitted() {
                true => Header::ALARMS,
                false => 0,
            },
            policy: PolicyKind(ENGINE.injector.kind() as u32),
            shares: shares(),
            answer,
            ..Header::new()
        });
        let chosen = |&(at, _): &(usize, &Carrier)| exists[at / 64] & 1 << (at % 64) != 0;
        for (_, carrier) in all().filter(chosen) {
            self.send(&carrier_record(carrier));
        }
        let mut left = threads;
        for thread in ENGINE.threads.iter().take(threads) {
            self.send(&thread_record(thread));
            left -= 1;
        }
        // Threads that ended since they were counted.
        for _ in 0..left {
            let state = raddle_inspect::ThreadState::EXITING;
            self.send(&ThreadRecord {
                state,
                carrier: NO_CARRIER,
                ..ThreadRecord::default()
            });
        }
    }

    fn send(&mut self, record: &impl Wire) {
        const NOSIGNAL: usize = 0x4000;
        let mut bytes = record.as_bytes();
        while self.alive && !bytes.is_empty() {
            // SAFETY: a live buffer.
            let sent = unsafe {
                sys!(
                    nr::__NR_sendto,
                    self.client,
                    bytes.as_ptr(),
                    bytes.len(),
                    NOSIGNAL
                )
            };
            self.alive = sent > 0;
            bytes = &bytes[sent.clamp(0, bytes.len() as isize) as usize..];
        }
    }
}

/// Only the fair policy has any; a plug-in's lock isn't waited for.
fn shares() -> [u8; 16] {
    match ENGINE.injector.kind() {
        Kind::Plugin => [0; 16],
        _ => ENGINE.injector.shares().map(|percent| percent as u8),
    }
}

fn carrier_record(carrier: &Carrier) -> CarrierRecord {
    let count = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let state = match carrier.state() {
        _ if ENGINE.spares.contains(carrier.id.get() as usize) => {
            raddle_inspect::CarrierState::SPARE
        }
        _ if carrier.handed_off.load(Ordering::Relaxed) != 0 => {
            raddle_inspect::CarrierState::BLOCKED
        }
        CarrierState::Running => raddle_inspect::CarrierState::RUNNING,
        CarrierState::Idle | CarrierState::Ended => raddle_inspect::CarrierState::IDLE,
        CarrierState::Polling => raddle_inspect::CarrierState::POLLING,
    };
    CarrierRecord {
        id: carrier.id.get(),
        kernel_tid: carrier.kernel_tid.load(Ordering::Relaxed),
        state,
        current_tid: carrier.thread_or_none().map_or(0, Thread::tid),
        active: count(&carrier.switches),
        steal: count(&carrier.steals),
        steal_fail: count(&carrier.failed_steals),
        preempt: count(&carrier.preemptions),
        park: count(&carrier.parks),
        queue_len: carrier.queue.len() as u64,
        engine: u64::from(carrier.side()),
        quota: ENGINE
            .sides
            .of(carrier)
            .map_or(0, |side| u64::from(side.quota())),
        ..CarrierRecord::default()
    }
}

fn thread_record(thread: &Thread) -> ThreadRecord {
    use raddle_inspect::{ThreadState, WaitKind};
    let count = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let state = if thread.life() == Life::Exiting {
        ThreadState::EXITING
    } else if thread.task.on_cpu.load(Ordering::Relaxed) != 0 {
        ThreadState::RUNNING
    } else if thread.task.is_waiting() {
        ThreadState::WAITING
    } else {
        ThreadState::RUNNABLE
    };
    let waiting = state == ThreadState::WAITING;
    let mut flags = ThreadFlags::default();
    if !thread.bound.load(Ordering::Relaxed).is_null() {
        flags = flags.union(ThreadFlags::BOUND);
    }
    if thread.as_ptr() == ENGINE.main.load(Ordering::Relaxed) {
        flags = flags.union(ThreadFlags::MAIN);
    }
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { thread.carrier.load(Ordering::Relaxed).as_ref() };
    ThreadRecord {
        tid: thread.tid(),
        carrier: carrier.map_or(NO_CARRIER, |carrier| carrier.id.get()),
        state,
        wait_kind: WaitKind(if waiting {
            thread.wait_kind.load(Ordering::Relaxed)
        } else {
            0
        }),
        wait_arg: if waiting {
            thread.wait_arg.load(Ordering::Relaxed) as u64
        } else {
            0
        },
        since_ns: count(&thread.since_ns),
        deadline_ns: if waiting {
            count(&thread.deadline_ns)
        } else {
            0
        },
        switches: count(&thread.switches),
        steal: count(&thread.migrations),
        preempt: count(&thread.preemptions),
        park: count(&thread.parks),
        name: thread.name(),
        flags,
        group: match thread.side() {
            0 => thread.task.policy.terms.group(),
            side => side,
        },
        ..ThreadRecord::default()
    }
}
