//! Stays of bound threads in the kernel. Their calls block there, and no event says so: by the
//! events, the thread runs. If its kernel thread has not executed between two looks, it has been in
//! the kernel since the first one.
//!
//! [`Looks`] looks while the trace is recorded; [`Stays`] makes stays of what it has seen.

use std::collections::HashMap;

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_record::rings::Lane;
use raddle_stacks::{BoundThread, KernelTimes};

use super::spool::{Record, Spool};

/// Looks at bound threads, which are here by their ids.
pub(super) struct Looks {
    pid: u32,
    seen: HashMap<u32, Seen>,
}

struct Seen {
    kernel_tid: u32,
    /// What the kernel had counted at the last look.
    times: KernelTimes,
    is_still: bool,
}

impl Looks {
    pub(super) fn new(pid: u32) -> Looks {
        Looks {
            pid,
            seen: HashMap::new(),
        }
    }

    /// Takes the bound threads that there are.
    pub(super) fn follow(&mut self, bound: &[BoundThread], spool: &mut Spool<'_>) {
        self.seen.retain(|&tid, _| {
            let is_there = bound.iter().any(|thread| thread.tid == tid);
            if !is_there {
                spool.record(&Record::Unbound { tid });
            }
            is_there
        });
        for thread in bound {
            let known = self.seen.get(&thread.tid);
            if known.is_some_and(|known| known.kernel_tid == thread.kernel_tid) {
                continue;
            }
            let Some(times) = KernelTimes::of(self.pid, thread.kernel_tid) else {
                continue;
            };
            let seen = Seen {
                kernel_tid: thread.kernel_tid,
                times,
                is_still: false,
            };
            self.seen.insert(thread.tid, seen);
            spool.record(&Record::Bound {
                tid: thread.tid,
                carrier: thread.id,
                is_running: thread.is_running,
            });
        }
    }

    /// Looks at all of them.
    pub(super) fn look(&mut self, spool: &mut Spool<'_>) {
        for (&tid, seen) in &mut self.seen {
            let Some(times) = KernelTimes::of(self.pid, seen.kernel_tid) else {
                continue;
            };
            let is_still = times == seen.times;
            seen.times = times;
            if std::mem::replace(&mut seen.is_still, is_still) != is_still {
                spool.record(&Record::Still { tid, is_still });
            }
        }
    }
}

/// Bound threads, by their ids.
#[derive(Default)]
pub(super) struct Stays(HashMap<u32, Bound>);

struct Bound {
    lane: Lane,
    /// It is on its carrier.
    is_running: bool,
    is_in_kernel: bool,
    /// Its kernel thread has not executed since the look before.
    is_still: bool,
    /// The time of the last look.
    looked_ns: u64,
}

impl Stays {
    /// A bound thread is there.
    pub(super) fn add(&mut self, tid: u32, carrier: u32, is_running: bool, now_ns: u64) {
        let bound = Bound {
            lane: Lane::Bound(carrier),
            is_running,
            is_in_kernel: false,
            is_still: false,
            looked_ns: now_ns,
        };
        self.0.insert(tid, bound);
    }

    /// It is there no longer.
    pub(super) fn remove(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    /// Takes what a look has seen of one.
    pub(super) fn set_still(&mut self, tid: u32, is_still: bool) {
        if let Some(bound) = self.0.get_mut(&tid) {
            bound.is_still = is_still;
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

    /// Calls `each` for the stays that have begun or ended since the last look.
    pub(super) fn look(&mut self, now_ns: u64, mut each: impl FnMut(Lane, &Event, u64)) {
        for (&tid, bound) in &mut self.0 {
            let since_ns = std::mem::replace(&mut bound.looked_ns, now_ns);
            if !bound.is_running || bound.is_still == bound.is_in_kernel {
                continue;
            }
            bound.is_in_kernel = bound.is_still;
            let (kind, at_ns) = if bound.is_still {
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
            each(bound.lane, &event, at_ns);
        }
    }
}
