//! How far apart the looks at threads that wait are, and the turns of the loop.
//!
//! Looks come by chance, so that no program is in step with them: times between two looks have an
//! exponential distribution ([`raddle_record::history::Look`]).
//!
//! Where many threads begin to wait between two looks, only some of their stacks are read, and
//! looks needn't be as many: what is known of threads has left the CPU's caches at each.
//!
//! Without perf events, code that is mapped only between two turns has no name (see `epochs`), so
//! that turns are closer to each other then.

use std::time::Duration;

/// The least time between two turns of the loop.
pub(super) const REST: Duration = Duration::from_millis(1);
/// The most time between two turns, and between those that must find what code is mapped.
const LONGEST: Duration = Duration::from_millis(200);
const LONGEST_UNTOLD: Duration = Duration::from_millis(50);
/// For each so many threads with stacks to read, looks are one more interval apart, up to a limit:
/// of more stacks than that in an interval most would not be read.
const EACH: usize = 16;
const MANY_INTERVALS: u32 = 6;
/// No time between two looks is longer than so many times the mean.
const MOST_MEANS: f64 = 5.0;
/// The runtime keeps so many of its own samples of a carrier.
const OWN_SAMPLES_KEPT: u32 = 16;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The time between two samples of a carrier.
    pub interval: Duration,
    /// The kernel keeps so many samples of a carrier until they are taken, if it samples carriers.
    pub samples_kept: Option<u32>,
    /// Each sample is read at once.
    pub is_prompt: bool,
    /// Carriers are sampled, and no perf events tell which code is mapped.
    pub is_untold: bool,
}

impl Pace {
    /// Returns the most time between two turns. The kernel, or the runtime, keeps no more samples
    /// of a carrier.
    pub(super) fn longest(self) -> Duration {
        let most = if self.is_untold {
            LONGEST_UNTOLD
        } else {
            LONGEST
        };
        let kept = self.samples_kept.unwrap_or(OWN_SAMPLES_KEPT);
        most.min(self.interval.max(REST) * kept.max(1))
    }

    /// Returns the mean time until the next look, after one that found so many threads with stacks
    /// to read.
    pub(super) fn look_after(self, found: usize) -> Duration {
        let usual = self.interval.max(REST);
        if found < 2 * EACH || self.is_prompt {
            return usual;
        }
        let intervals = (found / EACH).min(MANY_INTERVALS as usize) as u32;
        usual.max(LONGEST.min(usual * intervals))
    }

    /// Returns the time until the next look, of this mean. `lot` is at least 0, and less than 1.
    pub(super) fn pause(mean: Duration, lot: f64) -> Duration {
        mean.mul_f64((-(-lot).ln_1p()).min(MOST_MEANS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Pace = Pace {
        interval: Duration::from_millis(10),
        samples_kept: Some(22),
        is_prompt: false,
        is_untold: false,
    };
    const MANY: usize = 128;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn looks_at_more_threads_are_further_apart() {
        assert_eq!(USUAL.look_after(31), MS(10));
        assert_eq!(USUAL.look_after(32), MS(20));
        assert_eq!(USUAL.look_after(50), MS(30));
        assert_eq!(USUAL.look_after(MANY), MS(60));
        assert_eq!(USUAL.look_after(usize::MAX), MS(60));
        let slow = Pace {
            interval: MS(40),
            ..USUAL
        };
        assert_eq!(slow.look_after(MANY), MS(200));
        let slower = Pace {
            interval: MS(400),
            ..USUAL
        };
        assert_eq!(slower.look_after(MANY), MS(400));
        assert_eq!(slower.longest(), MS(200));
    }

    #[test]
    fn pauses_have_their_mean() {
        const STEPS: u32 = 1000;
        let lots = (0..STEPS).map(|it| (f64::from(it) + 0.5) / f64::from(STEPS));
        let pauses = lots.map(|lot| Pace::pause(MS(10), lot));
        let mean = pauses.sum::<Duration>() / STEPS;
        assert!((9_800..10_000).contains(&mean.as_micros()), "{mean:?}");
        assert!(Pace::pause(MS(10), 0.999_999_9) <= MS(50));
    }

    #[test]
    fn looks_lose_no_samples() {
        let tight = Pace {
            samples_kept: Some(1),
            ..USUAL
        };
        assert_eq!(tight.longest(), MS(10));
        let prompt = Pace {
            is_prompt: true,
            ..USUAL
        };
        assert_eq!(prompt.look_after(MANY), MS(10));
        let fast = Pace {
            interval: Duration::ZERO,
            ..USUAL
        };
        assert_eq!(fast.look_after(0), REST);
    }

    #[test]
    fn without_perf_events_code_is_looked_for_twice_as_often() {
        let untold = Pace {
            samples_kept: None,
            is_untold: true,
            ..USUAL
        };
        assert_eq!(untold.longest(), MS(50));
        assert_eq!(untold.look_after(0), MS(10));
    }
}
