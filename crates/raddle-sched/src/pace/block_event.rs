//! How often a carrier may be watched by a block event: a budget, because each block event costs
//! the carrier an interrupt, and sysmon a look.
//!
//! A block event was in vain if the kernel had taken the CPU away, if the wait was over at once, or
//! if no other thread wanted to run. Each in vain doubles the gap to the next one, and each that
//! helped quarters it: where less than half of them help, they come seldom.
//!
//! [`Sleeps`] decides whether carriers have block events before any carrier was seen to wait in the
//! kernel while others wanted to run. A block event costs each sleep of its carrier some hundred
//! nanoseconds, so carriers have them only while they hardly sleep.

/// The shortest time between two block events of one carrier.
pub const MIN_GAP_NS: u64 = 1_000_000;
/// The longest.
pub const MAX_GAP_NS: u64 = 32_000_000;
/// The length of the period over which the sleeps of carriers are counted.
pub const CALM_NS: u64 = 20_000_000;
/// The most sleeps in a period for which carriers get block events: 1000 a second.
pub const CALM_SLEEPS: u64 = 20;
/// The most sleeps in a period for which carriers keep block events: 4000 a second.
pub const LIVELY_SLEEPS: u64 = 80;

/// See the module. One for each carrier.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    gap_ns: u64,
    rang_ns: u64,
}

impl Budget {
    /// The first block event may come at once.
    pub const fn new() -> Self {
        Self {
            gap_ns: MIN_GAP_NS,
            rang_ns: 0,
        }
    }

    /// A block event came at `now_ns`. It counts as in vain unless [`Budget::helped`] follows.
    pub fn rang(&mut self, now_ns: u64) {
        self.rang_ns = now_ns;
        self.gap_ns = (self.gap_ns * 2).min(MAX_GAP_NS);
    }

    /// A carrier has waited in the kernel, in others' way, for the first time.
    pub fn proven(&mut self) {
        self.gap_ns = MIN_GAP_NS;
    }

    /// A thread runs sooner because of the last block event.
    pub fn helped(&mut self) {
        self.gap_ns = (self.gap_ns / 4).max(MIN_GAP_NS);
    }

    /// Returns the time from which on the carrier may be watched again.
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

/// What sysmon does about block events before a carrier was seen to wait in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No change.
    Wait,
    /// Carriers get block events.
    Open,
    /// Carriers lose their block events: they sleep too often.
    Close,
}

/// How often carriers sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sleeps {
    since_ns: u64,
    before: u64,
}

impl Sleeps {
    /// Evaluates a look at `now_ns`, while carriers run; `count` is the number of sleeps of all
    /// carriers so far, and `open` is true if carriers have block events.
    #[must_use]
    pub fn look(&mut self, now_ns: u64, count: u64, open: bool) -> Advice {
        let slept = count.saturating_sub(self.before);
        let is_over = now_ns.saturating_sub(self.since_ns) >= CALM_NS;
        let advice = match (open, self.since_ns == 0) {
            (_, true) => Advice::Wait,
            (false, _) if slept > CALM_SLEEPS => Advice::Wait,
            (false, _) if !is_over => return Advice::Wait,
            (false, _) => Advice::Open,
            (true, _) if !is_over => return Advice::Wait,
            (true, _) if slept > LIVELY_SLEEPS => Advice::Close,
            (true, _) => Advice::Wait,
        };
        (self.since_ns, self.before) = (now_ns, count);
        advice
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn block_events_in_vain_come_ever_later_and_useful_ones_soon() {
        let (mut budget, mut now_ns) = (Budget::new(), 5);
        assert_eq!(budget.from_ns(), 0, "the first is free");
        for gap_ns in [2, 4, 8, 16, 32, 32].map(|ms| ms * MIN_GAP_NS) {
            budget.rang(now_ns);
            assert_eq!(budget.from_ns(), now_ns + gap_ns);
            now_ns += gap_ns;
        }
        for gap_ns in [8, 4, 2, 1, 1].map(|ms| ms * MIN_GAP_NS) {
            budget.rang(now_ns);
            budget.helped();
            assert_eq!(budget.from_ns(), now_ns + gap_ns);
        }
    }

    #[test]
    fn the_first_wait_in_the_way_of_others_forgets_events_in_vain() {
        let mut budget = Budget::new();
        (0..20).for_each(|_| budget.rang(7));
        assert_eq!(budget.from_ns(), 7 + MAX_GAP_NS);
        budget.proven();
        assert_eq!(budget.from_ns(), 7 + MIN_GAP_NS);
    }

    #[test]
    fn block_events_of_which_a_fourth_helps_come_seldom() {
        let mut budget = Budget::new();
        for _ in 0..10 {
            (0..4).for_each(|_| budget.rang(7));
            budget.helped();
        }
        assert_eq!(budget.from_ns(), 7 + MAX_GAP_NS / 4);
    }

    #[test]
    fn carriers_that_hardly_sleep_get_block_events_and_lose_them_if_they_sleep_often() {
        let mut sleeps = Sleeps::default();
        let mut look = |ms: u64, count, open| sleeps.look(ms * 1_000_000, count, open);
        assert_eq!(look(100, 1000, false), Advice::Wait, "the first look");
        assert_eq!(look(119, 1020, false), Advice::Wait, "not for long");
        assert_eq!(look(120, 1020, false), Advice::Open);
        assert_eq!(look(139, 5000, true), Advice::Wait, "not for long");
        assert_eq!(look(140, 1100, true), Advice::Wait, "it is bearable");
        assert_eq!(look(160, 1181, true), Advice::Close);
        assert_eq!(look(165, 1202, false), Advice::Wait, "too often");
        assert_eq!(look(184, 1222, false), Advice::Wait, "from then on");
        assert_eq!(look(185, 1222, false), Advice::Open);
    }
}
