//! Misuse gets an error by type, and does no harm.

use raddle::completion::{self, Failure};
use raddle::engine::Engine;
use raddle::pool::{Pending, Pool, PoolRef, QueueError, Stats, Task, TaskError, join, queue};
use raddle::runtime::{Status, status};
use raddle::thread::SelfJoin;
use raddle::ums::{self, CompletionList, Context};
use raddle::{Builder, light};
use std::sync::mpsc;
use std::time::Duration;

/// Returns the error of a thread that joins itself, once it was given its own handle.
fn joins_itself<H: Send + 'static>(
    spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> H,
    join: fn(H) -> std::thread::Result<()>,
) -> bool {
    let (to, from) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let handle = spawn(Box::new(move || {
        let refused = join(from.recv().unwrap()).unwrap_err();
        tell.send(refused.is::<SelfJoin>()).unwrap();
    }));
    to.send(handle).unwrap();
    told.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let green = |run| raddle::spawn(run);
    assert!(joins_itself(green, raddle::thread::JoinHandle::join));
    let named = |run| Builder::new().name("narcissus").spawn(run).unwrap();
    assert!(joins_itself(named, raddle::thread::JoinHandle::join));
    let light = |run: Box<dyn FnOnce() + Send>| light::spawn(run);
    assert!(joins_itself(light, light::JoinHandle::join));
}

/// Waits for the task that `from` brings, which can't end before. Returns the error.
fn refused(from: &mpsc::Receiver<Task<()>>) -> bool {
    let task = from.recv_timeout(Duration::from_secs(20)).unwrap();
    matches!(task.wait(), Err(TaskError::WaitsForItself))
}

#[test]
fn a_task_does_not_wait_for_itself() {
    let pool = Pool::new();
    let (tell, told) = mpsc::channel();
    let (to, from) = mpsc::channel();
    let task = pool.task(move || tell.send(refused(&from)).unwrap());
    to.send(task.unwrap()).unwrap();
    assert!(told.recv_timeout(Duration::from_secs(20)).unwrap());
}

#[test]
fn a_task_does_not_wait_for_one_that_runs_it() {
    let pool = Pool::new();
    let inner = Pool::builder().workers(1).max_workers(1).build().unwrap();
    let (gate, shut) = mpsc::channel::<()>();
    let waits = move || shut.recv().unwrap_or(());
    inner.queue(waits).unwrap(); // what is queued next runs where it is waited for
    let (to, from) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let waits = inner.task(move || refused(&from)).unwrap();
    let outer = pool.task(move || tell.send(waits.wait().unwrap()).unwrap());
    to.send(outer.unwrap()).unwrap();
    assert!(told.recv_timeout(Duration::from_secs(20)).unwrap());
    drop(gate);
}

#[test]
fn a_scope_whose_thread_tries_to_join_itself_ends_as_others_do() {
    fn refuses(joined: std::thread::Result<bool>) -> bool {
        joined.unwrap_err().is::<SelfJoin>()
    }
    light::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<light::ScopedJoinHandle<'_, bool>>();
        let own = scope.spawn(move || refuses(receiver.recv().unwrap().join()));
        sender.send(own).unwrap();
    });
    raddle::scope(|scope| {
        let (sender, receiver) = mpsc::channel::<raddle::thread::ScopedJoinHandle<'_, bool>>();
        let own = scope.spawn(move || refuses(receiver.recv().unwrap().join()));
        sender.send(own).unwrap();
    });
}

#[test]
fn a_light_thread_joins_who_had_its_stack_before() {
    let threads: Vec<_> = (0..300u32).map(|i| light::spawn(move || i)).collect();
    while !threads.iter().all(light::JoinHandle::is_finished) {
        std::thread::yield_now();
    }
    let join = || threads.into_iter().map(|thread| thread.join().unwrap());
    let sum = light::spawn(move || join().sum::<u32>());
    assert_eq!(sum.join().unwrap(), 299 * 150);
}

#[test]
fn names_that_the_kernel_cannot_have_are_refused_and_nothing_is_left_of_them() {
    fn is_refused<T>(made: std::io::Result<T>) -> bool {
        made.is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidInput)
    }
    let named = || Builder::new().name("a\0b");
    assert!(is_refused(named().spawn(|| ())));
    raddle::scope(|scope| assert!(is_refused(named().spawn_scoped(&scope, || ()))));
    if status() == Status::Green {
        let engine = Engine::builder().carriers(1).build().unwrap();
        assert!(is_refused(named().engine(&engine).spawn(|| ())));
        assert_eq!(engine.stats().threads, 0);
        let list = CompletionList::new().unwrap();
        let context = Context::new(&list);
        assert!(is_refused(ums::spawn_with(named(), &context, || ())));
        assert!(
            std::thread::spawn(|| ums::current().is_none())
                .join()
                .unwrap()
        );
        assert_eq!(context.state(), ums::State::New);
    }
    assert_eq!(raddle::spawn(|| 5).join().unwrap(), 5);
}

#[test]
fn stacks_too_small_are_enlarged_and_impossible_ones_refused() {
    let deep = || {
        std::hint::black_box([1u8; 4096])
            .iter()
            .map(|&b| u32::from(b))
            .sum::<u32>()
    };
    let green = Builder::new().stack_size(1).spawn(deep).unwrap();
    assert_eq!(green.join().unwrap(), 4096);
    let light = light::Builder::new().stack_size(1).spawn(deep).unwrap();
    assert_eq!(light.join().unwrap(), 4096);
    assert!(Builder::new().stack_size(1 << 60).spawn(deep).is_err());
    assert!(Builder::new().stack_size(usize::MAX).spawn(deep).is_err());
    assert!(
        light::Builder::new()
            .stack_size(1 << 60)
            .spawn(deep)
            .is_err()
    );
}

