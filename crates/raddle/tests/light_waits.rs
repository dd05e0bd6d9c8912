//! Waits that leave a light thread's host to others: times, `park`, completions; and scopes.

use raddle::completion::{self, TimedWait};
use raddle::light;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(30);

/// Threads of this process that host light threads.
fn hosts() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let is_host = |task: &std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.trim() == "raddle-host"
    };
    tasks.filter_map(Result::ok).filter(is_host).count()
}

#[test]
fn a_thousand_sleep_on_few_hosts() {
    let started = Instant::now();
    let threads: Vec<_> = (0..1000)
        .map(|_| light::spawn(|| light::sleep(200 * MS)))
        .collect();
    while started.elapsed() < 100 * MS {
        light::yield_now();
    }
    let hosts = hosts();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(started.elapsed() >= 200 * MS);
    assert!(hosts < 200, "{hosts} hosts for those that sleep");
}

#[test]
fn no_sleep_ends_early() {
    let threads: Vec<_> = (0..200u32)
        .map(|i| {
            light::spawn(move || {
                let (started, time) = (Instant::now(), i % 20 * MS);
                light::sleep(time);
                assert!(started.elapsed() >= time);
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    light::sleep(MS); // on a thread that isn't light
}

#[test]
fn a_sleeper_wakes_while_others_work() {
    let woke = AtomicBool::new(false);
    light::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let started = Instant::now();
                while !woke.load(Ordering::Relaxed) {
                    assert!(started.elapsed() < LONG, "the sleeper isn't woken");
                    light::yield_now();
                }
            });
        }
        scope.spawn(|| {
            light::sleep(5 * MS);
            woke.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn a_permission_is_kept_until_it_is_used() {
    let thread = light::spawn(|| {
        let own = light::current().unwrap();
        own.unpark();
        own.unpark();
        light::park();
        let started = Instant::now();
        light::park_timeout(5 * MS);
        started.elapsed()
    });
    assert!(
        thread.join().unwrap() >= 5 * MS,
        "one permission was used twice"
    );
}

#[test]
fn a_park_ends_by_time_or_by_word() {
    let thread = light::spawn(|| {
        let started = Instant::now();
        light::park_timeout(LONG);
        started.elapsed()
    });
    light::sleep(2 * MS);
    thread.thread().unpark();
    assert!(thread.join().unwrap() < LONG);
    light::park_timeout(MS); // on a thread that isn't light
}

#[test]
fn a_handle_of_one_that_ended_wakes_nobody() {
    let ended = light::spawn(|| ());
    let handle = ended.thread();
    ended.join().unwrap();
    handle.unpark();
    handle.unpark();
    assert_eq!(light::spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn two_wake_each_other_many_times() {
    const ROUNDS: u64 = 20_000;
    let turn = AtomicU64::new(0);
    let play = |me: u64, other: light::Thread| {
        for round in 0..ROUNDS {
            while turn.load(Ordering::SeqCst) != 2 * round + me {
                match round % 3 {
                    0 => light::park(),
                    _ => light::park_timeout(LONG),
                }
            }
            turn.fetch_add(1, Ordering::SeqCst);
            other.unpark();
        }
    };
    light::scope(|scope| {
        let (promise, partner) = completion::pair();
        let first = scope.spawn(move || play(0, partner.wait().unwrap()));
        let first = first.thread();
        let second = scope.spawn(move || play(1, first));
        promise.set(second.thread()).unwrap();
    });
    assert_eq!(turn.load(Ordering::SeqCst), 2 * ROUNDS);
}

#[test]
fn a_wait_with_a_timeout_ends_by_time_and_goes_on() {
    let thread = light::spawn(|| {
        let (promise, completion) = completion::pair();
        let started = Instant::now();
        let Err(TimedWait::TimedOut(completion)) = completion.wait_timeout(5 * MS) else {
            panic!("nobody set it");
        };
        assert!(started.elapsed() >= 5 * MS);
        let setter = light::spawn(move || {
            light::sleep(5 * MS);
            promise.set(7).unwrap();
        });
        let value = completion.wait_timeout(LONG).unwrap();
        assert!(started.elapsed() < LONG);
        setter.join().unwrap();
        value
    });
    assert_eq!(thread.join().unwrap(), 7);
}

#[test]
fn a_value_that_comes_with_the_timeout_has_one_owner() {
    for i in 0..300 {
        let (promise, completion) = completion::pair();
        let waiter = light::spawn(move || match completion.wait_timeout(2 * MS) {
            Ok(value) => Some(value),
            Err(TimedWait::TimedOut(completion)) => completion.wait_timeout(LONG).ok(),
            Err(TimedWait::Failed(failure)) => panic!("{failure}"),
        });
        let setter = light::spawn(move || {
            light::sleep(Duration::from_micros(1700 + i));
            promise.set(i)
        });
        assert_eq!(setter.join().unwrap(), Ok(()));
        assert_eq!(waiter.join().unwrap(), Some(i));
    }
}

#[test]
fn unparks_of_earlier_waits_end_no_later_wait_without_its_value() {
    for _ in 0..2000 {
        let (promise, completion) = completion::pair();
        let waiter = light::spawn(move || {
            light::park_timeout(Duration::from_micros(20));
            completion.wait().unwrap()
        });
        let thread = waiter.thread();
        let giver = light::spawn(move || (0..3).for_each(|_| thread.unpark()));
        promise.set(5).unwrap();
        assert_eq!(waiter.join().unwrap(), 5);
        giver.join().unwrap();
    }
}

#[test]
fn unparks_end_no_join_before_its_time() {
    static OVER: AtomicBool = AtomicBool::new(false);
    let joins = light::spawn(|| {
        for i in 0..5000u32 {
            if i % 7 == 0 {
                light::park_timeout(Duration::from_micros(10));
            }
            let thread = light::spawn(move || {
                if i % 3 == 0 {
                    light::yield_now();
                }
                i
            });
            assert_eq!(thread.join().unwrap(), i);
        }
    });
    let thread = joins.thread();
    let unparks = raddle::spawn(move || {
        while !OVER.load(Ordering::Relaxed) {
            thread.unpark();
            raddle::yield_now();
        }
    });
    joins.join().unwrap();
    OVER.store(true, Ordering::Relaxed);
    unparks.join().unwrap();
}

#[test]
fn threads_of_a_scope_borrow_and_give_back() {
    let words = ["warp", "weft", "shed"];
    let mut lengths = [0; 3];
    light::scope(|scope| {
        for (length, word) in lengths.iter_mut().zip(&words) {
            scope.spawn(move || {
                light::yield_now();
                *length = word.len();
            });
        }
    });
    assert_eq!(lengths, [4, 4, 4]);
    let sum = light::spawn(move || {
        light::scope(|scope| {
            let threads = lengths
                .each_ref()
                .map(|length| scope.spawn(move || *length));
            threads
                .map(|thread| thread.join().unwrap())
                .iter()
                .sum::<usize>()
        })
    });
    assert_eq!(sum.join().unwrap(), 12);
}

#[test]
fn a_scope_waits_for_those_that_its_threads_start() {
    let ended = AtomicU64::new(0);
    light::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..10 {
                scope.spawn(|| {
                    light::sleep(2 * MS);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
    });
    assert_eq!(ended.load(Ordering::SeqCst), 10);
}

#[test]
fn panics_in_a_scope_go_to_who_joins_or_to_the_scope() {
    let panicked = light::scope(|scope| scope.spawn(|| panic!("joined")).join().unwrap_err());
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"joined"));
    let ended = AtomicBool::new(false);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        light::scope(|scope| {
            scope.spawn(|| panic!("not joined"));
            scope.spawn(|| {
                light::sleep(5 * MS);
                ended.store(true, Ordering::SeqCst);
            });
        });
    }));
    assert!(panicked.is_err() && ended.load(Ordering::SeqCst));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        light::scope(|scope| {
            scope.spawn(|| light::sleep(2 * MS));
            panic!("the scope's own");
        })
    }));
    let panicked = panicked.unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"the scope's own"));
}

#[test]
fn the_child_of_a_fork_sleeps() {
    let status = light::spawn(|| {
        // SAFETY: the child only uses what the crate and libc allow there.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let started = Instant::now();
            light::sleep(2 * MS);
            let slept = started.elapsed() >= 2 * MS;
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(if slept { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: a live word.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        libc::WEXITSTATUS(status)
    });
    assert_eq!(status.join().unwrap(), 7);
}
