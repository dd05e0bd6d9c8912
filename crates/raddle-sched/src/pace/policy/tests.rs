//! Tests of each rule on its own.

use super::*;

#[test]
fn every_kind_of_look_comes_as_often_as_it_says_and_never_two_at_once() {
    let count = |want: fn(Tick) -> bool| (0..6400).filter(|&n| want(Tick::of(n))).count() as u32;
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

/// A look at `now_ns`; the carrier has computed half of the time.
fn look(now_ns: u64, switches: u64, ring_len: usize) -> Look {
    Look {
        now_ns,
        cpu_ns: now_ns / 2,
        switches,
        queued: ring_len > 0,
        ring_len,
    }
}

#[test]
fn a_backlog_lasts_if_two_looks_see_it() {
    let mut seen = Seen::default();
    let mut lasts = |switches, ring_len| seen.look(look(1, switches, ring_len)).backlog_lasts;
    assert!(!lasts(7, 3), "seen once");
    assert!(lasts(9, 2), "a ring with more than one, at the second look");
    assert!(!lasts(11, 1), "one at a time is progress");
    assert!(lasts(11, 1), "no switch between two looks");
    assert!(!lasts(11, 0), "nothing waits");
    assert!(!lasts(11, 1), "queued since the last look");
}

#[test]
fn a_thread_holds_the_carrier_until_it_switches_or_is_told() {
    let mut seen = Seen::default();
    assert_eq!(seen.look(look(1000, 5, 0)).held_ns, 0, "first seen");
    assert_eq!(seen.look(look(3000, 5, 0)).held_ns, 2000);
    seen.told();
    assert_eq!(
        seen.look(look(3500, 5, 0)).held_ns,
        500,
        "anew since it was told"
    );
    assert_eq!(seen.look(look(9000, 6, 0)).held_ns, 0, "another thread");
}

#[test]
fn a_thread_that_waits_in_the_kernel_does_not_compute() {
    let mut seen = Seen::default();
    seen.look(look(1000, 5, 1));
    assert!(seen.look(look(9000, 5, 1)).computes);
    seen.told();
    let waits = Look {
        cpu_ns: 4510,
        ..look(20_000, 5, 1)
    };
    assert!(!seen.look(waits).computes);
}

const WHOLE: Terms = Terms {
    quantum_ns: QUANTUM_NS,
    timed: false,
};

fn computing(held_ns: u64) -> Found {
    Found {
        held_ns,
        computes: true,
        ..Found::default()
    }
}

fn demand(fresh: bool) -> Demand {
    Demand {
        waits: fresh,
        fresh,
        unattended: true,
    }
}

#[test]
fn who_is_woken_interrupts_who_computes_but_not_at_once() {
    let act = |held_ns, terms| judge(computing(held_ns), demand(true), terms).act;
    assert_eq!(act(SETTLED_NS - 1, WHOLE), Act::Leave);
    assert_eq!(act(SETTLED_NS, WHOLE), Act::Interrupt);
    assert_eq!(act(QUANTUM_NS, WHOLE), Act::Preempt);
    let for_ever = Terms {
        quantum_ns: u64::MAX,
        ..WHOLE
    };
    assert_eq!(act(1 << 40, for_ever), Act::Leave);
}

#[test]
fn a_quantum_that_a_timer_ends_is_sysmons_when_it_is_long_overdue() {
    let timed = Terms {
        timed: true,
        ..WHOLE
    };
    let verdict = |held_ns, fresh| {
        let demand = Demand {
            waits: true,
            ..demand(fresh)
        };
        judge(computing(held_ns), demand, timed)
    };
    let settled = verdict(QUANTUM_NS + 1, false);
    assert_eq!((settled.act, settled.within_ns), (Act::Leave, u64::MAX));
    assert!(settled.watch);
    assert_eq!(verdict(1, false).within_ns, SETTLED_NS - 1);
    let left_ns = QUANTUM_NS / 2;
    assert_eq!(verdict(left_ns, true).act, Act::Interrupt);
    assert_eq!(verdict(QUANTUM_NS + 1, true).act, Act::Interrupt);
    assert_eq!(verdict(2 * QUANTUM_NS - 1, false).act, Act::Leave);
    assert_eq!(verdict(2 * QUANTUM_NS, false).act, Act::Preempt);
}

#[test]
fn sysmon_watches_for_who_becomes_ready_when_it_could_do_something() {
    let watches = |found| judge(found, demand(false), WHOLE).watch;
    assert!(!watches(computing(0)), "it switches, and polls by itself");
    assert!(!watches(computing(SETTLED_NS - 1)), "not yet");
    assert!(watches(computing(SETTLED_NS)));
    assert!(watches(computing(10 * QUANTUM_NS)));
    let waiting = |held_ns| Found {
        computes: false,
        ..computing(held_ns)
    };
    assert!(watches(waiting(BLOCKED_NS)));
    assert!(!watches(waiting(BLOCKED_NS - 1)));
    let attended = Demand::default();
    let verdict = judge(computing(QUANTUM_NS), attended, WHOLE);
    assert_eq!((verdict.watch, verdict.within_ns), (false, u64::MAX));
}

#[test]
fn a_carrier_that_waits_in_the_kernel_is_replaced_if_somebody_waits_for_it() {
    let found = Found {
        held_ns: BLOCKED_NS,
        ..Found::default()
    };
    assert_eq!(judge(found, demand(true), WHOLE).act, Act::Replace);
    assert_eq!(judge(found, demand(false), WHOLE).act, Act::Leave);
    let early = Found {
        held_ns: BLOCKED_NS - 1,
        ..found
    };
    assert_eq!(judge(early, demand(true), WHOLE).within_ns, 1);
}

#[test]
fn nobody_waits_for_what_the_kernel_says_at_once() {
    let just_now = Found::default().waiting();
    assert!(!just_now.switches_on());
    assert_eq!(judge(just_now, demand(true), WHOLE).act, Act::Replace);
    let verdict = judge(just_now, demand(false), WHOLE);
    assert_eq!((verdict.act, verdict.watch), (Act::Leave, true));
    let attended = judge(just_now, Demand::default(), WHOLE);
    assert_eq!((attended.act, attended.watch), (Act::Leave, false));
}

#[test]
fn a_carrier_that_hardly_uses_its_cpu_is_looked_at_again_soon() {
    let mut seen = Seen::default();
    let mut again = |now_ns, switches, cpu_ns| {
        let look = Look {
            cpu_ns,
            ..look(now_ns, switches, 1)
        };
        judge(seen.look(look), demand(true), WHOLE).within_ns
    };
    assert_eq!(again(1_000_000, 1, 500_000), BUSY_NS);
    assert_eq!(again(2_000_000, 2, 501_000), BLOCKED_NS);
    assert_eq!(again(2_100_000, 3, 502_000), 2 * BLOCKED_NS, "it was wrong");
    assert_eq!(again(2_300_000, 4, 502_000), SUSPECT_NS);
    assert_eq!(again(2_600_000, 4, 502_000), BUSY_NS, "it was right");
    seen.asked(true);
    assert_eq!(
        [(); 5].map(|()| seen.suspect()),
        [1, 2, 4, 8, 10].map(|tenths| tenths * BLOCKED_NS)
    );
}

#[test]
fn a_carrier_that_was_taken_off_its_cpu_lately_is_asked_about_later() {
    let mut seen = Seen::default();
    let mut patience_at = |now_ns: u64, waits: bool| {
        let look = Look {
            cpu_ns: 1,
            ..look(now_ns, 1, 0)
        };
        let found = seen.look(look);
        seen.asked(waits);
        found.patience_ns
    };
    let start_ns = 2 * LATELY_NS;
    patience_at(1, false);
    let steps = [1, 2, 4, 8, 10, 10].map(|tenths| tenths * BLOCKED_NS);
    for (at, patience_ns) in (0..).zip(steps) {
        assert_eq!(patience_at(start_ns + at * LATELY_NS, false), patience_ns);
    }
    assert_eq!(patience_at(start_ns + 6 * LATELY_NS, true), BUSY_NS);
    let waited_ns = start_ns + 7 * LATELY_NS;
    assert_eq!(patience_at(waited_ns, false), BLOCKED_NS, "it did wait");
    assert_eq!(patience_at(waited_ns + LATELY_NS + 1, false), BLOCKED_NS);
}

#[test]
fn a_carrier_whose_thread_computes_is_asked_about_soon() {
    let mut seen = Seen::default();
    let mut patience_at = |now_ns: u64, cpu_ns: u64| {
        let look = Look {
            cpu_ns,
            ..look(now_ns, 1, 0)
        };
        let found = seen.look(look);
        seen.asked(false);
        found.patience_ns
    };
    let start_ns = 2 * LATELY_NS;
    let all = (0..6).map(|at| patience_at(start_ns + at * BUSY_NS, 1));
    assert_eq!(all.last(), Some(BUSY_NS), "it doesn't compute");
    let computed_ns = start_ns + 6 * BUSY_NS;
    assert_eq!(patience_at(computed_ns, 1 + COMPUTES_NS), SUSPECT_NS);
    let later_ns = computed_ns + LATELY_NS - 1;
    assert_eq!(patience_at(later_ns, 1 + COMPUTES_NS), SUSPECT_NS);
}

#[test]
fn a_thread_that_goes_on_has_held_the_carrier_since_then() {
    let mut seen = Seen::default();
    seen.look(look(1_000_000, 5, 0));
    let found = seen.look(look(1_200_000, 7, 0));
    assert!(found.switches_on());
    assert_eq!(seen.goes_on(1_200_000, found), found, "just now");
    let found = seen.goes_on(1_050_000, found);
    assert_eq!((found.held_ns, found.computes), (150_000, true));
    let verdict = judge(found, demand(true), WHOLE);
    assert_eq!(verdict.act, Act::Interrupt);
    let waits = Look {
        cpu_ns: 600_000,
        ..look(1_300_000, 7, 0)
    };
    let found = seen.look(waits);
    assert_eq!((found.held_ns, found.computes), (250_000, false));
}

#[test]
fn a_clock_that_fails_or_steps_back_is_no_long_run() {
    let mut seen = Seen::default();
    seen.look(look(9000, 5, 1));
    let unread = Look {
        cpu_ns: 0,
        ..look(8000, 5, 1)
    };
    let found = seen.look(unread);
    assert!(found.held_ns == 0 && !found.computes);
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
