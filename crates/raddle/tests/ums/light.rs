//! Light workers.

use super::in_place::{Shared, ends};
use super::{Heard, Turns, fork_and_ask, on_carriers, sleep_unseen};
use raddle::completion::{Completion, Failure};
use raddle::fiber;
use raddle::ums::{self, Cause, CompletionList, Context, State};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// The kinds of light workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    KeepsHost,
    Migrates,
}

/// Runs a test with workers of either kind, and on various numbers of carriers.
fn of_either_kind(test: impl Fn(Kind)) {
    on_carriers(|| {
        [Kind::KeepsHost, Kind::Migrates]
            .into_iter()
            .for_each(&test)
    });
}

/// Starts a worker, which holds nothing of its thread over a yield unless it keeps its host.
fn spawn<T: Send + 'static>(
    kind: Kind,
    list: &CompletionList,
    f: impl FnOnce() -> T + Send + 'static,
) -> Completion<T> {
    let started = match kind {
        Kind::KeepsHost => ums::spawn_light(list, f),
        // SAFETY: as said.
        Kind::Migrates => unsafe { ums::spawn_migrating(list, f) },
    };
    started.unwrap().1
}

/// Runs the workers of `list` on so many schedulers, which let them decide. Returns the reasons.
fn schedule(list: &CompletionList, workers: usize, schedulers: usize) -> Vec<Heard> {
    let shared = Shared::new(list, workers);
    raddle::scope(|scope| {
        let run = |_| scope.spawn(|| shared.run().0);
        let threads: Vec<_> = (0..schedulers).map(run).collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    })
}

fn count(heard: &[Heard], what: &Heard) -> usize {
    heard.iter().filter(|it| *it == what).count()
}

#[test]
fn light_workers_take_turns_and_keep_their_values() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let results: Vec<_> = (0..10usize)
            .map(|me| {
                let order = Arc::clone(&order);
                spawn(kind, &list, move || {
                    let mut sum = 0.5 * me as f64;
                    for i in 0..100 {
                        order.lock().unwrap().push(me);
                        ums::yield_now(i).unwrap();
                        assert!(ums::current().is_some());
                        sum += i as f64;
                    }
                    sum
                })
            })
            .collect();
        let heard = schedule(&list, 10, 1);
        let yields = heard.iter().filter(|it| matches!(it, Heard::Yielded(_)));
        assert_eq!(yields.count(), 1000);
        assert!(ends(&heard) >= 10, "{heard:?}");
        for (me, result) in results.into_iter().enumerate() {
            assert_eq!(result.wait().unwrap(), 0.5 * me as f64 + 4950.0);
        }
        // One that was long in a page fault, on a busy machine, was passed over.
        if !heard.contains(&Heard::Blocked(Cause::Kernel)) {
            let first: Vec<_> = order.lock().unwrap()[..10].to_vec();
            assert_eq!(first, (0..10).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_light_worker_that_blocks_holds_nobody_up_and_keeps_its_thread_meanwhile() {
    thread_local!(static OWN: Cell<usize> = const { Cell::new(0) });
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let all = Arc::new(Barrier::new(8)); // each waits for all others
        let results: Vec<_> = (1..=8usize)
            .map(|me| {
                let all = Arc::clone(&all);
                spawn(kind, &list, move || {
                    for i in 0..5 {
                        OWN.set(me);
                        all.wait();
                        std::thread::sleep(Duration::from_micros(50));
                        assert_eq!(OWN.get(), me, "nobody else was on the thread");
                        ums::yield_now(i).unwrap();
                    }
                })
            })
            .collect();
        let heard = schedule(&list, 8, 1);
        assert!(
            count(&heard, &Heard::Blocked(Cause::Call)) >= 8,
            "{heard:?}"
        );
        results.into_iter().for_each(|it| it.wait().unwrap());
    });
}

#[test]
fn a_light_worker_in_the_kernel_holds_nobody_up() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let sleeps = spawn(kind, &list, || sleep_unseen(300_000_000));
        let yields = spawn(kind, &list, || {
            (0..50).for_each(|i| ums::yield_now(i).unwrap())
        });
        let heard = schedule(&list, 2, 1);
        assert!(
            count(&heard, &Heard::Blocked(Cause::Kernel)) >= 1,
            "{heard:?}"
        );
        sleeps.wait().unwrap();
        yields.wait().unwrap();
    });
}

#[test]
fn light_workers_and_others_take_turns_on_several_schedulers() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let work = |me: usize| {
            move || {
                for i in 0..300 {
                    ums::yield_now(i).unwrap();
                    if (i + me).is_multiple_of(97) {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                    if (i + me).is_multiple_of(61) {
                        std::thread::yield_now();
                    }
                }
                me
            }
        };
        let light: Vec<_> = (0..12).map(|me| spawn(kind, &list, work(me))).collect();
        let full: Vec<_> = (0..4)
            .map(|me| ums::spawn(&list, work(me)).unwrap().1)
            .collect();
        schedule(&list, 16, 3);
        for (me, result) in light.into_iter().enumerate() {
            assert_eq!(result.wait().unwrap(), me);
        }
        for (me, handle) in full.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap(), me);
        }
    });
}

