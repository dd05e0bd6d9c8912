//! The time of a stamp. Stamps are the CPU's time-stamp counter, which runs evenly; what it counts
//! in a second is measured.

use rustix::time::{ClockId, clock_gettime};

/// A moment, by the counter and by CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub stamp: u64,
    /// Nanoseconds since the machine started, with the time in which it was suspended.
    pub boot_ns: u64,
}

impl Moment {
    /// Returns this moment.
    ///
    /// The clock is read three times; that between the closest stamps counts.
    pub fn now() -> Moment {
        let read = || {
            let before = timestamp();
            let time = clock_gettime(ClockId::Boottime);
            let after = timestamp();
            let boot_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            (
                after - before,
                Moment {
                    stamp: before + (after - before) / 2,
                    boot_ns,
                },
            )
        };
        let reads = [read(), read(), read()];
        let closest = reads.into_iter().min_by_key(|&(gap, _)| gap);
        closest.map_or_else(|| read().1, |(_, moment)| moment)
    }
}

fn timestamp() -> u64 {
    // SAFETY: rdtsc is there on every x86-64 CPU, and reads no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Two moments, between which the counter runs evenly.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    from: Moment,
    to: Moment,
    /// Nanoseconds in a tick, times 2^64 and rounded up; 0 if that is no exact way to multiply by.
    rate: u128,
}

/// Up to this many ticks [`Clock::rate`] gives what a division does: its error is less than
/// 2^-64, so less than 2^-32 after so many ticks; and a quotient by fewer than 2^32 ticks that
/// isn't whole is further than that from the next whole number.
const EXACT_TICKS: u64 = 1 << 32;

impl Clock {
    /// The shortest time between two moments that gives a rate: the reads are some 50 ns apart.
    pub const LEAST_NS: u64 = 5_000_000;

    /// A clock by two moments, which are [`Clock::LEAST_NS`] apart or more.
    pub fn between(from: Moment, to: Moment) -> Clock {
        let ticks = to.stamp.saturating_sub(from.stamp).max(1);
        let passed_ns = to.boot_ns.saturating_sub(from.boot_ns);
        let is_exact = ticks < EXACT_TICKS && passed_ns < EXACT_TICKS;
        let rate = (u128::from(passed_ns) << 64).div_ceil(ticks.into());
        Clock {
            from,
            to,
            rate: if is_exact { rate } else { 0 },
        }
    }

    /// The clock of a process that has ended, by the words at `Layout::event_moments`. If the
    /// process had not noted a second moment, this machine's `now` takes its place. `None` without
    /// a first moment, or if there are no two that fit.
    pub fn of_the_past(words: [u64; 4], now: Moment) -> Option<Clock> {
        let moment = |at: usize| Moment {
            stamp: words[at],
            boot_ns: words[at + 1],
        };
        let (from, to) = (moment(0), moment(2));
        let fits = |to: Moment| {
            let ticks = to
                .stamp
                .checked_sub(from.stamp)
                .filter(|_| from.stamp != 0)?;
            let passed_ns = to.boot_ns.checked_sub(from.boot_ns)?;
            // Counters run at 0.1 to 10 GHz.
            let is_rate = passed_ns / 10 <= ticks && ticks <= passed_ns.saturating_mul(10);
            (passed_ns >= Self::LEAST_NS && is_rate).then(|| Clock::between(from, to))
        };
        fits(to).or_else(|| fits(now))
    }

    /// Goes on to another moment, if it is late enough. Times up to the last moment stay as they
    /// were told.
    pub fn go_on_to(&mut self, now: Moment) {
        if now.boot_ns.saturating_sub(self.to.boot_ns) >= Self::LEAST_NS {
            *self = Clock::between(self.to, now);
        }
    }

    /// Returns the time of a stamp, in nanoseconds of CLOCK_BOOTTIME.
    ///
    /// # Examples
    /// ```
    /// use raddle_record::clock::{Clock, Moment};
    /// let at = |stamp, boot_ns| Moment { stamp, boot_ns };
    /// let clock = Clock::between(at(1_000, 5_000_000), at(31_000, 15_000_000));
    /// assert_eq!(clock.boot_ns(4_000), 6_000_000);
    /// assert_eq!(clock.boot_ns(0), 4_666_667);
    /// ```
    #[inline]
    pub fn boot_ns(&self, stamp: u64) -> u64 {
        let since = stamp.wrapping_sub(self.from.stamp);
        if since < EXACT_TICKS && self.rate != 0 {
            let since_ns = ((u128::from(since) * self.rate) >> 64) as u64;
            return self.from.boot_ns.saturating_add(since_ns);
        }
        self.boot_ns_by_division(stamp)
    }

    #[cold]
    fn boot_ns_by_division(&self, stamp: u64) -> u64 {
        let ticks = self.to.stamp.saturating_sub(self.from.stamp).max(1);
        let passed_ns = self.to.boot_ns.saturating_sub(self.from.boot_ns);
        let since = i128::from(stamp) - i128::from(self.from.stamp);
        let since_ns = since * i128::from(passed_ns) / i128::from(ticks);
        (i128::from(self.from.boot_ns) + since_ns).clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_quotient() {
        let from = Moment {
            stamp: 1 << 50,
            boot_ns: 7_000_000_000,
        };
        for (ticks, passed_ns) in [
            (15_000_001, 6_000_000),
            (30_000, 10_000_000),
            (EXACT_TICKS - 1, 1_700_000_000),
            (1, EXACT_TICKS - 1),
            (6_000_000, 6_000_000),
        ] {
            let to = Moment {
                stamp: from.stamp + ticks,
                boot_ns: from.boot_ns + passed_ns,
            };
            let clock = Clock::between(from, to);
            assert_ne!(clock.rate, 0);
            let near = |it: u64| [it.saturating_sub(1), it, it + 1];
            for since in [0, ticks, ticks * 3, ticks / 3, EXACT_TICKS, EXACT_TICKS / 7] {
                for since in near(since) {
                    let stamp = from.stamp + since;
                    assert_eq!(clock.boot_ns(stamp), clock.boot_ns_by_division(stamp));
                }
            }
        }
    }

    #[test]
    fn the_past_needs_two_moments_that_fit() {
        let now = Moment {
            stamp: 3_000_000_000,
            boot_ns: 1_500_000_000,
        };
        let known = Clock::of_the_past([1000, 500, 4_000_001_000, 2_000_000_500], now).unwrap();
        assert_eq!(known.boot_ns(2_001_000), 1_000_500);
        let guessed = Clock::of_the_past([1000, 500, 0, 0], now).unwrap();
        assert_eq!(guessed.boot_ns(2_001_000) / 1000, 1000);
        assert!(Clock::of_the_past([0; 4], now).is_none(), "none");
        assert!(
            Clock::of_the_past([u64::MAX, 1, 0, 0], now).is_none(),
            "of another machine"
        );
    }
}
