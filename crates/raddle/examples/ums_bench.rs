//! Measures yields of kernel threads, of UMS workers and of fibers against each other:
//! `raddle bench ums` runs it.
//!
//! Arguments: threads, yields of each thread, schedulers (1), rounds (5). Each figure is the time
//! from the first start to the last end over all yields, the median of the rounds, interleaved:
//!
//! - *native*: kernel threads that call `sched_yield(2)`.
//! - *ums*: UMS workers that yield to a scheduler, which executes them in turn. With more than one
//!   scheduler each has its share of the threads, its own list and, where there are enough, its
//!   own carrier.
//! - *ums-in-place*: the same, but a worker that yields decides itself.
//! - *ums-light*: the same with light workers, which have no thread-locals of their own.
//! - *fiber*: fibers that switch to a scheduling fiber, which switches to them in turn.
//! - *fiber-direct*: fibers that each switch to the next one.

use raddle::fiber::{self, Fiber};
use raddle::thread::ScopedJoinHandle;
use raddle::ums::{self, Claimed, CompletionList, Context, Next, Reason, Scheduler};
use raddle::{runtime, thread};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const STACK: usize = 32 << 10;

#[derive(Clone, Copy)]
struct Work {
    threads: usize,
    yields: usize,
    schedulers: usize,
}

type Way = fn(Work) -> Duration;

/// How workers of schedulers are made and run.
#[derive(Clone, Copy)]
struct Kind {
    in_place: bool,
    light: bool,
}

