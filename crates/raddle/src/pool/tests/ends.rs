//! Recursive work, the ends of pools, timers, descriptors and cancellation.

use super::*;

#[test]
fn join_scope_and_parallel_for_cover_everything_under_theft() {
    fn sum(numbers: &[u64]) -> u64 {
        match numbers.len() {
            0..64 => numbers.iter().sum(),
            length => {
                let (low, high) = numbers.split_at(length / 2);
                let (low, high) = join(|| sum(low), || sum(high));
                low + high
            }
        }
    }
    let pool = fixed(3);
    let numbers: Vec<u64> = (0..100_000).collect();
    for _ in 0..20 {
        assert_eq!(pool.install(|| sum(&numbers)).unwrap(), 4_999_950_000);
    }
    let marks: Vec<_> = (0..10_000).map(|_| AtomicUsize::new(0)).collect();
    pool.install(|| {
        parallel_for(0..marks.len(), 7, |part| {
            assert!(part.len() <= 7);
            part.for_each(|at| add_one(&marks[at]));
        });
    })
    .unwrap();
    assert!(marks.iter().all(|mark| mark.load(Ordering::Relaxed) == 1));
    let count = AtomicUsize::new(0);
    pool.scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|scope| {
                for _ in 0..10 {
                    scope.spawn(|_| add_one(&count));
                }
            });
        }
    })
    .unwrap();
    assert_eq!(count.into_inner(), 1000);
}

#[test]
fn a_panic_in_a_half_or_a_scope_comes_out_after_the_rest_has_ended() {
    let (pool, ended) = (fixed(2), AtomicBool::new(false));
    let slow = || {
        std::thread::sleep(SOON);
        ended.store(true, Ordering::SeqCst);
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.install(|| join(|| panic!("half"), slow)).map(drop)
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"half"));
    assert!(ended.swap(false, Ordering::SeqCst));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pool.scope(|scope| {
            scope.spawn(|_| panic!("item"));
            scope.spawn(|_| slow());
        })
    }));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"item"));
    assert!(ended.load(Ordering::SeqCst));
}

#[test]
fn dropping_what_waits_tells_its_waiters_and_finishes_begun_joins() {
    let pool = fixed(1);
    let (gate, closed) = mpsc::channel::<()>();
    let (entered, inside) = mpsc::channel();
    let joined = pool.task(move || {
        join(
            move || {
                entered.send(()).unwrap();
                let _ = closed.recv();
            },
            || 7,
        )
        .1
    });
    inside.recv_timeout(LONG).unwrap();
    let waiting = pool.task(|| ()).unwrap();
    let remote = pool.remote();
    let report = pool.dispose(Pending::Drop, Some(SOON));
    assert_eq!((report.dropped, report.still_running), (1, 1));
    assert!(matches!(
        waiting.wait_timeout(LONG).unwrap(),
        Err(TaskError::Discarded)
    ));
    assert!(matches!(remote.install(|| ()), Err(QueueError::Closed)));
    drop(gate);
    assert_eq!(joined.unwrap().wait_timeout(LONG).unwrap().unwrap(), 7);
}

#[test]
fn a_deadline_ends_the_drain() {
    let pool = fixed(1);
    let gate = gate(&pool);
    (0..5).for_each(|_| pool.queue(|| ()).unwrap());
    let start = Instant::now();
    let report = pool.dispose(Pending::Run, Some(SOON));
    assert!((SOON..LONG).contains(&start.elapsed()));
    assert_eq!((report.dropped, report.still_running), (5, 1));
    drop(gate);
}

#[test]
fn a_pool_dropped_by_its_own_worker_does_not_wait_for_itself() {
    let pool = fixed(1);
    let remote = pool.remote();
    let (sender, receiver) = mpsc::channel();
    remote
        .queue(move || {
            drop(pool);
            sender.send(()).unwrap();
        })
        .unwrap();
    receiver.recv_timeout(LONG).unwrap();
    until("the worker ends", || remote.stats().workers == 0);
}

#[test]
fn pools_are_isolated() {
    let (busy, free) = (fixed(1), fixed(1));
    let _gate = gate(&busy);
    let name = free.task(|| std::thread::current().id()).unwrap();
    assert!(name.wait_timeout(LONG).is_ok());
    // Work of one pool that queues to another goes there.
    let remote = free.remote();
    let task = free.task(move || remote.stats().workers).unwrap();
    assert_eq!(task.wait_timeout(LONG).unwrap().unwrap(), 1);
}

#[test]
fn timers_run_in_order_periods_do_not_overlap_and_cancelled_ones_never_run() {
    let pool = fixed(2);
    let (sender, receiver) = mpsc::channel();
    for delay in [300, 100, 200] {
        let sender = sender.clone();
        let note = move || sender.send(delay).unwrap();
        drop(pool.after(Duration::from_millis(delay), note).unwrap());
    }
    let never = pool.after(LONG, || unreachable!()).unwrap();
    assert!(never.cancel() && !never.cancel());
    let order: Vec<_> = (0..3)
        .map(|_| receiver.recv_timeout(LONG).unwrap())
        .collect();
    assert_eq!(order, [100, 200, 300]);

    let (count, inside) = counter();
    let (most, seen) = counter();
    let period = Duration::from_millis(1);
    let ticks = pool.every(period, move || {
        most.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(3 * period);
        count.fetch_sub(1, Ordering::SeqCst);
    });
    until("it was called", || seen() > 0);
    std::thread::sleep(SOON);
    assert!(ticks.unwrap().cancel());
    assert_eq!(seen(), 1);
    until("the last call ends", || inside() == 0);
    assert!(matches!(
        pool.every(Duration::ZERO, || ()),
        Err(QueueError::ZeroPeriod)
    ));
}

