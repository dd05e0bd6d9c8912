//! Fibers.

use raddle::fiber::{self, Error, Fiber, Local};
use raddle::pool::{self, Pending, Pool, PoolRef};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

const STACK: usize = 64 << 10;

/// Runs `test` on a kernel thread and on a green one.
fn everywhere(test: fn()) {
    std::thread::spawn(test).join().unwrap();
    raddle::spawn(test).join().unwrap();
}

#[test]
fn fibers_take_turns_in_the_order_that_they_name() {
    everywhere(|| {
        let main = fiber::convert_thread().unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..10)
            .map(|me| {
                let (main, order) = (main.clone(), Rc::clone(&order));
                let turns = move || {
                    for turn in 0..100 {
                        order.borrow_mut().push((turn, me));
                        main.switch_to().unwrap();
                    }
                    main
                };
                Fiber::new(STACK, turns).unwrap()
            })
            .collect();
        while !fibers.iter().all(Fiber::has_ended) {
            for fiber in fibers.iter().filter(|fiber| !fiber.has_ended()) {
                fiber.switch_to().unwrap();
            }
        }
        let expected = (0..100).flat_map(|turn| (0..10).map(move |me| (turn, me)));
        assert!(order.borrow().iter().copied().eq(expected));
        fiber::convert_back().unwrap();
    });
}

#[test]
fn a_fiber_names_its_successor_and_drops_what_it_owns() {
    everywhere(|| {
        let main = fiber::convert_thread().unwrap();
        let owned = Rc::new(());
        let mut next = main.clone();
        for _ in 0..1000 {
            let (after, owned) = (next.clone(), Rc::clone(&owned));
            let chained = move || {
                assert!(Rc::strong_count(&owned) > 1);
                after
            };
            next = Fiber::new(STACK, chained).unwrap();
        }
        next.switch_to().unwrap(); // it and each that it leads to is new
        drop(next);
        assert_eq!(Rc::strong_count(&owned), 1);
        fiber::convert_back().unwrap();
    });
}

#[test]
fn each_fiber_has_its_own_locals() {
    static COUNT: Local<Cell<u32>> = Local::new(|| Cell::new(0));
    everywhere(|| {
        assert_eq!(COUNT.with(Cell::get), Err(Error::NoFiber));
        let main = fiber::convert_thread().unwrap();
        let count = || COUNT.with(|count| count.replace(count.get() + 1)).unwrap();
        assert_eq!((count(), count()), (0, 1));
        let other = Fiber::new(STACK, {
            let main = main.clone();
            move || {
                assert_eq!((count(), count(), count()), (0, 1, 2));
                main
            }
        });
        other.unwrap().switch_to().unwrap();
        assert_eq!(count(), 2);
        fiber::convert_back().unwrap();
    });
}

#[test]
fn wrong_use_is_refused() {
    everywhere(|| {
        let stray = Fiber::new(STACK, || unreachable!()).unwrap();
        assert_eq!(stray.switch_to(), Err(Error::NoFiber));
        assert_eq!(fiber::convert_back(), Err(Error::NoFiber));
        assert!(fiber::current().is_none());
        let main = fiber::convert_thread().unwrap();
        assert_eq!(fiber::convert_thread().map(drop), Err(Error::IsFiber));
        assert_eq!(main.switch_to(), Err(Error::Runs));
        let inner = Fiber::new(STACK, {
            let main = main.clone();
            move || {
                assert_eq!(fiber::convert_back(), Err(Error::NotFirst));
                main.switch_to().unwrap();
                main
            }
        })
        .unwrap();
        inner.switch_to().unwrap();
        let kept = inner.clone();
        // SAFETY: nothing refers to its stack.
        unsafe { inner.delete() }.unwrap();
        assert_eq!(kept.switch_to(), Err(Error::Ended));
        fiber::convert_back().unwrap();
        assert_eq!(main.switch_to(), Err(Error::NoFiber));
        let light = raddle::light::spawn(|| fiber::convert_thread().map(drop));
        assert_eq!(light.join().unwrap(), Err(Error::IsLight));
    });
}

