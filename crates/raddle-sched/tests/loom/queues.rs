//! Run queues, the injector, and lists of completions.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::run_queue::CAPACITY;
use raddle_sched::share::AheadQueue;
use raddle_sched::{Injector, RunQueue, TaskList};

/// Empties a queue and counts its tasks.
fn drain<const N: usize>(queue: &RunQueue, tasks: &Tasks<N>, seen: &mut [u32; N]) {
    while let Some(task) = queue.take_lifo().or_else(|| queue.pop_ring()) {
        tasks.count(task, seen);
    }
}

/// The owner's part: `N` pushes, one to the slot, and a pop of each kind.
fn own<const N: usize>(queue: &RunQueue, tasks: &Tasks<N>) -> [u32; N] {
    let mut seen = [0; N];
    let mut push = |task| {
        if let Some(overflow) = queue.push(task) {
            tasks.tally(&overflow, &mut seen);
        }
    };
    for index in 0..N - 2 {
        push(tasks.ran(index));
    }
    for index in N - 2..N {
        if let Some(displaced) = queue.push_lifo(tasks.ran(index)) {
            push(displaced);
        }
    }
    if let Some(task) = queue.take_lifo() {
        tasks.count(task, &mut seen);
    }
    if let Some(task) = queue.pop_ring() {
        tasks.count(task, &mut seen);
    }
    seen
}

/// One owner, and `thieves` thieves that each have a queue of their own.
fn owner_meets_thieves<const N: usize>(preemptions: usize, thieves: usize) {
    explore(preemptions, move || {
        let shared = Arc::new((Tasks::<N>::new(), RunQueue::new()));
        let threads: Vec<_> = (0..thieves)
            .map(|thief| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (mut seen, own) = ([0; N], RunQueue::new());
                    if thief == 0 {
                        let first = own.steal(&shared.1);
                        first
                            .into_iter()
                            .for_each(|task| shared.0.count(task, &mut seen));
                    } else if let Some(task) = shared.1.take_lifo() {
                        shared.0.count(task, &mut seen);
                    } else if let Some(task) = shared.1.pop_ring() {
                        shared.0.count(task, &mut seen);
                    }
                    drain(&own, &shared.0, &mut seen);
                    seen
                })
            })
            .collect();
        let mut seen = own(&shared.1, &shared.0);
        for thread in threads {
            let theirs = thread.join().unwrap();
            (0..N).for_each(|index| seen[index] += theirs[index]);
        }
        drain(&shared.1, &shared.0, &mut seen);
        assert_eq!(seen, [1; N], "each task ran once");
    });
}

#[test]
fn an_owner_and_a_thief_share_every_task() {
    owner_meets_thieves::<4>(3, 1);
}

#[test]
fn an_owner_and_two_thieves_share_every_task() {
    owner_meets_thieves::<3>(3, 2);
}

#[test]
fn an_overflow_during_thefts_keeps_every_task() {
    owner_meets_thieves::<{ CAPACITY + 2 }>(3, 1);
}

#[test]
fn an_overflow_during_two_thefts_keeps_every_task() {
    owner_meets_thieves::<{ CAPACITY + 2 }>(2, 2);
}

#[test]
fn the_ring_is_first_in_first_out_for_a_thief() {
    explore(3, || {
        let shared = Arc::new((Tasks::<3>::new(), RunQueue::new()));
        let there = shared.clone();
        let thief = thread::spawn(move || {
            let place = |task| (0..3).find(|&at| there.0.get(at) == task).unwrap();
            let first = there.1.pop_ring().map(place);
            let second = there.1.pop_ring().map(place);
            (first, second)
        });
        for index in 0..3 {
            assert!(shared.1.push(shared.0.get(index)).is_none());
        }
        let (first, second) = thief.join().unwrap();
        assert!(
            second.is_none() || first < second,
            "{first:?} before {second:?}"
        );
    });
}

#[test]
fn the_injector_keeps_every_task() {
    explore(3, || {
        let shared = Arc::new((Tasks::<3>::new(), Injector::new()));
        let there = shared.clone();
        let other = thread::spawn(move || {
            let (list, mut seen) = (TaskList::new(), [0; 3]);
            list.push(there.0.ran(1));
            list.push(there.0.ran(2));
            there.1.push_all(list);
            if let Some(task) = there.1.pop() {
                there.0.count(task, &mut seen);
            }
            seen
        });
        let mut seen = [0; 3];
        shared.1.push(shared.0.ran(0));
        shared.0.tally(&shared.1.pop_some(2), &mut seen);
        let theirs = other.join().unwrap();
        shared.0.tally(&shared.1.pop_some(9), &mut seen);
        (0..3).for_each(|index| seen[index] += theirs[index]);
        assert_eq!((seen, shared.1.len()), ([1; 3], 0));
    });
}

/// Each task is taken once, the one with the least account first; `None` means an empty queue.
#[test]
fn the_queue_of_threads_that_are_ahead_keeps_every_task() {
    explore(3, || {
        let shared = Arc::new((Tasks::<3>::new(), AheadQueue::new()));
        let there = shared.clone();
        let other = thread::spawn(move || {
            let mut seen = [0; 3];
            there.1.push(there.0.ran(1), 20);
            there.1.push_yielded(there.0.ran(2), 0);
            if let Some(task) = there.1.pop_due(10) {
                there.0.count(task, &mut seen);
                assert_eq!(seen, [1, 0, 0], "no other account is that small");
            }
            seen
        });
        let mut seen = [0; 3];
        shared.1.push(shared.0.ran(0), 10);
        let first = shared.1.pop();
        shared.0.count(first.expect("one at least"), &mut seen);
        let theirs = other.join().unwrap();
        while let Some(task) = shared.1.pop() {
            shared.0.count(task, &mut seen);
        }
        (0..3).for_each(|index| seen[index] += theirs[index]);
        assert_eq!((seen, shared.1.len()), ([1; 3], 0));
        assert!(!shared.1.is_due(u64::MAX));
    });
}

/// Two threads push, and one takes or sleeps: a push finds the sleeper, and no item is lost.
#[test]
fn a_completion_list_loses_neither_items_nor_sleepers() {
    use core::ptr::NonNull;
    use raddle_sched::completion_list::{CompletionList, Found, Link};
    explore(3, || {
        let shared = Arc::new((CompletionList::new(), [Link::new(), Link::new()]));
        let threads: Vec<_> = (0..2)
            .map(|which| {
                let shared = shared.clone();
                thread::spawn(move || {
                    // SAFETY: the links live as long as the list, and each is pushed once.
                    unsafe { shared.0.push(NonNull::from(&shared.1[which])) }
                })
            })
            .collect();
        let mut seen = shared.0.take().count();
        let mut sleeps = false;
        if seen == 0 {
            sleeps = shared.0.announce();
        }
        if !sleeps {
            seen += shared.0.take().count();
        }
        let found: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
        seen += shared.0.take().count();
        assert_eq!(seen, 2, "each item was taken once");
        let woken = found.contains(&Found::Sleepers);
        assert_eq!(woken, sleeps, "who sleeps is woken, and nobody else");
    });
}
