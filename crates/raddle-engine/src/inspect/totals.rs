//! What the process counts of itself as a whole.

use crate::state::delays;
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{EngineRecord, PolicyKind, Totals};

/// `created` threads were made so far.
pub(super) fn totals(created: u64) -> Totals {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let [wake_ups_ns, delays_ns] = delays::sums_ns();
    let mut totals = Totals {
        created,
        polls: count(&PROCESS.pump.polls),
        poll_events: count(&PROCESS.pump.poll_events),
        blocked: count(&PROCESS.blocking.total),
        wake_ups_ns,
        delays_ns,
        wake_ups: delays::wake_ups(),
        delays: delays::histogram(),
        ..Totals::NONE
    };
    for carrier in PROCESS.carriers() {
        totals.time_outs += count(&carrier.time_outs);
        for (sum, parks) in totals.parks.iter_mut().zip(&carrier.parks) {
            *sum += count(parks);
        }
    }
    for engine in PROCESS.engines.each() {
        if let Some(record) = totals.engines.get_mut(engine.number() as usize) {
            *record = engine_record(engine);
        }
    }
    totals
}

fn engine_record(engine: &Engine) -> EngineRecord {
    EngineRecord {
        wanted: engine.wanted(),
        extra: engine.extra(),
        made: engine.made.load(Ordering::Relaxed),
        policy: PolicyKind(engine.queue.kind() as u32),
        quota: engine.quota(),
        is_held: u32::from(engine.is_held()),
        queue_len: engine.posted() as u64,
    }
}
