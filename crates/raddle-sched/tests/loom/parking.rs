//! The lock, the claim word, `on_cpu` and the timers.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell, spin_loop};
use raddle_sched::{SpinLock, TaskList, Timers, WaitNode, WaitTable, Wake};

// Two threads a lock: with a third, the checker explores two that only spin past each other.
#[test]
fn the_spin_lock_excludes() {
    explore(3, || {
        let lock = Arc::new(SpinLock::new(0));
        let theirs = lock.clone();
        let thread = thread::spawn(move || {
            *theirs.lock() += 1;
            *theirs.lock() += 1;
        });
        *lock.lock() += 1;
        thread.join().unwrap();
        assert_eq!(*lock.lock(), 3);
    });
}

#[test]
fn a_failed_try_leaves_the_lock_to_its_holder() {
    explore(3, || {
        let lock = Arc::new(SpinLock::new(0));
        let theirs = lock.clone();
        let thread = thread::spawn(move || *theirs.lock() += 1);
        let mut tried = 0;
        for _ in 0..2 {
            tried += lock.try_lock().map_or(0, |mut count| {
                *count += 1;
                1
            });
        }
        thread.join().unwrap();
        assert_eq!(*lock.lock(), 1 + tried);
    });
}

/// A lock that is freed without release.
struct RelaxedLock {
    held: AtomicU32,
    data: UnsafeCell<u32>,
}

// SAFETY: none, which the checker must find.
unsafe impl Sync for RelaxedLock {}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_lock_freed_without_release_is_caught() {
    explore(3, || {
        let lock = Arc::new(RelaxedLock {
            held: AtomicU32::new(0),
            data: UnsafeCell::new(0),
        });
        let add = |lock: &RelaxedLock| {
            while lock.held.swap(1, Ordering::Acquire) != 0 {
                spin_loop();
            }
            // SAFETY: broken on purpose; the checker refuses the access before it is made.
            lock.data.with_mut(|data| unsafe { *data += 1 });
            lock.held.store(0, Ordering::Relaxed);
        };
        let other = lock.clone();
        let thread = thread::spawn(move || add(&other));
        add(&lock);
        thread.join().unwrap();
    });
}

#[test]
fn one_of_waker_timer_and_signal_wins() {
    explore(3, || {
        let tasks = Arc::new(Tasks::<1>::new());
        tasks.get(0).get().prepare();
        let threads = [Wake::Woken, Wake::TimedOut, Wake::Signalled].map(|why| {
            let tasks = tasks.clone();
            thread::spawn(move || tasks.get(0).get().claim(why).then_some(why))
        });
        let winners: Vec<_> = threads
            .into_iter()
            .filter_map(|t| t.join().unwrap())
            .collect();
        assert_eq!(winners, [tasks.get(0).get().outcome()]);
    });
}

/// A thread that waits for a signal without a lock, and the sender of the signal.
fn signal_meets_parker(prepare: fn(&raddle_sched::Task)) {
    explore(3, move || {
        let tasks = Arc::new(Tasks::<1>::new());
        let pending = Arc::new(AtomicU32::new(0));
        let (their_tasks, their_pending) = (tasks.clone(), pending.clone());
        let sender = thread::spawn(move || {
            their_pending.fetch_or(1, Ordering::SeqCst);
            their_tasks.get(0).get().claim(Wake::Signalled)
        });
        let task = tasks.get(0).get();
        prepare(task);
        let noticed = pending.load(Ordering::SeqCst) != 0 && task.claim(Wake::Retry);
        let sent = sender.join().unwrap();
        assert!(noticed || sent, "a signal was lost");
        assert!(!(noticed && sent), "a running task was pushed");
    });
}

#[test]
fn a_fenced_parker_misses_no_signal() {
    signal_meets_parker(raddle_sched::Task::prepare_fenced);
}

#[test]
#[should_panic(expected = "a signal was lost")]
fn a_parker_without_fence_is_caught() {
    signal_meets_parker(raddle_sched::Task::prepare);
}

