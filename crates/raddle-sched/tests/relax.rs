//! Waits for holders that have lost their CPU: the hook learns how long a wait lasts.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

use raddle_sched::version::Version;
use raddle_sched::{CountedLock, SpinLock, spin};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The hook and its memory are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// The next number that the hook expects.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Each wait counts from 0.
fn count(times: u32) {
    assert_eq!(times, NEXT.fetch_add(1, SeqCst));
    thread::yield_now();
}

/// Lets one thread `hold` until another one, which begins to `wait` meanwhile, has called the hook
/// a hundred times.
fn check(hold: impl FnOnce(&dyn Fn()) + Send, wait: impl FnOnce() + Send) {
    let _alone = ONE_AT_A_TIME.lock();
    NEXT.store(0, SeqCst);
    // SAFETY: the function may be called by any thread at any time.
    unsafe { spin::set_relax(count) };
    let (holds, is_held) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            hold(&|| {
                holds.send(()).expect("the waiter listens");
                let end = Instant::now() + Duration::from_secs(60);
                while NEXT.load(SeqCst) < 100 && Instant::now() < end {
                    thread::yield_now();
                }
            });
        });
        is_held.recv().expect("the holder says so");
        wait();
    });
    assert!(NEXT.load(SeqCst) >= 100);
}

#[test]
fn a_waiter_for_a_lock_counts_what_it_has_waited() {
    let lock = SpinLock::new(0);
    let hold = |until: &dyn Fn()| {
        let _guard = lock.lock();
        until();
    };
    check(hold, || *lock.lock() += 1);
}

#[test]
fn a_waiter_for_a_counted_lock_counts_what_it_has_waited() {
    let lock = CountedLock::new(0);
    let hold = |until: &dyn Fn()| {
        let _guard = lock.lock();
        until();
    };
    check(hold, || *lock.lock() += 1);
}

#[test]
fn a_reader_counts_what_it_has_waited_for_the_writer() {
    let version = Version::default();
    check(|until| version.change(until), || version.read(|| ()));
}
