//! Fibers.

use raddle::fiber::{self, Error, Fiber, Local};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

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
