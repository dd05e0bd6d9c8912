//! What a trace may wait for: a thread that gets a carrier late, or a carrier that stalls.

use std::collections::HashMap;

use raddle_inspect::{Event, EventKind, WaitKind};

use crate::rings::Lane;

/// Times that must not be exceeded; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// From a wake-up until the thread runs.
    pub late_ns: Option<u64>,
    /// For which a thread wants to run and doesn't, woken or not.
    pub runnable_ns: Option<u64>,
    /// For which a carrier runs one thread while another one wants to run.
    pub stalled_ns: Option<u64>,
}

/// A limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The thread ran so long after it was woken, or has not run since.
    Late { tid: u32, ns: u64 },
    /// The thread was runnable for so long.
    Runnable { tid: u32, ns: u64 },
    /// The carrier ran this thread for so long while others wanted to run.
    Stalled { lane: Lane, tid: u32, ns: u64 },
}

/// Since when a thread wants to run.
#[derive(Clone, Copy)]
struct Ready {
    since_ns: u64,
    is_woken: bool,
}

/// Which threads want to run and which run, by the events so far.
pub struct Conditions {
    limits: Limits,
    ready: HashMap<u32, Ready>,
    /// The thread that each carrier runs, and since when.
    running: HashMap<Lane, (u32, u64)>,
    exceeded: Option<Exceeded>,
}

impl Conditions {
    /// Watches these limits; nothing is known of any thread yet.
    pub fn new(limits: Limits) -> Conditions {
        Conditions {
            limits,
            ready: HashMap::new(),
            running: HashMap::new(),
            exceeded: None,
        }
    }

    /// Forgets what is known: events were lost.
    pub fn forget(&mut self) {
        self.ready.clear();
        self.running.clear();
    }

