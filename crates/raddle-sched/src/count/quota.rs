//! A quota: how much CPU time a group of threads may use, whatever else is idle.
//!
//! A token bucket. It fills at the rate of the quota, up to the quota of one [`PERIOD_NS`]; each
//! look takes the CPU time used since the last one from it. A group with an empty bucket is *held*
//! until the bucket is full again. Use beyond the bucket is a debt. A hold that lasts too long adds
//! credit, a period's worth at most. So the average rate is exact, however seldom a look comes. A
//! hold takes about a period less its quota.

/// The time in which an empty bucket fills.
pub const PERIOD_NS: u64 = 20_000_000;
/// The shortest time until the next look.
pub const LEAST_NS: u64 = 100_000;
/// The largest quota, in percent of one CPU.
pub const MAX_PERCENT: u32 = raddle_inspect::settings::QUOTA_MAX_PERCENT;

/// See the module. All zero is a new bucket.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left_ns: i64,
    /// When the bucket was filled last; 0 for never.
    filled_ns: u64,
    percent: u32,
    is_held: bool,
}

/// The result of a look at a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// True if the group may not run now.
    pub is_held: bool,
    /// The time until the next look, if a thread of the group runs or wants to.
    pub within_ns: u64,
}

impl Bucket {
    /// A bucket before its first look.
    pub const fn new() -> Self {
        Self {
            left_ns: 0,
            filled_ns: 0,
            percent: 0,
            is_held: false,
        }
    }

    /// Takes a look at `now_ns`: the group has used `used_ns` since the last one, on `running`
    /// CPUs.
    pub fn look(&mut self, now_ns: u64, used_ns: u64, percent: u32, running: u32) -> Level {
        let percent = percent.clamp(1, MAX_PERCENT);
        let full_ns = (PERIOD_NS / 100 * u64::from(percent)) as i64;
        if self.filled_ns == 0 || self.percent != percent {
            *self = Self {
                left_ns: full_ns,
                percent,
                filled_ns: now_ns,
                is_held: false,
            };
        }
        let elapsed_ns = now_ns
            .saturating_sub(self.filled_ns)
            .min(u64::MAX / 200_000);
        self.filled_ns = now_ns;
        let filled_ns = (elapsed_ns * u64::from(percent) / 100) as i64;
        self.left_ns = (self.left_ns - used_ns.min(i64::MAX as u64) as i64)
            .saturating_add(filled_ns)
            .min(if self.is_held { 2 * full_ns } else { full_ns });
        self.is_held = if self.is_held {
            self.left_ns < full_ns
        } else {
            self.left_ns <= 0
        };
        let within_ns = if self.is_held {
            (full_ns - self.left_ns).max(0) as u64 * 100 / u64::from(percent)
        } else {
            self.left_ns as u64 / u64::from(running.max(1))
        };
        Level {
            is_held: self.is_held,
            within_ns: within_ns.max(LEAST_NS),
        }
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    /// Returns how many CPUs a group gets on average if it would use all of `cpus`, with a look
    /// every `tick_ns`.
    fn part(percent: u32, cpus: u64, tick_ns: u64) -> f64 {
        let (mut bucket, mut now_ns, mut used_ns) = (Bucket::default(), 1, 0);
        let mut level = bucket.look(now_ns, 0, percent, cpus as u32);
        while now_ns < 10_000_000_000 {
            let step_ns = level.within_ns.next_multiple_of(tick_ns);
            now_ns += step_ns;
            let spent_ns = if level.is_held { 0 } else { cpus * step_ns };
            used_ns += spent_ns;
            level = bucket.look(now_ns, spent_ns, percent, cpus as u32);
        }
        used_ns as f64 / now_ns as f64
    }

    #[test]
    fn the_rate_is_exact_however_seldom_one_looks() {
        for (percent, cpus) in [(30, 1), (5, 2), (150, 2), (99, 1), (1, 8)] {
            for tick_ns in [1, 50_000, 1_000_000, 7_000_000] {
                let (got, wanted) = (part(percent, cpus, tick_ns), f64::from(percent) / 100.0);
                assert!(
                    (got / wanted - 1.0).abs() < 0.02,
                    "{percent} {cpus} {tick_ns}: {got}"
                );
            }
        }
    }

    #[test]
    fn who_uses_less_is_never_held() {
        let (mut bucket, mut now_ns) = (Bucket::default(), 1);
        for _ in 0..1000 {
            assert!(!bucket.look(now_ns, 2_900_000, 30, 1).is_held);
            now_ns += 10_000_000;
        }
    }

    #[test]
    fn nothing_is_saved_up_beyond_a_period() {
        let mut bucket = Bucket::default();
        bucket.look(1, 0, 50, 1);
        let later_ns = 3_600_000_000_000;
        assert!(!bucket.look(later_ns, 0, 50, 1).is_held);
        assert!(bucket.look(later_ns + 1, 10_000_001, 50, 1).is_held);
    }

    #[test]
    fn a_changed_quota_begins_anew() {
        let mut bucket = Bucket::default();
        bucket.look(1, 0, 10, 1);
        assert!(bucket.look(2, 5_000_000, 10, 1).is_held);
        assert!(!bucket.look(3, 0, 100, 1).is_held);
    }
}
