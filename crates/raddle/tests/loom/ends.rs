//! Every interleaving of a thread's end and the end of its handle.

use super::explore;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use raddle::thread::ends::{Ends, JOINED, OVER};
use std::sync::Arc;

/// Shared state, and how often it was freed.
struct World {
    ends: Ends,
    result: UnsafeCell<Option<u32>>,
    frees: AtomicU32,
    losses: AtomicU32,
}

// SAFETY: the model checks that the result is one side's at a time.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ends: Ends::new(),
            result: UnsafeCell::new(None),
            frees: AtomicU32::new(0),
            losses: AtomicU32::new(0),
        })
    }

    fn take(&self) -> Option<u32> {
        // SAFETY: loom reports an access of another thread.
        self.result.with_mut(|at| unsafe { (*at).take() })
    }

    fn lose(&self) {
        let lost = u32::from(self.take().is_some());
        self.losses.fetch_add(lost, Ordering::Relaxed);
    }

    /// With all that is left there.
    fn free(&self) {
        self.lose();
        self.frees.fetch_add(1, Ordering::Relaxed);
    }

    fn runs(&self, is_kept: bool) {
        // SAFETY: as above.
        self.result.with_mut(|at| unsafe { *at = Some(7) });
        if !self.ends.ran() {
            return self.free();
        }
        if is_kept {
            match self.ends.leaves() {
                true => self.is_told(),
                false => self.free(),
            }
        } else if !self.ends.ends().0 {
            self.free();
        }
    }

    /// The runtime's part.
    fn is_told(&self) {
        let word = self.ends.word();
        let before = word.load(Ordering::Acquire);
        if before & JOINED != 0 {
            word.store(before | OVER, Ordering::Release);
        } else {
            word.fetch_or(OVER, Ordering::AcqRel);
        }
    }

    fn wait(&self) {
        while !self.ends.look().1 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_dropped_handle_and_its_thread_free_once() {
    for is_kept in [false, true] {
        explore(3, move || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.runs(is_kept));
            if world.ends.detach(|| world.lose()) {
                world.wait();
                world.free();
            }
            thread.join().unwrap();
            assert_eq!(world.frees.load(Ordering::Relaxed), 1);
            assert_eq!(world.losses.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn who_joins_gets_the_result_and_frees() {
    for is_kept in [false, true] {
        explore(3, move || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.runs(is_kept));
            world.ends.consume();
            world.wait();
            assert_eq!(world.take(), Some(7));
            world.free();
            thread.join().unwrap();
            assert_eq!(world.frees.load(Ordering::Relaxed), 1);
        });
    }
}
