//! When to look elsewhere, and when to wake another carrier: pure decisions on counters.
//!
//! A kernel wake-up costs as much as a hundred switches, and work that the running carrier reaches
//! within microseconds gains nothing from it: carriers that woke each other eagerly lost half of
//! their throughput. So a push wakes no carrier while the pushing carrier makes progress. Three
//! rules bound how long work waits while a carrier idles:
//!
//! 1. A push onto a backlog (the ring isn't empty) may wake an idle carrier if [`Backlog`]'s budget
//!    allows. The budget grows when the woken carrier found work that had waited, and shrinks with
//!    each wake-up.
//! 2. Sysmon ticks while any carrier runs and another idles: a backlog or a filled LIFO slot that
//!    two ticks in a row see without a switch between wakes a carrier.
//! 3. Work from outside the carriers (the injector) always wakes an idle one.

/// What a carrier's next look for work includes, by its count of picks.
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

/// The ring comes before the LIFO slot once every so many picks.
pub const FAIR_EVERY: u32 = 16;
/// The injector comes first once every so many picks.
pub const INJECTOR_EVERY: u32 = 64;
/// The carrier looks at timers and descriptors once every so many picks.
pub const POLL_EVERY: u32 = 64;

impl Tick {
    /// Returns what look number `count` includes.
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
/// The longest time between two such wake-ups.
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

    /// Returns true if `now_ns` is far enough from the last wake-up; then it counts as one.
    #[must_use]
    pub fn spend(&mut self, now_ns: u64) -> bool {
        if now_ns.wrapping_sub(self.last_ns) < self.gap_ns {
            return false;
        }
        self.last_ns = now_ns;
        self.gap_ns = (self.gap_ns * 2).min(MAX_WAKE_GAP_NS);
        true
    }

    /// The woken carrier found work that had waited: the gap shrinks.
    pub fn useful(&mut self) {
        self.gap_ns = (self.gap_ns / 4).max(MIN_WAKE_GAP_NS);
    }

    /// Returns the gap that the next wake-up must keep, in nanoseconds.
    pub const fn gap_ns(&self) -> u64 {
        self.gap_ns
    }
}

impl Default for Backlog {
    fn default() -> Self {
        Self::new()
    }
}

/// The first interval between two of sysmon's looks. What has to be seen sooner says so itself.
pub const SYSMON_MIN_NS: u64 = 250_000;
/// The longest interval.
pub const SYSMON_MAX_NS: u64 = 10_000_000;
/// How long sysmon keeps looking after all carriers went idle.
pub const SYSMON_LINGER_NS: u64 = 2_000_000;

/// A deadline within this time is worth an idle carrier that waits for it beside a running one.
pub const SOON_NS: u64 = 2_000_000;

/// The quantum: the longest that a thread runs while others wait, by default.
pub const QUANTUM_NS: u64 = 2_000_000;

/// One look of sysmon at a running carrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// The time.
    pub now_ns: u64,
    /// CPU time that the carrier's kernel thread has used.
    pub cpu_ns: u64,
    /// Switches that the carrier has made.
    pub switches: u64,
    /// True if the carrier's queue isn't empty.
    pub queued: bool,
    /// Threads in the carrier's ring.
    pub ring_len: usize,
}

/// A carrier that has waited in the kernel this long while others want to run is replaced.
pub const BLOCKED_NS: u64 = 100_000;
/// A thread that has held a carrier this long gives way even if the kernel gave the carrier next to
/// no CPU time: on a busy machine the others would wait for ever.
pub const STARVED_NS: u64 = 30_000_000;
/// A thread that computes isn't interrupted before this, whatever is woken.
pub const SETTLED_NS: u64 = 100_000;
/// The first look after a preemption: by then the next thread has settled, and one look sees all
/// there is to see before the end of its quantum.
pub const RELIEVED_NS: u64 = 150_000;
/// The longest interval between looks while a carrier runs and isn't watched otherwise.
pub const BUSY_NS: u64 = 1_000_000;
/// The same without block events, which would report carriers that wait in the kernel.
pub const BLIND_NS: u64 = 800_000;
/// A carrier that hardly uses its CPU is looked at again after this at the latest, while others
/// want to run and the kernel is not known to have other work.
pub const SUSPECT_NS: u64 = 300_000;
/// A thread that has used this much CPU time in one turn computes, and may soon delay others.
pub const COMPUTES_NS: u64 = 300_000;
/// The age at which a wrong suspicion is forgotten.
pub const LATELY_NS: u64 = 20_000_000;