#[test]
fn fibers_of_green_threads_block_and_are_preempted_with_them() {
    let threads: Vec<_> = (0..20)
        .map(|_| {
            raddle::spawn(|| {
                let main = fiber::convert_thread().unwrap();
                let back = main.clone();
                let sleeps = move || {
                    let mut sum = 0u64;
                    for i in 0..10 {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                        (0..200_000u64).for_each(|n| sum = std::hint::black_box(sum ^ (n * i)));
                        back.switch_to().unwrap();
                    }
                    back
                };
                let sleeps = Fiber::new(STACK, sleeps).unwrap();
                let mut turns = 0;
                while !sleeps.has_ended() {
                    sleeps.switch_to().unwrap();
                    turns += 1;
                }
                turns
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 11);
    }
}

#[test]
fn one_that_was_deleted_before_it_began_never_runs() {
    everywhere(|| {
        let main = fiber::convert_thread().unwrap();
        let captured = Rc::new(());
        let (back, held) = (main.clone(), Rc::clone(&captured));
        let never = Fiber::new(STACK, move || {
            drop(held);
            back
        });
        let never = never.unwrap();
        // SAFETY: it has not begun, so nothing refers to its stack.
        unsafe { never.clone().delete().unwrap() };
        assert!(never.has_ended());
        assert_eq!(Rc::strong_count(&captured), 1);
        assert_eq!(never.switch_to(), Err(Error::Ended));
        drop(main);
        fiber::convert_back().unwrap();
    });
}

#[test]
fn an_initializer_of_a_local_may_end_the_fiber() {
    static VALUE: Local<Cell<u32>> = Local::new(|| {
        fiber::convert_back().unwrap();
        std::mem::forget([[7u8; 100]; 100].map(Box::new)); // where the fiber was
        Cell::new(5)
    });
    everywhere(|| {
        drop(fiber::convert_thread().unwrap());
        assert_eq!(VALUE.with(Cell::get), Ok(5));
        assert_eq!(VALUE.with(Cell::get), Err(Error::NoFiber));
    });
}

/// Continues a fiber in a destructor of a thread-local, and returns the result.
struct Continues(Fiber, mpsc::Sender<Result<(), Error>>);

impl Drop for Continues {
    fn drop(&mut self) {
        self.1.send(self.0.switch_to()).unwrap();
        assert!(fiber::convert_thread().is_err());
        assert_eq!(fiber::convert_back(), Ok(()));
    }
}

thread_local! {
    static EARLY: RefCell<Option<Continues>> = const { RefCell::new(None) };
    static WORDS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static FIRST: RefCell<Option<Fiber>> = const { RefCell::new(None) };
}

/// The values of thread-locals end from the newest to the oldest. A fiber that refers to one of
/// them isn't continued by an older one.
#[test]
fn no_fiber_goes_on_when_thread_locals_have_ended() {
    static LATER: AtomicU32 = AtomicU32::new(0);
    everywhere(|| {
        let (to, from) = mpsc::channel();
        let thread = move || {
            EARLY.with(|_| ());
            let main = fiber::convert_thread().unwrap();
            let refers = Fiber::new(STACK, move || {
                WORDS.with_borrow_mut(|words| {
                    words.push("weft".repeat(10));
                    main.switch_to().unwrap();
                    LATER.fetch_add(1, SeqCst);
                    words.push("warp".repeat(10));
                });
                main
            });
            let refers = refers.unwrap();
            refers.switch_to().unwrap();
            EARLY.set(Some(Continues(refers, to)));
        };
        raddle::spawn(thread.clone()).join().unwrap();
        std::thread::spawn(thread).join().unwrap();
        assert_eq!(from.recv(), Ok(Err(Error::NoFiber)));
        assert_eq!(from.recv(), Ok(Err(Error::NoFiber)));
        assert_eq!(LATER.load(SeqCst), 0);
    });
}

/// A younger one may continue it.
#[test]
fn a_fiber_goes_on_before_its_own_thread_locals_end() {
    thread_local!(static LATE: RefCell<Option<Continues>> = const { RefCell::new(None) });
    everywhere(|| {
        let (to, from) = mpsc::channel();
        let (told, tells) = mpsc::channel();
        let thread = move || {
            let main = fiber::convert_thread().unwrap();
            let refers = Fiber::new(STACK, move || {
                WORDS.with_borrow_mut(|words| {
                    words.push("weft".repeat(10));
                    main.switch_to().unwrap();
                    told.send(words.concat()).unwrap();
                });
                main
            });
            let refers = refers.unwrap();
            refers.switch_to().unwrap();
            LATE.set(Some(Continues(refers, to)));
        };
        raddle::spawn(thread).join().unwrap();
        assert_eq!(from.recv(), Ok(Ok(())));
        assert_eq!(tells.recv(), Ok("weft".repeat(10)));
    });
}

/// A worker of a pool ends although one of its fibers waits in the midst of a scope.
#[test]
fn what_a_fiber_began_in_a_pool_outlives_the_worker() {
    const SMALL: usize = 256 << 10;
    static IS_STOLEN: AtomicBool = AtomicBool::new(false);
    static HAS_ENDED: AtomicBool = AtomicBool::new(false);
    let pool = Pool::builder().workers(2).max_workers(2).stack_size(SMALL);
    let pool = pool.build().unwrap();
    let (to, from) = mpsc::channel();
    let told = to.clone();
    pool.queue(move || {
        let main = fiber::convert_thread().unwrap();
        FIRST.set(Some(main.clone()));
        let waits = move || {
            let scope = |scope: &pool::Scope<'_>| {
                scope.spawn(move |scope| {
                    IS_STOLEN.store(true, SeqCst);
                    while !HAS_ENDED.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    scope.spawn(move |_| told.send(Ok(())).unwrap());
                });
                while !IS_STOLEN.load(SeqCst) {
                    std::thread::yield_now();
                }
                let first = FIRST.take().unwrap();
                first.switch_to().unwrap();
            };
            PoolRef::current().unwrap().scope(scope).unwrap();
            main
        };
        // SAFETY: it lends no thread-local.
        let waits = unsafe { Fiber::new_without_unwinding(STACK, waits) }.unwrap();
        waits.switch_to().unwrap();
        EARLY.set(Some(Continues(waits, to)));
    })
    .unwrap();
    while !IS_STOLEN.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = pool.dispose(Pending::Drop, Some(Duration::from_millis(10)));
    assert!(report.still_running > 0);
    assert_eq!(from.recv(), Ok(Err(Error::NoFiber))); // the worker has ended
    let fill = || _ = std::hint::black_box([usize::MAX / 3; SMALL / 10]);
    let others = [(); 8].map(|()| raddle::Builder::new().stack_size(SMALL).spawn(fill));
    for thread in others {
        thread.unwrap().join().unwrap();
    }
    HAS_ENDED.store(true, SeqCst);
    assert_eq!(from.recv(), Ok(Ok(())));
}
