//! A light thread that has begun stays on its host, and is woken there.

use raddle::completion::{self, Promise};
use raddle::light;
use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{ThreadId, current};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static VALUES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn host() -> ThreadId {
    current().id()
}

/// One of the waits of the crate.
fn wait(kind: u64) {
    match kind % 6 {
        0 => light::yield_now(),
        1 => light::sleep(Duration::from_micros(30)),
        2 => light::park_timeout(Duration::from_micros(30)),
        3 => light::spawn(|| ()).join().unwrap(),
        4 => {
            let (promise, completion) = completion::pair();
            raddle::spawn(move || promise.set(()).unwrap());
            completion.wait().unwrap();
        }
        _ => light::scope(|scope| drop(scope.spawn(light::yield_now))),
    }
}

/// Light threads hold references to thread-locals over every kind of wait, while others block their
/// hosts, and wake them from elsewhere.
#[test]
fn references_to_thread_locals_stay_the_threads_own() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let threads: Vec<_> = (0..64u64)
        .map(|own| {
            light::spawn(move || {
                let began = host();
                COUNT.with(|count| {
                    for round in 0..60 {
                        let before = count.get();
                        count.set(before + 1);
                        VALUES.with_borrow_mut(|values| {
                            values.push(round.to_string());
                            values.truncate(3);
                        });
                        if (own + round) % 16 == 0 {
                            std::thread::sleep(MS / 4);
                        }
                        wait(own + round);
                        assert_eq!(host(), began, "after a wait of kind {}", (own + round) % 6);
                        assert!(count.get() > before);
                        SUM.fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(SUM.load(Ordering::Relaxed), 64 * 60);
}

/// Runs both on light threads of different hosts.
fn on_two_hosts(first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    let begun = AtomicBool::new(false);
    light::scope(|scope| {
        scope.spawn(|| {
            scope.spawn(|| {
                begun.store(true, Ordering::Release);
                second();
            });
            let started = Instant::now();
            while !begun.load(Ordering::Acquire) {
                assert!(started.elapsed() < LONG, "no other host takes it");
                std::hint::spin_loop();
            }
            first();
        });
    });
}

/// Two threads wake each other; the host of the woken one sleeps or is about to.
#[test]
fn no_wake_up_from_another_host_is_lost() {
    const ROUNDS: u64 = 20_000;
    let turn = AtomicU64::new(0);
    let players = [const { Mutex::new(None::<light::Thread>) }; 2];
    let play = |own: usize| {
        *players[own].lock().unwrap() = light::current();
        let began = host();
        for round in 0..ROUNDS {
            while turn.load(Ordering::SeqCst) != 2 * round + own as u64 {
                match round % 3 {
                    0 => light::park_timeout(LONG),
                    _ => light::park(),
                }
            }
            turn.fetch_add(1, Ordering::SeqCst);
            loop {
                let other = *players[1 - own].lock().unwrap();
                if let Some(other) = other {
                    break other.unpark();
                }
                light::yield_now();
            }
        }
        assert_eq!(host(), began);
        began
    };
    let hosts = Mutex::new(Vec::new());
    let run = |own| {
        let began = play(own);
        hosts.lock().unwrap().push(began);
    };
    on_two_hosts(|| run(0), || run(1));
    let hosts = hosts.into_inner().unwrap();
    assert_ne!(hosts[0], hosts[1]);
}

/// A thread that is woken from another host doesn't wait until its busy host is idle.
#[test]
fn a_busy_host_sees_what_other_threads_wake() {
    let over = AtomicBool::new(false);
    let (promise, completion) = completion::pair();
    light::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        light::yield_now();
                    }
                });
            }
            scope.spawn(move || completion.wait().unwrap());
            light::sleep(5 * MS);
            raddle::spawn(move || promise.set(()).unwrap())
                .join()
                .unwrap();
            let started = Instant::now();
            light::spawn(|| light::sleep(MS)).join().unwrap();
            assert!(started.elapsed() < LONG);
            over.store(true, Ordering::Relaxed);
        });
    });
}

/// Threads that begin while others yield all the time get their turns, and the other way round.
#[test]
fn those_that_begin_and_those_that_have_begun_come_by_turns() {
    static LEFT: AtomicU64 = AtomicU64::new(2000);
    let yields: Vec<_> = (0..8)
        .map(|_| {
            light::spawn(|| {
                while LEFT.load(Ordering::Relaxed) != 0 {
                    light::yield_now();
                }
            })
        })
        .collect();
    fn chain() {
        if LEFT.fetch_sub(1, Ordering::Relaxed) > 1 {
            drop(light::spawn(chain));
        }
    }
    light::spawn(chain);
    yields.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A migrating thread goes on although another one blocks the host that it has begun on, and waits
/// for it.
#[test]
fn one_that_migrates_leaves_a_host_that_blocks() {
    // SAFETY: these threads hold nothing of a thread over a wait.
    let migrating = unsafe { light::Builder::new().migrating() };
    let round = move || {
        let (promise, completion): (Promise<()>, _) = completion::pair();
        let (went_on, has_gone_on) = std::sync::mpsc::channel();
        let began = host();
        let blocks = migrating.spawn(move || {
            promise.set(()).unwrap();
            has_gone_on.recv().unwrap()
        });
        completion.wait().unwrap();
        let migrated = host() != began;
        went_on.send(()).unwrap();
        blocks.unwrap().join().unwrap();
        migrated
    };
    let rounds = migrating.spawn(move || (0..200).filter(|_| round()).count());
    assert!(rounds.unwrap().join().unwrap() > 0, "it never migrated");
}
