//! UMS workers: their state, and the token of the scheduler that executed them.

use crate::explore;
use core::ptr::NonNull;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, fence};
use loom::thread;
use raddle_sched::completion_list::{CompletionList, Link};
use raddle_sched::sync::{AtomicPtr, AtomicU32, Ordering, UnsafeCell};
use raddle_sched::worker_state::{Claim, WorkerState, is_locked, is_locked_or_rests};

/// A worker that has parked, and is about to leave its stack.
struct Worker {
    link: Link,
    state: WorkerState,
    on_cpu: AtomicU32,
    /// [`SOME`], but null while the worker decides in its scheduler's place.
    worker: AtomicPtr<u32>,
    /// The worker's stack: written by the thread that runs on it.
    stack: UnsafeCell<u32>,
}

/// Any pointer that isn't null.
const SOME: *mut u32 = core::ptr::without_provenance_mut(8);

/// A worker is woken while it leaves its stack, and two schedulers want it. One executes it, once.
fn woken_while_it_leaves(looks_at_the_cpu: bool) {
    explore(3, move || {
        let worker = Worker {
            link: Link::new(),
            state: WorkerState::new(),
            on_cpu: AtomicU32::new(1),
            worker: AtomicPtr::new(SOME),
            stack: UnsafeCell::new(0),
        };
        worker.state.set(WorkerState::RUNNING);
        let shared = Arc::new((CompletionList::new(), worker));
        let leaves = {
            let shared = shared.clone();
            thread::spawn(move || {
                let worker = &shared.1;
                // SAFETY: if another thread is on the stack, the checker reports it.
                worker.stack.with_mut(|stack| unsafe { *stack += 1 });
                worker.on_cpu.store(0, Ordering::Release);
            })
        };
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.state.set(WorkerState::LISTED);
                // SAFETY: the item lives as long as the list, and is pushed once.
                _ = unsafe { shared.0.push(NonNull::from(&shared.1.link)) };
            })
        };
        let schedule = |shared: &(CompletionList, Worker)| {
            if shared.0.take().count() == 1 {
                shared.1.state.set(WorkerState::READY);
            }
            let own = &shared.1;
            let is_locked = || looks_at_the_cpu && is_locked(&own.worker, SOME, &own.on_cpu);
            let claim = own.state.claim(is_locked);
            if claim == Claim::Claimed {
                // SAFETY: as above.
                shared.1.stack.with_mut(|stack| unsafe { *stack += 10 });
            }
            usize::from(claim == Claim::Claimed)
        };
        let executed = schedule(&shared);
        waker.join().unwrap();
        let executed = executed + schedule(&shared);
        leaves.join().unwrap();
        let executed = executed + schedule(&shared);
        assert_eq!(executed, 1, "it was executed once");
    });
}

#[test]
fn a_worker_is_executed_once_and_off_its_stack() {
    woken_while_it_leaves(true);
}

#[test]
#[should_panic]
fn a_worker_that_is_executed_on_its_stack_is_caught() {
    woken_while_it_leaves(false);
}

/// Two schedulers find a worker that has yielded.
#[test]
fn two_schedulers_never_execute_one_worker() {
    explore(4, || {
        let shared = Arc::new(WorkerState::new());
        shared.set(WorkerState::READY);
        let claim = |shared: &WorkerState| {
            let claim = shared.claim(|| false);
            assert!(claim == Claim::Claimed || claim == Claim::Busy);
            usize::from(claim == Claim::Claimed)
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || claim(&shared))
        };
        let own = claim(&shared);
        assert_eq!(own + other.join().unwrap(), 1);
    });
}

/// A worker decides in its scheduler's place and gives itself away; it parks once, goes on, and
/// leaves its stack. The scheduler that got it executes it as soon as it isn't locked.
fn decides_and_leaves(looks_at_the_worker_first: bool) {
    explore(4, move || {
        let shared = Arc::new((
            AtomicPtr::new(core::ptr::null_mut::<u32>()), // the worker has taken the token
            AtomicU32::new(1),
            UnsafeCell::new(0u32),
        ));
        let executes = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (worker, on_cpu, stack) = &*shared;
                let is_locked = match looks_at_the_worker_first {
                    true => is_locked(worker, SOME, on_cpu),
                    false => {
                        on_cpu.load(Ordering::Acquire) != 0
                            || worker.load(Ordering::Acquire).is_null()
                    }
                };
                if !is_locked {
                    // SAFETY: if another thread is on the stack, the checker reports it.
                    stack.with_mut(|stack| unsafe { *stack += 10 });
                }
            })
        };
        let (worker, on_cpu, stack) = &*shared;
        // SAFETY: as above.
        let runs = || stack.with_mut(|stack| unsafe { *stack += 1 });
        runs();
        on_cpu.store(0, Ordering::Release); // the worker parks
        on_cpu.store(1, Ordering::Release);
        runs();
        worker.store(SOME, Ordering::Release); // the worker has decided
        runs();
        on_cpu.store(0, Ordering::Release); // the switch
        executes.join().unwrap();
    });
}

#[test]
fn a_worker_that_decides_is_executed_off_its_stack() {
    decides_and_leaves(true);
}

