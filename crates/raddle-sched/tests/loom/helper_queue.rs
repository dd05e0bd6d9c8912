//! Requests for helpers: helpers that can't be made, a helper that goes to sleep, and a signal for
//! the waiter.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::helper_queue::{HelperQueue, Next, Progress, Request};
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use raddle_sched::{SpinLock, Wake};

const MOST: u32 = 4;

/// What the model needs of the counts.
trait Counts: Send + Sync + 'static {
    /// Sees to a helper for a request; `make` says whether one could be made. Returns false if
    /// there is none.
    fn see_to_helper(&self, make: impl FnMut() -> bool) -> bool;
}

impl<W: 'static> Counts for Queue<W> {
    fn see_to_helper(&self, mut make: impl FnMut() -> bool) -> bool {
        let mut next = self.0.reserve(MOST);
        while next == Next::Make {
            next = match make() {
                true => self.0.made(MOST),
                false if self.0.not_made() => Next::Push,
                false => return false,
            };
        }
        true
    }
}

/// The code that runs.
struct Queue<W>(HelperQueue<W>);

// SAFETY: works are reached by one thread at a time; otherwise loom says so.
unsafe impl<W> Sync for Queue<W> {}
// SAFETY: as above.
unsafe impl<W> Send for Queue<W> {}

/// One count of idle helpers, which posters lower and helpers raise, and one of all helpers, those
/// that are being made included.
struct IdleAndAll(SpinLock<(u32, u32)>);

impl Counts for IdleAndAll {
    fn see_to_helper(&self, mut make: impl FnMut() -> bool) -> bool {
        let mut counts = self.0.lock();
        if counts.0 != 0 || counts.1 == MOST {
            counts.0 = counts.0.saturating_sub(1);
            return true;
        }
        counts.1 += 1;
        drop(counts);
        if make() {
            return true;
        }
        let mut counts = self.0.lock();
        counts.1 -= 1;
        counts.1 != 0
    }
}

/// Two posters, and no helper can be made: no request may be left to helpers.
fn no_helper_can_be_made(
    make: impl Fn() -> Box<dyn Fn() -> bool + Send + Sync> + Send + Sync + 'static,
) {
    explore(3, move || {
        let post = Arc::new(make());
        let there = post.clone();
        let other = thread::spawn(move || there());
        let is_left = post();
        let other_is_left = other.join().unwrap();
        assert!(!is_left && !other_is_left, "a request without a helper");
    });
}

#[test]
fn no_request_is_left_to_helpers_that_could_not_be_made() {
    no_helper_can_be_made(|| {
        let counts = Queue::<()>(HelperQueue::new());
        Box::new(move || counts.see_to_helper(|| false))
    });
}

#[test]
#[should_panic(expected = "a request without a helper")]
fn a_poster_that_counts_on_the_helper_of_another_one_is_caught() {
    no_helper_can_be_made(|| {
        let counts = IdleAndAll(SpinLock::new((0, 0)));
        Box::new(move || counts.see_to_helper(|| false))
    });
}

/// Requests and their tasks.
struct World {
    tasks: Box<Tasks<3>>,
    queue: HelperQueue<UnsafeCell<u32>>,
    requests: [Request<UnsafeCell<u32>>; 3],
    /// True while the helper sleeps. Its lock is the one of the futex.
    sleeps: SpinLock<bool>,
    went_on: AtomicU32,
}

// SAFETY: works are reached by one thread at a time; otherwise loom says so.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(is_patient: bool) -> Arc<Self> {
        let tasks = Tasks::new();
        let request = |at| Request::new(UnsafeCell::new(0), tasks.get(at), is_patient);
        Arc::new(Self {
            queue: HelperQueue::new(),
            requests: core::array::from_fn(request),
            tasks,
            sleeps: SpinLock::new(false),
            went_on: AtomicU32::new(0),
        })
    }

    /// Reserves, and makes a helper if that succeeds. Returns whether one was to be made.
    fn reserve(&self, can_make: bool) -> bool {
        let is_short = self.queue.reserve(MOST) == Next::Make;
        if is_short && can_make {
            assert_eq!(self.queue.made(MOST), Next::Push);
        } else if is_short {
            assert!(self.queue.not_made(), "there is a helper");
        }
        is_short
    }

    fn push(&self, at: usize) {
        self.tasks.get(at).get().prepare();
        self.link(at);
    }

    fn link(&self, at: usize) {
        // SAFETY: the world outlives the model's threads.
        unsafe { self.queue.push(&self.requests[at]) };
        *self.sleeps.lock() = false;
    }

    /// A helper that has taken a request. Returns whether it is to push the task.
    fn execute(&self, request: &Request<UnsafeCell<u32>>) -> bool {
        let write = |work: &UnsafeCell<u32>| {
            // SAFETY: the helper has the request; otherwise loom reports it.
            work.with_mut(|result| unsafe { *result = 1 });
        };
        self.queue.complete(request, write).is_some()
    }

    /// A helper goes to sleep.
    fn sleep(&self, seen: u32) {
        let mut sleeps = self.sleeps.lock();
        *sleeps = self.queue.posted() == seen;
    }
}

