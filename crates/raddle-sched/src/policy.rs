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
//! 2. Sysmon ticks while any carrier runs and another idles: a backlog or a filled LIFO slot that it
//!    sees on two ticks in a row without a switch between wakes a carrier.
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
    /// both and the carrier made no switch between, or its ring held a backlog at both.
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