#[test]
fn readiness_runs_work_once_and_can_be_taken_back() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    let pool = fixed(1);
    let (mut here, there) = UnixStream::pair().unwrap();
    let (sender, receiver) = mpsc::channel();
    let note = move || sender.send(()).unwrap();
    let ready = pool.when_ready(&there, Interest::Readable, note).unwrap();
    assert!(receiver.recv_timeout(SOON).is_err());
    here.write_all(b"x").unwrap();
    receiver.recv_timeout(LONG).unwrap();
    assert!(!ready.cancel());
    let taken = pool.when_ready(&here, Interest::Readable, || unreachable!());
    assert!(taken.unwrap().cancel());
    here.write_all(b"y").unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let refused = pool.when_ready(&file, Interest::Readable, || ());
    assert!(matches!(refused, Err(QueueError::Watch(_))));
}

#[test]
fn linked_sources_and_callbacks_behave() {
    let (parent, other) = (CancelSource::new(), CancelSource::new());
    let child = CancelSource::linked(&[&parent.token(), &other.token()]);
    let (count, ran) = counter();
    let counted = count.clone();
    let add = move || add_one(&counted);
    let kept = child.token().on_cancel(add.clone());
    let dropped = child.token().on_cancel(add.clone());
    drop(dropped);
    assert!(other.cancel() && child.is_cancelled() && !parent.is_cancelled());
    assert_eq!(ran(), 1);
    assert!(!kept.unregister());
    drop(child.token().on_cancel(add));
    assert_eq!(ran(), 2, "a late callback runs at once");
    drop(child);
    assert!(parent.cancel());
    let source = CancelSource::new();
    let _first = source.token().on_cancel(|| panic!("first"));
    let counted = count.clone();
    let second = move || add_one(&counted);
    let _second = source.token().on_cancel(second);
    let panic = std::panic::catch_unwind(|| source.cancel());
    assert!(
        panic.is_err() && ran() == 3,
        "a panic does not keep others from running"
    );
}

/// Longer than any stack allows, if each link took a part of it.
const CHAIN: usize = 100_000;

#[test]
fn a_chain_of_linked_sources_takes_no_stack() {
    let first = CancelSource::new();
    let mut chain = vec![first];
    for _ in 0..CHAIN {
        let parent = chain.last().unwrap().token();
        chain.push(CancelSource::linked(&[&parent]));
    }
    assert!(chain[0].cancel());
    assert!(chain.iter().all(CancelSource::is_cancelled));
    let last = CancelSource::linked(&[&chain[CHAIN].token()]);
    assert!(last.is_cancelled() && !last.cancel());
}

#[test]
fn linked_sources_are_cancelled_in_the_order_of_their_links() {
    let source = CancelSource::new();
    let (sender, order) = mpsc::channel();
    let notes = |token: &CancelToken, name| {
        let sender = sender.clone();
        let note = move || sender.send(name).unwrap();
        token.on_cancel(note).keep();
    };
    let token = source.token();
    notes(&token, 1);
    let child = CancelSource::linked(&[&token]);
    notes(&child.token(), 2);
    let panics = || std::panic::resume_unwind(Box::new("first"));
    child.token().on_cancel(panics).keep();
    let grandchild = CancelSource::linked(&[&child.token(), &token]);
    notes(&grandchild.token(), 3);
    notes(&child.token(), 4);
    notes(&token, 5);
    let cancels = std::panic::AssertUnwindSafe(|| source.cancel());
    let panic = std::panic::catch_unwind(cancels).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"first"));
    assert!(order.try_iter().eq(1..=5));
}

#[test]
fn a_chain_of_tasks_of_a_closed_pool_takes_no_stack() {
    for head_runs in [false, true] {
        let pool = fixed(1);
        let gate = gate(&pool);
        let (started, is_started) = mpsc::channel();
        let (goes_on, waits) = mpsc::channel();
        let head = move || {
            started.send(()).unwrap();
            waits.recv().unwrap();
        };
        let head = pool.task(head).unwrap();
        let then = |link: Task<_>, _| link.then(|outcome| outcome.unwrap());
        let chain = (0..CHAIN).fold(head, then);
        if head_runs {
            drop(gate);
            is_started.recv_timeout(LONG).unwrap();
            pool.dispose(Pending::Drop, Some(Duration::ZERO));
            goes_on.send(()).unwrap();
        } else {
            pool.dispose(Pending::Drop, Some(Duration::ZERO));
            drop(gate);
        }
        assert!(matches!(chain.wait(), Err(TaskError::Discarded)));
    }
}
