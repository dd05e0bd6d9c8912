//! The kinds of threads, with the operations that the shapes need.

use crate::metric;
use may::coroutine;
use raddle::completion::{Completion, Promise, pair};
use raddle::light;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// A kind of thread that blocks by calls.
pub(crate) trait Kind: 'static {
    type Handle: Send;
    type Setter: Send;
    type Waiter: Send;
    /// How many threads wait at a time.
    const WAITING: u32 = crate::WAITING;
    fn spawn(f: impl FnOnce() + Send + 'static) -> Self::Handle;
    /// A kind with a stack of so many bytes.
    fn spawn_with_stack(bytes: usize, f: impl FnOnce() + Send + 'static) -> Self::Handle;
    fn join(handle: Self::Handle);
    fn yield_now();
    /// A one-time event to wait for.
    fn pair() -> (Self::Setter, Self::Waiter);
    fn set(setter: Self::Setter);
    fn wait(waiter: Self::Waiter);
}

pub(crate) struct Light;
pub(crate) struct Green;
pub(crate) struct Kernel;
pub(crate) struct Coroutine;

/// Raddle's completions serve all threads.
macro_rules! with_completions {
    () => {
        type Setter = Promise<()>;
        type Waiter = Completion<()>;

        fn pair() -> (Promise<()>, Completion<()>) {
            pair()
        }

        fn set(setter: Promise<()>) {
            setter.set(()).unwrap();
        }

        fn wait(waiter: Completion<()>) {
            waiter.wait().unwrap();
        }
    };
}

impl Kind for Light {
    type Handle = light::JoinHandle<()>;
    with_completions!();

    fn spawn(f: impl FnOnce() + Send + 'static) -> Self::Handle {
        light::spawn(f)
    }

    fn spawn_with_stack(bytes: usize, f: impl FnOnce() + Send + 'static) -> Self::Handle {
        light::Builder::new().stack_size(bytes).spawn(f).unwrap()
    }

    fn join(handle: Self::Handle) {
        handle.join().unwrap();
    }

    fn yield_now() {
        light::yield_now();
    }
}

impl Kind for Green {
    type Handle = raddle::thread::JoinHandle<()>;
    with_completions!();

    fn spawn(f: impl FnOnce() + Send + 'static) -> Self::Handle {
        raddle::spawn(f)
    }

    fn spawn_with_stack(bytes: usize, f: impl FnOnce() + Send + 'static) -> Self::Handle {
        raddle::Builder::new().stack_size(bytes).spawn(f).unwrap()
    }

    fn join(handle: Self::Handle) {
        handle.join().unwrap();
    }

    fn yield_now() {
        raddle::yield_now();
    }
}

impl Kind for Kernel {
    type Handle = thread::JoinHandle<()>;
    const WAITING: u32 = 1000; // systems limit their number
    with_completions!();

    fn spawn(f: impl FnOnce() + Send + 'static) -> Self::Handle {
        thread::spawn(f)
    }

    fn spawn_with_stack(bytes: usize, f: impl FnOnce() + Send + 'static) -> Self::Handle {
        thread::Builder::new().stack_size(bytes).spawn(f).unwrap()
    }

    fn join(handle: Self::Handle) {
        handle.join().unwrap();
    }

    fn yield_now() {
        thread::yield_now();
    }
}

impl Kind for Coroutine {
    type Handle = coroutine::JoinHandle<()>;
    type Setter = may::sync::mpsc::Sender<()>;
    type Waiter = may::sync::mpsc::Receiver<()>;

    fn spawn(f: impl FnOnce() + Send + 'static) -> Self::Handle {
        // SAFETY: the coroutines here use no thread-local and little stack.
        unsafe { coroutine::spawn(f) }
    }

    fn spawn_with_stack(bytes: usize, f: impl FnOnce() + Send + 'static) -> Self::Handle {
        let builder = coroutine::Builder::new().stack_size(bytes / size_of::<usize>());
        // SAFETY: as above, and as much stack as they use.
        unsafe { builder.spawn(f) }.unwrap()
    }

    fn join(handle: Self::Handle) {
        handle.join().unwrap();
    }

    fn yield_now() {
        coroutine::yield_now();
    }

    fn pair() -> (Self::Setter, Self::Waiter) {
        may::sync::mpsc::channel()
    }

    fn set(setter: Self::Setter) {
        setter.send(()).unwrap();
    }

    fn wait(waiter: Self::Waiter) {
        waiter.recv().unwrap();
    }
}

/// The shape of [`crate::shapes::hand_over`] by may's own locks: std's would block its workers.
pub(crate) fn coroutines_hand_over(rounds: u32) {
    let turn = Arc::new((may::sync::Mutex::new(0u32), may::sync::Condvar::new()));
    let started = Instant::now();
    let player = |me: u32| {
        let turn = Arc::clone(&turn);
        Coroutine::spawn(move || {
            let (lock, changed) = &*turn;
            for _ in 0..rounds {
                let mut now = lock.lock().unwrap();
                while *now != me {
                    now = changed.wait(now).unwrap();
                }
                *now = 1 - me;
                changed.notify_one();
            }
        })
    };
    let both = [player(0), player(1)];
    both.into_iter().for_each(Coroutine::join);
    metric("hand-over", started, 2 * rounds);
}
