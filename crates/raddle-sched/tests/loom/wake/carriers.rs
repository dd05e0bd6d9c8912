//! An engine's carriers: an idle set, and a word for each.

use super::Flaw::{
    self, LateTicket, LooksFirst, NoChange, SearchesFirst, WeakAnnouncement, WeakLook,
    WeakPublication, WeakSearch,
};
use super::{Bit, Kernel, Use, Work, all_meet, steps};
use raddle_sched::wake::{IdleSet, WakeWord};

/// An engine's carriers, each with a word of its own.
struct Carriers {
    words: [WakeWord; 2],
    idle: IdleSet,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

/// The ids of two carriers, in two words of the set.
const FIRST: usize = 63;

impl Use for Carriers {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            words: [WakeWord::new(), WakeWord::new()],
            idle: IdleSet::new(),
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.words[id];
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            _ => {
                let mut sleeper = self.idle.entry(FIRST + id);
                steps(self.flaw, word, &mut sleeper, &self.work)
            }
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let take = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set().then_some(0),
            _ => self.idle.take_one().map(|id| id - FIRST),
        };
        let taken = if self.flaw == SearchesFirst {
            let taken = take();
            self.work.publish(number);
            taken
        } else {
            self.work.publish(number);
            take()
        };
        if let Some(id) = taken
            && self.flaw != NoChange
            && self.words[id].set()
        {
            self.kernel.wake(|other| other == id);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn carriers_and_posters_never_miss_each_other() {
    all_meet::<Carriers>();
}

twins! {
    Carriers;
    a_carrier_that_looks_first_is_caught: LooksFirst;
    a_carrier_that_clears_its_word_late_is_caught: LateTicket;
    a_carrier_with_a_weak_announcement_is_caught: WeakAnnouncement;
    a_carrier_with_a_weak_look_is_caught: WeakLook;
    a_weak_publication_for_carriers_is_caught: WeakPublication;
    a_weak_search_for_carriers_is_caught: WeakSearch;
    a_search_before_the_publication_for_carriers_is_caught: SearchesFirst;
    a_carrier_with_an_unchanged_word_is_caught: NoChange;
}