fn niceness() -> i32 {
    // SAFETY: a question about the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[test]
fn niceness_is_the_threads_own_and_needs_a_right_to_sink() {
    let own = niceness();
    for name in [None, Some("nice")] {
        let mut builder = Builder::new().niceness(i8::MAX);
        if let Some(name) = name {
            builder = builder.name(name);
        }
        assert_eq!(builder.spawn(niceness).unwrap().join().unwrap(), 19);
    }
    raddle::scope(|scope| {
        let thread = Builder::new().niceness(7).spawn_scoped(&scope, niceness);
        assert_eq!(thread.unwrap().join().unwrap(), 7);
    });
    match Builder::new().niceness(-20).spawn(niceness) {
        Ok(thread) => assert_eq!(thread.join().unwrap(), -20),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    assert_eq!(niceness(), own);
}

#[test]
fn what_blocks_unseen_runs_on_a_kernel_thread() {
    let green = raddle::thread::spawn_blocking(raddle::is_green_thread).unwrap();
    assert!(!green.wait().unwrap());
    let panics = raddle::thread::spawn_blocking(|| panic!("no device")).unwrap();
    assert!(matches!(panics.wait(), Err(Failure::Panicked(_))));
}

#[test]
fn threads_that_are_not_raddles_may_use_all_that_is_for_any_thread() {
    let (promise, completion) = completion::pair();
    let outside = std::thread::spawn(move || {
        assert!(!raddle::is_green_thread() && !light::is_light_thread());
        assert!(light::local().is_none() && !light::set_local(1));
        assert!(PoolRef::current().is_none());
        assert!(matches!(queue(|| ()), Err(QueueError::NotAWorker)));
        assert_eq!(join(|| 1, || 2), (1, 2));
        assert!(raddle::fiber::current().is_none());
        light::yield_now();
        promise.set(light::spawn(|| 5).join().unwrap()).unwrap();
        completion::block_on(async { 6 })
    });
    assert_eq!(
        (completion.wait().unwrap(), outside.join().unwrap()),
        (5, 6)
    );
}

/// Runs `check` in the child of a fork. Returns its answer; false after some seconds.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses what the crate promises for children, and ends at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a child that waits for ever ends, too.
        unsafe { libc::alarm(20) };
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(if good.unwrap_or(false) { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a live word.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}

#[test]
fn a_childs_pool_of_its_parent_refuses_and_a_pool_of_its_own_works() {
    let pool = Pool::builder()
        .workers(2)
        .inline_waits(false)
        .build()
        .unwrap();
    pool.task(|| ()).unwrap().wait().unwrap();
    let timer = pool.after(Duration::from_secs(3600), || ()).unwrap();
    let (gate, barrier) = mpsc::channel::<()>();
    let held = pool.task(move || barrier.recv().is_err()).unwrap();
    let remote = pool.remote();
    let works = in_child(move || {
        let forked = |result: Result<(), QueueError>| matches!(result, Err(QueueError::Forked));
        let refused = [
            remote.queue(|| ()),
            remote.install(|| ()),
            remote.after(Duration::ZERO, || ()).map(drop),
        ];
        assert!(refused.into_iter().all(forked) && remote.is_closed());
        assert!(!timer.cancel() && remote.stats() == Stats::default());
        assert!(matches!(held.wait(), Err(TaskError::Forked)));
        let own = Pool::new();
        let sum: u32 = own
            .install(|| join(|| 1, || 2))
            .map(|(a, b)| a + b)
            .unwrap();
        let report = own.dispose(Pending::Run, Some(Duration::from_secs(10)));
        let green = raddle::spawn(raddle::is_green_thread).join().unwrap();
        sum == 3 && report.still_running == 0 && green == (status() == Status::Green)
    });
    assert!(works);
    drop(gate);
    assert!(pool.task(|| true).unwrap().wait().unwrap());
}

#[test]
fn an_item_that_forks_is_alone_in_the_child_and_goes_on_in_the_parent() {
    // The waiter must not run the item: the child would go on as this test.
    let pool = Pool::builder()
        .workers(1)
        .max_workers(1)
        .inline_waits(false)
        .build()
        .unwrap();
    let forks = || {
        in_child(|| {
            let here = PoolRef::current().unwrap();
            assert!(matches!(here.queue(|| ()), Err(QueueError::Forked)));
            assert_eq!(join(|| 1, || 2), (1, 2)); // no worker can take the second half
            true
        })
    };
    assert!(pool.install(forks).unwrap());
    let returns = pool.task(|| {
        // SAFETY: the child returns from the item, at which it ends.
        match unsafe { libc::fork() } {
            0 => 0,
            child => {
                let mut status = -1;
                // SAFETY: a live word.
                unsafe { libc::waitpid(child, &mut status, 0) };
                status
            }
        }
    });
    pool.queue(|| ()).unwrap(); // the child must not run it, too
    assert_eq!(returns.unwrap().wait().unwrap(), 0);
    assert_eq!(pool.dispose(Pending::Run, None).still_running, 0);
}

#[test]
fn a_completion_that_nobody_sets_is_told_to_its_waiter() {
    let (promise, completion) = completion::pair::<u8>();
    let waits = raddle::spawn(move || completion.wait());
    drop(promise);
    assert!(matches!(waits.join().unwrap(), Err(Failure::Abandoned)));
}
