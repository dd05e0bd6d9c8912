//! The carrier of a bound thread: a word alone.

use super::Flaw::{self, LateTicket, NoChange, SearchesFirst, WeakLook};
use super::{Kernel, Use, meet};
use crate::explore;
use loom::sync::Arc;
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering};
use raddle_sched::wake::{Known, WakeWord, Word, prepare};

/// The carrier of a bound thread, which posters know: the word alone decides.
struct Bound {
    word: WakeWord,
    mail: AtomicU32,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Bound {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            word: WakeWord::new(),
            mail: AtomicU32::new(0),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let has_mail = || self.mail.load(Ordering::Acquire) != 0;
        let ticket = match self.flaw {
            LateTicket => (!has_mail()).then(|| self.word.ticket()),
            // A word that is cleared by a store: it forgets what it clears.
            WeakLook => {
                self.word.futex().store(0, Ordering::SeqCst);
                (!has_mail()).then_some(0)
            }
            _ => prepare(&self.word, &mut Known, has_mail),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, self.word.futex(), ticket);
        }
    }

    fn post(&self, _number: usize) {
        if self.flaw == SearchesFirst {
            let may_wait = self.word.set();
            self.mail.store(1, Ordering::Release);
            if may_wait {
                self.kernel.wake(|_| true);
            }
            return;
        }
        self.mail.store(1, Ordering::Release);
        if self.flaw != NoChange && self.word.set() {
            self.kernel.wake(|_| true);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn a_sleeper_that_posters_know_is_never_missed() {
    meet::<Bound>(1, 1, 4, Flaw::None);
    meet::<Bound>(1, 2, 2, Flaw::None);
}

/// A worker's park: each look follows a wake-up that the worker takes.
#[test]
fn a_wake_up_that_is_taken_shows_what_it_is_for() {
    explore(3, || {
        let shared = Arc::new((WakeWord::new(), AtomicU32::new(0)));
        let there = shared.clone();
        let poster = thread::spawn(move || {
            there.1.store(1, Ordering::Relaxed);
            there.0.set()
        });
        let there = shared.clone();
        let sleeper = thread::spawn(move || {
            let is_woken = there.0.take();
            let has_mail = there.1.load(Ordering::Relaxed) != 0;
            assert!(has_mail || !is_woken, "the mail is not seen");
            is_woken
        });
        assert!(poster.join().unwrap(), "the sleeper may wait");
        assert!(sleeper.join().unwrap() || shared.0.take());
    });
}

twins! {
    Bound;
    a_known_sleeper_that_clears_late_is_caught: LateTicket;
    a_known_sleeper_that_clears_by_a_store_is_caught: WeakLook;
    a_known_sleeper_that_is_woken_before_the_post_is_caught: SearchesFirst;
    a_known_sleeper_with_an_unchanged_word_is_caught: NoChange;
}
