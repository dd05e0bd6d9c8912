//! Running a future in a thread.

use super::sync::{self, AtomicU32, Ordering};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a thread that polls.
struct Bell {
    thread: sync::Thread,
    /// 1 from a wake-up to the next poll. Written with release by who wakes, taken with acquire by
    /// the thread: it polls once more after each wake-up that came during a poll.
    rung: AtomicU32,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
    }
}

/// Polls a future on this thread until it is ready.
///
/// There is no executor behind it, and nothing that waits for files or times: what the future waits
/// for must wake it, as a [`Completion`](super::Completion) does. A future that needs some other library's runtime has to
/// be polled inside it.
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
/// The green thread; outside raddle, the kernel thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell {
        thread: sync::current(),
        rung: AtomicU32::new(0),
    });
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        while bell.rung.swap(0, Ordering::AcqRel) == 0 {
            sync::park();
        }
    }
}
