//! Sysmon's part of side engines: used-up quotas, and threads that wait while a carrier sleeps.

use crate::carrier::Carrier;
use crate::engine::ENGINE;
use crate::sides::ENGINES;
use crate::sysmon::ALL;
use raddle_sched::policy::BUSY_NS;
use raddle_sched::quota::Bucket;

/// What sysmon remembers of side engines between two looks.
pub(crate) struct Quotas {
    /// CPU time of each carrier, by its place in sysmon's memory, when it was looked at last.
    cpu_ns: [u64; ALL],
    engines: [Use; ENGINES],
}

#[derive(Clone, Copy)]
struct Use {
    bucket: Bucket,
    /// CPU time since the last look, and how many carriers used it.
    used_ns: u64,
    running: u32,
}

impl Quotas {
    pub(crate) const fn new() -> Self {
        const NEW: Use = Use {
            bucket: Bucket::new(),
            used_ns: 0,
            running: 0,
        };
        Self {
            cpu_ns: [0; ALL],
            engines: [NEW; ENGINES],
        }
    }

    /// A carrier that runs has used `cpu_ns` so far.
    pub(crate) fn note(&mut self, at: usize, carrier: &Carrier, cpu_ns: u64) {
        let number = carrier.side() as usize;
        if number == 0 {
            return;
        }
        let before_ns = core::mem::replace(&mut self.cpu_ns[at], cpu_ns);
        let engine = &mut self.engines[number];
        engine.used_ns += cpu_ns.saturating_sub(before_ns);
        engine.running += 1;
    }

    /// Holds engines with a used-up quota, lets others go on, and wakes carriers for what waits.
    /// Returns when to look again; `None` if there is nothing to look at.
    pub(crate) fn act(&mut self, now_ns: u64) -> Option<u64> {
        let mut within_ns = None;
        for (number, side) in ENGINE.sides.each() {
            let engine = &mut self.engines[number as usize];
            let (used_ns, running) = (engine.used_ns, engine.running);
            (engine.used_ns, engine.running) = (0, 0);
            let mut wish_ns = BUSY_NS;
            if side.quota() != 0 {
                let level = engine.bucket.look(now_ns, used_ns, side.quota(), running);
                side.hold(level.is_held);
                wish_ns = level.within_ns;
            } else {
                side.hold(false);
            }
            let waits = !side.queue().is_empty();
            if waits && side.has_work() {
                side.wake_one();
            }
            if waits || running != 0 {
                within_ns = Some(within_ns.map_or(wish_ns, |least: u64| least.min(wish_ns)));
            }
        }
        within_ns
    }
}
