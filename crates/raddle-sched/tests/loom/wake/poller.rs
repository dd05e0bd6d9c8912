//! The poller and sysmon: an announcement, and a descriptor that counts.

use super::Flaw::{
    self, LooksFirst, NoChange, SearchesFirst, WeakAnnouncement, WeakLook, WeakPublication,
    WeakSearch,
};
use super::{Bit, Kernel, Use, Work, meet, steps};
use raddle_sched::wake::{Announcement, SharedWakeWord};

/// The poller, or sysmon: one sleeper, woken by a descriptor that counts.
struct Poller {
    descriptor: SharedWakeWord,
    announcement: Announcement,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Poller {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            descriptor: SharedWakeWord::new(),
            announcement: Announcement::new(),
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.descriptor;
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            _ => steps(self.flaw, word, &mut &self.announcement, &self.work),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let take = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            _ => self.announcement.is_made() && self.announcement.take(),
        };
        let taken = if self.flaw == SearchesFirst {
            let taken = take();
            self.work.publish(number);
            taken
        } else {
            self.work.publish(number);
            take()
        };
        if taken {
            if self.flaw != NoChange {
                self.descriptor.change();
            }
            self.kernel.wake(|_| self.flaw != NoChange);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn the_poller_and_posters_never_miss_each_other() {
    meet::<Poller>(1, 1, 4, Flaw::None);
    meet::<Poller>(1, 2, 2, Flaw::None);
}

twins! {
    Poller;
    a_poller_that_looks_first_is_caught: LooksFirst;
    a_poller_with_a_weak_announcement_is_caught: WeakAnnouncement;
    a_poller_with_a_weak_look_is_caught: WeakLook;
    a_weak_publication_for_the_poller_is_caught: WeakPublication;
    a_weak_search_for_the_poller_is_caught: WeakSearch;
    a_search_before_the_publication_for_the_poller_is_caught: SearchesFirst;
    a_poller_that_is_taken_and_not_woken_is_caught: NoChange;
}
