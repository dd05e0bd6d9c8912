//! The gate for calls: callers, and a thread that closes it before it does what the calls must not
//! meet.

use super::explore;

use loom::thread;
use raddle_sched::call_gate::{CallGate, asks};
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::sync::Arc;

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The caller looks at the gate, and then says that it asks.
    LooksFirst,
    /// The caller's word isn't SeqCst.
    WeakAsking,
    /// The end of the asking doesn't release.
    WeakEnd,
    /// The closer looks at the callers first.
    ClosesLate,
}

struct World {
    gate: CallGate,
    asks: [AtomicU32; 2],
    /// Written by calls, each in its own cell; then by what the gate is closed for.
    made: [UnsafeCell<u32>; 2],
    /// 1 once the filter is there.
    filter: AtomicU32,
}

// SAFETY: the cells are one thread's at a time: the claim under test.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn call(&self, caller: usize, flaw: Flaw) {
        let make = || {
            assert_eq!(self.filter.load(Ordering::Relaxed), 0, "the call dies");
            // SAFETY: see above.
            self.made[caller].with_mut(|made| unsafe { *made += 1 });
        };
        let word = &self.asks[caller];
        match flaw {
            Flaw::LooksFirst => {
                if !self.gate.is_closed() {
                    word.store(1, Ordering::SeqCst);
                    make();
                    word.store(0, Ordering::Release);
                }
            }
            Flaw::WeakAsking => {
                word.store(1, Ordering::Release);
                if !self.gate.is_closed() {
                    make();
                }
                word.store(0, Ordering::Release);
            }
            Flaw::WeakEnd => {
                word.store(1, Ordering::SeqCst);
                if !self.gate.is_closed() {
                    make();
                }
                word.store(0, Ordering::Relaxed);
            }
            _ => _ = self.gate.pass(word, make),
        }
    }

    /// Closes the gate, looks once at the callers, and goes on if none asks: the model doesn't
    /// wait.
    fn install(&self, callers: usize, flaw: Flaw) {
        let is_quiet = || (0..callers).all(|caller| !asks(&self.asks[caller]));
        let goes_on = if flaw == Flaw::ClosesLate {
            let is_quiet = is_quiet();
            self.gate.close();
            is_quiet
        } else {
            self.gate.close();
            is_quiet()
        };
        if !goes_on {
            return self.gate.open();
        }
        self.filter.store(1, Ordering::Relaxed);
        for made in &self.made[..callers] {
            // SAFETY: see above.
            made.with_mut(|made| unsafe { *made += 1 });
        }
    }
}

fn calls_meet_a_filter(callers: usize, preemptions: usize, flaw: Flaw) {
    explore(preemptions, move || {
        let world = Arc::new(World {
            gate: CallGate::new(),
            asks: [AtomicU32::new(0), AtomicU32::new(0)],
            made: [UnsafeCell::new(0), UnsafeCell::new(0)],
            filter: AtomicU32::new(0),
        });
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                let world = world.clone();
                thread::spawn(move || world.call(caller, flaw))
            })
            .collect();
        world.install(callers, flaw);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_call_meets_a_filter() {
    calls_meet_a_filter(1, 4, Flaw::None);
    calls_meet_a_filter(2, 3, Flaw::None);
}

#[test]
#[should_panic]
fn a_caller_that_looks_at_the_gate_first_is_caught() {
    calls_meet_a_filter(1, 3, Flaw::LooksFirst);
}

#[test]
#[should_panic]
fn a_caller_with_a_weak_word_is_caught() {
    calls_meet_a_filter(1, 3, Flaw::WeakAsking);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_call_that_ends_without_release_is_caught() {
    calls_meet_a_filter(1, 3, Flaw::WeakEnd);
}

#[test]
#[should_panic]
fn a_gate_that_is_closed_after_the_look_is_caught() {
    calls_meet_a_filter(1, 3, Flaw::ClosesLate);
}
