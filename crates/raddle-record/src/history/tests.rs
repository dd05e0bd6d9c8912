use raddle_inspect::Lots;

use super::*;

const BEGIN: u64 = 1000;
/// A look after a fixed time.
const AFTER_10: Look = Look {
    mean_ns: 0,
    late_ns: 10,
};

fn event(kind: EventKind, thread: u32, other: u32, wait: WaitKind) -> Event {
    Event {
        stamp: 1,
        kind,
        thread,
        other,
        wait,
        arg: 0x40,
    }
}

fn told(events: &[(u32, EventKind, u32, u32, WaitKind, u64)]) -> Told {
    let mut history = History::new(BEGIN);
    for &(lane, kind, thread, other, wait, at) in events {
        let lane = Lane::Carrier(lane);
        history.event(lane, &event(kind, thread, other, wait), BEGIN + at);
    }
    history.finish(BEGIN + 100)
}

fn total(told: &Told, tid: u32, activity: Activity) -> Total {
    let of = |(doing, _): &(&Doing, &Total)| {
        told.threads[doing.thread as usize].tid == tid && doing.activity == activity
    };
    told.totals
        .iter()
        .find(of)
        .map_or(Total::default(), |it| *it.1)
}

use EventKind as E;
use WaitKind as W;

#[test]
fn every_moment_of_a_thread_is_counted_once() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 10),
        (0, E::SWITCH, 7, 8, W::MUTEX, 30),
        (0, E::WAKE, 7, 8, W::MUTEX, 50),
        (0, E::SWITCH, 8, 7, W::YIELD, 60),
        (0, E::END, 7, 8, W::NONE, 90),
    ]);
    let thread = &told.threads[0];
    assert_eq!((thread.tid, thread.running_ns), (7, 20 + 30));
    assert_eq!((thread.waiting_ns, thread.runnable_ns), (20, 10));
    assert_eq!(
        (thread.turns, thread.wakes, thread.ended_ns),
        (2, 1, Some(90))
    );
    let wait = total(&told, 7, Activity::Waiting(W::MUTEX));
    assert_eq!((wait.ns, wait.count, wait.longest_ns), (20, 1, 20));
    let other = &told.threads[1];
    assert_eq!((other.running_ns, other.runnable_ns), (30 + 10, 30));
    assert_eq!(told.wakers[&(W::MUTEX, 0x40)][&1], 1);
}

#[test]
fn a_wake_up_that_overtakes_the_switch_counts() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 0),
        (1, E::WAKE, 7, 9, W::FUTEX, 20),
        (0, E::SWITCH, 7, 0, W::FUTEX, 21),
        (1, E::SWITCH, 0, 7, W::NONE, 40),
    ]);
    let thread = &told.threads[0];
    assert_eq!((thread.waiting_ns, thread.runnable_ns), (0, 19));
}

#[test]
fn a_thread_that_takes_its_carrier_into_the_kernel_is_there() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 0),
        (0, E::BLOCK, 7, 0, W::NONE, 20),
        (0, E::RETURN, 7, 0, W::NONE, 70),
        (0, E::SWITCH, 7, 0, W::YIELD, 80),
    ]);
    let thread = &told.threads[0];
    assert_eq!((thread.running_ns, thread.in_kernel_ns), (30, 50));
    assert_eq!(thread.runnable_ns, 20);
}

#[test]
fn a_span_is_marked_while_it_lasts() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    let stack = StackNumber {
        epoch: 0,
        number: 3,
    };
    history.event(lane, &event(E::SWITCH, 7, 0, W::MUTEX), BEGIN);
    let mut fresh = history.fresh(AFTER_10);
    assert_eq!((fresh.len(), fresh[0].tid), (1, 7));
    history.expect_chance(&mut fresh, 0.5);
    history.mark(&fresh[0], stack);
    history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), BEGIN + 40);
    history.mark(&fresh[0], stack);
    assert!(history.fresh(AFTER_10).is_empty());
    history.event(lane, &event(E::SWITCH, 7, 0, W::SLEEP), BEGIN + 50);
    let unread = history.fresh(AFTER_10)[0];
    history.put_back(unread);
    assert_eq!(history.count_put_back(), 1);
    assert_eq!(history.take_put_back(0), Some(unread));
    history.put_back(unread);
    history.event(lane, &event(E::WAKE, 7, 0, W::SLEEP), BEGIN + 60);
    assert_eq!(history.take_put_back(0), None);
    assert_eq!(history.count_put_back(), 0);
    let told = history.finish(BEGIN + 70);
    let [span] = told.spans[..] else {
        panic!("one span: {:?}", told.spans);
    };
    let stands_for = (span.ns, span.stands_for_ns, span.stack);
    assert_eq!(stands_for, (40, 80.0, stack));
    assert_eq!(span.doing.object, 0x40);
}

