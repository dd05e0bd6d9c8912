//! The carrier of a bound thread: a word alone.

use super::Flaw::{self, LateTicket, NoChange, SearchesFirst, WeakLook};
use super::{Kernel, Use, meet};
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

twins! {
    Bound;
    a_known_sleeper_that_clears_late_is_caught: LateTicket;
    a_known_sleeper_that_clears_by_a_store_is_caught: WeakLook;
    a_known_sleeper_that_is_woken_before_the_post_is_caught: SearchesFirst;
    a_known_sleeper_with_an_unchanged_word_is_caught: NoChange;
}
