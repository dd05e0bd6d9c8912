//! Green threads that borrow from the thread that starts them, in the shape of std's scopes.
//!
//! A thread of a scope and its handle share a *slot* for the thread's result. The last owner of the
//! slot drops a result that was not taken, and then counts the thread out; the scope returns when
//! all threads are counted out. So after the scope no borrow is used, by a thread, its result or
//! the result's destructor. Destructors of thread-locals run later, unless the thread is joined, as
//! in std; they can't know of any borrow.

use super::{Builder, JoinHandle};
use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread, current, park};

/// State shared by a scope and its threads.
struct Shared {
    /// Slots that are still owned. Raised by the thread that starts another one, lowered (release)
    /// by the thread that drops the slot, and read by the scope's end (acquire).
    running: AtomicUsize,
    /// True once a thread panicked and was not joined. Ordered by `running`.
    has_panicked: AtomicBool,
    /// The thread that waits for `running` to be 0.
    owner: Thread,
}

/// One thread's result.
struct Slot<T> {
    shared: Arc<Shared>,
    /// Written by the thread, and read after its end by the joiner.
    result: UnsafeCell<Option<thread::Result<T>>>,
}

// SAFETY: the result is used by one side at a time: after the thread's end, or by the last one.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn new(shared: &Arc<Shared>) -> Arc<Self> {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            shared: Arc::clone(shared),
            result: UnsafeCell::new(None),
        })
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let result = self.result.get_mut().take();
        let panicked = matches!(result, Some(Err(_)));
        if catch_unwind(AssertUnwindSafe(|| drop(result))).is_err() {
            eprintln!("raddle: what a thread of a scope computed panicked when it was dropped");
            std::process::abort(); // the result may hold borrows
        }
        if panicked {
            self.shared.has_panicked.store(true, Ordering::Relaxed);
        }
        if self.shared.running.fetch_sub(1, Ordering::Release) == 1 {
            self.shared.owner.unpark();
        }
    }
}

/// A scope, in which green threads can be started that borrow from the caller: see [`scope()`].
///
/// ```
/// fn start<'scope>(scope: raddle::thread::Scope<'scope, '_>, word: &'scope str) {
///     scope.spawn(move || println!("{word}"));
/// }
/// let word = String::from("warp");
/// raddle::scope(|scope| start(scope, &word));
/// ```
#[derive(Clone, Copy)]
pub struct Scope<'scope, 'env: 'scope> {
    shared: &'scope Arc<Shared>,
    /// Invariant, as in std: a scope must not be taken for one of another lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The right to wait for the end of a scope's thread.
///
/// ```
/// let word = String::from("warp");
/// raddle::scope(|scope| {
///     let thread: raddle::thread::ScopedJoinHandle<'_, usize> = scope.spawn(|| word.len());
///     assert_eq!(thread.join().unwrap(), 4);
/// });
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    thread: JoinHandle<()>,
    slot: Arc<Slot<T>>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a green thread that runs `f` and may borrow what outlives the scope.
    ///
    /// ```
    /// let mut words = vec!["warp"];
    /// raddle::scope(|scope| {
    ///     scope.spawn(|| words.push("weft"));
    /// });
    /// assert_eq!(words, ["warp", "weft"]);
    /// ```
    ///
    /// # Panics
    /// If no thread can be made; [`Builder::spawn_scoped`] returns an error instead.
    pub fn spawn<T: Send + 'scope>(
        &self,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        self.start(Builder::new(), f).expect("a thread can be made")
    }

    /// As [`Builder::spawn_scoped`].
    pub(super) fn start<T: Send + 'scope>(
        &self,
        builder: Builder,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let slot = Slot::new(self.shared);
        let own = Arc::clone(&slot);
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(f));
            // SAFETY: the joiner reads the result only after this thread's end.
            unsafe { *own.result.get() = Some(result) };
            drop(own); // the scope may return from here on
        };
        // SAFETY: the borrows of `run` live until the scope returns. The scope waits until the slot
        // is dropped, and `run` drops it last; where no thread is made, `run` is dropped here.
        let thread = unsafe { builder.spawn_unchecked(run) }?;
        Ok(ScopedJoinHandle {
            thread,
            slot,
            scope: PhantomData,
        })
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.shared.running.load(Ordering::Relaxed);
        to.debug_struct("Scope").field("running", &running).finish()
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end, destructors of its thread-locals included.
    ///
    /// ```
    /// raddle::scope(|scope| {
    ///     assert!(scope.spawn(|| panic!("it is the joiner's")).join().is_err());
    /// }); // and not the scope's any more
    /// ```
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    ///
    /// # Blocking
    /// As [`JoinHandle::join`].
    pub fn join(self) -> thread::Result<T> {
        self.thread.join()?;
        // SAFETY: the thread has ended, and this is its only handle.
        let result = unsafe { (*self.slot.result.get()).take() };
        result.expect("a thread that has ended left its result")
    }

    /// Returns the thread's std handle, for `unpark`.
    ///
    /// ```
    /// raddle::scope(|scope| scope.spawn(std::thread::park).thread().unpark());
    /// ```
    pub fn thread(&self) -> &Thread {
        self.thread.thread()
    }

    /// Returns true once the thread has run to its end.
    ///
    /// ```
    /// raddle::scope(|scope| {
    ///     let thread = scope.spawn(|| ());
    ///     while !thread.is_finished() { raddle::yield_now() }
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.thread.fmt(to)
    }
}

/// Runs `f` with a scope, and waits for all threads that were started in it.
///
/// ```
/// let words = vec!["warp", "weft"];
/// let lengths: Vec<usize> = raddle::scope(|scope| {
///     let threads: Vec<_> = words.iter().map(|word| scope.spawn(|| word.len())).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).collect()
/// });
/// assert_eq!(lengths, [4, 4]);
/// ```
///
/// A thread can't borrow a value that ends before the scope, nor one that another thread changes:
///
/// ```compile_fail,E0597
/// raddle::scope(|scope| {
///     let short = String::from("weft");
///     scope.spawn(|| println!("{short}"));
/// });
/// ```
///
/// ```compile_fail,E0499
/// let mut count = 0;
/// raddle::scope(|scope| {
///     scope.spawn(|| count += 1);
///     scope.spawn(|| count += 1);
/// });
/// ```
///
/// # Panics
/// If a thread of the scope panicked and was not joined.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(Scope<'scope, 'env>) -> T,
{
    let shared = Arc::new(Shared {
        running: AtomicUsize::new(0),
        has_panicked: AtomicBool::new(false),
        owner: current(),
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        f(Scope {
            shared: &shared,
            scope: PhantomData,
            env: PhantomData,
        })
    }));
    while shared.running.load(Ordering::Acquire) != 0 {
        park();
    }
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if shared.has_panicked.load(Ordering::Relaxed) => {
            panic!("a thread of the scope panicked")
        }
        Ok(value) => value,
    }
}