#[test]
fn a_thread_that_was_woken_has_the_stack_of_its_wait() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    let stack = StackNumber {
        epoch: 0,
        number: 3,
    };
    history.event(lane, &event(E::SWITCH, 7, 0, W::MUTEX), BEGIN);
    let mut fresh = history.fresh(AFTER_10);
    history.expect_chance(&mut fresh, 0.5);
    history.mark(&fresh[0], stack);
    history.event(lane, &event(E::WAKE, 7, 8, W::MUTEX), BEGIN + 5);
    assert!(history.fresh(AFTER_10).is_empty());
    history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), BEGIN + 8);
    let told = history.finish(BEGIN + 9);
    let spans: Vec<_> = told
        .spans
        .iter()
        .map(|it| (it.ns, it.stands_for_ns))
        .collect();
    // The wait stands for an interval of 10 by chance a half; it was seen by chance a half.
    assert_eq!(spans, [(5, 20.0), (3, 12.0)]);
}

/// Waits of a thread in two functions, by turns: returns what the time of those that were read in
/// each stands for. At a look, a wait is read by `chance` if it is new. By `later` there is time
/// for others. Looks are `mean` apart, and `late` more; after one that has found a short wait, four
/// times as far.
fn time_of_short_and_long(
    lengths: [u64; 2],
    [chance, later]: [f64; 2],
    [mean, late]: [u64; 2],
) -> [f64; 2] {
    let (mut lots, mut gaps, mut pauses) = (Lots::new(7), Lots::new(9), Lots::new(11));
    let mut draws = move |chance: f64| (lots.draw() >> 11) as f64 / ((1u64 << 53) as f64) < chance;
    let mut history = History::new(BEGIN);
    let (lane, mut now, mut next_look) = (Lane::Carrier(0), BEGIN, BEGIN);
    let mut look = Look {
        mean_ns: mean,
        late_ns: late,
    };
    let mut pause = |mean: u64| {
        let lot = (pauses.draw() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - lot).ln() * mean as f64).round() as u64 + late
    };
    for turn in 0..40_000 {
        while next_look < now {
            look.mean_ns = mean;
            next_look += pause(mean); // the thread runs
        }
        history.event(lane, &event(E::SWITCH, 7, 0, W::SLEEP), now);
        let end = now + lengths[turn % 2];
        let stack = StackNumber {
            epoch: 0,
            number: turn as u32 % 2,
        };
        while next_look < end {
            let mut fresh = history.fresh(look);
            look.mean_ns = match (fresh.is_empty(), turn % 2) {
                (false, 0) => 4 * mean,
                _ => mean,
            };
            history.expect_chance(&mut fresh, chance);
            for unread in fresh {
                if draws(chance) {
                    history.mark(&unread, stack);
                } else {
                    history.put_back(unread);
                }
            }
            let has_time = draws(later);
            if has_time && history.count_put_back() > 0 {
                let unread = history.take_put_back(0);
                unread.iter().for_each(|it| history.mark(it, stack));
            }
            history.took_put_back(f64::from(u8::from(has_time)));
            next_look += pause(look.mean_ns);
        }
        history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), end);
        now = end + gaps.around_ns(200);
    }
    let mut times = [0.0; 2];
    for span in history.finish(now).spans {
        times[span.stack.number as usize] += span.stands_for_ns;
    }
    times
}

#[test]
fn waits_that_are_read_later_count_no_more_than_others() {
    let chances = [[1.0, 1.0], [0.3, 1.0], [0.3, 0.2], [0.05, 0.05], [0.2, 0.0]];
    for (chances, looks) in chances.iter().flat_map(|chances| {
        let all = [[100, 0], [100, 50], [20, 200], [0, 100]];
        all.map(|looks| (*chances, looks))
    }) {
        for lengths in [[30, 970], [430, 1570], [130, 270]] {
            let [short, long] = time_of_short_and_long(lengths, chances, looks);
            let found = short / (short + long);
            let right = lengths[0] as f64 / (lengths[0] + lengths[1]) as f64;
            assert!(
                (found - right).abs() < 0.03,
                "{lengths:?} by {chances:?} and {looks:?}: {found:.3} and not {right:.3}"
            );
        }
    }
}

