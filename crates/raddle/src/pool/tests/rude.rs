//! User code that a pool calls or drops, and that panics or uses the pool.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Panics when it is dropped, once.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// Makes a closure capture a value, and drop it unused.
fn keep<T>(_: &T) {}

fn waits_for<T: Send + 'static>(task: Task<T>) -> Result<T, TaskError> {
    task.wait_timeout(LONG).expect("it ends")
}

#[test]
fn a_join_whose_thread_runs_rude_work_meanwhile_still_waits_for_its_other_half() {
    static ARMED: AtomicBool = AtomicBool::new(false);
    static VALUE: ContextLocal<u8> = ContextLocal::with_notify(|change| {
        assert!(!(change.by_switch && ARMED.load(Ordering::SeqCst)), "told");
    });
    static HELD: ContextLocal<Bomb> = ContextLocal::new();
    let pool = fixed(2);
    let (open, closed) = mpsc::channel::<()>();
    let (taken, is_taken) = mpsc::channel();
    let (ran, has_run) = mpsc::channel();
    let joined = pool.task(move || {
        let first = move || {
            is_taken.recv_timeout(LONG).unwrap(); // by the other worker
            VALUE.set(1);
            ARMED.store(true, Ordering::SeqCst);
            // Runs here while this worker waits for its half: the other worker waits, too.
            let rude = move || {
                HELD.set(Bomb);
                ran.send(()).unwrap();
            };
            queue(rude).unwrap();
            1
        };
        let second = move || {
            taken.send(()).unwrap();
            closed.recv_timeout(LONG).is_err()
        };
        let answers = join(first, second);
        ARMED.store(false, Ordering::SeqCst);
        answers
    });
    has_run.recv_timeout(LONG).unwrap();
    std::thread::sleep(SOON);
    drop(open);
    assert_eq!(waits_for(joined.unwrap()).unwrap(), (1, true));
    assert_eq!(pool.stats().workers, 2);
}

#[test]
fn a_context_is_restored_although_its_callbacks_panic() {
    static VALUE: ContextLocal<u8> = ContextLocal::with_notify(|change| {
        assert!(!change.by_switch, "told");
    });
    VALUE.set(1);
    assert_eq!(Context::default().run(|| VALUE.get()), None);
    assert_eq!(VALUE.get().as_deref(), Some(&1));
    VALUE.clear();
}

#[test]
fn notifications_may_change_contexts_themselves() {
    static LOG: Mutex<Vec<(u8, bool)>> = Mutex::new(Vec::new());
    static OUTER: ContextLocal<u8> = ContextLocal::with_notify(|change| {
        LOG.lock()
            .unwrap()
            .push((change.new.copied().unwrap_or(0), change.by_switch));
        match change.new {
            Some(&depth) if depth < 3 => OUTER.set(depth + 1),
            _ if change.by_switch => {}
            _ => Context::default().run(|| assert_eq!(INNER.get(), None)),
        }
    });
    static INNER: ContextLocal<u8> = ContextLocal::new();
    INNER.set(9);
    OUTER.set(1);
    assert_eq!(OUTER.get().as_deref(), Some(&3));
    let log = LOG.lock().unwrap().clone();
    assert_eq!(log[..3], [(1, false), (2, false), (3, false)]);
    assert!(log[3..].iter().all(|entry| entry.1), "{log:?}");
    INNER.clear();
}

/// Calls its function when it is dropped.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn what_is_discarded_may_use_the_pool_and_panic() {
    let builder = Pool::builder().workers(1).max_workers(1);
    let builder = builder.capacity(1, Overflow::DiscardOldest);
    let pool = builder.build().unwrap();
    let gate = gate(&pool);
    // Work of timers is queued in any case, also beyond the bound.
    for round in 0..3 {
        let remote = pool.remote();
        let asks = AtEnd(move || assert!(remote.stats().pending < 3 && round != 1));
        pool.after(Duration::ZERO, move || keep(&asks)).unwrap();
    }
    until("all of them wait", || pool.stats().pending == 3);
    let remote = pool.remote();
    let queues = std::thread::spawn(move || remote.queue(|| ()).unwrap());
    until("it is queued", || queues.is_finished());
    queues.join().unwrap();
    assert_eq!((pool.stats().pending, pool.stats().discarded), (1, 3));
    drop(gate);
}

