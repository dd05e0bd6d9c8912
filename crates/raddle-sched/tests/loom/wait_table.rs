//! The wait table: no wake-up is lost, none is delivered twice.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering};
use raddle_sched::{TaskList, WaitNode, WaitTable, Wake};

/// Keys of different rows of a table of two.
fn two_rows() -> (usize, usize) {
    (
        8,
        (9..)
            .find(|&key| WaitTable::<2>::row(key) != WaitTable::<2>::row(8))
            .unwrap(),
    )
}

/// One waiter of each key that a model needs.
struct World<const N: usize> {
    tasks: Box<Tasks<N>>,
    nodes: [WaitNode; N],
    table: WaitTable<2>,
    word: AtomicU32,
}

impl<const N: usize> World<N> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tasks: Tasks::new(),
            nodes: core::array::from_fn(|_| WaitNode::new()),
            table: WaitTable::new(),
            word: AtomicU32::new(0),
        })
    }

    /// Waits for the word to change. Returns true if the task must park.
    fn wait(&self, index: usize, key: usize) -> bool {
        self.wait_if(index, key, || self.word.load(Ordering::SeqCst) == 0)
    }

    fn wait_if(&self, index: usize, key: usize, still: impl FnOnce() -> bool) -> bool {
        let task = self.tasks.get(index);
        task.get().prepare();
        // SAFETY: nodes and tasks live as long as the world.
        unsafe { self.table.enqueue(&self.nodes[index], task, key, !0, still) }
    }

    fn is_waiting(&self, index: usize) -> bool {
        self.tasks.get(index).get().is_waiting()
    }
}

/// A waiter and a waker, which run `wait` and `wake`.
fn waiter_meets_waker(
    wait: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static,
    wake: impl Fn(&World<1>, &TaskList) -> usize + Clone + Send + Sync + 'static,
) {
    explore(3, move || {
        let world = World::<1>::new();
        let (there, wait) = (world.clone(), wait.clone());
        let waiter = thread::spawn(move || wait(&there));
        let woken = TaskList::new();
        assert_eq!(wake(&world, &woken), woken.len());
        let parks = waiter.join().unwrap();
        assert!(!world.is_waiting(0), "a wake-up was lost");
        assert_eq!(
            parks,
            woken.len() == 1,
            "parked and woken are the same tasks"
        );
        assert_eq!(world.table.row_waiters(8), 0);
    });
}

#[test]
fn a_plain_store_and_wake_loses_nothing() {
    waiter_meets_waker(
        |world| world.wait(0, 8),
        |world, woken| {
            world.word.store(1, Ordering::Relaxed);
            world.table.wake(8, 1, !0, woken)
        },
    );
}

