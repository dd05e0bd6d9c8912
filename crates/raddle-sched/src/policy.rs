//! When to look elsewhere, and when to wake another carrier: pure decisions on counters.
//!
//! A kernel wake-up costs as much as a hundred switches, and work that the running carrier reaches
//! within microseconds gains nothing from it: carriers that woke each other eagerly lost half of
//! their throughput. So a push wakes nobody while the carrier that pushed still makes progress;
//! three things make sure that work never waits beyond a bound while a carrier idles:
//!
//! 1. A push onto a backlog (something already waits in the ring) may wake an idle carrier, as long
//!    as [`Backlog`]'s budget allows: a budget that grows when the woken carrier found work that
//!    lasted, and shrinks when it found nothing.
//! 2. Sysmon ticks while any carrier runs and another idles: a backlog or a filled LIFO slot that
//!    it sees on two ticks in a row without a switch between wakes a carrier.
//! 3. Work from outside the carriers (the injector) always wakes an idle one.

/// What the next look of a carrier should include, by its count of picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Take from the ring before the LIFO slot, so that two threads that wake each other can't
    /// starve the rest.
    pub fair: bool,
    /// Take from the injector before anything else.
    pub injector: bool,
    /// Read the clock, expire timers and poll descriptors.
    pub poll: bool,
}

/// Every how many picks the ring comes before the LIFO slot.
pub const FAIR_EVERY: u32 = 16;
/// Every how many picks the injector comes first.
pub const INJECTOR_EVERY: u32 = 64;
/// Every how many picks timers and descriptors are looked at.
pub const POLL_EVERY: u32 = 64;

impl Tick {
    /// The look number `count`.
    #[inline(always)]
    pub const fn of(count: u32) -> Self {
        Self {
            fair: count.is_multiple_of(FAIR_EVERY),
            injector: count % INJECTOR_EVERY == 1,
            poll: count % POLL_EVERY == 2,
        }
    }
}

/// The shortest time between two wake-ups that one carrier's pushes cause.
pub const MIN_WAKE_GAP_NS: u64 = 50_000;
/// The longest.
pub const MAX_WAKE_GAP_NS: u64 = 10_000_000;

/// A carrier's budget of kernel wake-ups for its backlog.
#[derive(Clone, Copy, Debug)]
pub struct Backlog {
    gap_ns: u64,
    last_ns: u64,
}

impl Backlog {
    /// A fresh budget: the first wake-up is free.
    pub const fn new() -> Self {
        Self {
            gap_ns: MIN_WAKE_GAP_NS,
            last_ns: 0,
        }
    }

    /// True if `now_ns` is far enough from the last wake-up; then it counts as one.
    #[must_use]
    pub fn spend(&mut self, now_ns: u64) -> bool {
        if now_ns.wrapping_sub(self.last_ns) < self.gap_ns {
            return false;
        }
        self.last_ns = now_ns;
        self.gap_ns = (self.gap_ns * 2).min(MAX_WAKE_GAP_NS);
        true
    }

    /// The woken carrier found work that had waited: wake sooner next time.
    pub fn useful(&mut self) {
        self.gap_ns = (self.gap_ns / 4).max(MIN_WAKE_GAP_NS);
    }

    /// The gap that the next wake-up must keep, in nanoseconds.
    pub const fn gap_ns(&self) -> u64 {
        self.gap_ns
    }
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new()
    }
}

/// The first interval between two of sysmon's looks.
pub const SYSMON_MIN_NS: u64 = 100_000;
/// The longest.
pub const SYSMON_MAX_NS: u64 = 10_000_000;
/// Sysmon keeps looking this long after everything went idle.
pub const SYSMON_LINGER_NS: u64 = 100_000_000;

/// What sysmon remembers of one carrier between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    switches: u64,
    queued: bool,
}

impl Seen {
    /// Takes the next look. True if work has waited since the last one: something was queued at
    /// both, and either the carrier made no switch between or its ring holds more than one now.
    pub fn backlog_lasts(&mut self, switches: u64, queued: bool, ring_len: usize) -> bool {
        let stuck = self.queued && queued && switches == self.switches;
        let lasting = self.queued && ring_len > 1;
        *self = Self { switches, queued };
        stuck || lasting
    }
}

