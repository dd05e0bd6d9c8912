//! Polling a future on a thread.

use super::{Promise, pair};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a polling thread. The thread makes a completion before each poll, the next wake-up sets
/// it, and the thread waits for it after the poll. So a wake-up during the poll is found after it,
/// and a late wake-up only causes one more poll.
#[derive(Default)]
struct Bell(Mutex<Option<Promise<()>>>);

impl Bell {
    fn replace(&self, promise: Option<Promise<()>>) -> Option<Promise<()>> {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut next, promise)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(promise) = self.replace(None) {
            let _ = promise.set(()); // fails if the future is ready: the thread waits no more
        }
    }
}

/// Polls a future on this thread until it is ready.
///
/// Without an executor, and without a loop that waits for files or times: the future must be woken
/// by what it waits for, as by a [`Completion`](super::Completion). A future that needs another
/// library's runtime has to be polled inside that runtime.
///
/// ```
/// use raddle::completion;
///
/// let (promise, answer) = completion::pair();
/// raddle::thread::spawn(move || promise.set(42));
/// assert_eq!(completion::block_on(async { answer.await.unwrap() + 1 }), 43);
/// ```
///
/// # Blocking
/// As [`Completion::wait`](super::Completion::wait).
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        let (promise, rung) = pair();
        drop(bell.replace(Some(promise)));
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let _ = rung.wait();
    }
}
