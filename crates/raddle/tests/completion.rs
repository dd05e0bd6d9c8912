//! Completions by threads, tasks and callbacks, and their answers to misuse.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

use raddle::completion::{self, Completion, Failure, TimedWait, block_on};
use raddle::thread;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls with a waker that counts.
fn poll<T>(completion: &mut Completion<T>, counter: &Arc<Counter>) -> Poll<Result<T, Failure>> {
    let waker = Waker::from(counter.clone());
    Pin::new(completion).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_value_wakes_its_waiter_whoever_comes_first() {
    for delay in [Duration::ZERO, SOON] {
        let (promise, completion) = completion::pair();
        let thread = thread::spawn(move || {
            std::thread::sleep(delay);
            promise.set(5)
        });
        std::thread::sleep(SOON - delay);
        assert_eq!(completion.wait().unwrap(), 5);
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn many_pairs_lose_no_wake_up() {
    for round in 0..2_000 {
        let (promise, completion) = completion::pair();
        let (back, answer) = completion::pair();
        let thread = thread::spawn(move || back.set(completion.wait().unwrap() + 1));
        promise.set(round).unwrap();
        assert_eq!(answer.wait().unwrap(), round + 1);
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn light_threads_wait_for_each_other_and_for_others() {
    let (first, mut last) = completion::pair();
    let mut threads = Vec::new();
    for _ in 0..200 {
        let (promise, completion) = completion::pair();
        let before = std::mem::replace(&mut last, completion);
        threads.push(raddle::light::spawn(move || {
            let value = block_on(async { before.await.unwrap() });
            promise.set(value + 1).unwrap();
        }));
    }
    let (promise, timed) = completion::pair::<u8>();
    let timed = raddle::light::spawn(move || timed.wait_timeout(SOON).is_err());
    assert!(timed.join().unwrap(), "the time came");
    drop(promise);
    thread::spawn(move || first.set(0).unwrap()).join().unwrap();
    let last = raddle::light::spawn(move || last.wait().unwrap());
    assert_eq!(last.join().unwrap(), 200);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_wait_with_a_timeout_takes_as_long_and_can_be_repeated() {
    let (promise, completion) = completion::pair();
    let started = Instant::now();
    let Err(TimedWait::TimedOut(completion)) = completion.wait_timeout(SOON) else {
        panic!("nobody set it");
    };
    assert!(started.elapsed() >= SOON);
    let thread = thread::spawn(move || promise.set(5));
    let value = completion.wait_timeout(Duration::MAX);
    assert_eq!(value.unwrap(), 5);
    thread.join().unwrap().unwrap();
}

#[test]
fn stray_unparks_do_not_end_a_wait() {
    let (promise, completion) = completion::pair();
    let waiter = std::thread::current();
    let thread = thread::spawn(move || {
        for _ in 0..50 {
            waiter.unpark();
            std::thread::yield_now();
        }
        std::thread::sleep(SOON);
        promise.set(5)
    });
    assert_eq!(completion.wait().unwrap(), 5);
    thread.join().unwrap().unwrap();
}

#[test]
fn a_dropped_promise_is_told_to_every_kind_of_waiter() {
    let (promise, completion) = completion::pair::<u8>();
    let thread = thread::spawn(move || drop(promise));
    assert!(matches!(completion.wait(), Err(Failure::Abandoned)));
    thread.join().unwrap();

    let (promise, completion) = completion::pair::<u8>();
    let next = completion.then(|_| unreachable!("there is no value"));
    drop(promise);
    let failure = next.wait_timeout(SOON).unwrap_err();
    assert!(matches!(
        failure,
        TimedWait::<()>::Failed(Failure::Abandoned)
    ));
    assert_eq!(
        failure.to_string(),
        "the promise was dropped without a value"
    );

    let (promise, mut completion) = completion::pair::<u8>();
    let counter = Arc::default();
    assert!(poll(&mut completion, &counter).is_pending());
    drop(promise);
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert!(matches!(block_on(completion), Err(Failure::Abandoned)));
}

#[test]
fn a_panic_reaches_the_waiter_with_its_payload() {
    let (promise, completion) = completion::pair::<u8>();
    let thread = thread::spawn(move || promise.run(|| std::panic::panic_any(17u64)));
    let Err(Failure::Panicked(payload)) = completion.wait() else {
        panic!("the computation panicked");
    };
    assert_eq!(payload.downcast_ref(), Some(&17u64));
    thread.join().expect("the panic did not go on");

    let (promise, completion) = completion::pair::<u8>();
    let none = std::hint::black_box(0);
    promise.run(|| panic!("{none} answers"));
    let failure = completion.then(|value| value + 1).wait().unwrap_err();
    assert_eq!(failure.to_string(), "the computation panicked: 0 answers");
    assert_eq!(format!("{failure:?}"), "Panicked(\"0 answers\")");
    let resumed = std::thread::spawn(move || failure.resume()).join();
    assert_eq!(
        resumed.unwrap_err().downcast_ref(),
        Some(&"0 answers".to_string())
    );
}

#[test]
fn a_panic_of_what_comes_next_stays_in_its_completion() {
    let (promise, completion) = completion::pair::<u8>();
    let next = completion.then(|_| -> u8 { panic!("next") });
    promise.set(5).unwrap();
    assert!(matches!(next.wait(), Err(Failure::Panicked(_))));
}

#[test]
fn what_comes_next_runs_where_the_promise_is_set_or_at_once() {
    let here = std::thread::current().id();
    let done = Completion::ready(5).then(|_| std::thread::current().id());
    assert!(done.is_done());
    assert_eq!(done.wait().unwrap(), here);

    let (promise, completion) = completion::pair();
    let next = completion.then(|()| std::thread::current().id());
    let setter = thread::spawn(move || {
        promise.set(()).unwrap();
        std::thread::current().id()
    });
    assert_eq!(next.wait().unwrap(), setter.join().unwrap());
}

#[test]
fn a_value_that_nobody_wants_comes_back_or_is_dropped() {
    let value = Rc::new(());
    let (promise, completion) = completion::pair();
    drop(completion);
    assert!(!promise.is_awaited());
    assert!(
        promise
            .set(value.clone())
            .is_err_and(|back| Rc::ptr_eq(&back, &value))
    );
    let (promise, completion) = completion::pair();
    promise.set(value.clone()).unwrap();
    drop(completion);
    let (promise, completion) = completion::pair();
    drop(completion);
    promise.run(|| value.clone());
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn a_forgotten_promise_keeps_its_waiter_waiting() {
    let (promise, completion) = completion::pair::<u8>();
    std::mem::forget(promise);
    let failure = completion.wait_timeout(SOON).unwrap_err();
    assert!(matches!(failure, TimedWait::TimedOut(_)), "{failure:?}");
}

#[test]
fn the_waker_of_the_last_poll_is_woken_alone() {
    let (promise, mut completion) = completion::pair();
    let (first, second) = (Arc::default(), Arc::default());
    assert!(poll(&mut completion, &first).is_pending());
    assert!(poll(&mut completion, &second).is_pending());
    promise.set(5).unwrap();
    assert_eq!(first.0.load(Ordering::Relaxed), 0);
    assert_eq!(second.0.load(Ordering::Relaxed), 1);
    assert!(matches!(poll(&mut completion, &first), Poll::Ready(Ok(5))));
}

#[test]
fn a_completion_that_was_polled_can_be_waited_for_by_a_thread() {
    let (promise, mut completion) = completion::pair();
    let counter = Arc::default();
    assert!(poll(&mut completion, &counter).is_pending());
    let thread = thread::spawn(move || completion.wait());
    std::thread::sleep(SOON);
    promise.set(5).unwrap();
    assert_eq!(thread.join().unwrap().unwrap(), 5);
    assert_eq!(counter.0.load(Ordering::Relaxed), 0);
}

#[test]
fn a_dropped_future_lets_its_waker_go() {
    let (promise, mut completion) = completion::pair::<u8>();
    let counter = Arc::default();
    assert!(poll(&mut completion, &counter).is_pending());
    assert_eq!(Arc::strong_count(&counter), 2);
    drop(completion);
    assert_eq!(Arc::strong_count(&counter), 1);
    assert_eq!(promise.set(5), Err(5));
}

#[test]
#[should_panic(expected = "the completion was polled to its end before")]
fn a_completion_that_was_ready_is_not_polled_again() {
    let mut completion = Completion::ready(5);
    let counter = Arc::default();
    assert!(poll(&mut completion, &counter).is_ready());
    let _ = poll(&mut completion, &counter);
}

#[test]
#[should_panic(expected = "the completion was polled to its end before")]
fn a_completion_that_was_ready_is_not_waited_for() {
    let mut completion = Completion::ready(5);
    assert!(poll(&mut completion, &Arc::default()).is_ready());
    let _ = completion.wait();
}

#[test]
fn block_on_polls_again_after_a_wake_up_during_the_poll() {
    let mut polls = 0;
    let future = poll_fn(|context| {
        polls += 1;
        context.waker().wake_by_ref();
        if polls == 3 {
            Poll::Ready(polls)
        } else {
            Poll::Pending
        }
    });
    assert_eq!(block_on(future), 3);
}

/// Longer than any stack allows, if each link took a part of it.
const CHAIN: usize = 100_000;

fn chain(of: Completion<usize>) -> Completion<usize> {
    (0..CHAIN).fold(of, |link, _| link.then(|count| count + 1))
}

#[test]
fn a_chain_of_continuations_takes_no_stack() {
    let (promise, completion) = completion::pair();
    let end = chain(completion);
    promise.set(5).unwrap();
    assert_eq!(end.wait().unwrap(), CHAIN + 5);

    let (promise, completion) = completion::pair();
    let end = chain(completion);
    drop(promise);
    assert!(matches!(end.wait(), Err(Failure::Abandoned)));

    let (promise, completion) = completion::pair();
    let end = chain(completion);
    promise.run(|| std::panic::resume_unwind(Box::new(7)));
    let Err(Failure::Panicked(payload)) = end.wait() else {
        panic!("the failure goes through the chain");
    };
    assert_eq!(payload.downcast_ref(), Some(&7));

    let (promise, completion) = completion::pair();
    drop(chain(completion)); // its last value is dropped
    promise.set(0).unwrap();
    assert_eq!(chain(Completion::ready(0)).wait().unwrap(), CHAIN);
}

/// What a continuation sets and waits for is done meanwhile: only links of a chain come later.
#[test]
fn a_continuation_may_wait_for_another_one() {
    let (promise, completion) = completion::pair();
    let (inner, other) = completion::pair();
    let other = other.then(|value: u32| value * 2);
    let sum = completion.then(move |value: u32| {
        inner.set(value + 1).unwrap();
        value + other.wait().unwrap()
    });
    promise.set(5).unwrap();
    assert_eq!(sum.wait().unwrap(), 17);
}
