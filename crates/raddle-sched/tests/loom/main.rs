//! Every interleaving (up to a bound on preemptions) of the scheduler's protocols, under loom.
//!
//! A model never blocks: each thread does its part once, and the end state is judged. A wake-up is
//! lost if a task still waits although all its possible wakers have finished. Each protocol has a
//! twin, broken on purpose, that the checker must refuse.
//!
//! `RUSTFLAGS="--cfg raddle_loom" cargo test -p raddle-sched --release --test loom`
#![cfg(raddle_loom)]

mod absence;
mod arrivals;
mod call_gate;
mod chunks;
mod event_ring;
mod helper_queue;
mod left_signals;
mod members;
mod orders;
mod parking;
mod queues;
mod requests;
mod sample_ring;
mod signal_gate;
mod signals;
mod spares;
mod sysmon_sleep;
mod transfers;
mod version;
mod wait_forms;
mod wait_table;
mod wake;
mod workers;

use core::ptr::NonNull;
use raddle_sched::sync::UnsafeCell;
use raddle_sched::{Task, TaskList, TaskRef};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `model` over all interleavings with up to `preemptions` preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let executions = std::sync::Arc::new(AtomicU64::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(executions > 1, "a model without a choice");
    println!("{executions} executions");
}

/// `N` tasks at fixed addresses, each with a word that only the holder of the task may touch.
struct Tasks<const N: usize>([(Task, UnsafeCell<u32>); N]);

// SAFETY: the queues under test give each task, and so its word, to one thread at a time; otherwise
// the checker reports it before the word is touched.
unsafe impl<const N: usize> Sync for Tasks<N> {}

impl<const N: usize> Tasks<N> {
    fn new() -> Box<Self> {
        Box::new(Self(core::array::from_fn(|_| {
            (Task::new(), UnsafeCell::new(0))
        })))
    }

    fn get(&self, index: usize) -> TaskRef {
        // SAFETY: the tasks are boxed and outlive the model's threads, which are joined.
        unsafe { TaskRef::new(NonNull::from(&self.0[index].0)) }
    }

    /// Returns the task after a run, which writes its word.
    fn ran(&self, index: usize) -> TaskRef {
        // SAFETY: the caller holds the task; if another thread does, the checker reports it.
        self.0[index].1.with_mut(|word| unsafe { *word += 1 });
        self.get(index)
    }

    /// Counts each task of `list` once in `seen`.
    fn tally(&self, list: &TaskList, seen: &mut [u32; N]) {
        while let Some(task) = list.pop() {
            self.count(task, seen);
        }
    }

    /// Runs a task that was taken from a queue, and counts it in `seen`.
    fn count(&self, task: TaskRef, seen: &mut [u32; N]) {
        let at = (0..N).find(|&index| self.get(index) == task);
        let at = at.expect("a task of this model");
        self.ran(at);
        seen[at] += 1;
    }
}
