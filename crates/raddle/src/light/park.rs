//! Waits for a time or for an `unpark`, in which the host runs other light threads.

use super::host::{self, Light};
use super::timers::{self, now_ns, park_until};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use std::fmt;
use std::time::Duration;

/// A handle of a light thread, for `unpark`.
///
/// ```
/// use raddle::light::{self, Thread};
/// let wake = |thread: Thread| thread.unpark();
/// let thread = light::spawn(light::park);
/// wake(thread.thread()); // a copy, which may outlive the thread
/// thread.join().unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Thread {
    light: &'static Light,
    /// The number of this light thread among those of its stack.
    life: u64,
}

impl Thread {
    pub(super) fn of(light: &'static Light) -> Self {
        Self {
            light,
            life: light.life(),
        }
    }

    pub(super) fn is_current(self) -> bool {
        let own = |light: &Light| std::ptr::eq(light, self.light) && light.life() == self.life;
        super::running().is_some_and(own)
    }

    /// Lets the thread go on from its [`park`], now or at the next call. For a thread that has
    /// ended the call has no effect.
    ///
    /// ```
    /// let thread = raddle::light::spawn(raddle::light::park);
    /// thread.thread().unpark();
    /// thread.join().unwrap();
    /// ```
    pub fn unpark(&self) {
        // If the thread ends here and another one gets its stack, that one's next park ends early.
        if self.light.life() == self.life
            && self.light.token.give()
            && self.light.task.claim(Wake::Woken)
        {
            host::unpark(self.light.task_ref());
        }
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").finish_non_exhaustive()
    }
}

/// Returns the calling light thread; `None` on other threads.
///
/// ```
/// use raddle::light;
/// assert!(light::current().is_none());
/// let itself = light::spawn(|| {
///     light::current().unwrap().unpark();
///     light::park(); // returns at once
/// });
/// itself.join().unwrap();
/// ```
pub fn current() -> Option<Thread> {
    super::running().map(Thread::of)
}

/// Waits until [`Thread::unpark`] is called, or returns at once if it was called since the last
/// wait; spurious returns are possible. On a thread that isn't light, this is
/// [`std::thread::park`].
///
/// ```
/// use raddle::light;
/// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// let waits = light::spawn(|| while !OPEN.load(SeqCst) { light::park() });
/// OPEN.store(true, SeqCst);
/// waits.thread().unpark();
/// waits.join().unwrap();
/// ```
///
/// # Blocking
/// The light thread; its host runs others.
pub fn park() {
    match super::running() {
        Some(light) => park_light(light, NEVER),
        None => std::thread::park(),
    }
}

/// As [`park`], for `timeout` at most.
///
/// ```
/// use raddle::light;
/// use std::time::Duration;
/// let thread = light::spawn(|| light::park_timeout(Duration::from_millis(1)));
/// thread.join().unwrap();
/// ```
///
/// # Blocking
/// As [`park`].
pub fn park_timeout(timeout: Duration) {
    match super::running() {
        Some(light) => park_light(light, timers::deadline_ns(timeout)),
        None => std::thread::park_timeout(timeout),
    }
}

fn park_light(light: &'static Light, deadline_ns: u64) {
    if light.token.take() {
        return;
    }
    light.task.prepare();
    if light.token.announce() {
        park_until(light, deadline_ns);
    } else {
        light.stay();
    }
    light.token.take();
}

/// Waits for `duration`. On a thread that isn't light, this is [`std::thread::sleep`], which on a
/// light thread would keep the host.
///
/// ```
/// use raddle::light;
/// use std::time::Duration;
/// let nap = || light::sleep(Duration::from_millis(1));
/// let threads: Vec<_> = (0..1000).map(|_| light::spawn(nap)).collect();
/// threads.into_iter().for_each(|thread| thread.join().unwrap());
/// ```
///
/// # Blocking
/// The light thread; its host runs others.
pub fn sleep(duration: Duration) {
    let Some(light) = super::running() else {
        return std::thread::sleep(duration);
    };
    let deadline_ns = timers::deadline_ns(duration);
    while now_ns() < deadline_ns {
        light.task.prepare();
        park_until(light, deadline_ns);
    }
}
