//! Light green threads: one page each, for programs with a million of them.
//!
//! A light thread is a stack and nothing else. It runs on a *host*, a green thread of its own kind.
//! Operations among light threads (start, join, yield, sleep, park, waits for completions) never
//! leave user code.
//!
//! A light thread begins on any host, and stays on it to its end. While it waits in this crate
//! (`join`, [`yield_now`], ...), the other light threads of that host run. So a light thread may
//! hold over a wait whatever a thread may hold: a reference to a thread-local, and values that
//! aren't `Send`. [`Builder::migrating`] gives that up for waits that end sooner.
//!
//! Differences from a green thread:
//! - **Thread-locals are the host's.** During a wait another light thread of the host may change
//!   them. The same goes for all that libc keeps in thread-locals or knows by the thread's id:
//!   `pthread_self`, signal masks, owners of recursive locks. Two light threads of one host may
//!   both hold [`std::io::Stdout::lock`] at a time.
//! - **A light thread that blocks in std or libc holds its host up** ([`std::thread::sleep`], for
//!   instance, and not [`sleep`]); so does one that computes. Light threads that have begun on that
//!   host wait as long. Other hosts take those that have not begun; while the first host blocks,
//!   there is one more host.
//! - **A lock of std's must not be held over a wait** if another light thread may want it: on the
//!   same host the second thread blocks the host, and the holder with it. A completion serves
//!   instead.
//! - Stacks are small (64 KiB unless the builder says otherwise; only touched pages take memory)
//!   and end in a guard page.
//! - No thread-local destructor runs at its end, and it must not call `pthread_exit`.
//! - A thread-local of std's tells whether a thread panics: where a destructor waits while a light
//!   thread unwinds, [`std::thread::panicking`] is wrong for others on its host, and their locks
//!   may be poisoned for nothing. Where a panic hook waits, another panic on its host aborts the
//!   process.
//!
//! # Soundness
//!
//! Two things are sound on a thread only because it has one stack, and no type tells them apart:
//! - The initializer of a `thread_local!` that isn't `const` must not wait. std replaces the value
//!   when the initializer returns, even if another light thread has made one and refers to it
//!   meanwhile.
//! - Code that keeps a pointer to its stack in a thread-local for the time of a call (the crate
//!   `scoped-tls`, for instance) must not be interrupted by a wait if others on the host run the
//!   same code: such calls end in the reverse order of their begin on one stack only.
//!
//! [Fibers](crate::fiber) have both rules, too. Green threads have neither.
//!
//! Without the runtime ([`crate::runtime::status`]) hosts are kernel threads; everything works the
//! same, but a light thread that blocks in libc is replaced only after some milliseconds.

#[allow(unreachable_pub)] // for its models
mod follower;
mod fork;
mod group;
mod host;
#[allow(unreachable_pub)] // for its models
pub(crate) mod inbox;
mod join;
mod own;
mod park;
mod places;
mod scope;
mod stack;
mod timers;
#[allow(unreachable_pub)] // for its models
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

/// The default stack size of a light thread in bytes.
///
/// ```
/// let twice = raddle::light::Builder::new().stack_size(2 * raddle::light::STACK_SIZE);
/// assert_eq!(twice.spawn(|| 5)?.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub const STACK_SIZE: usize = 64 << 10;

/// Options of a new light thread.
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
    migrates: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            stack_size: STACK_SIZE,
            migrates: false,
        }
    }
}

impl Builder {
    /// Makes options for a thread with a stack of [`STACK_SIZE`] bytes.
    ///
    /// ```
    /// let thread = raddle::light::Builder::new().spawn(|| 5)?;
    /// assert_eq!(thread.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the stack's size in bytes; it is rounded up to a power of two, at least 16 KiB.
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

    /// Lets the thread go on on another host after each wait, as soon as one is free: then no host
    /// has to be woken for threads that wake each other, a thread that computes or blocks in libc
    /// holds no other up, and a lock of std's may be held over a wait although others of the same
    /// host want it.
    ///
    /// ```
    /// use raddle::light;
    /// // SAFETY: the threads use no thread-local over a wait, and hold nothing that isn't `Send`.
    /// let free = unsafe { light::Builder::new().migrating() };
    /// let adds = move |a: u32, b: u32| {
    ///     let a = free.spawn(move || { light::yield_now(); a });
    ///     a.unwrap().join().unwrap() + b
    /// };
    /// assert_eq!(free.spawn(move || adds(2, 3))?.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Safety
    /// A thread made with this builder, its callees included, must run as if it were sent to
    /// another thread at each wait of this crate ([`yield_now`], [`park`], [`sleep`], `join`, the
    /// waits of completions, the end of a scope). Over a wait it must not hold:
    /// - a value that isn't `Send`, or a reference to one that isn't `Sync`: an `Rc`, a guard of
    ///   std's locks, `Stdout::lock`;
    /// - a reference into a thread-local, as inside of `LocalKey::with`, and the address of one
    ///   (`errno`'s, for instance), which compilers may keep as well;
    /// - an unfinished initializer of a thread-local, a panic that unwinds, or a call of anything
    ///   that restores the thread's state when it returns.
    pub unsafe fn migrating(mut self) -> Self {
        self.migrates = true;
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
    /// [`io::ErrorKind::OutOfMemory`] if there is no memory for its stack, or no mapping for the
    /// guard (before Linux 6.13 each takes one); [`io::ErrorKind::WouldBlock`] if there is no
    /// thread to host it.
    pub fn spawn<T, F>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        // SAFETY: the captures of `f` live for ever.
        unsafe { self.spawn_unchecked(move |promise: Promise<T>| promise.run_to_end(f)) }
    }

    /// Starts a light thread that calls `run`, which ends its promise.
    ///
    /// # Safety
    /// The borrows of `run` must live until it has returned and its captures were dropped.
    unsafe fn spawn_unchecked<T, F>(self, run: F) -> io::Result<JoinHandle<T>>
    where
        T: Send,
        F: FnOnce(Promise<T>) + Send,
    {
        group::start()?;
        let light = stack::take(self.stack_size)?;
        let (promise, completion) = completion::pair();
        // SAFETY: the shell is fresh from the free list, so its stack is unused;
        // `Builder::migrating` has the promise about migration, and the caller promises the rest.
        unsafe { light.set_up(self.migrates, move || run(promise)) };
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
/// The thread may outlive the caller, and its captures must be safe to send:
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// raddle::light::spawn(move || println!("{shared}"));
/// ```
///
/// # Panics
/// If no thread can be made; [`Builder::spawn`] returns an error instead.
pub fn spawn<T, F>(f: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Builder::new().spawn(f).expect("a light thread can be made")
}

/// Returns true on a light thread.
///
/// ```
/// assert!(!raddle::light::is_light_thread());
/// assert!(raddle::light::spawn(raddle::light::is_light_thread).join().unwrap());
/// ```
pub fn is_light_thread() -> bool {
    Host::current().is_some_and(|host| host.light().is_some())
}

/// Returns a word of the light thread's own, 0 at first: its thread-local, which goes with it from
/// host to host. `None` on other threads.
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

/// Changes the light thread's own word ([`local`]). Returns false on other threads, which have
/// none.
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

/// Returns the calling light thread; `None` on other threads.
pub(crate) fn running() -> Option<&'static Light> {
    Host::current().and_then(Host::light)
}
