//! Places of a side engine's carriers: posters against carriers that go to sleep.

use super::explore;

use loom::thread;
use raddle_sched::sync::{AtomicUsize, Ordering};
use raddle_sched::{IdleSet, Places};
use std::sync::Arc;

/// An engine with one place: the waiting work, the finished work, and the sleepers.
struct Engine {
    waiting: AtomicUsize,
    places: Places,
    idle: IdleSet,
}

/// How a carrier goes to sleep: with the second look, or, broken, without it.
#[derive(Clone, Copy)]
enum Sleep {
    LooksAgain,
    Trusts,
}

impl Engine {
    fn new() -> Self {
        let places = Places::new();
        places.set_wanted(1);
        Self {
            waiting: AtomicUsize::new(0),
            places,
            idle: IdleSet::new(),
        }
    }

    /// Runs one waiting item of work, if there is one.
    fn run(&self) -> bool {
        let seq = Ordering::SeqCst;
        let waiting = self.waiting.load(seq);
        waiting != 0
            && self
                .waiting
                .compare_exchange(waiting, waiting - 1, seq, seq)
                .is_ok()
    }

    /// Posts an item. Returns true if the model must now run the carrier that was woken.
    fn post(&self) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.places.has_free() && self.idle.take_one().is_some()
    }

    /// A carrier with a place runs the waiting work, and sleeps. Returns false if it came back
    /// instead.
    fn go_to_sleep(&self, id: usize, how: Sleep) -> bool {
        self.run();
        self.places.leave();
        self.idle.insert(id);
        let stays = match how {
            Sleep::LooksAgain => self.waiting.load(Ordering::SeqCst) != 0 && self.places.has_free(),
            Sleep::Trusts => false,
        };
        if stays {
            let _ = self.idle.take(id);
        }
        !stays
    }
}

/// One carrier goes to sleep during a post: either the item was run, or a carrier is awake.
fn model(how: Sleep) {
    let engine = Arc::new(Engine::new());
    assert!(engine.places.take());
    let poster = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || engine.post())
    };
    let sleeps = engine.go_to_sleep(0, how);
    let woke = poster.join().unwrap();
    if sleeps && !woke {
        assert_eq!(engine.waiting.load(Ordering::SeqCst), 0, "slept over");
    }
}

#[test]
fn nothing_is_slept_over() {
    explore(3, || model(Sleep::LooksAgain));
}

#[test]
#[should_panic(expected = "slept over")]
fn without_the_second_look_it_is() {
    explore(3, || model(Sleep::Trusts));
}

/// Two carriers and one place: the one that loses the race for the place must not sleep while the
/// winner leaves work.
#[test]
fn who_finds_no_place_leaves_the_work_to_who_has_it() {
    explore(3, || {
        let engine = Arc::new(Engine::new());
        assert!(engine.places.take());
        let other = {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                // The second carrier was woken, posts by itself, and finds the place taken or free.
                let woke = engine.post();
                match engine.places.take() {
                    true => engine.go_to_sleep(1, Sleep::LooksAgain) && !woke,
                    false => {
                        engine.idle.insert(1);
                        let has_work = engine.waiting.load(Ordering::SeqCst) != 0;
                        !(has_work && engine.places.has_free()) && !woke
                    }
                }
            })
        };
        let sleeps = engine.go_to_sleep(0, Sleep::LooksAgain);
        if other.join().unwrap() && sleeps {
            assert_eq!(engine.waiting.load(Ordering::SeqCst), 0, "slept over");
        }
    });
}
