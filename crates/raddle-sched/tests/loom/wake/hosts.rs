//! Hosts of light threads: a count, and a word for all.

use super::Flaw::{
    self, LateTicket, LooksFirst, NoChange, SearchesFirst, WeakAnnouncement, WeakLook,
    WeakPublication, WeakSearch,
};
use super::{Bit, Kernel, Use, Work, all_meet, steps};
use raddle_sched::wake::{ActiveCount, SharedWakeWord, prepare};

/// Hosts of light threads, which share a word. One may be active.
struct Hosts {
    word: SharedWakeWord,
    count: ActiveCount,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Hosts {
    fn new(sleepers: usize, flaw: Flaw) -> Self {
        let count = ActiveCount::new();
        count.reset(sleepers as u32);
        Self {
            word: SharedWakeWord::new(),
            count,
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.word;
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            Flaw::None => prepare(word, &mut &self.count, || {
                self.count.active() < 1 && self.work.is_there()
            }),
            _ => steps(self.flaw, word, &mut &self.count, &self.work),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let wants = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            _ => self.count.wants_one(|| 1),
        };
        let wanted = if self.flaw == SearchesFirst {
            let wanted = wants();
            self.work.publish(number);
            wanted
        } else {
            self.work.publish(number);
            wants()
        };
        if wanted {
            if self.flaw != NoChange {
                self.word.change();
            }
            self.kernel.wake(|_| true);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }

    const RELAYS: bool = true;
}

#[test]
fn hosts_and_posters_never_miss_each_other() {
    all_meet::<Hosts>();
}

twins! {
    Hosts;
    a_host_that_looks_first_is_caught: LooksFirst;
    a_host_that_reads_the_word_late_is_caught: LateTicket;
    a_host_with_a_weak_announcement_is_caught: WeakAnnouncement;
    a_host_with_a_weak_look_is_caught: WeakLook;
    a_weak_publication_for_hosts_is_caught: WeakPublication;
    a_weak_search_for_hosts_is_caught: WeakSearch;
    a_search_before_the_publication_for_hosts_is_caught: SearchesFirst;
    a_host_with_an_unchanged_word_is_caught: NoChange;
}