#[test]
#[should_panic]
fn who_looks_at_the_stack_first_is_caught() {
    decides_and_leaves(false);
}

/// A light worker decides for another one, gives it its host, and rests; the other one parks at
/// once. A scheduler then executes the first one: at rest, off its stack, and never as its old
/// host.
fn gives_its_host_away(knows_workers: bool) {
    const OTHER: *mut u32 = core::ptr::without_provenance_mut(16);
    const HOST: *mut u32 = core::ptr::without_provenance_mut(24);
    explore(4, move || {
        let shared = Arc::new((
            (AtomicPtr::new(HOST), AtomicU32::new(0)), // the worker's host, and its `on_cpu`
            (AtomicPtr::new(core::ptr::null_mut()), AtomicU32::new(1)), // the host's
            UnsafeCell::new(0u32),
        ));
        let executes = {
            let shared = shared.clone();
            thread::spawn(move || {
                let ((host, on_cpu), (worker, host_on_cpu), stack) = &*shared;
                let mut by_host = false;
                let is_locked = is_locked_or_rests(host, on_cpu, |_| {
                    let own = match knows_workers {
                        true => SOME,
                        false => worker.load(Ordering::Acquire), // whichever worker it is
                    };
                    by_host = !own.is_null() && !is_locked(worker, own, host_on_cpu);
                    by_host
                });
                assert!(!by_host, "the host isn't the worker any more");
                if !is_locked {
                    // SAFETY: if another thread is on the stack, the checker reports it.
                    stack.with_mut(|stack| unsafe { *stack += 10 });
                }
            })
        };
        let ((host, on_cpu), (worker, host_on_cpu), stack) = &*shared;
        on_cpu.store(1, Ordering::Relaxed);
        host.store(core::ptr::null_mut(), Ordering::Release);
        // SAFETY: as above.
        stack.with_mut(|stack| unsafe { *stack += 1 });
        on_cpu.store(0, Ordering::Release); // the switch
        worker.store(OTHER, Ordering::Release); // the other worker takes the token,
        host_on_cpu.store(0, Ordering::Release); // and parks
        executes.join().unwrap();
    });
}

#[test]
fn a_light_worker_at_rest_is_executed_off_its_stack() {
    gives_its_host_away(true);
}

#[test]
#[should_panic]
fn who_takes_a_host_for_its_last_worker_is_caught() {
    gives_its_host_away(false);
}

/// State shared by the short way of a yield and sysmon.
struct Carrier {
    token: AtomicUsize,
    on_cpu: AtomicU32,
    watched: AtomicU32,
    asleep: AtomicU32,
}

const HANDS_BACK: u32 = 2;

impl Carrier {
    /// The worker takes its token, without a swap unless it is watched. Returns how many it got.
    fn hand_back(&self, faults: bool) -> usize {
        self.on_cpu.store(HANDS_BACK, Ordering::Release);
        if faults {
            self.sleep();
        }
        if self.watched.load(Ordering::Acquire) != 0 {
            self.on_cpu.store(1, Ordering::Release);
            return self.token.swap(0, Ordering::AcqRel);
        }
        let token = self.token.load(Ordering::Relaxed);
        self.token.store(0, Ordering::Relaxed);
        self.on_cpu.store(1, Ordering::Release);
        token
    }

    /// The kernel puts the carrier to sleep, and wakes it: full barriers both times.
    fn sleep(&self) {
        fence(Ordering::SeqCst);
        self.asleep.store(1, Ordering::SeqCst);
        self.asleep.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sysmon takes the token of a carrier that sleeps.
    fn replace(&self, looks_twice: bool) -> usize {
        self.watched.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut taken = 0;
        let asleep = !looks_twice || self.asleep.load(Ordering::SeqCst) != 0;
        if asleep && self.on_cpu.load(Ordering::Acquire) != HANDS_BACK {
            taken = self.token.swap(0, Ordering::AcqRel);
        }
        self.watched.store(0, Ordering::Release);
        taken
    }
}

/// The worker sleeps in the kernel before it yields, or in the middle of the yield if it `faults`;
/// sysmon looks meanwhile.
fn token_is_taken_once(looks_twice: bool, faults: bool) {
    explore(4, move || {
        let carrier = Arc::new(Carrier {
            token: AtomicUsize::new(1),
            on_cpu: AtomicU32::new(1),
            watched: AtomicU32::new(0),
            asleep: AtomicU32::new(0),
        });
        let sysmon = {
            let carrier = carrier.clone();
            thread::spawn(move || carrier.replace(looks_twice))
        };
        if !faults {
            carrier.sleep();
        }
        let got = carrier.hand_back(faults);
        assert_eq!(got + sysmon.join().unwrap(), 1, "the token had one taker");
    });
}

#[test]
fn a_token_is_taken_by_the_worker_or_by_sysmon() {
    token_is_taken_once(true, false);
    token_is_taken_once(true, true);
}

#[test]
#[should_panic(expected = "the token had one taker")]
fn a_sysmon_that_doesnt_look_whether_the_carrier_sleeps_is_caught() {
    token_is_taken_once(false, false);
}