#[test]
fn a_hold_lasts_from_the_end_of_a_wait_to_the_next_waiters_wake_up() {
    let told = told(&[
        (0, E::SWITCH, 7, 8, W::FUTEX, 0),
        (0, E::WAKE, 7, 8, W::FUTEX, 10),
        (0, E::SWITCH, 8, 7, W::FUTEX, 20),
        (0, E::SWITCH, 7, 0, W::SLEEP, 30),
        (0, E::SWITCH, 0, 7, W::NONE, 50),
        (0, E::WAKE, 8, 7, W::FUTEX, 60),
        (0, E::WAKE, 8, 7, W::FUTEX, 61),
    ]);
    let hold = told.holds[&(W::FUTEX, 0x40)];
    // The first hold counts from the begin of the wait that it ends.
    assert_eq!((hold.ns, hold.count, hold.longest_ns), (10 + 40, 2, 40));
}

#[test]
fn a_holder_that_has_not_waited_holds_since_the_waiter_came() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 0),
        (1, E::SWITCH, 8, 0, W::FUTEX, 10),
        (0, E::WAKE, 8, 7, W::FUTEX, 50),
        (1, E::SWITCH, 9, 0, W::FUTEX, 51),
        (0, E::WAKE, 9, 7, W::FUTEX, 60),
    ]);
    let hold = told.holds[&(W::FUTEX, 0x40)];
    assert_eq!((hold.ns, hold.count, hold.longest_ns), (40 + 9, 2, 40));
}

#[test]
fn waits_that_time_out_one_after_another_are_for_one_hold() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 0),
        (1, E::SWITCH, 8, 0, W::FUTEX, 10),
        (1, E::WAKE, 8, Event::TIMER, W::FUTEX, 20),
        (1, E::SWITCH, 0, 8, W::NONE, 21),
        (1, E::SWITCH, 8, 0, W::FUTEX, 23),
        (1, E::WAKE, 8, Event::TIMER, W::FUTEX, 33),
        (1, E::SWITCH, 0, 8, W::NONE, 34),
        (1, E::SWITCH, 8, 0, W::FUTEX, 36),
        (0, E::WAKE, 8, 7, W::FUTEX, 40),
    ]);
    let hold = told.holds[&(W::FUTEX, 0x40)];
    assert_eq!((hold.ns, hold.count, hold.longest_ns), (30, 1, 30));
}

#[test]
fn a_wait_that_timed_out_is_over_once_its_thread_waits_for_something_else() {
    let told = told(&[
        (0, E::SWITCH, 0, 7, W::NONE, 0),
        (1, E::SWITCH, 8, 0, W::FUTEX, 10),
        (1, E::WAKE, 8, Event::TIMER, W::FUTEX, 20),
        (1, E::SWITCH, 0, 8, W::NONE, 20),
        (1, E::SWITCH, 8, 0, W::SLEEP, 20),
        (1, E::SWITCH, 0, 8, W::NONE, 30),
        (1, E::SWITCH, 8, 0, W::FUTEX, 31),
        (0, E::WAKE, 8, 7, W::FUTEX, 40),
    ]);
    let hold = told.holds[&(W::FUTEX, 0x40)];
    assert_eq!((hold.ns, hold.count), (9, 1));
}

#[test]
fn a_thread_whose_wait_timed_out_has_not_taken_the_lock() {
    let told = told(&[
        (0, E::SWITCH, 8, 0, W::FUTEX, 10),
        (0, E::WAKE, 8, Event::TIMER, W::FUTEX, 20),
        (0, E::SWITCH, 0, 8, W::NONE, 21),
        (1, E::SWITCH, 7, 0, W::FUTEX, 50),
        (0, E::WAKE, 7, 8, W::FUTEX, 60),
    ]);
    let hold = told.holds[&(W::FUTEX, 0x40)];
    assert_eq!((hold.ns, hold.count), (10, 1));
}

