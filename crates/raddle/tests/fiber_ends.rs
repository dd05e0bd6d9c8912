//! Fibers that are suspended when their thread ends.

use raddle::fiber::{self, Error, Fiber};
use raddle::pool::{self, Pending, Pool, PoolRef};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{self, Sender};
use std::thread::{scope, sleep};
use std::time::Duration;

const STACK: usize = 64 << 10;

/// Runs `test` on a kernel thread and on a green one, up to the end of its thread-locals.
fn everywhere(test: fn()) {
    std::thread::spawn(test).join().unwrap();
    raddle::spawn(test).join().unwrap();
}

/// Starts a fiber that runs `f` with its thread's first fiber, and leaves it suspended.
fn suspended(f: impl FnOnce(&Fiber) + 'static) -> Fiber {
    let main = fiber::convert_thread().unwrap();
    let runs = move || {
        f(&main);
        main
    };
    let fiber = Fiber::new(STACK, runs).unwrap();
    fiber.switch_to().unwrap();
    assert!(!fiber.has_ended());
    fiber
}

/// A value that knows whether it was dropped.
struct Lent(AtomicU32);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.store(9, SeqCst);
    }
}

#[test]
fn a_thread_waits_until_the_loan_of_a_thread_local_is_over() {
    thread_local!(static VALUE: Lent = const { Lent(AtomicU32::new(1)) });
    static SEEN: AtomicU32 = AtomicU32::new(0);
    everywhere(|| {
        SEEN.store(0, SeqCst);
        suspended(|main| {
            VALUE.with(|value| {
                scope(|scope| {
                    scope.spawn(|| {
                        sleep(Duration::from_millis(50));
                        SEEN.store(value.0.load(SeqCst), SeqCst);
                    });
                    main.switch_to().unwrap();
                });
            });
        });
    });
    assert_eq!(SEEN.load(SeqCst), 1);
}

/// A thread-local without a destructor goes, too, with the memory of its thread.
#[test]
fn a_loan_of_a_plain_thread_local_is_waited_for_as_well() {
    thread_local!(static VALUE: AtomicU32 = const { AtomicU32::new(1) });
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    // Without std's own destructors: a thread of the API that has no name.
    let thread = raddle::spawn(|| {
        suspended(|main| {
            VALUE.with(|value| {
                scope(|scope| {
                    scope.spawn(|| {
                        sleep(Duration::from_millis(50));
                        assert_eq!(value.load(SeqCst), 1);
                        IS_OVER.store(true, SeqCst);
                    });
                    main.switch_to().unwrap();
                });
            });
        });
    });
    thread.join().unwrap();
    assert!(IS_OVER.load(SeqCst));
}

#[test]
fn values_on_the_stacks_of_suspended_fibers_are_dropped() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
            assert!(fiber::current().is_some());
        }
    }
    DROPS.store(0, SeqCst);
    everywhere(|| {
        let main = fiber::convert_thread().unwrap();
        for i in 0..100 {
            let back = main.clone();
            let waits = move || {
                let _counts = Counts;
                back.switch_to().unwrap();
                back
            };
            let fiber = Fiber::new(STACK, waits).unwrap();
            fiber.switch_to().unwrap();
            if i % 2 == 0 {
                fiber.switch_to().unwrap();
            }
        }
        fiber::convert_back().unwrap(); // the fibers wait until the thread is one again
    });
    assert_eq!(DROPS.load(SeqCst), 200);
}

#[test]
fn one_that_catches_the_unwinding_is_unwound_again() {
    static ROUNDS: AtomicU32 = AtomicU32::new(0);
    everywhere(|| {
        suspended(|main| {
            for _ in 0..3 {
                let waits = || loop {
                    main.switch_to().unwrap();
                };
                let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(waits));
                assert!(caught.is_err());
                ROUNDS.fetch_add(1, SeqCst);
            }
        });
    });
    assert_eq!(ROUNDS.load(SeqCst), 6);
}

#[test]
fn destructors_of_an_unwound_fiber_dont_switch() {
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    struct Switches(Fiber, Fiber);
    impl Drop for Switches {
        fn drop(&mut self) {
            let refused = [self.0.switch_to(), self.1.switch_to()];
            assert_eq!(refused, [Err(Error::ThreadEnds), Err(Error::ThreadEnds)]);
            assert_eq!(fiber::convert_thread().map(drop), Err(Error::ThreadEnds));
            REFUSED.fetch_add(1, SeqCst);
        }
    }
    everywhere(|| {
        let other = suspended(|main| main.switch_to().unwrap());
        let main = fiber::current().unwrap();
        let begins = Fiber::new(STACK, || unreachable!("the thread ends")).unwrap();
        let switches = move || {
            let _switches = Switches(other, begins);
            main.switch_to().unwrap();
            main
        };
        Fiber::new(STACK, switches).unwrap().switch_to().unwrap();
    });
    assert_eq!(REFUSED.load(SeqCst), 2);
}