#[test]
fn a_timer_and_a_waker_push_once_and_the_node_is_free() {
    explore(3, || {
        let shared = Arc::new((Tasks::<1>::new(), WaitTable::<1>::new(), Timers::new()));
        let node = Arc::new(WaitNode::new());
        let task = shared.0.get(0);
        task.get().prepare();
        // SAFETY: the node outlives the threads, and is cancelled below.
        assert!(unsafe { shared.1.enqueue(&node, task, 8, !0, || true) });
        shared.2.insert(task, 10);
        let (at_waker, at_timer) = (shared.clone(), shared.clone());
        let (node_of_waker, node_of_timer) = (node.clone(), node.clone());
        let waker = thread::spawn(move || {
            let (_node, woken) = (node_of_waker, TaskList::new());
            assert_eq!(at_waker.1.wake(8, 1, !0, &woken), woken.len());
            woken.len()
        });
        let timer = thread::spawn(move || {
            let expired = at_timer.2.expire(10).len();
            if expired == 1 {
                // The task runs here now, as it would after its park.
                // SAFETY: the node was given to this table.
                unsafe { at_timer.1.cancel(&node_of_timer) };
            }
            expired
        });
        let (woken, expired) = (waker.join().unwrap(), timer.join().unwrap());
        assert_eq!(woken + expired, 1);
        shared.2.remove(task);
        assert_eq!(shared.2.earliest_ns(), raddle_sched::timers::NEVER);
        assert_eq!(shared.1.row_waiters(8), 0);
        // SAFETY: as above.
        assert!(!unsafe { shared.1.cancel(&node) });
    });
}

#[test]
fn a_timer_that_is_removed_never_fires_after() {
    explore(3, || {
        let shared = Arc::new((Tasks::<2>::new(), Timers::new()));
        let (first, second) = (shared.0.get(0), shared.0.get(1));
        first.get().prepare();
        second.get().prepare();
        shared.1.insert(first, 5);
        let there = shared.clone();
        let timer = thread::spawn(move || {
            let expired = there.1.expire(7);
            let mut seen = [0; 2];
            there.0.tally(&expired, &mut seen);
            seen
        });
        shared.1.insert(second, 6);
        let woken = first.get().claim(Wake::Woken);
        shared.1.remove(first);
        let mut seen = timer.join().unwrap();
        shared.0.tally(&shared.1.expire(7), &mut seen);
        seen[0] += u32::from(woken);
        assert_eq!(seen, [1, 1]);
        assert_eq!(shared.1.earliest_ns(), raddle_sched::timers::NEVER);
    });
}

/// A task parks on carrier A while carrier B wakes, picks and continues it.
fn hand_over(waits_for_on_cpu: bool) {
    explore(3, move || {
        struct World {
            tasks: Box<Tasks<1>>,
            table: WaitTable<1>,
            node: WaitNode,
            word: AtomicU32,
            stack: UnsafeCell<u32>,
        }
        // SAFETY: only the holder of the task's stack touches `stack`, by `on_cpu`: the claim under
        // test.
        unsafe impl Sync for World {}
        // SAFETY: nothing in it is tied to a thread.
        unsafe impl Send for World {}
        let world = Arc::new(World {
            tasks: Tasks::new(),
            table: WaitTable::new(),
            node: WaitNode::new(),
            word: AtomicU32::new(0),
            stack: UnsafeCell::new(0),
        });
        // SAFETY: one carrier at a time is on the stack; otherwise the checker reports it.
        let touch = |world: &World| world.stack.with_mut(|stack| unsafe { *stack += 1 });
        world.tasks.get(0).get().on_cpu.store(1, Ordering::Relaxed);
        let there = world.clone();
        let other = thread::spawn(move || {
            let woken = TaskList::new();
            there.word.store(1, Ordering::Relaxed);
            there.table.wake(8, 1, !0, &woken);
            let Some(task) = woken.pop() else { return };
            while waits_for_on_cpu && task.get().on_cpu.load(Ordering::Acquire) != 0 {
                spin_loop();
            }
            task.get().on_cpu.store(1, Ordering::Relaxed);
            touch(&there);
        });
        let task = world.tasks.get(0);
        touch(&world);
        task.get().prepare();
        let still = || world.word.load(Ordering::SeqCst) == 0;
        // SAFETY: the node lives as long as the world.
        if unsafe { world.table.enqueue(&world.node, task, 8, !0, still) } {
            touch(&world); // the switch saves registers
            task.get().on_cpu.store(0, Ordering::Release);
        }
        other.join().unwrap();
    });
}

#[test]
fn a_task_continues_only_off_its_old_stack() {
    hand_over(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_carrier_that_does_not_wait_for_on_cpu_is_caught() {
    hand_over(false);
}