#[test]
fn a_new_thread_has_the_name_of_its_parent() {
    let mut history = History::new(BEGIN);
    let mut record = ThreadRecord {
        tid: 7,
        carrier: 2,
        ..ThreadRecord::default()
    };
    record.state = ThreadState::RUNNING;
    history.was_there(&record);
    history.name(7, b"pool");
    assert_eq!(history.running(2), Some((7, 0)));
    let made = event(E::CREATE, 8, 7, W::NONE);
    history.event(Lane::Carrier(2), &made, BEGIN + 5);
    let told = history.finish(BEGIN + 10);
    assert_eq!(
        (&*told.threads[1].name, told.threads[1].began_ns),
        ("pool", Some(5))
    );
    assert_eq!(told.threads[0].running_ns, 10);
}

#[test]
fn a_thread_that_names_itself_and_ends_at_once_has_its_name() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), BEGIN);
    history.name(7, b"maker");
    history.event(lane, &event(E::CREATE, 8, 7, W::NONE), BEGIN + 1);
    history.event(lane, &event(E::SWITCH, 7, 8, W::JOIN), BEGIN + 2);
    history.event(
        lane,
        &Event::of_name(E::NAME_REST, 1, 8, b"rest"),
        BEGIN + 3,
    );
    history.event(
        lane,
        &Event::of_name(E::NAME, 1, 8, b"brief-with-"),
        BEGIN + 3,
    );
    history.event(lane, &event(E::END, 8, 7, W::NONE), BEGIN + 4);
    let names: Vec<_> = history
        .finish(BEGIN + 5)
        .threads
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(names, ["maker", "brief-with-rest"]);
}

#[test]
fn waits_for_many_objects_are_counted_by_object() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    let at = |number: u64| BEGIN + number * 10;
    for number in 0..90 {
        let wait = Event {
            arg: 1 + number % 9,
            ..event(E::SWITCH, 7, 8, W::FUTEX)
        };
        history.event(lane, &wait, at(number));
        let woken = Event {
            kind: E::WAKE,
            ..wait
        };
        history.event(lane, &woken, at(number) + 4);
        history.event(lane, &event(E::SWITCH, 8, 7, W::YIELD), at(number) + 5);
    }
    let told = history.finish(at(90));
    for object in 1..=9 {
        let doing = Doing {
            thread: 0,
            activity: Activity::Waiting(W::FUTEX),
            object,
        };
        let total = told.totals[&doing];
        assert_eq!((total.ns, total.count, total.longest_ns), (40, 10, 4));
        assert_eq!(total.first_ns, at(object - 1));
        assert_eq!(told.wakers[&(W::FUTEX, object)][&1], 10);
        assert_eq!(told.holds[&(W::FUTEX, object)].count, 10);
    }
    let thread = &told.threads[0];
    assert_eq!((thread.waiting_ns, thread.runnable_ns), (360, 90));
    assert_eq!(
        (thread.running_ns, thread.turns, thread.wakes),
        (450, 90, 90)
    );
}

#[test]
fn a_place_of_a_thread_that_has_ended_is_another_ones() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    history.event(lane, &event(E::SWITCH, 7, 8, W::MUTEX), BEGIN);
    let unread = history.fresh(AFTER_10);
    assert_eq!(unread.len(), 1);
    history.put_back(unread[0]);
    history.event(lane, &event(E::SWITCH, 8, 7, W::YIELD), BEGIN + 1);
    history.event(lane, &event(E::END, 7, 8, W::NONE), BEGIN + 2);
    history.event(lane, &event(E::CREATE, 9, 8, W::NONE), BEGIN + 3);
    assert_eq!(history.take_put_back(0), None);
    let fresh: Vec<_> = history.fresh(AFTER_10).iter().map(|it| it.tid).collect();
    assert_eq!(fresh, [9]);
    let stack = StackNumber {
        epoch: 0,
        number: 3,
    };
    history.mark(&unread[0], stack);
    assert_eq!((history.position(7), history.position(9)), (None, Some(2)));
    let told = history.finish(BEGIN + 9);
    assert!(told.spans.is_empty());
    assert_eq!(told.threads[0].ended_ns, Some(2));
    assert_eq!(
        (told.threads[2].began_ns, told.threads[2].runnable_ns),
        (Some(3), 6)
    );
}