#[test]
fn an_exchange_and_fenced_wake_loses_nothing() {
    waiter_meets_waker(
        |world| world.wait(0, 8),
        |world, woken| {
            world.word.swap(1, Ordering::SeqCst);
            world.table.wake_fenced(8, 1, !0, woken)
        },
    );
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_waker_without_fence_is_caught() {
    waiter_meets_waker(
        |world| world.wait(0, 8),
        |world, woken| {
            world.word.store(1, Ordering::Relaxed);
            world.table.wake_fenced(8, 1, !0, woken)
        },
    );
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_check_before_the_count_is_raised_is_caught() {
    waiter_meets_waker(
        |world| {
            let unchanged = world.word.load(Ordering::SeqCst) == 0;
            unchanged && world.wait_if(0, 8, || true)
        },
        |world, woken| {
            world.word.store(1, Ordering::Relaxed);
            world.table.wake(8, 1, !0, woken)
        },
    );
}

/// A thread rings a bell and then claims the wait, if there is one. `wait` announces the wait, and
/// returns true if the waiter heard the bell and claimed itself.
fn ringer_meets(
    wait: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static,
    ring: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static,
) {
    explore(3, move || {
        let (world, ring) = (World::<1>::new(), ring.clone());
        let (there, wait) = (world.clone(), wait.clone());
        let waiter = thread::spawn(move || wait(&there));
        world.word.store(1, Ordering::SeqCst);
        let claimed = ring(&world);
        let heard = waiter.join().unwrap();
        assert!(claimed || heard, "a bell was slept over");
        assert!(!(claimed && heard), "one of them wakes the task");
        // SAFETY: the node was given to this table.
        assert!(unsafe { world.table.cancel(&world.nodes[0]) });
        assert_eq!(world.table.row_waiters(8), 0);
    });
}

/// The waiter looks at the bell after it announced its wait, or, broken, before.
fn ringer_meets_waiter(looks_after: bool) {
    let claim = |world: &World<1>| world.tasks.get(0).get().claim(Wake::Signalled);
    let wait = move |there: &World<1>| {
        let rings = || there.word.load(Ordering::SeqCst) != 0;
        let early = !looks_after && rings();
        assert!(there.wait_if(0, 8, || true));
        (early || looks_after && rings()) && claim(there)
    };
    ringer_meets(wait, claim);
}

#[test]
fn a_bell_at_the_start_of_a_wait_is_heard() {
    ringer_meets_waiter(true);
}

#[test]
#[should_panic(expected = "a bell was slept over")]
fn a_look_at_the_bell_before_the_wait_is_caught() {
    ringer_meets_waiter(false);
}

#[test]
fn two_waiters_and_one_wake_each() {
    explore(2, || {
        let world = World::<2>::new();
        let waiters: Vec<_> = (0..2)
            .map(|index| {
                let there = world.clone();
                thread::spawn(move || there.wait(index, 8))
            })
            .collect();
        let woken = TaskList::new();
        world.word.store(1, Ordering::Relaxed);
        world.table.wake(8, 1, !0, &woken);
        world.table.wake(8, 1, !0, &woken);
        let parked = waiters
            .into_iter()
            .map(|w| usize::from(w.join().unwrap()))
            .sum::<usize>();
        assert_eq!(parked, woken.len());
        let mut seen = [0; 2];
        world.tasks.tally(&woken, &mut seen);
        assert!(seen.iter().all(|&times| times < 2));
        assert_eq!(world.table.row_waiters(8), 0);
    });
}

/// A signal comes before a waiter would link; the waiter doesn't, because the word has changed. It
/// may go on only if the signal has not pushed it.
fn signal_meets_who_does_not_wait(
    wait: impl Fn(&World<1>) -> bool + Send + Sync + 'static,
    claim: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static,
) {
    explore(3, move || {
        let world = World::<1>::new();
        world.word.store(1, Ordering::SeqCst);
        let (there, claim) = (world.clone(), claim.clone());
        let sender = thread::spawn(move || claim(&there));
        let parks = wait(&world);
        assert_eq!(parks, sender.join().unwrap());
        assert!(!world.is_waiting(0));
    });
}

#[test]
fn a_signal_between_prepare_and_link_is_seen_or_refused() {
    signal_meets_who_does_not_wait(
        |world| world.wait(0, 8),
        |world| world.tasks.get(0).get().claim(Wake::Signalled),
    );
}

/// One waiter is moved, woken by the table and claimed by another thread: one of the two wakes it.
fn requeue_wake_and_claim_agree(
    wait: impl Fn(&World<1>, usize) -> bool + Send + Sync + 'static,
    claim: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static,
) {
    explore(2, move || {
        let (from, to) = two_rows();
        let world = World::<1>::new();
        assert!(wait(&world, from));
        let (mover, other, claim) = (world.clone(), world.clone(), claim.clone());
        let mover = thread::spawn(move || {
            let woken = TaskList::new();
            mover
                .table
                .requeue(from, to, 0, 1, || true, &woken)
                .unwrap();
            woken.len()
        });
        let other = thread::spawn(move || {
            let won = claim(&other);
            if won {
                // SAFETY: the node was given to this table.
                unsafe { other.table.cancel(&other.nodes[0]) };
            }
            usize::from(won)
        });
        let woken = TaskList::new();
        world.table.wake(to, 1, !0, &woken);
        let others = mover.join().unwrap() + other.join().unwrap();
        assert_eq!(woken.len() + others, 1);
        assert_eq!(
            (world.table.row_waiters(from), world.table.row_waiters(to)),
            (0, 0)
        );
    });
}

#[test]
fn requeue_wake_and_timeout_agree() {
    requeue_wake_and_claim_agree(
        |world, key| world.wait(0, key),
        |world| world.tasks.get(0).get().claim(Wake::TimedOut),
    );
}

#[test]
fn a_requeue_hides_nobody_from_a_waker_of_the_target() {
    explore(3, || {
        let (from, to) = two_rows();
        let world = World::<1>::new();
        assert!(world.wait(0, from));
        let there = world.clone();
        let mover = thread::spawn(move || {
            let check = || there.word.load(Ordering::SeqCst) == 0;
            there.table.requeue(from, to, 0, 1, check, &TaskList::new())
        });
        // The waker makes the check fail first: a requeue that passes the check comes before the
        // wake.
        let woken = TaskList::new();
        world.word.store(1, Ordering::Relaxed);
        world.table.wake(to, 1, !0, &woken);
        let moved = mover.join().unwrap().is_some();
        assert_eq!(moved, woken.len() == 1, "a moved waiter was not seen");
    });
}

#[test]
fn opposite_requeues_do_not_deadlock() {
    explore(2, || {
        let (from, to) = two_rows();
        let world = World::<2>::new();
        assert!(world.wait(0, from) && world.wait(1, to));
        let there = world.clone();
        let other = thread::spawn(move || {
            there
                .table
                .requeue(to, from, 0, 9, || true, &TaskList::new())
                .unwrap()
                .moved
        });
        let moved = world
            .table
            .requeue(from, to, 0, 9, || true, &TaskList::new())
            .unwrap()
            .moved;
        assert_eq!(moved + other.join().unwrap(), 3);
        let woken = TaskList::new();
        world.table.wake(from, 9, !0, &woken);
        world.table.wake(to, 9, !0, &woken);
        assert_eq!(woken.len(), 2);
        assert_eq!(
            (world.table.row_waiters(from), world.table.row_waiters(to)),
            (0, 0)
        );
    });
}

impl<const N: usize> World<N> {
    /// As [`World::wait`], for a queued task.
    fn wait_queued(&self, index: usize, key: usize) -> bool {
        self.queue_if(index, key, || self.word.load(Ordering::SeqCst) == 0)
    }

    fn queue_if(&self, index: usize, key: usize, still: impl FnOnce() -> bool) -> bool {
        let task = self.tasks.get(index);
        WaitTable::<2>::prepare(&self.nodes[index], task, key);
        // SAFETY: nodes and tasks live as long as the world.
        unsafe { self.table.enqueue(&self.nodes[index], task, key, !0, still) }
    }

    /// Claims the wait, as signals and cancellations do.
    fn claim(&self, index: usize) -> bool {
        let task = self.tasks.get(index);
        // SAFETY: each task has one node, and one table.
        let queued = || unsafe { self.table.claim(&self.nodes[index], task, Wake::Signalled) };
        task.get().claim(Wake::Signalled) || queued()
    }
}

#[test]
fn a_queued_waiter_loses_nothing() {
    waiter_meets_waker(
        |world| world.wait_queued(0, 8),
        |world, woken| {
            world.word.store(1, Ordering::Relaxed);
            world.table.wake(8, 1, !0, woken)
        },
    );
}

/// As [`ringer_meets_waiter`], with a waiter that is queued.
fn ringer_meets_queued(ring: impl Fn(&World<1>) -> bool + Clone + Send + Sync + 'static) {
    let wait = |there: &World<1>| {
        assert!(there.queue_if(0, 8, || true));
        there.word.load(Ordering::SeqCst) != 0 && there.claim(0)
    };
    ringer_meets(wait, ring);
}

#[test]
fn a_bell_is_heard_by_who_is_queued() {
    ringer_meets_queued(|world| world.claim(0));
}

#[test]
#[should_panic(expected = "a bell was slept over")]
fn a_bell_that_only_those_who_wait_hear_is_caught() {
    ringer_meets_queued(|world| world.tasks.get(0).get().claim(Wake::Signalled));
}

#[test]
fn requeue_wake_and_signal_agree_on_who_is_queued() {
    requeue_wake_and_claim_agree(
        |world, key| world.wait_queued(0, key),
        |world| world.claim(0),
    );
}

#[test]
fn a_signal_before_who_is_queued_links_is_seen_or_refused() {
    signal_meets_who_does_not_wait(|world| world.wait_queued(0, 8), |world| world.claim(0));
}

#[test]
fn who_waits_again_elsewhere_is_claimed_once() {
    explore(3, || {
        let (first, second) = two_rows();
        let world = World::<1>::new();
        assert!(world.wait_queued(0, first));
        let there = world.clone();
        let sender = thread::spawn(move || there.claim(0));
        let woken = TaskList::new();
        world.table.wake(first, 1, !0, &woken);
        let mut pushed = woken.len();
        if pushed == 1 {
            // The task runs again, and waits for another key.
            assert!(world.queue_if(0, second, || true));
            world.table.wake(second, 1, !0, &woken);
            pushed = woken.len() - 1;
        }
        let claimed = sender.join().unwrap();
        assert_eq!(pushed + usize::from(claimed), 1);
        assert!(!world.is_waiting(0));
    });
}