/// The only helper completes a request while another one is posted, for which no helper can be
/// made. The helper then executes that, and the next poster has to make one.
#[test]
fn a_request_does_not_wait_for_a_helper_that_was_not_made() {
    explore(3, || {
        let world = World::new(false);
        assert!(world.reserve(true));
        world.push(0);
        let there = world.clone();
        let helper = thread::spawn(move || {
            let first = there.queue.take().expect("a request");
            there.execute(first);
            there.queue.take().is_some()
        });
        world.reserve(false);
        world.push(1);
        if !helper.join().unwrap() {
            assert!(world.queue.take().is_some());
        }
        assert!(world.reserve(true), "a request waits behind a call");
    });
}

/// As above, with one count of idle helpers.
#[test]
#[should_panic(expected = "a request waits behind a call")]
fn a_count_that_is_lowered_below_zero_is_caught() {
    explore(3, || {
        let counts = Arc::new(IdleAndAll(SpinLock::new((0, 0))));
        assert!(counts.see_to_helper(|| true));
        let there = counts.clone();
        let helper = thread::spawn(move || there.0.lock().0 += 1);
        assert!(counts.see_to_helper(|| false));
        helper.join().unwrap();
        let mut is_made = false;
        assert!(counts.see_to_helper(|| {
            is_made = true;
            true
        }));
        assert!(is_made, "a request waits behind a call");
    });
}

/// A helper without work against a poster.
fn a_post_meets_a_helper_without_work(reads_late: bool) {
    explore(3, move || {
        let world = World::new(false);
        world.reserve(true);
        let there = world.clone();
        let helper = thread::spawn(move || {
            let seen = there.queue.posted();
            let request = there.queue.take();
            if request.is_none() {
                there.sleep(if reads_late {
                    there.queue.posted()
                } else {
                    seen
                });
            }
            request.is_some()
        });
        world.push(0);
        let has_taken = helper.join().unwrap();
        assert!(has_taken || !*world.sleeps.lock(), "a lost wake-up");
        assert_eq!(world.queue.take().is_some(), !has_taken);
    });
}

#[test]
fn a_helper_does_not_sleep_while_a_request_is_there() {
    a_post_meets_a_helper_without_work(false);
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn a_helper_that_looks_before_it_reads_the_number_is_caught() {
    a_post_meets_a_helper_without_work(true);
}

/// What a waiter does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// It prepares its task after it has pushed the request.
    PreparesLate,
    /// A signal makes it go on without a withdrawal.
    DoesNotWithdraw,
}

impl World {
    /// The waiter of the first request goes on.
    fn go_on(&self, why: Wake, flaw: Flaw) {
        if why != Wake::Woken && flaw != Flaw::DoesNotWithdraw {
            let request = &self.requests[0];
            match self.queue.withdraw(request, |_| {}) {
                Progress::Queued if !request.is_patient() => {}
                Progress::Done => {}
                Progress::Queued | Progress::Taken => return, // it parks again
            }
        }
        // SAFETY: the request is the waiter's again; otherwise loom reports it.
        self.requests[0]
            .work
            .with_mut(|result| unsafe { *result += 1 });
        self.went_on.fetch_add(1, Ordering::Relaxed);
    }
}

/// A helper executes a request while a signal comes: the waiter goes on once.
fn a_completion_meets_a_signal(flaw: Flaw, is_patient: bool) {
    explore(3, move || {
        let world = World::new(is_patient);
        world.reserve(true);
        let there = world.clone();
        let help = move || {
            if let Some(request) = there.queue.take()
                && there.execute(request)
            {
                there.go_on(Wake::Woken, flaw);
            }
        };
        let helper = if flaw == Flaw::PreparesLate {
            world.link(0);
            let helper = thread::spawn(help);
            world.tasks.get(0).get().prepare();
            helper
        } else {
            world.push(0);
            thread::spawn(help)
        };
        let is_signalled = flaw != Flaw::PreparesLate;
        if is_signalled && world.tasks.get(0).get().claim(Wake::Signalled) {
            world.go_on(Wake::Signalled, flaw);
        }
        helper.join().unwrap();
        assert_eq!(
            world.went_on.load(Ordering::Relaxed),
            1,
            "a wake-up is lost"
        );
        assert!(world.queue.take().is_none());
    });
}

#[test]
fn a_waiter_goes_on_once_after_its_call() {
    a_completion_meets_a_signal(Flaw::None, false);
    a_completion_meets_a_signal(Flaw::None, true);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_waiter_that_prepares_after_its_push_is_caught() {
    a_completion_meets_a_signal(Flaw::PreparesLate, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_waiter_that_goes_on_without_a_withdrawal_is_caught() {
    a_completion_meets_a_signal(Flaw::DoesNotWithdraw, false);
}