/// What sysmon remembers of one carrier between two looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    last: Look,
    /// The time and CPU time when the running thread was first seen, or was told to give way.
    since: (u64, u64),
    /// How long the carrier may seem to wait in the kernel before sysmon asks the kernel.
    patience_ns: u64,
    /// When a suspicion that the carrier waits in the kernel was last wrong.
    wrong_ns: u64,
    /// When a thread that computes ([`COMPUTES_NS`]) was last seen.
    computed_ns: u64,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Work has waited since the last look: both looks saw a queue that wasn't empty, and the
    /// carrier made no switch between them; or the last look did, and the ring holds more than one
    /// now.
    pub backlog_lasts: bool,
    /// Switches that the carrier has made.
    pub switches: u64,
    /// How long one thread has held the carrier, at least; 0 if another one did at the last look.
    pub held_ns: u64,
    /// True if that thread used the CPU meanwhile, rather than waited in the kernel.
    pub computes: bool,
    /// True if the kernel says that the carrier waits there.
    pub waits: bool,
    /// Time until the next look if the carrier has switched since the last one.
    pub again_ns: u64,
    /// How long the carrier may seem to wait before the kernel is asked; at least [`BLOCKED_NS`].
    pub patience_ns: u64,
}

impl Found {
    /// Returns what was found, with the kernel's word that the carrier waits there.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self {
            computes: false,
            waits: true,
            ..self
        }
    }

    /// Returns true if the carrier has run another thread since the last look, and may again.
    pub const fn switches_on(self) -> bool {
        self.held_ns == 0 && !self.waits
    }
}

impl Seen {
    /// Takes the next look.
    pub fn look(&mut self, look: Look) -> Found {
        let same = look.switches == self.last.switches;
        if !same || self.since.0 == 0 {
            self.since = (look.now_ns, look.cpu_ns);
        }
        let queued = self.last.queued && look.queued;
        let held_ns = look.now_ns.saturating_sub(self.since.0);
        let used_ns = |since_ns: u64| look.cpu_ns.saturating_sub(since_ns); // 0 if it can't be read
        // The carrier hardly used the CPU: it may have begun to wait in the kernel.
        let elapsed_ns = look.now_ns.saturating_sub(self.last.now_ns);
        let rests = used_ns(self.last.cpu_ns) < elapsed_ns / 4;
        let waits = same && used_ns(self.since.1) <= held_ns / 32;
        if self.patience_ns == 0 || look.now_ns.saturating_sub(self.wrong_ns) > LATELY_NS {
            self.patience_ns = BLOCKED_NS;
        }
        if same && used_ns(self.since.1) >= COMPUTES_NS {
            self.computed_ns = look.now_ns;
            self.patience_ns = self.patience_ns.min(SUSPECT_NS);
        }
        let patience_ns = self.patience_ns;
        let found = Found {
            backlog_lasts: queued && same || self.last.queued && look.ring_len > 1,
            switches: look.switches,
            held_ns,
            // On a busy machine even a thread that computes doesn't run all the time.
            computes: !waits && same,
            waits: false,
            again_ns: if rests { patience_ns } else { BUSY_NS },
            patience_ns,
        };
        self.last = look;
        if rests && !waits {
            self.was_wrong(SUSPECT_NS); // if it waits, it has not switched
        }
        found
    }

    /// Notes the kernel's answer whether the carrier that was just looked at waits there. If it
    /// doesn't, the kernel had taken its CPU away, which happens every few milliseconds on a busy
    /// machine. Then the next question waits twice as long, because asking takes longer than
    /// looking.
    pub fn asked(&mut self, waits: bool) {
        let computes =
            self.computed_ns != 0 && self.last.now_ns.saturating_sub(self.computed_ns) < LATELY_NS;
        match waits {
            true => self.patience_ns = BLOCKED_NS,
            // A thread that computes has to make room soon after its carrier is back.
            false if computes => self.was_wrong(SUSPECT_NS),
            false => self.was_wrong(BUSY_NS),
        }
    }

    fn was_wrong(&mut self, longest_ns: u64) {
        let doubled_ns = (2 * self.patience_ns).clamp(BLOCKED_NS, longest_ns);
        self.patience_ns = self.patience_ns.max(doubled_ns);
        self.wrong_ns = self.last.now_ns;
    }

