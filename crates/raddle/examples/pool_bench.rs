//! The cost of queueing work and of draining it, against other pools.
//!
//! `pool_bench raddle|rayon|mutex ITEMS` prints the figures of one pool as `METRIC name value unit`
//! lines; `pool_bench all ITEMS ROUNDS` runs all pools interleaved and prints the medians.
//!
//! *queue* is the time until all items are queued, *drain* the time from there until all have run.
//! *separate*: items wait for a gun, which is fired when all are queued; so the first phase only
//! queues and the second only drains. *mixed*: they run as they are queued, and drain is what was
//! left: little, of a pool that queues slowly, so that totals alone compare pools there.
//! *recursive*: items queue two items each, from within the pool. An item counts down, and the last
//! one tells the main thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

const WARM_UP_ITEMS: usize = 100;

/// A pool under test.
trait Pool: Clone + Send + Sync + 'static {
    fn queue(&self, work: impl FnOnce() + Send + 'static);
}

impl Pool for raddle::pool::PoolRef {
    fn queue(&self, work: impl FnOnce() + Send + 'static) {
        raddle::pool::PoolRef::queue(self, work).expect("an open pool");
    }
}

impl Pool for Arc<rayon::ThreadPool> {
    fn queue(&self, work: impl FnOnce() + Send + 'static) {
        self.spawn(work);
    }
}

type Boxed = Box<dyn FnOnce() + Send>;

/// One queue under one lock, as in textbooks; a worker is notified only if one waits.
#[derive(Clone)]
struct SingleQueue(Arc<(Mutex<Queue>, Condvar)>);

#[derive(Default)]
struct Queue {
    items: VecDeque<Boxed>,
    waiting: usize,
    over: bool,
}

impl SingleQueue {
    fn start(workers: usize) -> (Self, Vec<JoinHandle<()>>) {
        let pool = Self(Arc::default());
        let threads = (0..workers).map(|_| {
            let pool = pool.clone();
            std::thread::spawn(move || pool.dispatch())
        });
        let threads = threads.collect();
        (pool, threads)
    }

    fn dispatch(&self) {
        let (queue, filled) = &*self.0;
        loop {
            let mut queue = queue.lock().unwrap();
            let item = loop {
                if let Some(item) = queue.items.pop_front() {
                    break item;
                }
                if queue.over {
                    return;
                }
                queue.waiting += 1;
                queue = filled.wait(queue).unwrap();
                queue.waiting -= 1;
            };
            drop(queue);
            item();
        }
    }

    fn stop(&self, threads: Vec<JoinHandle<()>>) {
        self.0.0.lock().unwrap().over = true;
        self.0.1.notify_all();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

impl Pool for SingleQueue {
    fn queue(&self, work: impl FnOnce() + Send + 'static) {
        let (queue, filled) = &*self.0;
        let mut queue = queue.lock().unwrap();
        queue.items.push_back(Box::new(work));
        if queue.waiting > 0 {
            filled.notify_one();
        }
    }
}

/// A flag that threads wait for.
#[derive(Default)]
struct Flag {
    raised: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Flag {
    fn raise(&self) {
        let _guard = self.lock.lock().unwrap();
        self.raised.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn wait(&self) {
        if self.raised.load(Ordering::Acquire) {
            return;
        }
        let mut guard = self.lock.lock().unwrap();
        while !self.raised.load(Ordering::Acquire) {
            guard = self.changed.wait(guard).unwrap();
        }
    }
}

struct Countdown {
    left: AtomicUsize,
    zero: Flag,
}

impl Countdown {
    fn new(left: usize) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(left),
            zero: Flag::default(),
        })
    }

    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.zero.raise();
        }
    }
}

/// Seconds to queue and to drain.
fn harness(pool: &impl Pool, items: usize, separate: bool) -> (f64, f64) {
    let countdown = Countdown::new(items);
    let gun = Arc::new(Flag::default());
    if !separate {
        gun.raise();
    }
    // Items share what they use by reference, as one delegate object would.
    let shared: &'static (Arc<Countdown>, Arc<Flag>) =
        Box::leak(Box::new((countdown.clone(), gun.clone())));
    let start = Instant::now();
    for _ in 0..items {
        pool.queue(move || {
            shared.1.wait();
            shared.0.count();
        });
    }
    let queued = Instant::now();
    gun.raise();
    countdown.zero.wait();
    (
        queued.duration_since(start).as_secs_f64(),
        queued.elapsed().as_secs_f64(),
    )
}