/// A fiber that waits in a destructor while it unwinds gets an error, since a second panic would
/// abort the process.
#[test]
fn one_that_was_suspended_in_a_panic_is_told_by_an_error() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    struct Waits(Fiber);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert_eq!(self.0.switch_to(), Err(Error::ThreadEnds));
            TOLD.fetch_add(1, SeqCst);
        }
    }
    everywhere(|| {
        suspended(|main| {
            let panics = || {
                let _waits = Waits(main.clone());
                std::panic::resume_unwind(Box::new(5));
            };
            let caught: Result<(), _> = catch_unwind(AssertUnwindSafe(panics));
            assert!(caught.is_err());
        });
    });
    assert_eq!(TOLD.load(SeqCst), 2);
}

/// Fibers end before the thread-locals that they know, and after younger ones.
#[test]
fn the_order_among_thread_locals_is_kept() {
    struct Says(&'static str, RefCell<Option<Sender<&'static str>>>);
    impl Says {
        const fn new(name: &'static str) -> Self {
            Self(name, RefCell::new(None))
        }
    }
    impl Drop for Says {
        fn drop(&mut self) {
            self.1.borrow().as_ref().unwrap().send(self.0).unwrap();
        }
    }
    thread_local! {
        static OLD: Says = const { Says::new("old") };
        static KNOWN: Says = const { Says::new("known") };
        static YOUNG: Says = const { Says::new("young") };
    }
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        OLD.with(|old| old.1.replace(Some(to.clone())));
        let (known, fiber) = (to.clone(), Says("fiber", RefCell::new(Some(to.clone()))));
        suspended(move |main| {
            let _fiber = fiber;
            KNOWN.with(|value| {
                value.1.replace(Some(known));
                main.switch_to().unwrap();
            });
        });
        YOUNG.with(|young| young.1.replace(Some(to)));
    })
    .join()
    .unwrap();
    let order: Vec<_> = from.iter().collect();
    assert_eq!(order, ["young", "fiber", "known", "old"]);
}

/// A worker waits for the tasks of the scope in which its fiber is suspended.
#[test]
fn a_worker_of_a_pool_ends_its_fibers_scopes() {
    static RAN: AtomicU32 = AtomicU32::new(0);
    thread_local!(static FIRST: Cell<Option<Fiber>> = const { Cell::new(None) });
    let pool = Pool::builder().workers(2).max_workers(2).build().unwrap();
    let begin = || {
        suspended(|main| {
            FIRST.set(Some(main.clone()));
            let scope = |scope: &pool::Scope<'_>| {
                for _ in 0..10 {
                    scope.spawn(|scope| {
                        sleep(Duration::from_millis(5));
                        scope.spawn(|_| _ = RAN.fetch_add(1, SeqCst));
                    });
                }
                FIRST.take().unwrap().switch_to().unwrap();
            };
            PoolRef::current().unwrap().scope(scope).unwrap();
        });
    };
    pool.queue(begin).unwrap();
    pool.dispose(Pending::Run, None);
    assert_eq!(RAN.load(SeqCst), 10);
}

/// Runs `f` in the child of a fork, on a thread's stack. Returns the child's status, or `None` if
/// it had to be killed.
fn in_child(f: impl FnOnce()) -> Option<i32> {
    // SAFETY: the child calls what async-signal-safety forbids; glibc mends its heap at a fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        f();
        // SAFETY: ends the child.
        unsafe { libc::_exit(77) };
    }
    let mut status = 0;
    for _ in 0..500 {
        // SAFETY: our own child.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return Some(status);
        }
        sleep(Duration::from_millis(10));
    }
    // SAFETY: our own child, which has not been waited for.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
    None
}

#[test]
fn the_child_of_a_fork_leaves_its_parents_fibers_alone() {
    static MAY_END: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        suspended(|main| {
            scope(|scope| {
                scope.spawn(|| {
                    while !MAY_END.load(SeqCst) {
                        sleep(Duration::from_millis(1));
                    }
                });
                main.switch_to().unwrap();
            });
        });
        // SAFETY: no handler of this program's waits for other threads.
        let status = in_child(|| unsafe { libc::exit(0) });
        MAY_END.store(true, SeqCst);
        assert_eq!(status, Some(0));
    })
    .join()
    .unwrap();
}

#[test]
fn one_that_never_gives_up_aborts_the_process() {
    std::thread::spawn(|| {
        let status = in_child(|| {
            // SAFETY: the child's own standard error, which would only disturb.
            unsafe { libc::close(2) };
            suspended(|main| {
                loop {
                    _ = catch_unwind(AssertUnwindSafe(|| main.switch_to()));
                }
            });
            // SAFETY: as above.
            unsafe { libc::exit(0) };
        });
        assert_eq!(
            status.map(|status| libc::WTERMSIG(status)),
            Some(libc::SIGABRT)
        );
    })
    .join()
    .unwrap();
}

/// The smallest stack has room for the unwinding.
#[test]
fn a_small_stack_is_unwound() {
    thread_local!(static DROPPED: Cell<bool> = const { Cell::new(false) });
    struct Notes(mpsc::Sender<()>);
    impl Drop for Notes {
        fn drop(&mut self) {
            DROPPED.set(true);
            self.0.send(()).unwrap();
        }
    }
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        let main = fiber::convert_thread().unwrap();
        let waits = move || {
            let _notes = Notes(to);
            main.switch_to().unwrap();
            main
        };
        Fiber::new(1, waits).unwrap().switch_to().unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(from.recv(), Ok(()));
}