const WAYS: [(&str, Way); 6] = [
    ("native", native),
    ("ums", |work| {
        ums_workers(
            work,
            Kind {
                in_place: false,
                light: false,
            },
        )
    }),
    ("ums-in-place", |work| {
        ums_workers(
            work,
            Kind {
                in_place: true,
                light: false,
            },
        )
    }),
    ("ums-light", |work| {
        ums_workers(
            work,
            Kind {
                in_place: true,
                light: true,
            },
        )
    }),
    ("fiber", fibers),
    ("fiber-direct", fibers_in_a_ring),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| {
        let text = arguments.next();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let work = Work {
        threads: number(100),
        yields: number(1000),
        schedulers: number(1),
    };
    let rounds = number(5);
    let part = arguments.next().unwrap_or_default();
    runtime::set_carriers(work.schedulers);
    let mut samples = WAYS.map(|_| Vec::new());
    for _ in 0..rounds {
        for ((name, way), samples) in WAYS.iter().zip(&mut samples) {
            if name.contains(&part) {
                samples.push(way(work).as_nanos() as f64 / (work.threads * work.yields) as f64);
            }
        }
    }
    for ((name, _), samples) in WAYS.iter().zip(&mut samples) {
        samples.sort_by(f64::total_cmp);
        if let Some(median) = samples.get(samples.len() / 2) {
            println!("METRIC {name} {median:.1} ns");
        }
    }
}

fn native(work: Work) -> Duration {
    let start = Barrier::new(work.threads);
    let times: Vec<_> = std::thread::scope(|scope| {
        let run = || {
            start.wait();
            let started = Instant::now();
            (0..work.yields).for_each(|_| std::thread::yield_now());
            (started, Instant::now())
        };
        let threads: Vec<_> = (0..work.threads).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    whole(&times)
}

fn whole(times: &[(Instant, Instant)]) -> Duration {
    let first = times.iter().map(|(started, _)| *started).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    last.zip(first)
        .map(|(last, first)| last - first)
        .unwrap_or_default()
}

fn ums_workers(work: Work, kind: Kind) -> Duration {
    let start = Barrier::new(work.schedulers);
    let times: Vec<_> = raddle::scope(|scope| {
        let run = |scheduler| {
            let start = &start;
            let own = work.threads / work.schedulers
                + usize::from(scheduler < work.threads % work.schedulers);
            scope.spawn(move || schedule(own, work.yields, start, kind))
        };
        let threads: Vec<_> = (0..work.schedulers).map(run).collect();
        let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    whole(&times)
}

/// Runs `workers` workers to their end; they count from their second turn on, when all exist.
fn schedule(workers: usize, yields: usize, start: &Barrier, kind: Kind) -> (Instant, Instant) {
    let list = CompletionList::new().expect("an engine");
    let run = move || (0..yields).for_each(|_| ums::yield_now(0).expect("a worker"));
    let (mut handles, mut results) = (Vec::new(), Vec::new());
    for _ in 0..workers {
        let context = Context::new(&list);
        if kind.light {
            // SAFETY: it holds a counter over its yields.
            let result = unsafe { ums::spawn_migrating_with(STACK, &context, run) };
            results.push(result.expect("memory"));
        } else {
            let builder = thread::Builder::new().stack_size(STACK);
            let handle = ums::spawn_with(builder, &context, run);
            handles.push(handle.expect("a thread can be made"));
        }
    }
    let mut turns = Turns::new(workers);
    start.wait();
    let started = Instant::now();
    if !kind.in_place {
        ums::enter_scheduling_mode(&list, |here, reason| turns.next(here, reason))
    } else {
        ums::enter_in_place(&list, |here, reason| turns.next(here, reason))
    }
    .expect("this is no worker");
    let ended = Instant::now();
    handles
        .into_iter()
        .for_each(|handle| handle.join().expect("no panic"));
    results
        .into_iter()
        .for_each(|result| result.wait().expect("no panic"));
    (started, ended)
}

/// A scheduler that executes its workers in turn.
struct Turns {
    ready: VecDeque<Claimed>,
    left: usize,
}

impl Turns {
    fn new(workers: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(workers),
            left: workers,
        }
    }

    /// In every yield: it is to be compiled into the call of the procedure.
    #[inline(always)]
    fn next(&mut self, scheduler: &Scheduler<'_>, reason: Reason) -> Next {
        if let Reason::Yielded { worker, .. } = reason {
            self.ready.push_back(worker);
        }
        if let Some(worker) = self.ready.pop_front() {
            if let Some(after) = self.ready.front() {
                after.prefetch();
            }
            match scheduler.resume(worker) {
                Ok(next) => return next,
                Err(locked) => self.ready.push_back(locked),
            }
        }
        self.wait(scheduler)
    }

    /// Rare: no worker is ready, or the next one is still being saved.
    #[cold]
    fn wait(&mut self, scheduler: &Scheduler<'_>) -> Next {
        while self.left != 0 {
            let wait = self.ready.is_empty();
            let timeout = (!wait).then_some(Duration::ZERO);
            for context in scheduler.list().dequeue(timeout).into_iter().flatten() {
                match context.claim() {
                    Ok(worker) => self.ready.push_back(worker),
                    Err(_ended) => self.left -= 1,
                }
            }
            if let Some(worker) = self.ready.pop_front() {
                match scheduler.resume(worker) {
                    Ok(next) => return next,
                    Err(locked) => self.ready.push_back(locked),
                }
            }
        }
        scheduler.leave()
    }
}

fn fibers(work: Work) -> Duration {
    let main = fiber::convert_thread().expect("a plain thread");
    let mut ready: VecDeque<Fiber> = (0..work.threads)
        .map(|_| {
            let main = main.clone();
            let run = move || {
                (0..work.yields).for_each(|_| main.switch_to().expect("it waits"));
                main
            };
            Fiber::new(STACK, run).expect("memory")
        })
        .collect();
    let started = Instant::now();
    while let Some(fiber) = ready.pop_front() {
        fiber.switch_to().expect("it waits");
        if !fiber.has_ended() {
            ready.push_back(fiber);
        }
    }
    let took = started.elapsed();
    fiber::convert_back().expect("the first fiber");
    took
}

fn fibers_in_a_ring(work: Work) -> Duration {
    use std::cell::RefCell;
    use std::rc::Rc;
    let main = fiber::convert_thread().expect("a plain thread");
    let all: Rc<RefCell<Vec<Fiber>>> = Rc::default();
    for me in 0..work.threads {
        let (main, ring) = (main.clone(), Rc::clone(&all));
        let run = move || {
            let next = ring.borrow()[(me + 1) % work.threads].clone();
            for _ in 0..work.yields {
                let _ = next.switch_to(); // in a ring of one it runs itself
            }
            let is_last = me + 1 == work.threads;
            if is_last { main } else { next }
        };
        let fiber = Fiber::new(STACK, run).expect("memory");
        all.borrow_mut().push(fiber);
    }
    let started = Instant::now();
    let first = all.borrow()[0].clone();
    first.switch_to().expect("it is new");
    let took = started.elapsed();
    all.borrow_mut().clear();
    fiber::convert_back().expect("the first fiber");
    took
}
