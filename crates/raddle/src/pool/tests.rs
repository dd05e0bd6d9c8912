//! Whole pools: the behaviour of each setting, and no lost work under load.

mod ends;
mod rude;

use super::rest::AfterPark;
use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::time::Instant;

const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(30);

fn fixed(workers: usize) -> Pool {
    let builder = Pool::builder().workers(workers).max_workers(workers);
    builder.build().unwrap()
}

/// Keeps a pool's only worker busy until the gate is dropped.
fn gate(pool: &Pool) -> mpsc::Sender<()> {
    let (gate, closed) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    pool.queue(move || {
        entered.send(()).unwrap();
        let _ = closed.recv();
    })
    .unwrap();
    inside.recv_timeout(LONG).unwrap();
    gate
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn counter() -> (Arc<AtomicUsize>, impl Fn() -> usize) {
    let counter = Arc::new(AtomicUsize::new(0));
    let read = counter.clone();
    (counter, move || read.load(Ordering::SeqCst))
}

fn meet(barrier: &Barrier) {
    barrier.wait();
}

fn add_one(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn workers_start_with_the_work_and_end_with_the_pool() {
    let (count, stopped) = counter();
    let started = count.clone();
    let pool = Pool::builder()
        .workers(2)
        .max_workers(2)
        .on_start(|worker| assert!(worker < 2))
        .on_stop(move |_| add_one(&started))
        .build()
        .unwrap();
    assert_eq!(pool.stats().workers, 0);
    pool.task(|| ())
        .unwrap()
        .wait_timeout(LONG)
        .unwrap()
        .unwrap();
    let workers = pool.stats().workers;
    assert!((1..=2).contains(&workers));
    drop(pool);
    assert!((1..=2).contains(&stopped()));
}

#[test]
fn settings_that_cannot_be_are_refused_by_type() {
    let error = |builder: Builder| builder.build().unwrap_err();
    assert_eq!(error(Pool::builder().workers(0)), BuildError::NoWorkers);
    assert_eq!(
        error(Pool::builder().workers(3).max_workers(2)),
        BuildError::MinAboveMax { min: 3, max: 2 }
    );
    assert_eq!(
        error(Pool::builder().capacity(0, Overflow::Block)),
        BuildError::NoCapacity
    );
    assert_eq!(error(Pool::builder().name("a\0b")), BuildError::NulInName);
    assert!(matches!(
        error(Pool::builder().workers(1 << 20)),
        BuildError::TooManyWorkers { .. }
    ));
}

#[test]
fn everything_queued_from_many_threads_runs_once_before_the_end() {
    const EACH: usize = 20_000;
    let (count, ran) = counter();
    let pool = fixed(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let count = count.clone();
                    let add = move || add_one(&count);
                    pool.queue(add).unwrap();
                }
            });
        }
    });
    let report = pool.dispose(Pending::Run, None);
    assert_eq!(
        (ran(), report.dropped, report.still_running),
        (4 * EACH, 0, 0)
    );
}

#[test]
fn a_tree_of_work_queued_by_work_is_run_whole() {
    fn grow(count: Arc<AtomicUsize>, depth: u32) {
        count.fetch_add(1, Ordering::SeqCst);
        for _ in 0..if depth > 0 { 3 } else { 0 } {
            let count = count.clone();
            queue(move || grow(count, depth - 1)).unwrap();
        }
    }
    let (count, ran) = counter();
    let pool = fixed(3);
    pool.queue(move || grow(count, 9)).unwrap();
    let report = pool.dispose(Pending::Run, None);
    assert_eq!(ran(), (3usize.pow(10) - 1) / 2);
    assert_eq!(report.dropped, 0);
}

#[test]
fn one_item_that_queues_more_than_a_deque_holds_loses_none() {
    let (count, ran) = counter();
    let pool = fixed(2);
    pool.queue(move || {
        for _ in 0..10 * deque::CAPACITY {
            let count = count.clone();
            queue(move || add_one(&count)).unwrap();
        }
    })
    .unwrap();
    drop(pool);
    assert_eq!(ran(), 10 * deque::CAPACITY);
}

