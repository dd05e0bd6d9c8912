//! Which wake-ups are samples: drawn from the time waited, so that each sample stands for as much
//! waiting as any other.
//!
//! Points are laid at random along the time waited, all waits one after the other, at distances
//! between 0 and twice [`Draw::every`]. A wait with a point in it is a sample, and stands for
//! `every` a point. So a wait of a second among a million short ones is met, and which wake-up is
//! chosen doesn't depend on how long the waker has done something else before. `every` follows the
//! carrier's wake-ups, so that a sample comes about once in a period of the clock.
//!
//! A carrier without a sample for [`LATE`] periods takes the next wake-up, which then stands for
//! itself alone.
//!
//! Rejected: a flag that is set at random times, for the next wake-up. Of two in a row it chooses
//! the first one always.

use core::cell::Cell;

/// See the module.
const LATE: u64 = 4;
/// `every` changes by this factor at most from sample to sample.
const STEP: u64 = 4;
/// A wait of so many times `every` is a sample for certain.
const LONG: u64 = 16;
/// The longest time that is counted: a few years of ticks.
const MOST: u64 = 1 << 58;

/// A carrier's part. Used by one kernel thread. All zero before the first wake-up.
#[repr(C)]
#[derive(Default)]
pub struct Draw {
    /// The time waited for which a point stands; 0 before the first sample.
    every: Cell<u64>,
    /// The time waited until the next point.
    left: Cell<u64>,
    /// When the last sample was taken.
    taken: Cell<u64>,
    random: Cell<u64>,
}

impl Draw {
    /// Counts a wake-up at `now` after a wait of `waited`, in the same units. Returns the time
    /// waited for which it stands if it is a sample.
    #[inline]
    pub fn woken(&self, waited: u64, now: u64, period: u64) -> Option<u64> {
        let waited = waited.clamp(1, MOST);
        let left = self.left.get();
        let passed = now.saturating_sub(self.taken.get());
        if waited < left && passed < period.saturating_mul(LATE) {
            self.left.set(left - waited);
            return None;
        }
        self.taken.set(now);
        let stands_for = self.stands_for(waited, now);
        self.follow(period, passed);
        Some(stands_for)
    }

    /// Returns the time for which a sample stands that is due, or late.
    fn stands_for(&self, waited: u64, now: u64) -> u64 {
        let every = self.every.get();
        if every == 0 {
            self.every.set(waited);
            self.random.set(now | 1);
            self.left.set(self.distance());
            return waited;
        }
        let mut left = self.left.get();
        if waited < left {
            self.left.set(left - waited);
            return waited;
        }
        if waited >= every.saturating_mul(LONG) {
            self.left.set(self.distance());
            return waited;
        }
        let (mut rest, mut points) = (waited, 0u64);
        while left <= rest {
            rest -= left;
            points += 1;
            left = self.distance();
        }
        self.left.set(left - rest);
        points.saturating_mul(every)
    }

    /// Changes `every`, so that the next sample is due after about a period. The last one was taken
    /// `passed` ago.
    fn follow(&self, period: u64, passed: u64) {
        let every = self.every.get();
        let wanted = u128::from(every) * u128::from(period) / u128::from(passed.max(1));
        let least = u128::from((every / STEP).max(1));
        let most = u128::from(every.saturating_mul(STEP).min(MOST));
        let next = wanted.clamp(least, most.max(least));
        // The points are laid along the time waited in units of `every`.
        let left = u128::from(self.left.get()) * next / u128::from(every.max(1));
        self.every.set(next as u64);
        self.left.set((left as u64).max(1));
    }

    /// Draws the distance to the next point.
    fn distance(&self) -> u64 {
        // Xorshift (Marsaglia, 2003).
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        1 + random % self.every.get().max(1).saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 1_000_000;

    /// Lets three wakers take turns, after pauses and waits of these lengths. Returns the parts of
    /// the time waited that the samples of each stand for, and the number of samples.
    fn parts(waits: [u64; 3], pauses: [u64; 3], turns: u64) -> ([f64; 3], u64) {
        let draw = Draw::default();
        let (mut now, mut sums, mut samples) = (1, [0.0; 3], 0);
        for turn in 0..turns {
            let waker = (turn % 3) as usize;
            now += pauses[waker];
            if let Some(stands_for) = draw.woken(waits[waker], now, PERIOD) {
                sums[waker] += stands_for as f64;
                samples += 1;
            }
        }
        let sum: f64 = sums.iter().sum();
        (sums.map(|part| part / sum), samples)
    }

    fn are_near(parts: [f64; 3], expected: [f64; 3]) {
        for (part, expected) in parts.into_iter().zip(expected) {
            let is_near = (part - expected).abs() < 0.03;
            assert!(is_near, "{parts:?} in place of {expected}");
        }
    }

    #[test]
    fn parts_are_those_of_the_time_waited() {
        let (parts, samples) = parts([1000, 2000, 3000], [2000; 3], 9_000_000);
        are_near(parts, [1.0 / 6.0, 2.0 / 6.0, 3.0 / 6.0]);
        assert!((9_000..24_000).contains(&samples), "{samples}, not 18,000");
    }

    #[test]
    fn what_the_waker_does_before_changes_nothing() {
        let (parts, _) = parts([1000, 1000, 1000], [100_000, 1, 1], 900_000);
        are_near(parts, [1.0 / 3.0; 3]);
    }

    #[test]
    fn long_waits_among_many_short_ones_are_met() {
        let draw = Draw::default();
        let (mut short, mut long) = (0.0, 0.0);
        for turn in 1..=10_000_000u64 {
            let waited = if turn % 1_000_000 == 0 {
                500_000_000
            } else {
                500
            };
            let stands_for = draw.woken(waited, turn * 500, PERIOD).unwrap_or(0);
            *(if waited == 500 { &mut short } else { &mut long }) += stands_for as f64;
        }
        let part = long / (short + long);
        assert!((0.45..0.55).contains(&part), "{part} in place of a half");
    }

    #[test]
    fn after_a_rest_samples_come_soon() {
        let draw = Draw::default();
        // Waits of a hundred threads together, then few short ones.
        for turn in 1..1_000_000u64 {
            draw.woken(100_000, turn * 1000, PERIOD);
        }
        let begin = 1_000_000_000;
        let taken = |turn: &u64| draw.woken(10, begin + turn * 10_000, PERIOD).is_some();
        let samples = (0..4000u64).filter(taken).count();
        assert!((8..100).contains(&samples), "{samples}");
    }

    #[test]
    fn no_time_is_too_long() {
        let draw = Draw::default();
        for waited in [u64::MAX, 0, u64::MAX, 1, 1, u64::MAX] {
            for period in [1, u64::MAX] {
                draw.woken(waited, u64::MAX, period);
                draw.woken(waited, 0, period);
            }
        }
    }
}
