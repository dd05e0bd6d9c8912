//! A pool's workers: a list under a lock that shows a sign, and a word for each.

use super::Flaw::{
    self, LateTicket, LooksFirst, NoChange, NoSearchers, SearchesFirst, WeakAnnouncement, WeakLook,
    WeakPublication, WeakSearch,
};
use super::{Bit, Kernel, Use, Work, all_meet, meet, steps};
use loom::sync::Mutex;
use raddle_sched::wake::{Announce, Searchers, Sign, WakeWord, Word};

/// A pool's workers, listed under a lock that shows a sign. Those that go to sleep have searched.
struct Workers {
    words: [WakeWord; 2],
    idle: Mutex<Vec<usize>>,
    sign: Sign,
    bit: Bit,
    searchers: Searchers,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

/// A worker's entry in the list, under the lock.
struct Listed<'a> {
    idle: &'a mut Vec<usize>,
    sign: &'a Sign,
    id: usize,
}

impl Announce for Listed<'_> {
    fn announce(&mut self) -> bool {
        self.idle.push(self.id);
        self.sign.show(true);
        true
    }

    fn withdraw(&mut self) {
        self.idle.retain(|&id| id != self.id);
        self.sign.show(!self.idle.is_empty());
    }
}

/// As [`Listed`], with a bit as the sign.
struct BitListed<'a>(&'a mut Vec<usize>, &'a Bit, usize);

impl Announce for BitListed<'_> {
    fn announce(&mut self) -> bool {
        self.0.push(self.2);
        let mut bit = self.1;
        bit.announce()
    }

    fn withdraw(&mut self) {
        self.0.retain(|&id| id != self.2);
    }
}

impl Use for Workers {
    fn new(sleepers: usize, flaw: Flaw) -> Self {
        let searchers = Searchers::default();
        // A twin without searchers: their count would order what it weakens.
        if flaw == Flaw::None {
            (0..sleepers).for_each(|_| searchers.begin());
        }
        Self {
            words: [WakeWord::new(), WakeWord::new()],
            idle: Mutex::new(Vec::new()),
            sign: Sign::new(false),
            bit: Bit::new(flaw),
            searchers,
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        if self.flaw == Flaw::None {
            self.searchers.end();
        }
        let word = &self.words[id];
        let mut idle = self.idle.lock().unwrap();
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => {
                let mut sleeper = BitListed(&mut idle, &self.bit, id);
                steps(flaw, word, &mut sleeper, &self.work)
            }
            _ => {
                let mut sleeper = Listed {
                    idle: &mut idle,
                    sign: &self.sign,
                    id,
                };
                steps(self.flaw, word, &mut sleeper, &self.work)
            }
        };
        drop(idle);
        if let Some(mut ticket) = ticket {
            // Under the lock a ticket is never late: no poster takes the worker before.
            if self.flaw == LateTicket {
                ticket = word.ticket();
            }
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let wants = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            Flaw::None => self.sign.is_shown() && !self.searchers.has_any(),
            _ => self.sign.is_shown(),
        };
        let wanted = if self.flaw == SearchesFirst {
            let wanted = wants();
            self.work.publish(number);
            wanted
        } else {
            self.work.publish(number);
            wants()
        };
        if !wanted {
            return;
        }
        let mut idle = self.idle.lock().unwrap();
        let summoned = match self.searchers.has_any() {
            true => None,
            false => idle.pop(),
        };
        if summoned.is_some() {
            self.searchers.begin();
        }
        self.sign.show(!idle.is_empty());
        drop(idle);
        if let Some(id) = summoned
            && self.flaw != NoChange
            && self.words[id].set()
        {
            self.kernel.wake(|other| other == id);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }

    const RELAYS: bool = true;
}

#[test]
fn workers_and_posters_never_miss_each_other() {
    all_meet::<Workers>();
}

#[test]
fn a_sign_alone_misses_no_post() {
    meet::<Workers>(1, 1, 4, NoSearchers);
    meet::<Workers>(2, 1, 2, NoSearchers);
}

twins! {
    Workers;
    a_worker_that_looks_first_is_caught: LooksFirst;
    a_worker_that_clears_its_word_late_is_caught: LateTicket;
    a_worker_with_a_weak_sign_is_caught: WeakAnnouncement;
    a_worker_with_a_weak_look_is_caught: WeakLook;
    a_weak_publication_for_workers_is_caught: WeakPublication;
    a_weak_search_for_workers_is_caught: WeakSearch;
    a_search_before_the_publication_for_workers_is_caught: SearchesFirst;
    a_worker_with_an_unchanged_word_is_caught: NoChange;
}
