//! What a snapshot says of carriers and threads.

use crate::scheduling::timed;
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::PROCESS;
use crate::state::thread::{Life, Thread};
use crate::state::{accounting, delays};
use core::sync::atomic::Ordering;
use raddle_inspect::{CarrierRecord, NO_CARRIER, ThreadFlags, ThreadRecord};
use raddle_sched::policies::Kind;

/// Only the fair policy has any; a plug-in's lock isn't waited for.
pub(super) fn shares() -> [u8; 16] {
    match PROCESS.first().queue.kind() {
        Kind::Plugin => [0; 16],
        _ => PROCESS.first().queue.shares().map(|percent| percent as u8),
    }
}

/// `ended` is true to tell carriers that have ended from idle ones.
pub(super) fn carrier_record(carrier: &Carrier, ended: bool) -> CarrierRecord {
    let count = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let state = match carrier.state() {
        _ if carrier.engine().spares.contains(carrier.id.get() as usize) => {
            raddle_inspect::CarrierState::SPARE
        }
        _ if carrier.handed_off.load(Ordering::Relaxed) != 0 => {
            raddle_inspect::CarrierState::BLOCKED
        }
        CarrierState::Ended if ended => raddle_inspect::CarrierState::ENDED,
        CarrierState::Running => raddle_inspect::CarrierState::RUNNING,
        CarrierState::Idle | CarrierState::Ended => raddle_inspect::CarrierState::IDLE,
        CarrierState::Polling => raddle_inspect::CarrierState::POLLING,
    };
    CarrierRecord {
        id: carrier.id.get(),
        kernel_tid: carrier.kernel_tid.load(Ordering::Relaxed),
        state,
        current_tid: carrier.thread_or_none().map_or(0, Thread::tid),
        switches: count(&carrier.switches),
        steal: count(&carrier.steal),
        steal_fail: count(&carrier.steal_fail),
        preempt: count(&carrier.preempt),
        park: count(&carrier.park),
        wakeups: CarrierRecord::wakeups_of(count(&carrier.park), state),
        queue_len: carrier.queue.len() as u64,
        engine: u64::from(carrier.engine().number()),
        quota: u64::from(carrier.engine().quota()),
        turn_since_ns: carrier.thread_or_none().map_or(0, timed::turn_since_ns),
        ..CarrierRecord::default()
    }
}

pub(super) fn thread_record(thread: &Thread) -> ThreadRecord {
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
    if thread.as_ptr() == PROCESS.main.load(Ordering::Relaxed) {
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
        since_ns: since_ns(thread, state),
        cpu_ns: accounting::other_cpu_ns(thread),
        deadline_ns: if waiting {
            count(&thread.deadline_ns)
        } else {
            0
        },
        switches: count(&thread.switches),
        steal: count(&thread.steal),
        preempt: count(&thread.preempt),
        park: count(&thread.park),
        name: thread.name(),
        flags,
        group: match thread.engine_number() {
            0 => thread.task.policy.terms.group(),
            number => number,
        },
        ..ThreadRecord::default()
    }
}

/// Since when `thread` is in `state`; 0 where that isn't measured.
fn since_ns(thread: &Thread, state: raddle_inspect::ThreadState) -> u64 {
    use raddle_inspect::ThreadState;
    match state {
        ThreadState::RUNNABLE => delays::runnable_since_ns(thread),
        ThreadState::RUNNING => timed::turn_since_ns(thread),
        ThreadState::WAITING => {
            let since_ns = thread.since_ns.load(Ordering::Relaxed);
            since_ns.max(PROCESS.started_ns.load(Ordering::Relaxed))
        }
        _ => 0,
    }
}
