//! Measures tables of handles against each other: `raddle bench handles` runs it.
//!
//! Stresses, each by ten threads (arguments: the rounds of each thread, the threads, and a part of
//! the names of the figures that are wanted):
//!
//! - *weak*: make a weak handle to an object, look it up three times, remove a handle that was made
//!   some rounds before. Objects are each thread's own and live on, as in a runtime with a
//!   collector that keeps alive what threads look at.
//! - *weak-arc*: the same with objects that are counted.
//! - *monitor*: enter and leave monitors that are found by handles; all threads share them.
//!
//! The tables: ours; a mutex around a bitmap and arrays (what runtimes had before); `slab` in a
//! mutex; `sharded-slab`. All are measured in one process, in turn, and medians are printed.

#[path = "handles/tables.rs"]
mod tables;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, Weak};
use std::thread::ScopedJoinHandle;
use std::time::Instant;
use tables::{Bitmap, Counted, Plain, Raw, Sharded, Slabs, Weaks};

const THREADS: usize = 10;
const ROUNDS: usize = 50_000;
const TURNS: usize = 3;
/// Handles that a thread keeps at a time.
const KEPT: usize = 64;
const LOOKUPS: usize = 3;
const OBJECTS: usize = 16;
const MONITORS: usize = 64;

/// What a handle leads to.
#[repr(align(64))]
pub struct Object {
    value: AtomicU64,
    monitor: Mutex<u64>,
}

impl Object {
    fn new(value: u64) -> Arc<Self> {
        Arc::new(Self {
            value: AtomicU64::new(value),
            monitor: Mutex::new(0),
        })
    }
}

/// How much is done by how many.
#[derive(Clone, Copy)]
struct Work {
    rounds: usize,
    threads: usize,
}

type Stress = fn(Work) -> f64;

const STRESSES: &[(&str, Stress)] = &[
    ("weak-raddle", weak_stress::<Raw>),
    ("weak-mutex-bitmap", weak_stress::<Bitmap<Plain>>),
    ("weak-mutex-slab", weak_stress::<Slabs<Plain>>),
    ("weak-sharded-slab", weak_stress::<Sharded<Plain>>),
    ("weak-arc-raddle", weak_stress::<Counted>),
    ("weak-arc-mutex-bitmap", weak_stress::<Bitmap<Weak<Object>>>),
    ("weak-arc-mutex-slab", weak_stress::<Slabs<Weak<Object>>>),
    (
        "weak-arc-sharded-slab",
        weak_stress::<Sharded<Weak<Object>>>,
    ),
    ("monitor-raddle", monitor_stress::<Raw>),
    ("monitor-mutex-bitmap", monitor_stress::<Bitmap<Plain>>),
    ("monitor-mutex-slab", monitor_stress::<Slabs<Plain>>),
    ("monitor-sharded-slab", monitor_stress::<Sharded<Plain>>),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        let text = arguments.next();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let rounds = number(ROUNDS);
    let threads = number(THREADS);
    let part = arguments.next().unwrap_or_default();
    let wanted = || STRESSES.iter().filter(|(name, _)| name.contains(&part));
    let mut samples = vec![Vec::new(); STRESSES.len()];
    for _ in 0..TURNS {
        for ((_, stress), samples) in wanted().zip(&mut samples) {
            samples.push(stress(Work { rounds, threads }));
        }
    }
    for ((name, _), samples) in wanted().zip(&mut samples) {
        samples.sort_by(f64::total_cmp);
        println!("METRIC {name} {:.1} ns", samples[samples.len() / 2]);
    }
}

/// Runs `body` in every thread at once: nanoseconds from the first one's start to the last one's
/// end, for each round of each thread. Each thread looks at the clock itself: the one that waits
/// for them may come to run when they are over.
fn race(work: Work, body: impl Fn(usize) + Sync) -> f64 {
    let start = Barrier::new(work.threads);
    let times: Vec<_> = std::thread::scope(|scope| {
        let run = |thread| {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                start.wait();
                let started = Instant::now();
                body(thread);
                (started, Instant::now())
            })
        };
        let threads: Vec<_> = (0..work.threads).map(run).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("no thread fails");
        threads.into_iter().map(join).collect()
    });
    let first = times.iter().map(|(started, _)| started).min();
    let last = times.iter().map(|(_, ended)| ended).max();
    let whole = last.zip(first).map(|(last, first)| *last - *first);
    whole.unwrap_or_default().as_nanos() as f64 / (work.rounds * work.threads) as f64
}

fn weak_stress<W: Weaks>(work: Work) -> f64 {
    let table = W::new();
    race(work, |thread| {
        let objects: Vec<_> = (0..OBJECTS)
            .map(|n| Object::new((thread + n) as u64))
            .collect();
        let mut kept = VecDeque::with_capacity(KEPT + 1);
        let mut sum = 0;
        for round in 0..work.rounds {
            let handle = table.insert(&objects[round % OBJECTS]);
            for _ in 0..LOOKUPS {
                let value = |object: &Object| object.value.load(Ordering::Relaxed);
                sum += table.with(handle, value).expect("the object lives");
            }
            kept.push_back(handle);
            if kept.len() > KEPT {
                let oldest = kept.pop_front();
                oldest.into_iter().for_each(|handle| table.remove(handle));
            }
        }
        black_box(sum);
        kept.into_iter().for_each(|handle| table.remove(handle));
    })
}

fn monitor_stress<W: Weaks>(work: Work) -> f64 {
    let table = W::new();
    let objects: Vec<_> = (0..MONITORS as u64).map(Object::new).collect();
    let handles: Vec<_> = objects.iter().map(|object| table.insert(object)).collect();
    let time = race(work, |thread| {
        // An odd step is prime to the number of monitors: every thread meets every monitor.
        for at in (0..work.rounds).map(|round| round * (2 * thread + 3) % MONITORS) {
            let enter = |object: &Object| *object.monitor.lock().expect("no thread fails") += 1;
            table.with(handles[at], enter).expect("the object lives");
        }
    });
    let entered = |object: &Arc<Object>| *object.monitor.lock().expect("no thread fails");
    let entered: u64 = objects.iter().map(entered).sum();
    assert_eq!(entered, (work.rounds * work.threads) as u64);
    handles.into_iter().for_each(|handle| table.remove(handle));
    time
}
