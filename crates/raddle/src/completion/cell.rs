//! What the two ends share: a state, the result, and who is to be told.
//!
//! ```text
//!            listen                finish
//!  PENDING -----------> LISTENING --------+
//!     |    <-----------     |             v
//!     |      withdraw       +---------> DONE
//!     +--------------- finish ------------^
//!
//!  close: from each of them to CLOSED
//! ```
//!
//! | state | the result is | the listener is |
//! |---|---|---|
//! | PENDING | the producer's, unset | the consumer's |
//! | LISTENING | the producer's, unset | there, and whoever changes the state owns it |
//! | DONE | there, and the consumer's | the producer's, which tells it; or there is none |
//! | CLOSED | nobody's but the one's who comes last | the consumer's, which dropped it |
//!
//! No wake-up is lost: the consumer sleeps only after its exchange from PENDING to LISTENING
//! succeeded, so the producer's exchange to DONE comes later and finds the listener.

use super::sync::{self, AtomicU32, Ordering, UnsafeCell, Waiter};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const PENDING: u32 = 0;
const LISTENING: u32 = 1;
const DONE: u32 = 2;
const CLOSED: u32 = 3;

/// What is called with the result.
type Call<R> = Box<dyn FnOnce(R) + Send>;

/// Who is to be told that the result is there.
enum Listener<R> {
    /// A thread that is parked, or about to.
    Thread(Waiter),
    /// A task.
    Task(Waker),
    /// Gets the result itself.
    Call(Call<R>),
}

/// What became of a request to listen.
enum Registered<R> {
    Listening,
    /// The result is there already; the listener comes back.
    Done(Listener<R>),
}

/// Set once, taken once: a result of the type R.
pub struct Cell<R> {
    /// See the module. Exchanges release what was written to the cells, and acquire what the other
    /// end wrote.
    state: AtomicU32,
    result: UnsafeCell<Option<R>>,
    listener: UnsafeCell<Option<Listener<R>>>,
}

// SAFETY: the state gives each cell to one end at a time. Only results and listeners cross.
unsafe impl<R: Send> Send for Cell<R> {}
// SAFETY: as above.
unsafe impl<R: Send> Sync for Cell<R> {}

impl<R> Cell<R> {
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(PENDING),
            result: UnsafeCell::new(None),
            listener: UnsafeCell::new(None),
        }
    }

    pub fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// The producer's only step: puts the result there and tells who listens. Gives it back if the
    /// consumer is gone. To be called once.
    pub fn finish(&self, result: R) -> Option<R> {
        // SAFETY: until the exchange the result is the producer's.
        self.result.with_mut(|cell| unsafe { *cell = Some(result) });
        match self.state.swap(DONE, Ordering::AcqRel) {
            LISTENING => self.tell(),
            CLOSED => {
                // SAFETY: the consumer is gone.
                return self.result.with_mut(|cell| unsafe { (*cell).take() });
            }
            _ => {}
        }
        None
    }

    fn tell(&self) {
        // SAFETY: the state was LISTENING and isn't any more: the listener is this thread's.
        match self.listener.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(Listener::Thread(waiter)) => waiter.wake(),
            Some(Listener::Task(waker)) => waker.wake(),
            Some(Listener::Call(call)) => {
                // SAFETY: who listens so has no other consumer.
                if let Some(result) = unsafe { self.take_result() } {
                    call(result);
                }
            }
            None => {}
        }
    }

    /// Asks to be told, in place of who listened before.
    fn listen(&self, listener: Listener<R>) -> Registered<R> {
        match self.state.load(Ordering::Acquire) {
            // The old one, if any, is the producer's to tell.
            DONE => return Registered::Done(listener),
            LISTENING if !self.withdraw() => return Registered::Done(listener),
            _ => {}
        }
        // SAFETY: the state was PENDING, and from there only the consumer makes it LISTENING.
        self.listener
            .with_mut(|cell| unsafe { *cell = Some(listener) });
        let exchanged =
            self.state
                .compare_exchange(PENDING, LISTENING, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            return Registered::Listening;
        }
        // SAFETY: the producer found nobody listening and won't look again.
        match self.listener.with_mut(|cell| unsafe { (*cell).take() }) {
            Some(listener) => Registered::Done(listener),
            None => Registered::Listening, // never: it was put there above
        }
    }

    /// Takes the consumer's listener away. False if it is the producer's, which has set the result.
    pub fn withdraw(&self) -> bool {
        let exchanged =
            self.state
                .compare_exchange(LISTENING, PENDING, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            return false;
        }
        // SAFETY: the state is PENDING, so the listener is the consumer's.
        drop(self.listener.with_mut(|cell| unsafe { (*cell).take() }));
        true
    }

    /// Waits until the result is there; false if the time was over first. By the consumer.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        if self.is_done() {
            return true;
        }
        let announce = |waiter| {
            let registered = self.listen(Listener::Thread(waiter));
            matches!(registered, Registered::Listening)
        };
        let is_done = || self.is_done();
        // A time that the clock can't tell is too far away to be waited for.
        match timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
            None => {
                sync::wait(announce, is_done);
                true
            }
            Some(deadline) => sync::wait_until(deadline, announce, is_done, || self.withdraw()),
        }
    }

    /// Whether the result is there; if not, the task is woken when it is. By the consumer.
    pub fn poll(&self, context: &Context<'_>) -> bool {
        // The waker of an earlier poll may be another task's.
        let listen = || self.listen(Listener::Task(context.waker().clone()));
        self.is_done() || !matches!(listen(), Registered::Listening)
    }

    /// Hands the result to `call`: by who sets it, or here if it is there.
    ///
    /// # Safety
    /// The consumer's last step.
    pub unsafe fn give_to(&self, call: impl FnOnce(R) + Send + 'static) {
        if let Registered::Done(Listener::Call(call)) = self.listen(Listener::Call(Box::new(call)))
        {
            // SAFETY: it is done; the caller's promise.
            if let Some(result) = unsafe { self.take_result() } {
                call(result);
            }
        }
    }

    /// The result; none the second time.
    ///
    /// # Safety
    /// By the consumer, after the state was seen to be DONE.
    pub unsafe fn take_result(&self) -> Option<R> {
        // SAFETY: in DONE the result is the consumer's.
        self.result.with_mut(|cell| unsafe { (*cell).take() })
    }

    /// The consumer goes, and doesn't want the result.
    pub fn close(&self) {
        match self.state.swap(CLOSED, Ordering::AcqRel) {
            // SAFETY: the producer won't touch the listener: it will find CLOSED.
            LISTENING => drop(self.listener.with_mut(|cell| unsafe { (*cell).take() })),
            // SAFETY: the producer has done its part.
            DONE => drop(unsafe { self.take_result() }),
            _ => {}
        }
    }
}
