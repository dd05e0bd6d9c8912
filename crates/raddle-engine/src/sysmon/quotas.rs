//! Sysmon's part of quotas: engines that have used theirs up are held.

use crate::state::carrier::Carrier;
use crate::state::engines::ENGINES;
use crate::state::process::PROCESS;
use crate::sysmon::WATCHED;
use raddle_sched::policy::BUSY_NS;
use raddle_sched::quota::Bucket;

/// What sysmon remembers of further engines between two looks.
pub(crate) struct Quotas {
    /// CPU time of each carrier, by its place in sysmon's memory, when it was looked at last.
    cpu_ns: [u64; WATCHED],
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
            cpu_ns: [0; WATCHED],
            engines: [NEW; ENGINES],
        }
    }

    /// A carrier that runs has used `cpu_ns` so far.
    pub(crate) fn note(&mut self, at: usize, carrier: &Carrier, cpu_ns: u64) {
        let number = carrier.engine().number() as usize;
        if number == 0 {
            return;
        }
        let before_ns = core::mem::replace(&mut self.cpu_ns[at], cpu_ns);
        let engine = &mut self.engines[number];
        engine.used_ns += cpu_ns.saturating_sub(before_ns);
        engine.running += 1;
    }

    /// Holds engines with a used-up quota and lets others go on. Returns when to look again; `None`
    /// if there is nothing to look at.
    pub(crate) fn act(&mut self, now_ns: u64) -> Option<u64> {
        let mut within_ns = None;
        for engine in PROCESS.engines.each_further() {
            let own = &mut self.engines[engine.number() as usize];
            let (used_ns, running) = (own.used_ns, own.running);
            (own.used_ns, own.running) = (0, 0);
            let mut wish_ns = BUSY_NS;
            if engine.quota() != 0 {
                let level = own.bucket.look(now_ns, used_ns, engine.quota(), running);
                engine.hold(level.is_held);
                wish_ns = level.within_ns;
            } else {
                engine.hold(false);
            }
            if engine.has_posted() || running != 0 {
                within_ns = Some(within_ns.map_or(wish_ns, |least: u64| least.min(wish_ns)));
            }
        }
        within_ns
    }
}