#[test]
fn schedulers_that_decide_themselves_execute_light_workers_too() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let left = AtomicUsize::new(6);
        let results: Vec<_> = (0..6usize)
            .map(|me| {
                spawn(kind, &list, move || {
                    for i in 0..20 {
                        ums::yield_now(i).unwrap();
                        std::thread::sleep(Duration::from_micros(10));
                    }
                    me
                })
            })
            .collect();
        let heard = raddle::scope(|scope| scope.spawn(|| Turns::run(&list, &left)).join().unwrap());
        assert_eq!(
            heard
                .iter()
                .filter(|it| matches!(it, Heard::Yielded(_)))
                .count(),
            120
        );
        assert!(ends(&heard) >= 6, "{heard:?}");
        for (me, result) in results.into_iter().enumerate() {
            assert_eq!(result.wait().unwrap(), me);
        }
    });
}

#[test]
fn a_panic_is_the_light_workers_own() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let panics = spawn(kind, &list, || -> u8 {
            ums::yield_now(0).unwrap();
            panic!("no answer")
        });
        let goes_on = spawn(kind, &list, || ums::yield_now(1).unwrap());
        schedule(&list, 2, 1);
        assert!(matches!(panics.wait(), Err(Failure::Panicked(_))));
        goes_on.wait().unwrap();
    });
}

#[test]
fn a_light_context_says_what_its_worker_does() {
    of_either_kind(|_| {
        let list = CompletionList::new().unwrap();
        let context = Context::new(&list);
        let result = ums::spawn_light_with(16 << 10, &context, || ums::current().unwrap());
        assert_eq!(context.state(), State::Listed);
        assert!(
            ums::spawn_light_with(16 << 10, &context, || ()).is_err(),
            "it has a worker"
        );
        schedule(&list, 1, 1);
        assert!(result.unwrap().wait().unwrap() == context);
        assert!(context.has_ended());
        assert_eq!(context.thread_id(), None);
    });
}

/// Their hosts block signals while they are idle: one for the process finds another thread.
#[test]
fn idle_hosts_take_no_signals() {
    static CAUGHT: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn catch(_: i32) {
        CAUGHT.fetch_add(1, Ordering::SeqCst);
    }
    let catch = catch as extern "C" fn(i32) as *const () as usize;
    // SAFETY: the handler only counts.
    unsafe { libc::signal(libc::SIGUSR2, catch) };
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let all = Arc::new(Barrier::new(5));
        for _ in 0..5 {
            let all = Arc::clone(&all);
            drop(spawn(kind, &list, move || _ = all.wait())); // a host each
        }
        schedule(&list, 5, 1);
        for _ in 0..20 {
            let before = CAUGHT.load(Ordering::SeqCst);
            // SAFETY: a signal to this process, which has a handler.
            unsafe { libc::kill(libc::getpid(), libc::SIGUSR2) };
            while CAUGHT.load(Ordering::SeqCst) == before {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}

#[test]
fn a_child_forked_by_a_light_worker_has_no_workers() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let rests = spawn(kind, &list, || {
            (0..10).for_each(|i| ums::yield_now(i).unwrap())
        });
        let forks = spawn(kind, &list, || {
            ums::yield_now(1).unwrap();
            let status = fork_and_ask();
            ums::yield_now(2).unwrap(); // it is a worker here
            status
        });
        schedule(&list, 2, 1);
        assert_eq!(forks.wait().unwrap(), 42);
        rests.wait().unwrap();
    });
}

/// References into thread-locals are held over yields, while other workers block and several
/// schedulers execute them.
#[test]
fn a_light_worker_keeps_the_thread_that_it_began_on() {
    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
        static NAMES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let work = |me: u64| {
            move || {
                let began = std::thread::current().id();
                COUNT.set(0);
                COUNT.with(|count| {
                    for round in 0..50 {
                        NAMES.with_borrow_mut(|names| {
                            names.push(me.to_string());
                            ums::yield_now(round).unwrap();
                            assert_eq!(names.pop(), Some(me.to_string()));
                        });
                        assert_eq!(count.replace(count.get() + 1), round as u64);
                        assert_eq!(std::thread::current().id(), began);
                        if (me + round as u64).is_multiple_of(13) {
                            std::thread::sleep(Duration::from_micros(20));
                        }
                    }
                });
            }
        };
        let results: Vec<_> = (0..16)
            .map(|me| spawn(Kind::KeepsHost, &list, work(me)))
            .collect();
        // Those that migrate come in between, on the same hosts.
        let others: Vec<_> = (0..16)
            .map(|_| {
                let yields = || (0..50).for_each(|i| ums::yield_now(i).unwrap());
                spawn(Kind::Migrates, &list, yields)
            })
            .collect();
        schedule(&list, 32, 2);
        let all = results.into_iter().chain(others);
        all.for_each(|result| result.wait().unwrap());
    });
}

/// If it became a fiber, its thread would be one for other workers, too.
#[test]
fn a_light_worker_is_no_fiber() {
    of_either_kind(|kind| {
        let list = CompletionList::new().unwrap();
        let convert = || {
            let refused = fiber::convert_thread().map(drop);
            ums::yield_now(0).unwrap();
            (refused, fiber::current().is_none())
        };
        let results = [(); 4].map(|()| spawn(kind, &list, convert));
        schedule(&list, 4, 1);
        for result in results {
            let (refused, is_none) = result.wait().unwrap();
            assert_eq!(refused, Err(fiber::Error::IsLight));
            assert!(is_none, "it is a fiber that it never was");
        }
    });
}
