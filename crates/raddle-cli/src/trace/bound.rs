//! Stays of bound threads in the kernel. Their calls block there, and no event says so: by the
//! events, the thread runs. If its kernel thread has not executed between two looks, it has been in
//! the kernel since the first one.

use std::collections::HashMap;
use std::io;

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_record::rings::Lane;
use raddle_stacks::{BoundThread, KernelTimes, Memory};

use super::tracer::Tracer;

/// Bound threads, by their ids.
#[derive(Default)]
pub(super) struct Stays(HashMap<u32, Bound>);

struct Bound {
    kernel_tid: u32,
    lane: Lane,
    /// It is on its carrier.
    is_running: bool,
    is_in_kernel: bool,
    /// What the kernel had counted at the last look, and its time.
    times: KernelTimes,
    looked_ns: u64,
}

impl Stays {
    /// Takes the bound threads that there are.
    pub(super) fn follow(&mut self, pid: u32, bound: &[BoundThread], now_ns: u64) {
        self.0
            .retain(|tid, _| bound.iter().any(|thread| thread.tid == *tid));
        for thread in bound {
            let known = self.0.get(&thread.tid);
            if known.is_some_and(|known| known.kernel_tid == thread.kernel_tid) {
                continue;
            }
            let Some(times) = KernelTimes::of(pid, thread.kernel_tid) else {
                continue;
            };
            let bound = Bound {
                kernel_tid: thread.kernel_tid,
                lane: Lane::Bound(thread.id),
                is_running: thread.is_running,
                is_in_kernel: false,
                times,
                looked_ns: now_ns,
            };
            self.0.insert(thread.tid, bound);
        }
    }

    /// Takes an event of the trace.
    pub(super) fn event(&mut self, lane: Lane, event: &Event) {
        let is_switch = matches!(event.kind, EventKind::SWITCH | EventKind::END);
        if !is_switch || self.0.is_empty() {
            return;
        }
        for (tid, runs) in [(event.thread, false), (event.other, true)] {
            if let Some(bound) = self.0.get_mut(&tid).filter(|bound| bound.lane == lane) {
                bound.is_running = runs;
                bound.is_in_kernel = false; // the trace ends the stay with the turn
            }
        }
    }

    /// Writes the stays that have begun or ended since the last look.
    pub(super) fn look<W: io::Write>(
        &mut self,
        (pid, now_ns): (u32, u64),
        memory: &dyn Memory,
        tracer: &mut Tracer<W>,
    ) {
        for (&tid, bound) in &mut self.0 {
            let Some(times) = KernelTimes::of(pid, bound.kernel_tid) else {
                continue;
            };
            let is_still = times == bound.times;
            let since_ns = std::mem::replace(&mut bound.looked_ns, now_ns);
            bound.times = times;
            if !bound.is_running || is_still == bound.is_in_kernel {
                continue;
            }
            bound.is_in_kernel = is_still;
            let (kind, at_ns) = if is_still {
                (EventKind::BLOCK, since_ns)
            } else {
                (EventKind::RETURN, now_ns)
            };
            let event = Event {
                stamp: 0,
                kind,
                thread: tid,
                other: 0,
                wait: WaitKind::NONE,
                arg: 0,
            };
            tracer.take(memory, bound.lane, &event, at_ns);
        }
    }
}