#[test]
fn sleeping_workers_wake_for_every_burst() {
    let pool = fixed(2);
    for round in 0..20_000 {
        let barrier = Arc::new(Barrier::new(2));
        let there = barrier.clone();
        // Both workers are needed at once.
        let task = pool.task(move || meet(&there)).unwrap();
        pool.queue(move || meet(&barrier)).unwrap();
        assert!(task.wait_timeout(LONG).is_ok(), "round {round}");
        if round % 1000 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_push_to_a_workers_own_queue_wakes_a_sleeper() {
    let pool = fixed(2);
    for round in 0..500 {
        let met = pool.task(|| {
            let barrier = Arc::new(Barrier::new(2));
            let there = barrier.clone();
            queue(move || meet(&there)).unwrap();
            barrier.wait();
        });
        assert!(met.unwrap().wait_timeout(LONG).is_ok(), "round {round}");
        if round % 50 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn high_comes_before_normal_before_low() {
    let (pool, order) = (fixed(1), Arc::new(Mutex::new(Vec::new())));
    let gate = gate(&pool);
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let order = order.clone();
        let note = move || order.lock().unwrap().push(priority);
        pool.queue_with(Options::new().priority(priority), note)
            .unwrap();
    }
    drop(gate);
    drop(pool);
    let expected = [Priority::High, Priority::Normal, Priority::Low];
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn a_single_worker_runs_outside_work_in_order() {
    let (pool, order) = (fixed(1), Arc::new(Mutex::new(Vec::new())));
    let gate = gate(&pool);
    for number in 0..500 {
        let order = order.clone();
        pool.queue(move || order.lock().unwrap().push(number))
            .unwrap();
    }
    drop(gate);
    drop(pool);
    assert!(order.lock().unwrap().iter().copied().eq(0..500));
}

fn bounded(overflow: Overflow) -> (Pool, mpsc::Sender<()>) {
    let builder = Pool::builder().workers(1).max_workers(1);
    let pool = builder.capacity(2, overflow).build().unwrap();
    let gate = gate(&pool);
    (pool, gate)
}

#[test]
fn a_full_queue_rejects() {
    let (pool, gate) = bounded(Overflow::Reject);
    (0..2).for_each(|_| pool.queue(|| ()).unwrap());
    assert!(matches!(pool.queue(|| ()), Err(QueueError::Full)));
    assert_eq!(pool.stats().rejected, 1);
    drop(gate);
}

#[test]
fn a_full_queue_makes_its_caller_run() {
    let (pool, _gate) = bounded(Overflow::CallerRuns);
    (0..2).for_each(|_| pool.queue(|| ()).unwrap());
    let (sender, receiver) = mpsc::channel();
    let here = std::thread::current().id();
    pool.queue(move || sender.send(std::thread::current().id()).unwrap())
        .unwrap();
    assert_eq!(receiver.try_recv(), Ok(here));
}

#[test]
fn a_full_queue_discards_its_oldest() {
    let (pool, gate) = bounded(Overflow::DiscardOldest);
    let oldest = pool.task(|| 1).unwrap();
    let kept = pool.task(|| 2).unwrap();
    let newest = pool.task(|| 3).unwrap();
    drop(gate);
    assert!(matches!(oldest.wait(), Err(TaskError::Discarded)));
    assert_eq!((kept.wait().unwrap(), newest.wait().unwrap()), (2, 3));
}

#[test]
fn a_full_queue_blocks_until_there_is_room_and_never_its_own_worker() {
    let (pool, gate) = bounded(Overflow::Block);
    (0..2).for_each(|_| pool.queue(|| ()).unwrap());
    let remote = pool.remote();
    let (sender, receiver) = mpsc::channel();
    let caller = std::thread::spawn(move || {
        remote.queue(|| ()).unwrap();
        sender.send(()).unwrap();
    });
    assert!(receiver.recv_timeout(SOON).is_err());
    drop(gate);
    receiver.recv_timeout(LONG).unwrap();
    caller.join().unwrap();
    let all_in_one = pool.task(|| (0..10).for_each(|_| queue(|| ()).unwrap()));
    all_in_one.unwrap().wait_timeout(LONG).unwrap().unwrap();
}

#[test]
fn who_waits_runs_a_task_that_has_not_started() {
    let pool = fixed(1);
    let _gate = gate(&pool);
    let here = std::thread::current().id();
    let task = pool.task(|| std::thread::current().id()).unwrap();
    assert_eq!(task.wait().unwrap(), here);
    assert_eq!(pool.stats().inlined, 1);
}

#[test]
fn tasks_that_wait_for_tasks_do_not_starve_even_without_inlining() {
    let builder = Pool::builder().workers(1).max_workers(8);
    let pool = builder.inline_waits(false).build().unwrap();
    let outer = pool.task(|| {
        let pool = PoolRef::current().unwrap();
        let inner = pool.task(|| 5).unwrap();
        inner.wait().unwrap() + 1
    });
    assert_eq!(outer.unwrap().wait_timeout(LONG).unwrap().unwrap(), 6);
    assert!(pool.stats().peak_workers >= 2);
}

#[test]
fn blocking_adds_workers_up_to_the_bound() {
    let builder = Pool::builder().workers(1).max_workers(4);
    let pool = builder.build().unwrap();
    let (gate, closed) = mpsc::channel::<()>();
    let closed = Arc::new(Mutex::new(closed));
    let (count, inside) = counter();
    for _ in 0..10 {
        let (closed, count) = (closed.clone(), count.clone());
        let wait = move || {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = blocking(|| closed.lock().unwrap().recv());
        };
        pool.queue(wait).unwrap();
    }
    until("four workers block", || inside() == 4);
    std::thread::sleep(SOON);
    assert_eq!((inside(), pool.stats().workers), (4, 4));
    drop(gate);
    drop(pool);
    assert_eq!(inside(), 10);
}

#[test]
fn work_that_blocks_in_silence_is_noticed() {
    let builder = Pool::builder().workers(1).max_workers(3);
    let pool = builder.tick(Duration::from_millis(5)).build().unwrap();
    let (sender, receiver) = mpsc::channel();
    pool.queue(move || receiver.recv_timeout(LONG).unwrap())
        .unwrap();
    pool.queue(move || sender.send(()).unwrap()).unwrap();
    until("a second worker runs", || pool.stats().executed >= 2);
    assert!(pool.stats().injected >= 1);
}

#[test]
fn surplus_workers_end_after_their_keep_alive() {
    let builder = Pool::builder().workers(1).max_workers(4);
    let pool = builder
        .keep_alive(Duration::from_millis(20))
        .build()
        .unwrap();
    let barrier = Arc::new(Barrier::new(4));
    for _ in 0..4 {
        let barrier = barrier.clone();
        pool.queue(move || blocking(|| meet(&barrier))).unwrap();
    }
    until("all four worked", || pool.stats().peak_workers == 4);
    until("one is left", || pool.stats().workers == 1);
    pool.task(|| ())
        .unwrap()
        .wait_timeout(LONG)
        .unwrap()
        .unwrap();
}

#[test]
fn of_workers_that_end_at_the_same_time_the_least_number_stays() {
    let pool = Pool::builder().workers(1).max_workers(4).build().unwrap();
    let shared = &pool.shared;
    {
        let mut state = shared.state();
        state.alive = 3;
        state.idle.extend([0, 1, 2]);
    }
    assert_eq!(shared.after_park(0, false), AfterPark::ParkAgain);
    assert_eq!(shared.after_park(0, true), AfterPark::Leave);
    assert_eq!(shared.after_park(1, true), AfterPark::Leave);
    // The two are still alive, but don't count.
    assert_eq!(shared.after_park(2, true), AfterPark::ParkAgain);
    let mut state = shared.state();
    (state.alive, state.idle) = (0, Vec::new());
}

#[test]
fn a_panic_stays_with_the_item_and_the_policy_hears_of_it() {
    let pool = fixed(1);
    pool.queue(|| panic!("kept")).unwrap();
    until("it panicked", || pool.stats().panicked == 1);
    let payload = pool.take_panic().unwrap();
    assert_eq!(payload.downcast_ref(), Some(&"kept"));
    assert_eq!(pool.stats().workers, 1);

    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let report = OnPanic::report(move |report| {
        let text = report.message().unwrap().to_string();
        sender.lock().unwrap().send(text).unwrap();
    });
    let pool = Pool::builder().on_panic(report).build().unwrap();
    pool.queue(|| panic!("reported")).unwrap();
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), "reported");
    let task = pool.task(|| panic!("in a task")).unwrap();
    assert_eq!(task.wait().unwrap_err().message(), Some("in a task"));
    assert_eq!(pool.stats().panicked, 1);
}

#[test]
fn a_token_keeps_work_from_starting_and_frees_what_it_captured() {
    let (pool, source) = (fixed(1), CancelSource::new());
    let gate = gate(&pool);
    let (sender, receiver) = mpsc::channel::<()>();
    let options = Options::new().token(&source.token());
    let task = pool
        .task_with(options.clone(), move || drop(sender))
        .unwrap();
    source.cancel();
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert!(matches!(task.wait(), Err(TaskError::Cancelled)));
    drop(gate);
    assert!(matches!(
        pool.task_with(options, || ()),
        Err(QueueError::Cancelled)
    ));
}

#[test]
fn a_task_is_a_future_and_chains() {
    struct Wake(std::thread::Thread);
    impl std::task::Wake for Wake {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let pool = fixed(2);
    let mut task = pool
        .task(|| 20)
        .unwrap()
        .then(|n| n.unwrap() + 1)
        .then(|n| 2 * n.unwrap());
    let waker = Arc::new(Wake(std::thread::current())).into();
    let mut polling = std::task::Context::from_waker(&waker);
    let value = loop {
        match std::pin::Pin::new(&mut task).poll(&mut polling) {
            std::task::Poll::Ready(value) => break value,
            std::task::Poll::Pending => std::thread::park_timeout(LONG),
        }
    };
    assert_eq!(value.unwrap(), 42);
}

#[test]
fn contexts_flow_are_restored_and_can_be_kept_from_flowing() {
    static VALUE: ContextLocal<u32> = ContextLocal::new();
    let value = || VALUE.get().map(|value| *value);
    let pool = fixed(1);
    VALUE.set(1);
    let seen = pool.task(move || {
        let seen = value();
        VALUE.set(2);
        seen
    });
    assert_eq!(seen.unwrap().wait().unwrap(), Some(1));
    assert_eq!(value(), Some(1));
    pool.install(|| VALUE.set(3)).unwrap();
    assert_eq!(
        pool.install(|| join(value, value)).unwrap(),
        (Some(1), Some(1))
    );
    let guard = Context::suppress_flow();
    assert_eq!(
        pool.task(value)
            .unwrap()
            .wait_timeout(LONG)
            .unwrap()
            .unwrap(),
        None
    );
    drop(guard);
    let deaf = Pool::builder().flow_context(false).build().unwrap();
    let task = deaf.task(value).unwrap();
    assert_eq!(task.wait_timeout(LONG).unwrap().unwrap(), None);
}

#[test]
fn notifications_tell_sets_from_switches() {
    type Entry = (Option<u8>, Option<u8>, bool);
    static LOG: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
    static VALUE: ContextLocal<u8> = ContextLocal::with_notify(|change| {
        let entry = (change.old.copied(), change.new.copied(), change.by_switch);
        LOG.lock().unwrap().push(entry);
    });
    VALUE.set(1);
    let context = Context::capture();
    VALUE.set(2);
    context.run(|| ());
    VALUE.clear();
    let expected = [
        (None, Some(1), false),
        (Some(1), Some(2), false),
        (Some(2), Some(1), true),
        (Some(1), Some(2), true),
        (Some(2), None, false),
    ];
    assert_eq!(*LOG.lock().unwrap(), expected);
}
