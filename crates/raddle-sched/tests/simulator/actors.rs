//! Sysmon, and the world outside that starts green threads and posts to counters.

use crate::judge::WAKE_MAX_NS;
use crate::world::{Fault, World, key};
use raddle_sched::TaskList;
use raddle_sched::policy::{
    Look, SOON_NS, SYSMON_LINGER_NS, SYSMON_MIN_NS, Seen, sysmon_interval_ns,
};

pub(crate) struct Sysmon {
    seen: Vec<Seen>,
    interval_ns: u64,
    busy_ns: u64,
    asleep: bool,
}

impl Sysmon {
    pub(crate) fn new(carriers: usize) -> Self {
        let seen = vec![Seen::default(); carriers];
        Self {
            seen,
            interval_ns: SYSMON_MIN_NS,
            busy_ns: 0,
            asleep: false,
        }
    }

    /// Wakes sysmon if it sleeps for good; returns true if it did.
    pub(crate) fn rouse(&mut self) -> bool {
        self.interval_ns = if self.asleep {
            SYSMON_MIN_NS
        } else {
            self.interval_ns
        };
        core::mem::take(&mut self.asleep)
    }
}

impl World {
    /// Takes one look.
    pub(crate) fn step_sysmon(&mut self) {
        if self.carriers.len() < 2 || self.fault == Fault::NoSysmon {
            return;
        }
        let (acted, running) = self.look();
        if running {
            self.sysmon.busy_ns = self.now_ns;
        } else if self.now_ns.saturating_sub(self.sysmon.busy_ns) > SYSMON_LINGER_NS {
            self.sysmon.asleep = true;
            return;
        }
        self.sysmon.interval_ns = sysmon_interval_ns(self.sysmon.interval_ns, acted);
        let late_ns = self.rng.between(0, WAKE_MAX_NS);
        let mut interval_ns = self.sysmon.interval_ns;
        if self.poller.is_none() && !self.is_due_soon() {
            let left_ns = self.timers.earliest_ns() - self.now_ns;
            interval_ns = interval_ns.min(left_ns - SOON_NS);
        }
        self.schedule(self.carriers.len(), interval_ns + late_ns);
    }

    /// Wakes carriers where work waits. Returns whether it did, and whether any carrier runs.
    fn look(&mut self) -> (bool, bool) {
        let (mut acted, mut running) = (false, false);
        for id in 0..self.carriers.len() {
            let carrier = &self.carriers[id];
            if !carrier.runs {
                continue;
            }
            running = true;
            let look = Look {
                now_ns: self.now_ns,
                cpu_ns: self.now_ns,
                switches: carrier.switches,
                queued: !carrier.queue.is_empty(),
                ring_len: carrier.queue.ring_len(),
            };
            if self.sysmon.seen[id].look(look).backlog_lasts {
                acted |= self.wake_one();
            }
        }
        let neglected = self.poller.is_none() && self.is_due_soon();
        let unattended = neglected || !self.injector.is_empty();
        if running && unattended && !self.idle.is_empty() {
            acted |= self.wake_one();
        }
        (acted, running)
    }

    /// Starts a green thread or posts to a counter, then comes back after a while.
    pub(crate) fn step_outside(&mut self) {
        let start = !self.to_start.is_empty() && (self.to_post.is_empty() || !self.rng.once_in(3));
        if start {
            let green = self.to_start.pop().expect("there is one");
            self.inject(self.task(green));
        } else if let Some(counter) = self.to_post.pop() {
            let word = &self.counters[counter];
            word.set(word.get() + 1);
            let woken = TaskList::new();
            self.table.wake(key(counter), 1, !0, &woken);
            while let Some(task) = woken.pop() {
                self.inject(task);
            }
        } else {
            return;
        }
        let pause_ns = if self.rng.once_in(10) {
            2_000_000
        } else {
            3_000
        };
        let delay_ns = self.rng.between(50, pause_ns);
        self.schedule(self.carriers.len() + 1, delay_ns);
    }
}
