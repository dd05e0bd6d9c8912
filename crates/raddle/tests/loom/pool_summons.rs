//! Work that is queued to a pool's lanes, against a searcher that has found other work and a worker
//! that goes to rest: the work doesn't wait while a worker sleeps.

use crate::explore;
use loom::sync::Arc;
use loom::thread;
use raddle::pool::summons::{Summons, Waiting};
use raddle_sched::SpinLock;
use raddle_sched::sync::{AtomicUsize, Ordering};

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The poster looks for a searcher before it announces the work.
    AnnouncesLate,
    /// The poster announces by a relaxed store.
    AnnouncesRelaxed,
    /// The searcher looks for more work before its search ends.
    LooksFirst,
    /// The searcher doesn't look for more work.
    DoesNotLook,
    /// A worker rests without a look at the lanes under the lock.
    RestsBlindly,
    /// A worker rests, and doesn't say so.
    RestsUnseen,
}

/// What the pool's lock guards.
#[derive(Default)]
struct State {
    /// Items in the lanes.
    items: usize,
    /// True while the second worker is listed as idle.
    is_idle: bool,
}

struct World {
    flaw: Flaw,
    summons: Summons,
    waiting: Waiting,
    /// The number of items, as a twin stores it.
    relaxed: AtomicUsize,
    state: SpinLock<State>,
}

impl World {
    fn new(flaw: Flaw, is_idle: bool) -> Arc<Self> {
        let summons = Summons::default();
        summons.wanting.show(is_idle);
        summons.searching.begin();
        Arc::new(Self {
            flaw,
            summons,
            waiting: Waiting::new(),
            relaxed: AtomicUsize::new(0),
            state: SpinLock::new(State { items: 0, is_idle }),
        })
    }

    fn has_waiting(&self) -> bool {
        match self.flaw {
            Flaw::AnnouncesRelaxed => self.relaxed.load(Ordering::SeqCst) != 0,
            _ => self.waiting.has_any(),
        }
    }

    /// Under the lock.
    fn summon(&self, state: &mut State) {
        if self.summons.is_missing() && state.is_idle {
            self.begin(state);
        }
    }

    /// The idle worker is woken, and searches.
    fn begin(&self, state: &mut State) {
        state.is_idle = false;
        self.summons.searching.begin();
        self.summons.wanting.show(false);
    }

    /// A thread queues an item.
    fn queue(&self) {
        let mut state = self.state.lock();
        state.items += 1;
        match self.flaw {
            Flaw::AnnouncesLate => {
                self.summon(&mut state);
                self.waiting.announce(state.items);
                return;
            }
            Flaw::AnnouncesRelaxed => self.relaxed.store(state.items, Ordering::Relaxed),
            _ => self.waiting.announce(state.items),
        }
        self.summon(&mut state);
    }

    /// The searcher has found work, which it runs for long.
    fn find(&self) {
        let is_needed = match self.flaw {
            Flaw::LooksFirst => {
                let more = self.has_waiting();
                self.summons.found(|| more)
            }
            Flaw::DoesNotLook => self.summons.found(|| false),
            _ => self.summons.found(|| self.has_waiting()),
        };
        if is_needed {
            self.summon(&mut self.state.lock());
        }
    }

    /// The second worker goes to rest, unless there is work.
    fn rest(&self) {
        let mut state = self.state.lock();
        if state.items == 0 || self.flaw == Flaw::RestsBlindly {
            state.is_idle = true;
            if self.flaw != Flaw::RestsUnseen {
                self.summons.wanting.show(true);
            }
        }
    }

    fn judge(&self) {
        assert!(!self.state.lock().is_idle, "work waits, and a worker rests");
    }
}

/// An item is queued while the only searcher finds other work; the second worker is idle.
fn a_post_meets_the_end_of_a_search(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw, true);
        let there = world.clone();
        let searcher = thread::spawn(move || there.find());
        // A thread of its own, which has made no SeqCst access yet.
        let there = world.clone();
        let poster = thread::spawn(move || there.queue());
        searcher.join().unwrap();
        poster.join().unwrap();
        world.judge();
    });
}

/// As above, while the second worker goes to rest.
fn a_post_meets_a_rest(flaw: Flaw) {
    explore(3, move || {
        let world = World::new(flaw, false);
        let there = world.clone();
        let searcher = thread::spawn(move || there.find());
        let there = world.clone();
        let resting = thread::spawn(move || there.rest());
        world.queue();
        searcher.join().unwrap();
        resting.join().unwrap();
        world.judge();
    });
}

#[test]
fn work_that_is_queued_finds_a_worker() {
    a_post_meets_the_end_of_a_search(Flaw::None);
    a_post_meets_a_rest(Flaw::None);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_poster_that_announces_after_its_look_is_caught() {
    a_post_meets_the_end_of_a_search(Flaw::AnnouncesLate);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_poster_that_announces_by_a_relaxed_store_is_caught() {
    a_post_meets_the_end_of_a_search(Flaw::AnnouncesRelaxed);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_searcher_that_looks_before_its_search_ends_is_caught() {
    a_post_meets_the_end_of_a_search(Flaw::LooksFirst);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_searcher_that_does_not_look_is_caught() {
    a_post_meets_the_end_of_a_search(Flaw::DoesNotLook);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_worker_that_rests_without_a_look_at_the_lanes_is_caught() {
    a_post_meets_a_rest(Flaw::RestsBlindly);
}

#[test]
#[should_panic(expected = "work waits, and a worker rests")]
fn a_worker_that_rests_without_a_sign_is_caught() {
    a_post_meets_a_rest(Flaw::RestsUnseen);
}
