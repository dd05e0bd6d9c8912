//! The bounds, derived from the policy's constants, and how near to them a run came.

use raddle_sched::policy::{FAIR_EVERY, POLL_EVERY, SYSMON_MAX_NS, SYSMON_MIN_NS};

/// The longest from a wake-up to the woken thread's run in the imaginary kernel.
pub(crate) const WAKE_MAX_NS: u64 = 60_000;
/// The longest pick, or other step between two steps of a green thread.
pub(crate) const STEP_MAX_NS: u64 = 200;
/// How long a carrier searches before it sleeps.
pub(crate) const SEARCH_NS: u64 = 8_000;

/// The longest that a green thread may wait in a queue while one and the same carrier idles.
///
/// Let `slice_ns` be the longest run without a switch. For a post from outside, or a push that the
/// budget lets wake: a kernel wake-up and a search. Otherwise sysmon must see the thread. Two looks
/// of sysmon are at most `look` apart:
/// 1. If the thread's carrier makes no switch between two looks, or its ring holds a backlog at the
///    second, sysmon wakes a carrier at the second, at most `2 * look` after the push.
/// 2. The woken carrier may take other threads first, and its own ring is then seen at its second
///    look. After a look that acted the next ones come soon (`MIN`, then `2 * MIN`): four `MIN` and
///    the wake-ups for each carrier that can be woken in between.
/// 3. In all other cases the thread is the only one in its ring, so its carrier takes it within
///    `FAIR_EVERY` picks; a slice that is longer than two looks is case 1.
pub(crate) fn idle_bound_ns(carriers: usize, slice_ns: u64) -> u64 {
    let look_ns = SYSMON_MAX_NS + WAKE_MAX_NS;
    let each_ns = 4 * SYSMON_MIN_NS + 4 * WAKE_MAX_NS + SEARCH_NS;
    let pick_ns = slice_ns.min(2 * look_ns) + 4 * STEP_MAX_NS;
    2 * look_ns + carriers as u64 * each_ns + u64::from(FAIR_EVERY) * pick_ns
}

/// The longest that a timer may be late. A running carrier looks every `POLL_EVERY` picks, one that
/// stops running becomes the poller unless there is one, and the poller is woken for its earliest
/// deadline.
pub(crate) fn timer_bound_ns(slice_ns: u64) -> u64 {
    let pick_ns = slice_ns + 4 * STEP_MAX_NS;
    u64::from(POLL_EVERY) * pick_ns + 2 * WAKE_MAX_NS + 2 * SEARCH_NS
}

#[derive(Default)]
pub(crate) struct Judge {
    pub longest_idle_ns: u64,
    pub latest_timer_ns: u64,
    pub thefts: u64,
    pub overflows: u64,
    /// The longest run without a switch that has ended.
    pub slice_ns: u64,
}

impl Judge {
    /// Work has waited beside an idle carrier for `waited_ns`; runs that go on have lasted up to
    /// `slice_ns`.
    pub(crate) fn idle(&mut self, waited_ns: u64, carriers: usize, slice_ns: u64) {
        self.longest_idle_ns = self.longest_idle_ns.max(waited_ns);
        let bound_ns = idle_bound_ns(carriers, slice_ns.max(self.slice_ns));
        assert!(
            waited_ns <= bound_ns,
            "a carrier idles while work waits: {waited_ns} ns, the bound being {bound_ns} ns"
        );
    }

    /// A timer expired.
    pub(crate) fn timer(&mut self, deadline_ns: u64, now_ns: u64, slice_ns: u64) {
        assert!(
            now_ns >= deadline_ns,
            "a timer expired {} ns early",
            deadline_ns - now_ns
        );
        let late_ns = now_ns - deadline_ns;
        self.latest_timer_ns = self.latest_timer_ns.max(late_ns);
        let bound_ns = timer_bound_ns(slice_ns.max(self.slice_ns));
        assert!(
            late_ns <= bound_ns,
            "a timer was {late_ns} ns late, the bound being {bound_ns} ns"
        );
    }
}
