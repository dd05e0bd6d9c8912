//! How often a carrier may be watched by an alarm: a budget, because each alarm costs the carrier
//! an interrupt, and sysmon a look.
//!
//! An alarm that helped nobody (the kernel took the CPU away, or the wait was over at once, or
//! nobody else wanted to run) makes the next one come later; one that helped, soon.

/// The shortest time between two alarms of one carrier.
pub const MIN_GAP_NS: u64 = 1_000_000;
/// The longest.
pub const MAX_GAP_NS: u64 = 4_000_000;

/// See the module. One for each carrier.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    gap_ns: u64,
    rang_ns: u64,
}

impl Budget {
    /// The first alarm may come at once.
    pub const fn new() -> Self {
        Self {
            gap_ns: MIN_GAP_NS,
            rang_ns: 0,
        }
    }

    /// An alarm came at `now_ns`: in vain, unless [`Budget::helped`] follows.
    pub fn rang(&mut self, now_ns: u64) {
        self.rang_ns = now_ns;
        self.gap_ns = (self.gap_ns * 2).min(MAX_GAP_NS);
    }

    /// Somebody runs sooner because of the last alarm.
    pub fn helped(&mut self) {
        self.gap_ns = MIN_GAP_NS;
    }

    /// From when on the carrier may be watched again.
    pub const fn from_ns(&self) -> u64 {
        match self.rang_ns {
            0 => 0,
            rang_ns => rang_ns + self.gap_ns,
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn alarms_in_vain_come_ever_later_and_useful_ones_soon() {
        let (mut budget, mut now_ns) = (Budget::new(), 5);
        assert_eq!(budget.from_ns(), 0, "the first is free");
        for gap_ns in [2, 4, 4].map(|ms| ms * MIN_GAP_NS) {
            budget.rang(now_ns);
            assert_eq!(budget.from_ns(), now_ns + gap_ns);
            now_ns += gap_ns;
        }
        budget.rang(now_ns);
        budget.helped();
        assert_eq!(budget.from_ns(), now_ns + MIN_GAP_NS);
    }
}