#[test]
fn borrowed_work_that_a_full_queue_discards_was_not_run_and_says_so() {
    let builder = Pool::builder().workers(1).max_workers(1);
    let builder = builder.capacity(1, Overflow::DiscardOldest);
    let pool = builder.build().unwrap();
    let gate = gate(&pool);
    let remote = pool.remote();
    let installs = std::thread::spawn(move || remote.install(|| ()));
    until("it waits", || pool.stats().pending == 1);
    pool.queue(|| ()).unwrap();
    let answer = installs.join().unwrap();
    assert!(matches!(answer, Err(QueueError::Full)), "{answer:?}");
    drop(gate);
}

#[test]
fn hooks_that_panic_lose_no_work() {
    let (count, calls) = counter();
    let pool = Pool::builder().workers(1).max_workers(1);
    let pool = pool.before_work(|| panic!("before"));
    let pool = pool.after_work(move || {
        add_one(&count);
        panic!("after")
    });
    let pool = pool
        .on_start(|_| panic!("start"))
        .on_stop(|_| panic!("stop"));
    let pool = pool.build().unwrap();
    let task = pool.task(|| 5).unwrap();
    assert_eq!(waits_for(task).unwrap(), 5);
    until("the hook was called", || calls() == 1);
    until("it is counted", || pool.stats().panicked == 2);
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn a_pool_ends_although_what_it_drops_panics() {
    let pool = fixed(1);
    let gate = gate(&pool);
    for _ in 0..3 {
        let bomb = Bomb;
        pool.queue(move || keep(&bomb)).unwrap();
        let bomb = Bomb;
        let late = pool.after(LONG, move || keep(&bomb));
        assert!(late.is_ok());
    }
    let ends = std::thread::spawn(move || pool.dispose(Pending::Drop, Some(SOON)));
    until("it has ended", || ends.is_finished());
    let report = ends.join().expect("no panic comes out");
    assert_eq!((report.dropped, report.still_running), (3, 1));
    drop(gate);
}

#[test]
fn a_cancelled_task_whose_captures_panic_still_tells_its_waiter() {
    let (pool, source) = (fixed(1), CancelSource::new());
    let gate = Mutex::new(Some(gate(&pool)));
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(receiver);
    // Runs before the task's own registration: the worker finds the task, cancelled.
    let _first = source.token().on_cancel(move || {
        drop(gate.lock().unwrap().take());
        receiver.lock().unwrap().recv_timeout(LONG).unwrap();
    });
    let bomb = Bomb;
    let options = Options::new().token(&source.token());
    let task = pool.task_with(options, move || keep(&bomb)).unwrap();
    pool.queue(move || sender.send(()).unwrap()).unwrap();
    assert!(source.cancel());
    assert!(matches!(waits_for(task), Err(TaskError::Cancelled)));
}

#[test]
fn a_pool_that_its_own_worker_disposes_of_runs_what_waits() {
    let pool = fixed(2);
    let (count, ran) = counter();
    let remote = pool.remote();
    let (sender, receiver) = mpsc::channel();
    let ends = move || {
        for _ in 0..100 {
            let count = count.clone();
            pool.queue(move || add_one(&count)).unwrap();
        }
        let report = pool.dispose(Pending::Run, None);
        sender.send(report).unwrap();
    };
    remote.queue(ends).unwrap();
    let report = receiver.recv_timeout(LONG).unwrap();
    assert_eq!(report.dropped, 0);
    assert!(report.still_running >= 1);
    assert!(matches!(remote.queue(|| ()), Err(QueueError::Closed)));
    until("all workers end", || remote.stats().workers == 0);
    assert_eq!(ran(), 100);
}

#[test]
fn a_pool_that_ends_still_notices_work_that_blocks_in_silence() {
    let builder = Pool::builder().workers(1).max_workers(3);
    let pool = builder.tick(Duration::from_millis(5)).build().unwrap();
    let (entered, inside) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    let (told, is_told) = mpsc::channel();
    let waits = move || {
        entered.send(()).unwrap();
        told.send(receiver.recv_timeout(LONG).is_ok()).unwrap();
    };
    pool.queue(waits).unwrap();
    inside.recv_timeout(LONG).unwrap();
    pool.queue(move || sender.send(()).unwrap()).unwrap();
    let report = pool.dispose(Pending::Run, None);
    assert_eq!((report.dropped, report.still_running), (0, 0));
    assert!(is_told.recv().unwrap());
}

#[test]
fn a_pool_that_looks_at_itself_never_takes_work() {
    let builder = Pool::builder().workers(1).max_workers(2);
    let pool = builder.tick(Duration::MAX).keep_alive(Duration::MAX);
    let pool = pool.build().unwrap();
    let answer = catch_unwind(AssertUnwindSafe(|| pool.install(|| 5)));
    assert_eq!(answer.expect("no panic").unwrap(), 5);
}

#[test]
fn work_can_be_queued_by_destructors_of_thread_locals() {
    static VALUE: ContextLocal<u8> = ContextLocal::new();
    type Last = AtEnd<Box<dyn FnMut()>>;
    thread_local!(static LAST: Mutex<Option<Last>> = const { Mutex::new(None) });
    let pool = fixed(1);
    let (remote, (count, ran)) = (pool.remote(), counter());
    let thread = std::thread::spawn(move || {
        // Its destructor is noted first, and so runs after the context's.
        LAST.with(|_| ());
        VALUE.set(1);
        let queues = AtEnd(Box::new(move || {
            let count = count.clone();
            assert!(Context::capture().is_empty() && VALUE.get().is_none());
            VALUE.set(2);
            Context::default().run(|| VALUE.clear());
            remote.queue(move || add_one(&count)).unwrap();
        }) as Box<dyn FnMut()>);
        LAST.with(|last| *last.lock().unwrap() = Some(queues));
    });
    thread.join().unwrap();
    drop(pool);
    assert_eq!(ran(), 1);
}

/// A panic with a payload that panics when it is dropped.
fn panic_twice() -> ! {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("on purpose: the payload's own");
        }
    }
    std::panic::panic_any(Payload)
}

