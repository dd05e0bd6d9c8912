//! Sysmon beside a single thread: while only one thread lives, nothing waits for it, and no look
//! can have a consequence. So sysmon sleeps until it is woken, though a carrier runs.
//!
//! What could need a look later wakes sysmon:
//!
//! | event | woken by |
//! |---|---|
//! | a second thread is made | its maker ([`Sysmon::thread_begins`]) |
//! | a signal is recorded, perhaps after a call's last look | its handler ([`Sysmon::wake_up`]) |
//! | a signal is left to a thread that is about to run | the carrier that routed it |
//! | an inspection request | its descriptor |
//! | a carrier with open files in its ring runs again | that carrier ([`Sysmon::carrier_awoke`]) |
//!
//! [`raddle_sched::wake::SysmonSleep`] says why none of these is missed, and which carriers wake
//! sysmon when they run again.

use super::{Sysmon, Watch};
use crate::scheduling::page_rings;
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::PROCESS;
use crate::state::samples;
use core::sync::atomic::Ordering;

impl Sysmon {
    /// A carrier left its sleep, and its state says so.
    pub(crate) fn carrier_awoke(&self, carrier: &Carrier) {
        let brings_need = || page_rings::holds_files(carrier);
        if self.asleep.is_ended_by_carrier(brings_need) {
            self.write_wake();
        }
    }

    /// A thread was counted.
    pub(crate) fn thread_begins(&self) {
        self.wake_up();
    }

    /// Wakes sysmon if it sleeps without a timeout. Safe in a signal handler.
    pub fn wake_up(&self) {
        if self.asleep.is_ended_by_need() {
            self.write_wake();
        }
    }
}

fn is_single() -> bool {
    PROCESS.is_calm() && PROCESS.threads.live() == 1
}

/// Returns true if no carrier has a signal to look at, or something to give back.
fn are_carriers_quiet() -> bool {
    PROCESS.carriers().all(|carrier| {
        let has_signals = carrier.attention.load(Ordering::Relaxed) != 0
            || !carrier.arrivals.is_empty()
            || carrier.thread_or_none().is_some_and(|thread| {
                thread.signals.deliverable() != 0 || thread.strays_on(carrier)
            });
        carrier.state() != CarrierState::Running
            || !has_signals && !page_rings::holds_files(carrier)
    })
}

impl Watch {
    /// Goes to sleep beside a single thread. Returns false if there is something to look at.
    pub(super) fn sleeps_beside_one(&self) -> bool {
        let is_needed = || {
            !is_single()
                || samples::period_ns() != 0
                || PROCESS.first().has_policy()
                || PROCESS.first().has_posted()
                || PROCESS.first().count.blocked() != 0
                || PROCESS.engines.each_further().next().is_some()
                || self.quantum_timers.any_runs()
                || !are_carriers_quiet()
        };
        PROCESS.sysmon.asleep.begins_beside_one(is_needed)
    }
}
