//! Sysmon's sleep without a timeout, while no look of its can have a consequence.
//!
//! Sysmon sleeps in one of two ways:
//!
//! - *while idle*: no carrier runs. A carrier that awakes wakes sysmon.
//! - *beside one*: one thread lives, and nothing else needs a look. Its carrier may sleep and awake
//!   meanwhile, and wakes sysmon only if it brings along what needs a look.
//!
//! To sleep, sysmon
//!
//! 1. *says how* it sleeps,
//! 2. makes a fence, and looks once more whether a look is *needed*,
//! 3. waits, unless step 2 found a need,
//! 4. says that it is awake, and looks.
//!
//! A poster (the maker of a thread, a handler that records a signal, a carrier that awakes)
//!
//! 1. publishes what needs a look,
//! 2. makes a fence, and reads how sysmon sleeps,
//! 3. takes that, if it must wake sysmon, and wakes it by its descriptor.
//!
//! # No need is missed
//!
//! One of the two fences is the earlier one. If it is the poster's, step 2 of sysmon sees what was
//! published. If it is sysmon's, the poster sees how sysmon sleeps.
//!
//! What needs a look of a carrier that runs (signals, files that its ring holds open) may be there
//! while the carrier sleeps, and step 2 doesn't count it then: the carrier itself brings it along.
//! What needs a look of any carrier that runs (a policy, an engine with a quota) keeps sysmon from
//! the sleep beside one. So sysmon sleeps while idle at most, and a carrier that awakes wakes it,
//! though one thread lives.
//!
//! # Rejected
//!
//! *One sleep, and carriers that ask how many threads live*: a carrier can't know what else kept
//! sysmon from the sleep beside one. A plug-in that didn't end its call, beside a single thread,
//! was never stopped.

use crate::sync::{AtomicU32, Ordering, fence};

/// See the module.
#[repr(transparent)]
pub struct SysmonSleep(AtomicU32);

const AWAKE: u32 = 0;
const WHILE_IDLE: u32 = 1;
const BESIDE_ONE: u32 = 2;

impl SysmonSleep {
    /// Sysmon is awake.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Sysmon is awake.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// Begins a sleep while no carrier runs, as `is_idle` finds. Returns false if sysmon must not
    /// sleep. In sysmon, as are the next two.
    #[must_use]
    pub fn begins_while_idle(&self, is_idle: impl FnOnce() -> bool) -> bool {
        self.begins(WHILE_IDLE, is_idle)
    }

    /// Begins a sleep beside a single thread, unless a look is needed. Returns false if sysmon must
    /// not sleep.
    #[must_use]
    pub fn begins_beside_one(&self, is_needed: impl Fn() -> bool) -> bool {
        !is_needed() && self.begins(BESIDE_ONE, || !is_needed())
    }

    /// The sleep is over, if there was one.
    pub fn ends(&self) {
        self.0.store(AWAKE, Ordering::SeqCst);
    }

    /// Returns true if the caller, which has published what needs a look, wakes sysmon.
    ///
    /// # Signal safety
    /// Safe.
    #[inline(always)]
    #[must_use]
    pub fn is_ended_by_need(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) != AWAKE && self.take()
    }

    /// Returns true if the caller, a carrier with the state that it runs again, wakes sysmon.
    /// `brings_need` says whether the carrier brings along what needs a look.
    #[inline(always)]
    #[must_use]
    pub fn is_ended_by_carrier(&self, brings_need: impl FnOnce() -> bool) -> bool {
        fence(Ordering::SeqCst);
        match self.0.load(Ordering::SeqCst) {
            AWAKE => false,
            BESIDE_ONE => brings_need() && self.take(),
            _ => self.take(),
        }
    }

    fn begins(&self, how: u32, may_sleep: impl FnOnce() -> bool) -> bool {
        self.0.store(how, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let sleeps = may_sleep();
        if !sleeps {
            self.ends();
        }
        sleeps
    }

    fn take(&self) -> bool {
        self.0.swap(AWAKE, Ordering::SeqCst) != AWAKE
    }
}

impl Default for SysmonSleep {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_sleep_is_ended_once_by_what_concerns_it() {
        let sleep = SysmonSleep::new();
        assert!(!sleep.is_ended_by_need() && !sleep.is_ended_by_carrier(|| true));
        assert!(sleep.begins_beside_one(|| false));
        assert!(!sleep.is_ended_by_carrier(|| false));
        assert!(sleep.is_ended_by_carrier(|| true) && !sleep.is_ended_by_need());
        assert!(sleep.begins_while_idle(|| true));
        assert!(sleep.is_ended_by_carrier(|| false) && !sleep.is_ended_by_carrier(|| false));
        assert!(sleep.begins_beside_one(|| false));
        assert!(sleep.is_ended_by_need() && !sleep.is_ended_by_need());
    }

    #[test]
    fn a_need_keeps_sysmon_awake() {
        let sleep = SysmonSleep::new();
        assert!(!sleep.begins_beside_one(|| true) && !sleep.begins_while_idle(|| false));
        assert!(!sleep.is_ended_by_need());
    }
}
