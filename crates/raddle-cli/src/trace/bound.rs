//! Stays of bound threads in the kernel. Their calls block there, and no event says so: by the
//! events, the thread runs. If its kernel thread has not executed between two looks, it has been in
//! the kernel since the first one. The kernel's counts say how much of a time was spent there, but
//! not when: a counter shows that, of a fifth of a second each time.
//!
//! [`Looks`] looks while the trace is recorded; [`Stays`] makes stays of what it has seen.

use std::collections::HashMap;

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_record::rings::Lane;
use raddle_stacks::{BoundThread, KernelTimes, waits_in_kernel};

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
            // One that wants a CPU for long has executed nothing, either.
            let is_still = times == seen.times && waits_in_kernel(self.pid, seen.kernel_tid);
            let cpu_ns = times.cpu_ns.saturating_sub(seen.times.cpu_ns);
            let delay_ns = times.delay_ns.saturating_sub(seen.times.delay_ns);
            if times != seen.times {
                let used_ns = cpu_ns.saturating_add(delay_ns);
                spool.record(&Record::Used { tid, used_ns });
            }
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
    /// The time of the last share.
    shared_ns: u64,
    /// Since then: when it began to run, if it runs; for how long it ran before; and for how long
    /// it executed or wanted a CPU.
    since_ns: u64,
    ran_ns: u64,
    used_ns: u64,
}

/// What a look has found.
pub(super) enum Found {
    /// A stay in the kernel begins or ends.
    Stay(Lane, Event),
    /// The percentage of the time up to the look that a thread has spent in the kernel.
    Share(u32, u8),
}

/// A share below this many percent is none: looks and counts are not of the same moments.
const LEAST_SHARE: u64 = 3;
/// A share is of so much time at least: the kernel counts at its ticks, some milliseconds apart.
const SHARE_NS: u64 = 200_000_000;

impl Stays {
    /// A bound thread is there.
    pub(super) fn add(&mut self, tid: u32, carrier: u32, is_running: bool, now_ns: u64) {
        let bound = Bound {
            lane: Lane::Bound(carrier),
            is_running,
            is_in_kernel: false,
            is_still: false,
            looked_ns: now_ns,
            shared_ns: now_ns,
            since_ns: now_ns,
            ran_ns: 0,
            used_ns: 0,
        };
        self.0.insert(tid, bound);
    }

    /// It is there no longer.
    pub(super) fn remove(&mut self, tid: u32) {
        self.0.remove(&tid);
    }

    /// Takes for how long one has executed or wanted a CPU since the last look.
    pub(super) fn set_used(&mut self, tid: u32, used_ns: u64) {
        if let Some(bound) = self.0.get_mut(&tid) {
            bound.used_ns += used_ns;
        }
    }

    /// Takes what a look has seen of one.
    pub(super) fn set_still(&mut self, tid: u32, is_still: bool) {
        if let Some(bound) = self.0.get_mut(&tid) {
            bound.is_still = is_still;
        }
    }

    /// Takes an event of the trace.
    pub(super) fn event(&mut self, lane: Lane, event: &Event, boot_ns: u64) {
        let is_switch = matches!(event.kind, EventKind::SWITCH | EventKind::END);
        if !is_switch || self.0.is_empty() {
            return;
        }
        for (tid, runs) in [(event.thread, false), (event.other, true)] {
            if let Some(bound) = self.0.get_mut(&tid).filter(|bound| bound.lane == lane) {
                if bound.is_running {
                    bound.ran_ns += boot_ns.saturating_sub(bound.since_ns);
                }
                (bound.is_running, bound.since_ns) = (runs, boot_ns);
                bound.is_in_kernel = false; // the trace ends the stay with the turn
            }
        }
    }

    /// Calls `each` for what a look has found, with its time.
    pub(super) fn look(&mut self, now_ns: u64, mut each: impl FnMut(Found, u64)) {
        for (&tid, bound) in &mut self.0 {
            let since_ns = bound.looked_ns;
            if let Some((share, from_ns)) = bound.share(now_ns) {
                each(Found::Share(tid, share), from_ns);
            }
            bound.looked_ns = now_ns;
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
            each(Found::Stay(bound.lane, event), at_ns);
        }
    }
}

impl Bound {
    /// Returns the percentage of a time up to now that was spent in the kernel, and the begin of
    /// that time, if it is long enough.
    fn share(&mut self, now_ns: u64) -> Option<(u8, u64)> {
        let all_ns = now_ns.saturating_sub(self.shared_ns);
        if all_ns < SHARE_NS {
            return None;
        }
        let from_ns = std::mem::replace(&mut self.shared_ns, now_ns);
        let used_ns = std::mem::take(&mut self.used_ns);
        let mut ran_ns = std::mem::take(&mut self.ran_ns);
        if self.is_running {
            ran_ns += now_ns.saturating_sub(self.since_ns);
            self.since_ns = now_ns;
        }
        let percent = ran_ns.saturating_sub(used_ns) * 100 / all_ns;
        let shown = if percent < LEAST_SHARE {
            0
        } else {
            percent.min(100)
        };
        Some((shown as u8, from_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(thread: u32, other: u32) -> Event {
        Event {
            stamp: 0,
            kind: EventKind::SWITCH,
            thread,
            other,
            wait: WaitKind::NONE,
            arg: 0,
        }
    }

    fn found(stays: &mut Stays, now_ns: u64) -> (Vec<u8>, Vec<(EventKind, u64)>) {
        let (mut shares, mut all) = (Vec::new(), Vec::new());
        stays.look(now_ns, |found, at_ns| match found {
            Found::Stay(_, event) => all.push((event.kind, at_ns)),
            Found::Share(_, share) => shares.push(share),
        });
        (shares, all)
    }

    #[test]
    fn what_a_thread_neither_executed_nor_waited_for_elsewhere_is_its_share() {
        const AT: fn(u64) -> u64 = |percent| SHARE_NS / 100 * percent;
        let lane = Lane::Bound(3);
        let mut stays = Stays::default();
        stays.add(8, 3, true, 0);
        stays.set_used(8, AT(60));
        assert_eq!(found(&mut stays, AT(70)), (vec![], vec![]), "too early");
        stays.set_used(8, AT(30));
        assert_eq!(found(&mut stays, AT(100)), (vec![10], vec![]));
        // It waits for a lock for a half of the time.
        stays.event(lane, &switch(8, 0), AT(120));
        stays.event(lane, &switch(0, 8), AT(170));
        stays.set_used(8, AT(30));
        assert_eq!(found(&mut stays, AT(200)), (vec![20], vec![]));
        stays.set_used(8, AT(99));
        assert_eq!(found(&mut stays, AT(300)), (vec![0], vec![]));
        stays.set_still(8, true);
        let begins = (EventKind::BLOCK, AT(300));
        assert_eq!(found(&mut stays, AT(400)), (vec![100], vec![begins]));
        stays.set_still(8, false);
        stays.set_used(8, AT(50));
        let ends = (EventKind::RETURN, AT(500));
        assert_eq!(found(&mut stays, AT(500)), (vec![50], vec![ends]));
    }
}
