//! Every interleaving of a host that goes to sleep with threads that wake light threads of it.

use super::explore;
use loom::thread;
use raddle::light::inbox::Inbox;
use raddle_sched::Link;
use raddle_sched::sync::Ordering;
use raddle_sched::wake::{Announce, SharedWakeWord, Word, prepare};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a host and its wakers share.
struct World {
    inbox: Inbox,
    /// The word that the host sleeps on.
    word: SharedWakeWord,
    links: [Link; 2],
}

/// A host, as wakers of its own light threads see it.
struct Sleeper<'a>(&'a Inbox);

impl Announce for Sleeper<'_> {
    fn announce(&mut self) -> bool {
        self.0.announce()
    }

    fn withdraw(&mut self) {
        self.0.withdraw();
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inbox: Inbox::new(),
            word: SharedWakeWord::new(),
            links: [Link::new(), Link::new()],
        })
    }

    fn wake(&self, number: usize) {
        // SAFETY: each link is put once, and the world lives longer than its inbox is used.
        if unsafe { self.inbox.put(NonNull::from(&self.links[number])) } {
            self.word.change();
        }
    }

    fn value(&self) -> u32 {
        self.word.futex().load(Ordering::SeqCst)
    }

    /// Returns the word's value that the host sleeps on; `None` if it does not sleep.
    fn sleep(&self, reads_the_word_first: bool) -> Option<u32> {
        let mut sleeper = Sleeper(&self.inbox);
        let seen = if reads_the_word_first {
            prepare(&self.word, &mut sleeper, || false)?
        } else {
            sleeper.announce().then(|| self.word.ticket())?
        };
        // What futex(2) does: it compares, and queues the thread, in one step.
        (self.value() == seen).then_some(seen)
    }
}

/// One host and `wakers`; no light thread is left to a host that sleeps and that no waker wakes.
fn a_host_sleeps_while_others_wake(preemptions: usize, wakers: usize, reads_first: bool) {
    explore(preemptions, move || {
        let world = World::new();
        let threads: Vec<_> = (0..wakers)
            .map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.wake(number))
            })
            .collect();
        let slept = world.sleep(reads_first);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        if let Some(seen) = slept {
            let is_woken = world.value() != seen;
            assert!(is_woken || world.inbox.is_empty(), "a lost wake-up");
            world.inbox.withdraw();
        }
        assert_eq!(world.inbox.take().count(), wakers);
    });
}

#[test]
fn no_light_thread_is_left_to_a_host_that_sleeps() {
    a_host_sleeps_while_others_wake(4, 1, true);
    a_host_sleeps_while_others_wake(3, 2, true);
}

#[test]
#[should_panic]
fn a_host_that_reads_the_word_late_is_caught() {
    a_host_sleeps_while_others_wake(4, 1, false);
}
