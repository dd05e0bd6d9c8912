//! The end of a light thread, and who waits for it.

use super::{current, park, unpark};
use raddle_sched::{TaskRef, Wake};
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

const RUNNING: u32 = 0;
/// A joiner waits, and [`Packet::waiter`] says who.
const AWAITED: u32 = 1;
const DONE: u32 = 2;

enum Waiter {
    Light(TaskRef),
    Thread(Thread),
}

/// What a light thread and its handle share.
///
/// `state` goes from RUNNING to DONE, by the thread, perhaps over AWAITED, by the joiner. The
/// joiner writes `waiter` before it says AWAITED, the thread reads it after it saw that; the thread
/// writes `result` before DONE, the joiner reads it after.
pub(super) struct Packet<T> {
    state: AtomicU32,
    waiter: UnsafeCell<Option<Waiter>>,
    result: UnsafeCell<Option<thread::Result<T>>>,
}

// SAFETY: each cell has one user at a time, as the protocol above says.
unsafe impl<T: Send> Sync for Packet<T> {}
// SAFETY: a panic's payload, a result and a waiter's name may go to any thread.
unsafe impl<T: Send> Send for Packet<T> {}

impl<T> Packet<T> {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU32::new(RUNNING),
            waiter: UnsafeCell::new(None),
            result: UnsafeCell::new(None),
        }
    }

    /// At the end of the light thread.
    pub(super) fn finish(&self, result: thread::Result<T>) {
        // SAFETY: the joiner doesn't look before DONE.
        unsafe { *self.result.get() = Some(result) };
        if self.state.swap(DONE, Ordering::AcqRel) == AWAITED {
            // SAFETY: after AWAITED the cell is this thread's.
            match unsafe { (*self.waiter.get()).take() } {
                Some(Waiter::Light(task)) if task.get().claim(Wake::Woken) => unpark(task),
                Some(Waiter::Thread(thread)) => thread.unpark(),
                _ => {}
            }
        }
    }

    fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Says who waits; false if there is nothing left to wait for.
    fn announce(&self, waiter: Waiter) -> bool {
        // SAFETY: there is one joiner, and it has not said AWAITED yet.
        unsafe { *self.waiter.get() = Some(waiter) };
        let (order, failure) = (Ordering::AcqRel, Ordering::Acquire);
        self.state
            .compare_exchange(RUNNING, AWAITED, order, failure)
            .is_ok()
    }

    fn wait(&self) {
        if self.is_done() {
            return;
        }
        if let Some(light) = current() {
            light.task.prepare();
            if self.announce(Waiter::Light(light.task_ref())) {
                park(light);
            }
        } else if self.announce(Waiter::Thread(thread::current())) {
            while !self.is_done() {
                thread::park();
            }
        }
    }
}

/// The right to wait for a light thread's end. Dropped, it lets the thread go on by itself.
pub struct JoinHandle<T>(Arc<Packet<T>>);

impl<T> JoinHandle<T> {
    pub(super) fn new(packet: Arc<Packet<T>>) -> Self {
        Self(packet)
    }

    /// Waits for the thread's end. A light thread lets others run meanwhile, a green thread parks,
    /// a kernel thread blocks.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| 6 * 7);
    /// assert_eq!(handle.join().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// What the thread panicked with.
    pub fn join(self) -> thread::Result<T> {
        self.0.wait();
        // SAFETY: DONE was seen, and there is one joiner.
        let result = unsafe { (*self.0.result.get()).take() };
        result.expect("a thread that is done has left its result")
    }

    /// True once the thread has ended, or is about to.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| ());
    /// while !handle.is_finished() { raddle::light::yield_now() }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.0.is_done()
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}
