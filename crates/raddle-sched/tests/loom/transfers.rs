//! Transfers of the ring: the end of a transfer and a signal, a post and a ring's thread that
//! leaves, a post and one that goes to sleep.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::Wake;
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use raddle_sched::transfers::{State, Transfer, Transfers};

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The waiter prepares its task after its post.
    PreparesLate,
    /// A signal makes the waiter go on without a question.
    DoesNotAsk,
    /// The ring's thread takes what is posted before it refuses.
    RefusesLate,
    /// The ring's thread takes what is posted before its round begins.
    TakesFirst,
    /// The ring's thread looks at what is posted before it makes its announcement.
    LooksFirst,
    /// The poster announces before it posts.
    AnnouncesFirst,
}

struct World {
    flaw: Flaw,
    tasks: Box<Tasks<1>>,
    ring: Transfers<UnsafeCell<u32>>,
    transfer: Transfer<UnsafeCell<u32>>,
    went_on: AtomicU32,
    /// 1 once the ring's thread was woken. Its wait was armed before: none is missed.
    woken: AtomicU32,
}

// SAFETY: one thread at a time has the transfer's work; otherwise loom says so.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(flaw: Flaw) -> Arc<Self> {
        let tasks = Tasks::new();
        let ring = Transfers::new();
        assert!(ring.change(State::None, State::Ready));
        Arc::new(Self {
            flaw,
            transfer: Transfer::new(UnsafeCell::new(0), tasks.get(0)),
            tasks,
            ring,
            went_on: AtomicU32::new(0),
            woken: AtomicU32::new(0),
        })
    }

    /// Posts the transfer. Returns false if there is no ring any more.
    fn post(&self) -> bool {
        let announce = || {
            if self.ring.has_unannounced() && self.ring.announce() {
                self.woken.store(1, Ordering::Relaxed);
            }
        };
        if self.flaw != Flaw::PreparesLate {
            self.tasks.get(0).get().prepare();
        }
        if self.flaw == Flaw::AnnouncesFirst {
            announce();
        }
        // SAFETY: the world outlives the model's threads.
        let is_posted = unsafe { self.ring.post(&self.transfer) }.is_some();
        if self.flaw != Flaw::AnnouncesFirst {
            announce();
        }
        is_posted
    }

    /// The ring's thread executes what is there. Returns whether there was a transfer.
    fn execute(&self) -> bool {
        let Some(transfer) = self.ring.take() else {
            return false;
        };
        // SAFETY: the ring's thread has it; otherwise loom reports it.
        transfer.work.with_mut(|result| unsafe { *result = 1 });
        if self.ring.complete(transfer).is_some() {
            self.go_on(Wake::Woken);
        }
        true
    }

    /// The waiter was woken.
    fn go_on(&self, why: Wake) {
        let asks = why != Wake::Woken && self.flaw != Flaw::DoesNotAsk;
        if asks && !self.ring.is_done_or_prepares(&self.transfer) {
            return; // it parks again
        }
        // SAFETY: the transfer is the waiter's again; otherwise loom reports it.
        self.transfer
            .work
            .with_mut(|result| unsafe { *result += 1 });
        self.went_on.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        if self.flaw == Flaw::RefusesLate {
            self.execute();
            self.ring.refuse();
        } else {
            self.ring.refuse();
            self.execute();
        }
    }

    /// One round of the ring's thread. Returns true if the thread then sleeps.
    fn serve(&self) -> bool {
        if self.flaw == Flaw::TakesFirst && self.execute() {
            return false;
        }
        let seen = self.ring.begin_round();
        if self.flaw != Flaw::TakesFirst && self.execute() {
            return false;
        }
        let may_wait = match self.flaw {
            Flaw::LooksFirst => {
                let is_unchanged = self.ring.begin_round() == seen;
                self.ring.may_wait(seen).map(|_| is_unchanged)
            }
            _ => self.ring.may_wait(seen),
        };
        may_wait == Some(true)
    }

    fn judge(&self, runs: u32) {
        let went_on = self.went_on.load(Ordering::Relaxed);
        assert_eq!(went_on, runs, "a wake-up is lost");
    }
}

/// A transfer ends while a signal comes: the waiter goes on once.
fn an_end_meets_a_signal(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw);
        assert!(world.post());
        let there = world.clone();
        let ring = thread::spawn(move || there.execute());
        if flaw == Flaw::PreparesLate {
            world.tasks.get(0).get().prepare();
        } else if world.tasks.get(0).get().claim(Wake::Signalled) {
            world.go_on(Wake::Signalled);
        }
        ring.join().unwrap();
        world.judge(1);
    });
}

#[test]
fn a_waiter_goes_on_once_after_its_transfer() {
    an_end_meets_a_signal(Flaw::None);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_waiter_that_prepares_after_its_post_is_caught() {
    an_end_meets_a_signal(Flaw::PreparesLate);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_waiter_that_does_not_ask_is_caught() {
    an_end_meets_a_signal(Flaw::DoesNotAsk);
}

/// A transfer is posted while the ring's thread leaves.
fn a_post_meets_the_end_of_the_ring(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw);
        let there = world.clone();
        let ring = thread::spawn(move || there.leave());
        let is_posted = world.post();
        ring.join().unwrap();
        world.judge(u32::from(is_posted));
    });
}

#[test]
fn a_transfer_that_was_posted_is_completed_by_the_thread_that_leaves() {
    a_post_meets_the_end_of_the_ring(Flaw::None);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_thread_that_leaves_before_it_refuses_is_caught() {
    a_post_meets_the_end_of_the_ring(Flaw::RefusesLate);
}

/// A transfer is posted and announced while the ring's thread goes to sleep.
fn a_post_meets_a_sleep(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw);
        let there = world.clone();
        let ring = thread::spawn(move || there.serve());
        assert!(world.post());
        let sleeps = ring.join().unwrap() && world.woken.load(Ordering::Relaxed) == 0;
        assert!(
            !(sleeps && world.execute()),
            "a transfer is left to a sleeper"
        );
    });
}

#[test]
fn no_transfer_is_left_to_a_thread_that_sleeps() {
    a_post_meets_a_sleep(Flaw::None);
}

#[test]
#[should_panic(expected = "a transfer is left to a sleeper")]
fn a_thread_that_takes_before_its_round_is_caught() {
    a_post_meets_a_sleep(Flaw::TakesFirst);
}

#[test]
#[should_panic(expected = "a transfer is left to a sleeper")]
fn a_thread_that_looks_before_its_announcement_is_caught() {
    a_post_meets_a_sleep(Flaw::LooksFirst);
}

#[test]
#[should_panic(expected = "a transfer is left to a sleeper")]
fn a_poster_that_announces_first_is_caught() {
    a_post_meets_a_sleep(Flaw::AnnouncesFirst);
}