    /// Takes the next event in the order of time.
    pub fn event(&mut self, lane: Lane, event: &Event, at_ns: u64) {
        match event.kind {
            EventKind::WAKE | EventKind::CREATE => {
                let ready = Ready {
                    since_ns: at_ns,
                    is_woken: true,
                };
                self.ready.entry(event.thread).or_insert(ready);
            }
            EventKind::SWITCH | EventKind::END => self.switch(lane, event, at_ns),
            EventKind::BLOCK => {
                self.running.remove(&Lane::Carrier(event.other));
            }
            _ => {}
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event, at_ns: u64) {
        if let Some((tid, since_ns)) = self.running.remove(&lane) {
            self.check_turn(lane, tid, at_ns.saturating_sub(since_ns));
        }
        let gives_way = event.kind == EventKind::SWITCH
            && matches!(event.wait, WaitKind::YIELD | WaitKind::NONE);
        if event.thread != 0 && gives_way {
            let ready = Ready {
                since_ns: at_ns,
                is_woken: false,
            };
            self.ready.insert(event.thread, ready);
        } else if event.thread != 0 && event.kind == EventKind::END {
            self.ready.remove(&event.thread);
        }
        if event.other != 0 {
            if let Some(ready) = self.ready.remove(&event.other) {
                self.check_delay(event.other, ready, at_ns);
            }
            // A bound thread may keep its carrier, which runs nothing else.
            if !matches!(lane, Lane::Bound(_)) {
                self.running.insert(lane, (event.other, at_ns));
            }
        }
    }

    /// Returns a limit that was exceeded by an event, or is exceeded at `now_ns`, the time up to
    /// which events were taken.
    pub fn exceeded(&mut self, now_ns: u64) -> Option<Exceeded> {
        let ready: Vec<_> = self
            .ready
            .iter()
            .map(|(&tid, &ready)| (tid, ready))
            .collect();
        for (tid, ready) in ready {
            self.check_delay(tid, ready, now_ns);
        }
        let running: Vec<_> = self
            .running
            .iter()
            .map(|(&lane, &turn)| (lane, turn))
            .collect();
        for (lane, (tid, since_ns)) in running {
            self.check_turn(lane, tid, now_ns.saturating_sub(since_ns));
        }
        self.exceeded.take()
    }

    fn check_delay(&mut self, tid: u32, ready: Ready, now_ns: u64) {
        let ns = now_ns.saturating_sub(ready.since_ns);
        let is_over = |limit: Option<u64>| limit.is_some_and(|limit| ns > limit);
        if ready.is_woken && is_over(self.limits.late_ns) {
            self.exceeded.get_or_insert(Exceeded::Late { tid, ns });
        } else if is_over(self.limits.runnable_ns) {
            self.exceeded.get_or_insert(Exceeded::Runnable { tid, ns });
        }
    }

    fn check_turn(&mut self, lane: Lane, tid: u32, ns: u64) {
        let is_over = self.limits.stalled_ns.is_some_and(|limit| ns > limit);
        if is_over && !self.ready.is_empty() {
            let stalled = Exceeded::Stalled { lane, tid, ns };
            self.exceeded.get_or_insert(stalled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LANE: Lane = Lane::Carrier(0);

    fn event(kind: EventKind, thread: u32, other: u32, wait: WaitKind) -> Event {
        Event {
            stamp: 1,
            kind,
            thread,
            other,
            wait,
            arg: 0,
        }
    }

    fn all(ms: u64) -> Limits {
        let limit = Some(ms * MS);
        Limits {
            late_ns: limit,
            runnable_ns: limit,
            stalled_ns: limit,
        }
    }

    #[test]
    fn a_late_turn_is_found_when_it_comes_or_before() {
        let wake = event(EventKind::WAKE, 7, 3, WaitKind::MUTEX);
        let runs = event(EventKind::SWITCH, 0, 7, WaitKind::NONE);
        let mut conditions = Conditions::new(all(5));
        conditions.event(LANE, &wake, 10 * MS);
        assert_eq!(conditions.exceeded(15 * MS), None);
        conditions.event(LANE, &runs, 16 * MS);
        let late = Exceeded::Late { tid: 7, ns: 6 * MS };
        assert_eq!(conditions.exceeded(16 * MS), Some(late));
        assert_eq!(conditions.exceeded(16 * MS), None, "it is told once");
        conditions.event(LANE, &wake, 20 * MS);
        assert_eq!(conditions.exceeded(26 * MS), Some(late));
        conditions.forget();
        assert_eq!(conditions.exceeded(26 * MS), None);
    }

    #[test]
    fn a_thread_that_made_room_is_runnable_and_not_late() {
        let mut conditions = Conditions::new(all(5));
        let yields = event(EventKind::SWITCH, 7, 8, WaitKind::YIELD);
        conditions.event(LANE, &yields, MS);
        let limits = Limits {
            stalled_ns: None,
            ..all(5)
        };
        conditions.limits = limits;
        let runnable = Exceeded::Runnable { tid: 7, ns: 6 * MS };
        assert_eq!(conditions.exceeded(7 * MS), Some(runnable));
    }

    #[test]
    fn a_carrier_stalls_only_while_another_thread_wants_to_run() {
        let limits = Limits {
            stalled_ns: Some(5 * MS),
            ..Limits::default()
        };
        let mut conditions = Conditions::new(limits);
        let runs = event(EventKind::SWITCH, 0, 7, WaitKind::NONE);
        conditions.event(LANE, &runs, MS);
        assert_eq!(conditions.exceeded(100 * MS), None, "alone");
        let wake = event(EventKind::WAKE, 8, 7, WaitKind::MUTEX);
        conditions.event(LANE, &wake, 100 * MS);
        let stalled = Exceeded::Stalled {
            lane: LANE,
            tid: 7,
            ns: 100 * MS,
        };
        assert_eq!(conditions.exceeded(101 * MS), Some(stalled));
        let blocks = event(EventKind::BLOCK, 7, 0, WaitKind::NONE);
        conditions.event(Lane::Other, &blocks, 102 * MS);
        assert_eq!(
            conditions.exceeded(110 * MS),
            None,
            "another runs in its place"
        );
    }
}
