//! How far apart the looks at threads that wait are, and the turns of the loop.
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
/// of more stacks than that in an interval most would not be read. The runtime keeps as many of its
/// own samples of a carrier.
const EACH: usize = 8;
const MANY_INTERVALS: u32 = 16;

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
    /// Returns the most time between two turns.
    pub(super) fn longest(self) -> Duration {
        if self.is_untold {
            LONGEST_UNTOLD
        } else {
            LONGEST
        }
    }

    /// Returns the time until the next look, after one that found so many threads with stacks to
    /// read.
    pub(super) fn look_after(self, found: usize) -> Duration {
        let usual = self.interval.max(REST);
        if found < 2 * EACH || self.is_prompt {
            return usual;
        }
        let most = MANY_INTERVALS.min(self.samples_kept.unwrap_or(u32::MAX));
        let intervals = u32::try_from(found / EACH).map_or(most, |it| it.min(most));
        usual.max(self.longest().min(usual * intervals))
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
        assert_eq!(USUAL.look_after(15), MS(10));
        assert_eq!(USUAL.look_after(16), MS(20));
        assert_eq!(USUAL.look_after(50), MS(60));
        assert_eq!(USUAL.look_after(MANY), MS(160));
        assert_eq!(USUAL.look_after(usize::MAX), MS(160));
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
    fn looks_lose_no_samples() {
        let tight = Pace {
            samples_kept: Some(1),
            ..USUAL
        };
        assert_eq!(tight.look_after(MANY), MS(10));
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
        assert_eq!(untold.look_after(MANY), MS(50));
        assert_eq!(untold.longest(), MS(50));
        assert_eq!(untold.look_after(0), MS(10));
    }
}
