//! A waiter that runs signal handlers during its wait misses no wake-up.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::{Absences, TaskList, WaitNode, WaitTable, Wake};

const KEY: usize = 8;

/// One waiter for a condition variable.
struct World {
    tasks: Box<Tasks<1>>,
    node: WaitNode,
    table: WaitTable<1>,
    absences: Absences<1>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tasks: Tasks::new(),
            node: WaitNode::new(),
            table: WaitTable::new(),
            absences: Absences::new(),
        })
    }

    /// Begins to wait, or resumes the wait. Returns true if the waiter must park.
    fn wait_if(&self, still: impl FnOnce() -> bool) -> bool {
        let task = self.tasks.get(0);
        WaitTable::<1>::prepare(&self.node, task, KEY);
        // SAFETY: node and task live as long as the world.
        unsafe { self.table.enqueue(&self.node, task, KEY, !0, still) }
    }

    /// Claims the wait, as a signal does.
    fn interrupt(&self) -> bool {
        let task = self.tasks.get(0);
        // SAFETY: the task has one node, and one table.
        let queued = || unsafe { self.table.claim(&self.node, task, Wake::Signalled) };
        task.get().claim(Wake::Signalled) || queued()
    }

    /// Takes the node out. Returns true if it was linked.
    fn leave(&self) -> bool {
        // SAFETY: the node was given to this table.
        unsafe { self.table.cancel(&self.node) }
    }

    /// `pthread_cond_signal`. Returns true if it woke the waiter.
    fn notify(&self) -> bool {
        let woken = TaskList::new();
        let mut n = self.table.wake_fenced(KEY, 1, !0, &woken);
        if n == 0 && self.absences.any(KEY) {
            self.absences.miss(KEY);
            n = self.table.wake_fenced(KEY, 1, !0, &woken);
        }
        n == 1
    }
}

/// An interrupted wait by the protocol of `absence`. Returns true if the waiter parks again.
fn goes_back(world: &World) -> bool {
    let seen = world.absences.begin(KEY);
    let parks = world.leave() && world.wait_if(|| !world.absences.has_missed(KEY, seen));
    if !parks {
        world.absences.end(KEY);
    }
    parks
}

/// A signal interrupts the waiter while another thread notifies.
fn notified_while_interrupted(
    go_back: impl Fn(&World) -> bool + Clone + Send + Sync + 'static,
    notify: impl Fn(&World) -> bool + Clone + Send + Sync + 'static,
) {
    explore(3, move || {
        let world = World::new();
        assert!(world.wait_if(|| true));
        let (there, notify) = (world.clone(), notify.clone());
        let notifier = thread::spawn(move || notify(&there));
        let parks = world.interrupt() && go_back(&world);
        let woken = notifier.join().unwrap();
        let waits = world.tasks.get(0).get().is_waiting();
        assert!(!waits, "a wake-up was lost");
        assert!(!parks || woken, "a waiter that parks again is woken");
    });
}

#[test]
fn a_waiter_that_handles_a_signal_misses_no_wake_up() {
    notified_while_interrupted(goes_back, World::notify);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_waiter_that_goes_back_unseen_is_caught() {
    notified_while_interrupted(
        |world| world.leave() && world.wait_if(|| true),
        World::notify,
    );
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_waiter_that_leaves_before_it_says_so_is_caught() {
    let go_back = |world: &World| {
        let was_linked = world.leave();
        let seen = world.absences.begin(KEY);
        was_linked && world.wait_if(|| !world.absences.has_missed(KEY, seen))
    };
    notified_while_interrupted(go_back, World::notify);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_waker_that_does_not_look_again_is_caught() {
    let notify = |world: &World| {
        let woken = TaskList::new();
        let n = world.table.wake_fenced(KEY, 1, !0, &woken);
        if n == 0 && world.absences.any(KEY) {
            world.absences.miss(KEY);
        }
        n == 1
    };
    notified_while_interrupted(goes_back, notify);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_node_that_a_waker_has_unlinked_must_be_noticed() {
    let go_back = |world: &World| {
        let seen = world.absences.begin(KEY);
        world.leave();
        world.wait_if(|| !world.absences.has_missed(KEY, seen))
    };
    notified_while_interrupted(go_back, World::notify);
}
