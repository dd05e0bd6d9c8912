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

use super::Failure;
use super::sync::{AtomicU32, Ordering, UnsafeCell, Waiter};
use std::task::Waker;

const PENDING: u32 = 0;
const LISTENING: u32 = 1;
const DONE: u32 = 2;
const CLOSED: u32 = 3;

/// What is called with the result.
type Call<T> = Box<dyn FnOnce(Result<T, Failure>) + Send>;

/// Who is to be told that the result is there.
pub enum Listener<T> {
    /// A thread that is parked, or about to.
    Thread(Waiter),
    /// A task.
    Task(Waker),
    /// Gets the result itself.
    Call(Call<T>),
}

/// What became of a request to listen.
pub enum Registered<T> {
    Listening,
    /// The result is there already; the listener comes back.
    Done(Listener<T>),
}

pub struct Cell<T> {
    /// See the module. Exchanges release what was written to the cells, and acquire what the other
    /// end wrote.
    state: AtomicU32,
    result: UnsafeCell<Option<Result<T, Failure>>>,
    listener: UnsafeCell<Option<Listener<T>>>,
}

// SAFETY: the state gives each cell to one end at a time. Only values and listeners cross.
unsafe impl<T: Send> Send for Cell<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T> Cell<T> {
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
    pub fn finish(&self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
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
            // SAFETY: who listens so has no other consumer.
            Some(Listener::Call(call)) => call(unsafe { self.take_result() }),
            None => {}
        }
    }

    /// Asks to be told, in place of who listened before.
    pub fn listen(&self, listener: Listener<T>) -> Registered<T> {
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

    /// The result.
    ///
    /// # Safety
    /// Once, and by the consumer, after the state was seen to be DONE.
    pub unsafe fn take_result(&self) -> Result<T, Failure> {
        // SAFETY: in DONE the result is the consumer's.
        let result = self.result.with_mut(|cell| unsafe { (*cell).take() });
        result.unwrap_or(Err(Failure::Abandoned))
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