    /// The carrier that was just looked at has switched, and isn't on a CPU: it may have begun to
    /// wait in the kernel. Returns the time until the next look.
    pub fn suspect(&mut self) -> u64 {
        let patience_ns = self.patience_ns.max(BLOCKED_NS);
        self.asked(false);
        patience_ns
    }

    /// The carrier that was just looked at has switched to a thread that goes on since `since_ns`,
    /// after that thread had made room, and was seen to use the CPU now. Returns `found` with these
    /// facts, without another look.
    pub fn goes_on(&mut self, since_ns: u64, found: Found) -> Found {
        let held_ns = self.last.now_ns.saturating_sub(since_ns);
        if held_ns == 0 {
            return found;
        }
        // The CPU time before this look may be another thread's, so only what follows counts.
        self.since = (since_ns, self.last.cpu_ns);
        Found {
            held_ns,
            computes: true,
            ..found
        }
    }

    /// Returns true if the last look was at `now_ns`.
    pub fn is_of(&self, now_ns: u64) -> bool {
        self.last.now_ns == now_ns
    }

    /// The running thread was told to give way: its quantum begins anew.
    pub fn told(&mut self) {
        self.since = (self.last.now_ns, self.last.cpu_ns);
    }
}

/// The threads that wait while one thread holds a carrier.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// True if a thread waits: queued at the carrier, posted, or due.
    pub waits: bool,
    /// True if one of them has just been woken from outside the carriers.
    pub fresh: bool,
    /// True if no carrier waits for timers and descriptors.
    pub unattended: bool,
}

/// How long the thread that holds a carrier may go on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The quantum while others wait; `u64::MAX` for ever.
    pub quantum_ns: u64,
    /// True if a timer ends the quantum: sysmon does so only if that is overdue.
    pub timed: bool,
}

/// What to do about a carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Leave it alone.
    Leave,
    /// Its thread's quantum is over.
    Preempt,
    /// Its thread makes room for one that was woken.
    Interrupt,
    /// Replace it, if it waits in the kernel.
    Replace,
}

/// See [`judge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub act: Act,
    /// The time within which the next look must come.
    pub within_ns: u64,
    /// True if sysmon should notice at once when a thread becomes ready, because it would act.
    pub watch: bool,
}

/// Decides what sysmon does about one carrier after a look.
///
/// A woken thread runs before one that computes, once the latter has run for [`SETTLED_NS`]. The
/// computing thread keeps its share all the same: its account records what it has used
/// ([`crate::share`]).
pub fn judge(found: Found, demand: Demand, terms: Terms) -> Verdict {
    let cares = demand.waits || demand.unattended;
    let leave = |within_ns: u64| Verdict {
        act: Act::Leave,
        within_ns: if cares { within_ns } else { u64::MAX },
        watch: false,
    };
    if found.held_ns == 0 && !found.waits {
        return leave(found.again_ns);
    }
    if !found.computes {
        let left_ns = if found.waits {
            0
        } else {
            let patience_ns = found.patience_ns.max(BLOCKED_NS);
            patience_ns.saturating_sub(found.held_ns)
        };
        return match demand.waits {
            _ if left_ns != 0 => leave(left_ns),
            true => Verdict {
                act: Act::Replace,
                ..leave(BUSY_NS)
            },
            false => Verdict {
                watch: demand.unattended,
                ..leave(u64::MAX)
            },
        };
    }
    let left_ns = terms.quantum_ns.saturating_sub(found.held_ns);
    let is_over = if terms.timed {
        found.held_ns / 2 >= terms.quantum_ns
    } else {
        left_ns == 0
    };
    if is_over && demand.waits {
        return Verdict {
            act: Act::Preempt,
            within_ns: RELIEVED_NS,
            watch: false,
        };
    }
    let unsettled_ns = SETTLED_NS.saturating_sub(found.held_ns);
    let act = match terms.quantum_ns {
        u64::MAX => Act::Leave,
        _ if demand.fresh && unsettled_ns == 0 => Act::Interrupt,
        _ => Act::Leave,
    };
    let settles_ns = match unsettled_ns {
        0 => u64::MAX,
        ns => ns,
    };
    let within_ns = if demand.waits && !terms.timed {
        left_ns.min(settles_ns)
    } else {
        settles_ns
    };
    Verdict {
        act,
        watch: demand.unattended && unsettled_ns == 0,
        ..leave(within_ns)
    }
}

/// Returns the next interval between looks: short after an action, then doubling.
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
mod tests;