/// What the items of a tree count down: a part each, so that they don't meet at one word.
struct Tree<P> {
    pool: P,
    parts: Vec<Part>,
    /// Leaves of one part, which are neighbours.
    each: usize,
    left: Arc<Countdown>,
}

#[repr(align(128))]
struct Part(AtomicUsize);

const PARTS_LOG2: u32 = 6;

/// An item of a tree: two others, or at the bottom a count.
fn grow<P: Pool>(tree: &'static Tree<P>, depth: u32, path: usize) {
    if depth > 0 {
        for child in 0..2 {
            tree.pool
                .queue(move || grow(tree, depth - 1, 2 * path + child));
        }
    } else if tree.parts[path / tree.each]
        .0
        .fetch_sub(1, Ordering::AcqRel)
        == 1
    {
        tree.left.count();
    }
}

/// The depth of the largest tree of at most `items` items.
fn tree_depth(items: usize) -> u32 {
    items.max(1 << (PARTS_LOG2 + 1)).ilog2() - 1
}

/// Seconds for such a tree.
fn recursive<P: Pool>(pool: &P, items: usize) -> f64 {
    let depth = tree_depth(items);
    let parts = 1 << PARTS_LOG2;
    let each = (1usize << depth) / parts;
    let left = Countdown::new(parts);
    let tree: &'static Tree<P> = Box::leak(Box::new(Tree {
        pool: pool.clone(),
        parts: (0..parts).map(|_| Part(AtomicUsize::new(each))).collect(),
        each,
        left: left.clone(),
    }));
    let start = Instant::now();
    pool.queue(move || grow(tree, depth, 0));
    left.zero.wait();
    start.elapsed().as_secs_f64()
}

const NAMES: [&str; 7] = [
    "separate-queue",
    "separate-drain",
    "separate-total",
    "mixed-queue",
    "mixed-drain",
    "mixed-total",
    "recursive",
];

/// The figures in the order of [`NAMES`], in ns an item.
fn figures(pool: &impl Pool, items: usize) -> [f64; 7] {
    harness(pool, WARM_UP_ITEMS, false);
    let (queue, drain) = harness(pool, items, true);
    let (mixed_queue, mixed_drain) = harness(pool, items, false);
    // A tree of full depth has almost twice as many items as leaves.
    let tree = recursive(pool, items) * items as f64 / (2usize << tree_depth(items)) as f64;
    [
        queue,
        drain,
        queue + drain,
        mixed_queue,
        mixed_drain,
        mixed_queue + mixed_drain,
        tree,
    ]
    .map(|seconds| seconds * 1e9 / items as f64)
}

fn measure(pool: &str, items: usize) -> [f64; 7] {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    match pool {
        "raddle" => {
            let pool = raddle::pool::Pool::builder()
                .workers(workers)
                .max_workers(workers)
                .build()
                .expect("a fixed number of workers");
            figures(&pool.remote(), items)
        }
        "rayon" => {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(workers);
            let pool = Arc::new(builder.build().expect("a rayon pool"));
            figures(&pool, items)
        }
        _ => {
            let (pool, threads) = SingleQueue::start(workers);
            let figures = figures(&pool, items);
            pool.stop(threads);
            figures
        }
    }
}

const POOLS: [&str; 3] = ["raddle", "rayon", "mutex"];

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| {
        let text: Option<&String> = arguments.get(at);
        text.and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let items = number(1, 1_000_000usize);
    let pool = arguments.first().map_or("all", String::as_str);
    if POOLS.contains(&pool) {
        let figures = measure(pool, items);
        for (name, value) in NAMES.iter().zip(figures) {
            println!("METRIC {name} {value:.1} ns");
        }
        return;
    }
    let mut samples = [[(); NAMES.len()]; POOLS.len()].map(|row| row.map(|()| Vec::new()));
    for _ in 0..number(2, 5) {
        for (pool, samples) in POOLS.iter().zip(&mut samples) {
            let figures = measure(pool, items);
            samples
                .iter_mut()
                .zip(figures)
                .for_each(|(all, one)| all.push(one));
        }
    }
    println!(
        "ns an item   {:>10} {:>10} {:>10}",
        POOLS[0], POOLS[1], POOLS[2]
    );
    for (at, name) in NAMES.iter().enumerate() {
        let [a, b, c] = [0, 1, 2].map(|pool| median(&mut samples[pool][at]));
        println!(
            "{name:<14} {a:>8.1} {b:>10.1} {c:>10.1}   {:.2}x {:.2}x",
            b / a,
            c / a
        );
    }
    println!("mixed-drain is what was left when all was queued: compare mixed-total instead");
}
