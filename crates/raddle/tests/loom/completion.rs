//! Every interleaving of completions' protocol, under loom. The models' cells report an access that
//! the state does not order; a lost wake-up is a deadlock.

use loom::thread;
use raddle::completion::{self, Completion, Failure, TimedWait, block_on};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicU64::new(0));
    let counted = executions.clone();
    loom::model(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{} executions", executions.load(Ordering::Relaxed));
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<T>(completion: &mut Completion<T>, counter: &Arc<Counter>) -> Poll<Result<T, Failure>> {
    let waker = Waker::from(counter.clone());
    Pin::new(completion).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_waiting_thread_gets_the_value() {
    explore(|| {
        let (promise, completion) = completion::pair();
        let thread = thread::spawn(move || promise.set(5).unwrap());
        assert_eq!(completion.wait().unwrap(), 5);
        thread.join().unwrap();
    });
}

#[test]
fn a_dropped_promise_wakes_its_waiter() {
    explore(|| {
        let (promise, completion) = completion::pair::<u8>();
        let thread = thread::spawn(move || drop(promise));
        assert!(matches!(completion.wait(), Err(Failure::Abandoned)));
        thread.join().unwrap();
    });
}

#[test]
fn a_timeout_races_with_the_value_and_loses_nothing() {
    explore(|| {
        let (promise, completion) = completion::pair();
        let thread = thread::spawn(move || promise.set(5).unwrap());
        match completion.wait_timeout(Duration::ZERO) {
            Ok(value) => assert_eq!(value, 5),
            Err(TimedWait::TimedOut(completion)) => assert_eq!(completion.wait().unwrap(), 5),
            Err(TimedWait::Failed(failure)) => panic!("{failure}"),
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_value_is_dropped_once_when_the_waiter_goes() {
    explore(|| {
        let value = Arc::new(());
        let (promise, completion) = completion::pair();
        let sent = value.clone();
        let thread = thread::spawn(move || drop(promise.set(sent)));
        drop(completion);
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_polling_waiter_goes_while_the_value_comes() {
    explore(|| {
        let (promise, mut completion) = completion::pair();
        let counter = Arc::new(Counter::default());
        let thread = thread::spawn(move || {
            let _ = promise.set(5);
        });
        let _ = poll(&mut completion, &counter);
        drop(completion);
        thread.join().unwrap();
        assert_eq!(Arc::strong_count(&counter), 1, "no waker is left");
    });
}

#[test]
fn a_poll_with_another_waker_misses_no_wake_up() {
    explore(|| {
        let (promise, mut completion) = completion::pair();
        let counters = [(); 2].map(|()| Arc::new(Counter::default()));
        let thread = thread::spawn(move || promise.set(5).unwrap());
        let mut ready = false;
        for counter in &counters {
            ready = ready || poll(&mut completion, counter).is_ready();
        }
        thread.join().unwrap();
        if !ready {
            assert_eq!(counters[1].0.load(Ordering::Relaxed), 1);
            assert!(matches!(
                poll(&mut completion, &counters[0]),
                Poll::Ready(Ok(5))
            ));
        }
    });
}

#[test]
fn a_thread_waits_for_what_was_polled_before() {
    explore(|| {
        let (promise, mut completion) = completion::pair();
        let counter = Arc::new(Counter::default());
        let thread = thread::spawn(move || promise.set(5).unwrap());
        if poll(&mut completion, &counter).is_pending() {
            assert_eq!(completion.wait().unwrap(), 5);
        }
        thread.join().unwrap();
    });
}

#[test]
fn what_comes_next_is_done_once() {
    explore(|| {
        let (promise, completion) = completion::pair();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let thread = thread::spawn(move || promise.set(5).unwrap());
        let next = completion.then(move |value| {
            counted.fetch_add(1, Ordering::Relaxed);
            value + 1
        });
        let last = next.then(|value| value * 2); // the end of a chain
        assert_eq!(last.wait().unwrap(), 12);
        thread.join().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn block_on_misses_no_wake_up() {
    explore(|| {
        let (promise, completion) = completion::pair();
        let thread = thread::spawn(move || promise.set(5).unwrap());
        assert_eq!(block_on(completion).unwrap(), 5);
        thread.join().unwrap();
    });
}
