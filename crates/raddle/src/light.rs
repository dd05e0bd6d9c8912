//! Light green threads: one page each, for those who make a million.
//!
//! A light thread is a stack and nothing else. It runs on a *host*, a green thread of its own
//! kind, and hosts pass light threads among themselves. What light threads do among themselves
//! (start, join, yield, sleep, park, wait for completions) never leaves user code.
//!
//! What is different from a green thread:
//! - **Thread-locals are the host's.** Between two waits of this crate (`join`, [`yield_now`], ...)
//!   they stay the same; after one the light thread may be on another host, and other light threads
//!   may have used them meanwhile. So is everything that libc keeps in thread-locals or knows by
//!   the thread's id: owners of recursive locks, `pthread_self`, signal masks.
//! - A light thread that blocks in std or libc ([`std::thread::sleep`]; not [`sleep`]) keeps its
//!   host meanwhile, and another host takes
//!   over its place: nobody else is held up, but that wait costs as much memory as a green
//!   thread's.
//! - Stacks are small (64 KiB unless asked otherwise; only what is touched takes memory) and end in
//!   a guard page.
//! - No thread-local destructor runs at its end, and `pthread_exit` must not be called.
//! - Whether a thread panics is known by a thread-local of std's: where a destructor waits while a
//!   light thread unwinds, [`std::thread::panicking`] is wrong for others on its hosts, whose locks
//!   may be poisoned for nothing.
//!
//! Without the runtime ([`crate::runtime::status`]) hosts are kernel threads; everything works the
//! same, but a light thread that blocks in libc is replaced after some milliseconds only.

mod follower;
mod fork;
mod group;
mod host;
mod join;
mod park;
mod scope;
mod stack;
mod timers;
pub(crate) mod token;

use crate::completion::{self, Promise};
use host::Host;
pub(crate) use host::{Light, hand_over, park as park_alone, unpark};
pub use join::JoinHandle;
pub use park::{Thread, current, park, park_timeout, sleep};
pub use scope::{Scope, ScopedJoinHandle, scope};
pub(crate) use stack::{Shell, take_shell};
use std::io;
pub(crate) use timers::{deadline_ns, now_ns, park_until};

/// The stack of a light thread that doesn't ask for another, in bytes.
///
/// ```
/// let twice = raddle::light::Builder::new().stack_size(2 * raddle::light::STACK_SIZE);
/// assert_eq!(twice.spawn(|| 5)?.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub const STACK_SIZE: usize = 64 << 10;

/// How a light thread is made.
///
/// ```
/// let deep = raddle::light::Builder::new().stack_size(1 << 20);
/// let handle = deep.spawn(|| {
///     let room = [1u8; 256 << 10];
///     room.iter().map(|&b| u64::from(b)).sum::<u64>()
/// })?;
/// assert_eq!(handle.join().unwrap(), 256 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    stack_size: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            stack_size: STACK_SIZE,
        }
    }
}

impl Builder {
    /// A thread with a stack of [`STACK_SIZE`] bytes.
    ///
    /// ```
    /// let thread = raddle::light::Builder::new().spawn(|| 5)?;
    /// assert_eq!(thread.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// The stack's size in bytes; it is rounded up to a power of two, at least 16 KiB.
    ///
    /// ```
    /// let small = raddle::light::Builder::new().stack_size(1); // enlarged
    /// assert_eq!(small.spawn(|| 5)?.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Starts a light thread that runs `f`.
    ///
    /// ```
    /// let refused = raddle::light::Builder::new().stack_size(1 << 40).spawn(|| ()).unwrap_err();
    /// assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory);
    /// ```
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] if there is no memory for its stack, or
    /// [`io::ErrorKind::WouldBlock`] if there is no thread to host it.
    pub fn spawn<T, F>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // SAFETY: what it captures lives for ever.
        unsafe { self.spawn_unchecked(move |promise: Promise<T>| promise.run_to_end(f)) }
    }

    /// Starts a light thread that calls `run`, which keeps its promise.
    ///
    /// # Safety
    /// What `run` has borrowed must live until it has returned and what it captured was dropped.
    unsafe fn spawn_unchecked<T, F>(self, run: F) -> io::Result<JoinHandle<T>>
    where
        T: Send,
        F: FnOnce(Promise<T>) + Send,
    {
        group::start()?;
        let light = stack::take(self.stack_size)?;
        let (promise, completion) = completion::pair();
        // SAFETY: the shell is fresh from the free list, so nobody else uses its stack; the rest is
        // the caller's promise.
        unsafe { light.set_up(move || run(promise)) };
        let thread = Thread::of(light);
        host::start(light);
        Ok(JoinHandle::new(completion, thread))
    }
}

/// Starts a light thread that runs `f`.
///
/// ```
/// let threads: Vec<_> = (0..1000u64).map(|i| raddle::light::spawn(move || i)).collect();
/// let sum: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
/// assert_eq!(sum, 499_500);
/// ```
///
/// The thread may outlive the caller, and what it holds must be safe to send:
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// raddle::light::spawn(move || println!("{shared}"));
/// ```
///
/// # Panics
/// If none can be made; [`Builder::spawn`] says so instead.
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Builder::new().spawn(f).expect("a light thread can be made")
}

/// True on a light thread.
///
/// ```
/// assert!(!raddle::light::is_light_thread());
/// assert!(raddle::light::spawn(raddle::light::is_light_thread).join().unwrap());
/// ```
pub fn is_light_thread() -> bool {
    Host::current().is_some_and(|host| host.light().is_some())
}

/// A word of the light thread's own, 0 at first: its thread-local, which goes with it from host to
/// host. `None` on other threads.
///
/// ```
/// use raddle::light;
/// let word = light::spawn(|| {
///     light::set_local(5);
///     light::yield_now();
///     light::local()
/// });
/// assert_eq!((word.join().unwrap(), light::local()), (Some(5), None));
/// ```
pub fn local() -> Option<usize> {
    running().map(|light| light.local.get())
}

/// Changes the light thread's own word ([`local`]); false on other threads, which have none.
///
/// ```
/// assert!(!raddle::light::set_local(5));
/// ```
pub fn set_local(word: usize) -> bool {
    running().is_some_and(|light| {
        light.local.set(word);
        true
    })
}

/// Lets others run: light threads from a light thread, else as [`std::thread::yield_now`].
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
/// static READY: AtomicBool = AtomicBool::new(false);
/// let waits = raddle::light::spawn(|| while !READY.load(SeqCst) { raddle::light::yield_now() });
/// raddle::light::spawn(|| READY.store(true, SeqCst));
/// waits.join().unwrap();
/// ```
pub fn yield_now() {
    match Host::current().and_then(Host::light) {
        Some(light) => host::yield_now(light),
        None => std::thread::yield_now(),
    }
}

/// The light thread that calls, if one does.
pub(crate) fn running() -> Option<&'static Light> {
    Host::current().and_then(Host::light)
}