#[test]
fn a_thread_that_waits_again_and_again_is_fresh_once() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    for number in 0..5 {
        history.event(lane, &event(E::SWITCH, 7, 0, W::SLEEP), BEGIN + number * 2);
        history.event(
            lane,
            &event(E::SWITCH, 0, 7, W::NONE),
            BEGIN + number * 2 + 1,
        );
    }
    assert!(history.fresh(AFTER_10).is_empty(), "it runs");
    history.event(lane, &event(E::SWITCH, 7, 0, W::SLEEP), BEGIN + 20);
    let [unread] = history.fresh(AFTER_10)[..] else {
        panic!("one span");
    };
    history.put_back(unread);
    history.put_back(unread);
    assert_eq!(history.take_put_back(0), Some(unread));
    assert_eq!(history.count_put_back(), 0);
}

#[test]
fn threads_that_are_not_told_apart_are_counted() {
    let mut history = History::new(BEGIN);
    let lane = Lane::Carrier(0);
    let mut begin = |tid| {
        history.event(lane, &event(E::SWITCH, 0, tid, W::NONE), BEGIN + 1);
        history.further_threads
    };
    let most = THREADS_MAX as u32;
    let counts: Vec<u64> = (1..=most + 2).map(&mut begin).collect();
    assert_eq!(counts[THREADS_MAX - 2..], [0, 0, 2, 3]);
    history.name(most + 2, b"one of many");
    let told = history.finish(BEGIN + 2);
    assert_eq!(told.threads.len(), THREADS_MAX);
    assert_eq!(told.threads[THREADS_MAX - 1].name, "[further threads]");
}

/// What ended waits for an object, beside threads.
fn ended(told: &Told, kind: WaitKind, object: u64) -> Ended {
    let activity = Activity::Waiting(kind);
    let is_it = |doing: &Doing| doing.activity == activity && doing.object == object;
    let of = told.ended.iter().find(|(doing, _)| is_it(doing));
    of.map_or(Ended::default(), |it| *it.1)
}

#[test]
fn what_ended_waits_is_counted_with_their_time() {
    let told = told(&[
        (0, E::SWITCH, 7, 0, W::FUTEX, 10),
        (0, E::WAKE, 7, Event::TIMER, W::FUTEX, 15),
        (0, E::SWITCH, 0, 7, W::NONE, 20),
        (0, E::SWITCH, 7, 0, W::FUTEX, 30),
        (0, E::WAKE, 7, Event::END, W::FUTEX, 37),
        (0, E::SWITCH, 0, 7, W::NONE, 40),
        (0, E::SWITCH, 7, 0, W::FUTEX, 50),
        (0, E::WAKE, 7, 0, W::FUTEX, 61),
        (0, E::SWITCH, 0, 7, W::NONE, 70),
        (0, E::SWITCH, 7, 0, W::FUTEX, 71),
        (0, E::WAKE, 7, 8, W::FUTEX, 74),
        (0, E::SWITCH, 0, 7, W::NONE, 75),
        (0, E::SWITCH, 7, 0, W::FUTEX, 80),
    ]);
    let expected = Ended {
        timer_ns: 5,
        end_ns: 7,
        kernel_ns: 11,
        lasting_ns: 20,
    };
    assert_eq!(ended(&told, W::FUTEX, 0x40), expected);
    let all = total(&told, 7, Activity::Waiting(W::FUTEX));
    assert_eq!((all.ns, all.count), (5 + 7 + 11 + 3 + 20, 5));
}

/// More objects by turns than a thread's place has room for: none loses what ended its waits.
#[test]
fn what_ended_waits_for_many_objects_is_kept_of_each() {
    let mut history = History::new(BEGIN);
    let mut at_ns = BEGIN;
    let mut take = |kind, thread, other, wait, arg| {
        at_ns += 1;
        let event = Event {
            arg,
            ..event(kind, thread, other, wait)
        };
        history.event(Lane::Carrier(0), &event, at_ns);
    };
    for _ in 0..3 {
        for object in 1..=9 {
            take(E::SWITCH, 7, 0, W::FD_READ, object);
            take(E::WAKE, 7, 0, W::FD_READ, object);
            take(E::SWITCH, 0, 7, W::NONE, 0);
            take(E::SWITCH, 7, 0, W::FUTEX, object);
            take(E::WAKE, 7, Event::TIMER, W::FUTEX, object);
            take(E::SWITCH, 0, 7, W::NONE, 0);
        }
    }
    let told = history.finish(at_ns);
    for object in 1..=9 {
        assert_eq!(ended(&told, W::FD_READ, object).kernel_ns, 3);
        assert_eq!(ended(&told, W::FUTEX, object).timer_ns, 3);
    }
}
