//! Threads that borrow: what they leave, where their panics go, and that nothing borrowed is
//! touched when their scope is over.

use raddle::Builder;
use raddle::thread::{ScopedJoinHandle, SelfJoin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Tells when it is gone, by what it borrows.
struct Late<'a>(&'a AtomicUsize);

impl Drop for Late<'_> {
    fn drop(&mut self) {
        std::thread::sleep(2 * MS);
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_scope_waits_for_all_threads_and_for_what_they_leave() {
    for name in [None, Some("weaver")] {
        let builder = || match name {
            None => Builder::new(),
            Some(name) => Builder::new().name(name),
        };
        let (ran, gone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (ran, gone) = (&ran, &gone);
        raddle::scope(|scope| {
            for joined in [true, false, false] {
                let thread = builder().spawn_scoped(&scope, move || {
                    std::thread::sleep(MS);
                    assert_eq!(std::thread::current().name(), name);
                    ran.fetch_add(1, Ordering::Relaxed);
                    Late(gone)
                });
                let thread = thread.unwrap();
                if joined {
                    drop(thread.join().unwrap());
                }
            }
        });
        let counted = (ran.load(Ordering::Relaxed), gone.load(Ordering::Relaxed));
        assert_eq!(counted, (3, 3));
    }
}

#[test]
fn many_threads_share_what_is_borrowed() {
    let mut numbers: Vec<u64> = (0..1000).collect();
    raddle::scope(|scope| {
        for number in &mut numbers {
            scope.spawn(move || {
                raddle::yield_now();
                *number *= 2;
            });
        }
    });
    assert_eq!(numbers.iter().sum::<u64>(), 999_000);
}

#[test]
fn threads_of_a_scope_start_others() {
    let count = AtomicUsize::new(0);
    let count = &count;
    raddle::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..10 {
                scope.spawn(move || {
                    raddle::yield_now();
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(count.load(Ordering::Relaxed), 10);
}

#[test]
fn panics_go_to_who_joins_or_to_the_scope() {
    let panicked = raddle::scope(|scope| scope.spawn(|| panic!("joined")).join().unwrap_err());
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"joined"));
    for is_late in [false, true] {
        let over = AtomicBool::new(false);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            raddle::scope(|scope| {
                scope.spawn(|| panic!("not joined"));
                scope.spawn(|| {
                    std::thread::sleep(2 * MS);
                    over.store(true, Ordering::Relaxed);
                });
                assert!(!is_late, "the scope's own");
            });
        }));
        let panicked = panicked.unwrap_err();
        let text = panicked.downcast_ref::<&str>();
        let own = ["a thread of the scope panicked", "the scope's own"];
        assert_eq!(text, Some(&own[usize::from(is_late)]));
        assert!(over.load(Ordering::Relaxed), "it waited all the same");
    }
}

#[test]
fn handles_tell_of_their_threads() {
    raddle::scope(|scope| {
        let thread = scope.spawn(std::thread::park);
        assert!(!thread.is_finished());
        thread.thread().unpark();
        while !thread.is_finished() {
            std::thread::sleep(MS);
        }
        thread.join().unwrap();
    });
    // A thread gets its own handle.
    let told = AtomicBool::new(false);
    let told = &told;
    raddle::scope(|scope| {
        let (to, from) = mpsc::channel::<ScopedJoinHandle<'_, bool>>();
        let thread = scope.spawn(move || {
            let refused = from.recv().unwrap().join().unwrap_err();
            told.store(refused.is::<SelfJoin>(), Ordering::Relaxed);
            true
        });
        to.send(thread).unwrap();
    });
    assert!(told.load(Ordering::Relaxed));
}

#[test]
fn a_thread_that_can_not_be_made_borrows_nothing() {
    let gone = AtomicUsize::new(0);
    raddle::scope(|scope| {
        let held = Late(&gone);
        let huge = Builder::new().stack_size(1 << 50);
        assert!(huge.spawn_scoped(&scope, move || drop(held)).is_err());
        assert_eq!(gone.load(Ordering::Relaxed), 1);
    });
}
