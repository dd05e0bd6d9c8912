//! A histogram of durations: four buckets for each doubling, from 16 ns to a minute and more.

use crate::records::Wire;

/// Buckets of a histogram.
pub const BUCKETS: usize = 128;

/// Durations below this many nanoseconds are all in the first bucket.
const FIRST_NS: u64 = 16;

/// How many durations fell into each bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    pub counts: [u64; BUCKETS],
}

// SAFETY: an array of integers.
unsafe impl Wire for Histogram {}

impl Histogram {
    /// A histogram without durations.
    pub const EMPTY: Histogram = Histogram {
        counts: [0; BUCKETS],
    };

    /// Returns the number of durations.
    pub fn total(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the upper end, in nanoseconds, of the first bucket at or below which `per_mille` of
    /// the durations lie; `None` without durations.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::{Histogram, bucket_of};
    /// let mut histogram = Histogram::EMPTY;
    /// histogram.counts[bucket_of(1000)] = 9;
    /// histogram.counts[bucket_of(1_000_000)] = 1;
    /// assert_eq!(histogram.per_mille(500), Some(1023));
    /// assert!(histogram.per_mille(990) > Some(1_000_000));
    /// ```
    pub fn per_mille(&self, per_mille: u64) -> Option<u64> {
        let total = self.total();
        let wanted = (u128::from(total) * u128::from(per_mille)).div_ceil(1000) as u64;
        let mut sum = 0u64;
        let found = self.counts.iter().position(|count| {
            sum = sum.saturating_add(*count);
            sum >= wanted.max(1)
        });
        found.map(upper_ns)
    }
}

/// Returns the bucket of a duration.
pub const fn bucket_of(ns: u64) -> usize {
    if ns < FIRST_NS {
        return 0;
    }
    let octave = ns.ilog2() - FIRST_NS.ilog2();
    let quarter = (ns >> (ns.ilog2() - 2)) & 3;
    let bucket = octave as usize * 4 + quarter as usize;
    if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    }
}

/// Returns the longest duration of `bucket`.
pub const fn upper_ns(bucket: usize) -> u64 {
    let base = FIRST_NS << (bucket / 4);
    base + base / 4 * (bucket as u64 % 4 + 1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_at_most_its_buckets_end_and_above_the_last_ones() {
        for ns in (0..10_000).chain((10..36).flat_map(|n| [(1 << n) - 1, 1 << n, (1 << n) + 1])) {
            let bucket = bucket_of(ns);
            assert!(ns <= upper_ns(bucket), "{ns}");
            assert!(bucket == 0 || ns > upper_ns(bucket - 1), "{ns}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn parts_of_nothing_are_nothing() {
        assert_eq!(Histogram::EMPTY.per_mille(500), None);
    }
}