/// Catches the panic, and keeps the payload for ever.
fn panics(f: impl FnOnce()) -> bool {
    let caught = catch_unwind(AssertUnwindSafe(f));
    caught.map_err(std::mem::forget).is_err()
}

#[test]
fn payloads_that_panic_when_they_are_dropped_end_no_scope_early_and_leave_none_open() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    let pool = fixed(2);
    let item = |_: &Scope<'_>| {
        RAN.fetch_add(1, Ordering::SeqCst);
        panic_twice()
    };
    assert!(panics(|| {
        let scope = |scope: &Scope<'_>| (0..10).for_each(|_| scope.spawn(item));
        _ = pool.scope(scope);
    }));
    assert_eq!(RAN.load(Ordering::SeqCst), 10);
}

#[test]
fn every_callback_of_a_cancellation_runs_whatever_the_others_panic_with() {
    let (source, (ran, count)) = (CancelSource::new(), counter());
    for _ in 0..5 {
        let ran = Arc::clone(&ran);
        let callback = move || {
            ran.fetch_add(1, Ordering::SeqCst);
            panic_twice()
        };
        source.token().on_cancel(callback).keep();
    }
    assert!(panics(|| _ = source.cancel()));
    assert_eq!(count(), 5);
}

/// An item of the hook's, pushed to the worker's deque, summons no other worker, which would call
/// the hook, too.
#[test]
fn workers_whose_last_hook_uses_the_pool_end() {
    let hook = |_| {
        let scope = |scope: &Scope<'_>| scope.spawn(|_| ());
        PoolRef::current().expect("a worker").scope(scope).unwrap();
        parallel_for(0..50, 1, |_| std::thread::yield_now());
    };
    let short = Duration::from_millis(1);
    let builder = Pool::builder().workers(2).max_workers(3).keep_alive(short);
    let pool = builder
        .on_start(|_| _ = join(|| 1, || 2))
        .on_stop(hook)
        .build()
        .unwrap();
    for _ in 0..10 {
        pool.queue(|| ()).unwrap();
    }
    let report = pool.dispose(Pending::Run, Some(LONG));
    assert_eq!((report.dropped, report.still_running), (0, 0));
}