/// The next interval between looks: short after something was found, then doubling.
pub const fn sysmon_interval_ns(last_ns: u64, acted: bool) -> u64 {
    if acted {
        return SYSMON_MIN_NS;
    }
    let doubled = last_ns * 2;
    if doubled > SYSMON_MAX_NS {
        SYSMON_MAX_NS
    } else {
        doubled
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_look_comes_as_often_as_it_says_and_never_two_at_once() {
        let count =
            |want: fn(Tick) -> bool| (0..6400).filter(|&n| want(Tick::of(n))).count() as u32;
        assert_eq!(count(|tick| tick.fair), 6400 / FAIR_EVERY);
        assert_eq!(count(|tick| tick.injector), 6400 / INJECTOR_EVERY);
        assert_eq!(count(|tick| tick.poll), 6400 / POLL_EVERY);
        assert_eq!(count(|tick| tick.fair && tick.injector), 0);
    }

    #[test]
    fn looks_go_on_where_the_count_wraps() {
        let around = |n: u32| u32::MAX.wrapping_add(n);
        let fair = (0..2 * FAIR_EVERY)
            .filter(|&n| Tick::of(around(n)).fair)
            .count();
        assert_eq!(fair, 2);
    }

    #[test]
    fn the_first_wake_up_is_free_and_the_gaps_double_to_the_longest() {
        let (mut backlog, mut now_ns, mut wakes) = (Backlog::new(), 1_000_000_000, 0);
        assert!(backlog.spend(now_ns));
        assert!(!backlog.spend(now_ns + MIN_WAKE_GAP_NS));
        for _ in 0..20 {
            let gap_ns = backlog.gap_ns();
            assert!(!backlog.spend(now_ns + gap_ns - 1));
            now_ns += gap_ns;
            assert!(backlog.spend(now_ns));
            wakes += 1;
        }
        assert_eq!((wakes, backlog.gap_ns()), (20, MAX_WAKE_GAP_NS));
    }

    #[test]
    fn useful_wake_ups_shorten_the_gap_down_to_the_shortest() {
        let mut backlog = Backlog::new();
        (1..20).for_each(|n| assert!(backlog.spend(n * MAX_WAKE_GAP_NS)));
        backlog.useful();
        assert_eq!(backlog.gap_ns(), MAX_WAKE_GAP_NS / 4);
        (0..10).for_each(|_| backlog.useful());
        assert_eq!(backlog.gap_ns(), MIN_WAKE_GAP_NS);
    }

    #[test]
    fn a_clock_that_starts_at_zero_wakes_after_the_first_gap() {
        let mut backlog = Backlog::new();
        assert!(!backlog.spend(MIN_WAKE_GAP_NS - 1));
        assert!(backlog.spend(MIN_WAKE_GAP_NS));
    }

    #[test]
    fn a_backlog_lasts_if_two_looks_see_it() {
        let mut seen = Seen::default();
        assert!(!seen.backlog_lasts(7, true, 3), "seen once");
        assert!(
            seen.backlog_lasts(9, true, 2),
            "a ring with more than one, at the second look"
        );
        assert!(
            !seen.backlog_lasts(11, true, 1),
            "one at a time is progress"
        );
        assert!(
            seen.backlog_lasts(11, true, 1),
            "no switch between two looks"
        );
        assert!(!seen.backlog_lasts(11, false, 0), "nothing waits");
        assert!(
            !seen.backlog_lasts(11, true, 0),
            "queued since the last look"
        );
    }

    #[test]
    fn sysmon_comes_back_soon_after_it_acted_and_ever_later_else() {
        assert_eq!(sysmon_interval_ns(SYSMON_MAX_NS, true), SYSMON_MIN_NS);
        let mut interval_ns = SYSMON_MIN_NS;
        for _ in 0..10 {
            let next_ns = sysmon_interval_ns(interval_ns, false);
            assert!(next_ns == (2 * interval_ns).min(SYSMON_MAX_NS));
            interval_ns = next_ns;
        }
        assert_eq!(interval_ns, SYSMON_MAX_NS);
    }
}
