//! Run queues, the injector and the idle set under many threads.

use crate::{Bed, Tasks, explore};
use raddle_sched::{IdleSet, Injector, RunQueue, TaskRef};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use shuttle::thread;
use std::sync::Arc;

struct World {
    tasks: Tasks,
    queues: Vec<RunQueue>,
    injector: Injector,
    ran: Vec<AtomicU32>,
    left: AtomicUsize,
}

impl World {
    fn new(carriers: usize, tasks: usize) -> Arc<Self> {
        Arc::new(Self {
            tasks: Tasks::new(tasks),
            queues: (0..carriers).map(|_| RunQueue::new()).collect(),
            injector: Injector::new(),
            ran: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            left: AtomicUsize::new(tasks),
        })
    }

    fn push(&self, own: usize, task: TaskRef) {
        if let Some(overflow) = self.queues[own].push(task) {
            self.injector.push_all(overflow);
        }
    }

    fn run(&self, task: TaskRef) {
        assert_eq!(
            self.ran[self.tasks.index(task)].fetch_add(1, Ordering::SeqCst),
            0
        );
        self.left.fetch_sub(1, Ordering::SeqCst);
    }

    fn take(&self, own: usize) -> Option<TaskRef> {
        let queue = &self.queues[own];
        queue
            .take_lifo()
            .or_else(|| queue.pop_ring())
            .or_else(|| self.injector.pop())
    }

    /// Takes from others in a random way.
    fn steal(&self, own: usize) {
        let victim = thread_rng().gen_range(0..self.queues.len());
        if victim == own {
            return;
        }
        match thread_rng().gen_range(0..5) {
            0 => self.queues[victim]
                .take_lifo()
                .into_iter()
                .for_each(|task| self.run(task)),
            1 => {
                self.queues[own].steal_from(&self.queues[victim]);
            }
            _ => self.queues[own]
                .steal(&self.queues[victim])
                .into_iter()
                .for_each(|task| self.run(task)),
        }
    }
}

#[test]
fn four_carriers_run_each_of_forty_tasks_once() {
    explore(|| {
        let world = World::new(4, 40);
        let carriers: Vec<_> = (0..4)
            .map(|own| {
                let world = world.clone();
                thread::spawn(move || {
                    // Ten tasks of its own, pushed between looks.
                    for index in own * 10..own * 10 + 10 {
                        let task = world.tasks.get(index);
                        if thread_rng().gen_bool(0.3) {
                            world.queues[own]
                                .push_lifo(task)
                                .into_iter()
                                .for_each(|displaced| {
                                    world.push(own, displaced);
                                });
                        } else {
                            world.push(own, task);
                        }
                        if thread_rng().gen_bool(0.4) {
                            world.take(own).into_iter().for_each(|task| world.run(task));
                        }
                    }
                    while world.left.load(Ordering::SeqCst) > 0 {
                        match world.take(own) {
                            Some(task) => world.run(task),
                            None => world.steal(own),
                        }
                        thread::yield_now();
                    }
                })
            })
            .collect();
        carriers
            .into_iter()
            .for_each(|carrier| carrier.join().unwrap());
        assert!(world.ran.iter().all(|ran| ran.load(Ordering::SeqCst) == 1));
    });
}

/// Carriers that really sleep, so that a lost wake-up ends with all threads blocked, which shuttle
/// reports.
fn sleepers_and_posters(carriers: usize, posters: usize, right_order: bool) {
    explore(move || {
        let world = World::new(0, posters * 4);
        let idle = Arc::new(IdleSet::new());
        let beds: Arc<Vec<_>> = Arc::new((0..carriers).map(|_| Bed::new()).collect());
        let carriers = (0..carriers).map(|id| {
            let (world, idle, beds) = (world.clone(), idle.clone(), beds.clone());
            thread::spawn(move || {
                while world.left.load(Ordering::SeqCst) > 0 {
                    if let Some(task) = world.injector.pop() {
                        world.run(task);
                        continue;
                    }
                    let early = world.injector.is_empty();
                    idle.insert(id);
                    let empty = if right_order {
                        world.injector.is_empty()
                    } else {
                        early
                    };
                    if empty && world.left.load(Ordering::SeqCst) > 0 {
                        beds[id].sleep();
                    }
                    idle.take(id);
                }
                // No more posts will come: the other carriers may end.
                beds.iter().for_each(Bed::wake);
            })
        });
        let carriers: Vec<_> = carriers.collect();
        let posters = (0..posters).map(|poster| {
            let (world, idle, beds) = (world.clone(), idle.clone(), beds.clone());
            thread::spawn(move || {
                for index in poster * 4..poster * 4 + 4 {
                    world.injector.push(world.tasks.get(index));
                    if let Some(id) = idle.take_one() {
                        beds[id].wake();
                    }
                }
            })
        });
        let posters: Vec<_> = posters.collect();
        posters
            .into_iter()
            .chain(carriers)
            .for_each(|thread| thread.join().unwrap());
        assert!(world.ran.iter().all(|ran| ran.load(Ordering::SeqCst) == 1));
    });
}

#[test]
fn three_sleepers_miss_none_of_three_posters() {
    sleepers_and_posters(3, 3, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_looks_before_it_publishes_is_caught() {
    sleepers_and_posters(1, 1, false);
}
