//! Light threads that borrow from the thread that starts them.

use super::{Builder, JoinHandle, Thread};
use crate::completion::{self, Promise};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// State shared by a scope and its threads.
struct Shared {
    /// Threads that haven't ended, and one more while the scope may start others.
    running: AtomicUsize,
    /// Panics of threads that were not joined.
    panics: AtomicUsize,
    /// Set by the thread that lowers `running` to 0.
    ended: Cell<Option<Promise<()>>>,
}

// SAFETY: `ended` is used once, by the one thread that lowers `running` to 0.
unsafe impl Sync for Shared {}

impl Shared {
    fn one_less(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(promise) = self.ended.take()
        {
            let _ = promise.set(());
        }
    }
}

/// Counts a thread out, however it ends.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.one_less();
    }
}

/// A scope, in which light threads can be started that borrow from the caller: see [`scope()`].
///
/// ```
/// use raddle::light::{self, Scope};
/// /// Starts a thread for each half, which may start others.
/// fn sum<'a>(scope: &'a Scope<'a, '_>, numbers: &'a [u32]) -> u32 {
///     if numbers.len() <= 2 {
///         return numbers.iter().sum();
///     }
///     let (low, high) = numbers.split_at(numbers.len() / 2);
///     let low = scope.spawn(move || sum(scope, low));
///     sum(scope, high) + low.join().unwrap()
/// }
/// let numbers: Vec<u32> = (0..10).collect();
/// assert_eq!(light::scope(|scope| sum(scope, &numbers)), 45);
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    shared: Arc<Shared>,
    /// Invariant, as in std: a scope must not be taken for one of another lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The right to wait for a light thread of a scope.
///
/// ```
/// use raddle::light::{self, ScopedJoinHandle};
/// let words = ["warp", "weft"];
/// let longest = light::scope(|scope| {
///     let start = |word: &&'static str| -> ScopedJoinHandle<'_, usize> {
///         let word = *word;
///         scope.spawn(move || word.len())
///     };
///     let threads: Vec<_> = words.iter().map(start).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).max()
/// });
/// assert_eq!(longest, Some(4));
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    join: JoinHandle<T>,
    shared: Arc<Shared>,
    scope: PhantomData<&'scope ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a light thread that runs `f` and may borrow what outlives the scope.
    ///
    /// # Panics
    /// If no thread can be made; [`Scope::spawn_with`] returns an error instead.
    pub fn spawn<T, F>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        self.spawn_with(Builder::new(), f)
            .expect("a light thread can be made")
    }

    /// As [`Scope::spawn`], with the options of `builder`.
    ///
    /// ```
    /// use raddle::light;
    /// let word = String::from("warp");
    /// light::scope(|scope| {
    ///     let large = light::Builder::new().stack_size(1 << 20);
    ///     let thread = scope.spawn_with(large, || word.len()).unwrap();
    ///     assert_eq!(thread.join().unwrap(), 4);
    /// });
    /// ```
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_with<T, F>(
        &'scope self,
        builder: Builder,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        T: Send + 'scope,
        F: FnOnce() -> T + Send + 'scope,
    {
        let running = Running::new(&self.shared);
        let run = move |promise: Promise<T>| {
            // Dropped last: the drop lets the scope end, and with it the thread's borrows.
            let running = running;
            let computed = promise.run_told(f);
            running
                .0
                .panics
                .fetch_add(usize::from(!computed), Ordering::Relaxed);
        };
        // SAFETY: the scope doesn't end before `running` is dropped, which is the thread's last
        // act.
        let join = unsafe { builder.spawn_unchecked(run) }?;
        Ok(ScopedJoinHandle {
            join,
            shared: Arc::clone(&self.shared),
            scope: PhantomData,
        })
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end, as [`JoinHandle::join`].
    ///
    /// # Errors
    /// The payload of the thread's panic.
    pub fn join(self) -> thread::Result<T> {
        let is_itself = self.join.thread().is_current();
        let result = self.join.join();
        if result.is_err() && !is_itself {
            // The thread counts its panic before the scope can end, but perhaps after this.
            self.shared.panics.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    /// Returns true once the thread has ended, or is about to.
    ///
    /// ```
    /// raddle::light::scope(|scope| {
    ///     let thread = scope.spawn(raddle::light::park);
    ///     thread.thread().unpark();
    ///     while !thread.is_finished() { raddle::light::yield_now() }
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.join.is_finished()
    }

    /// Returns the thread, for `unpark`.
    ///
    /// ```
    /// use raddle::light;
    /// light::scope(|scope| scope.spawn(light::park).thread().unpark());
    /// ```
    pub fn thread(&self) -> Thread {
        self.join.thread()
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join.fmt(f)
    }
}

/// Runs `f` with a scope, and waits for all light threads that were started in it.
///
/// ```
/// let words = vec!["warp", "weft"];
/// let lengths: Vec<usize> = raddle::light::scope(|scope| {
///     let threads: Vec<_> = words.iter().map(|word| scope.spawn(|| word.len())).collect();
///     threads.into_iter().map(|thread| thread.join().unwrap()).collect()
/// });
/// assert_eq!(lengths, [4, 4]);
/// ```
///
/// A thread can't borrow a value that ends before the scope, nor one that another thread changes:
///
/// ```compile_fail,E0373
/// raddle::light::scope(|scope| {
///     let short = String::from("weft");
///     scope.spawn(|| println!("{short}"));
/// });
/// ```
///
/// ```compile_fail,E0499
/// let mut count = 0;
/// raddle::light::scope(|scope| {
///     scope.spawn(|| count += 1);
///     scope.spawn(|| count += 1);
/// });
/// ```
///
/// # Panics
/// If `f` panics, or a thread of the scope that was not joined.
///
/// # Blocking
/// The light or green thread; outside raddle, the kernel thread.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let (promise, all_ended) = completion::pair();
    let scope = Scope {
        shared: Arc::new(Shared {
            running: AtomicUsize::new(1),
            panics: AtomicUsize::new(0),
            ended: Cell::new(Some(promise)),
        }),
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.shared.one_less();
    let _ = all_ended.wait(); // set by the last thread
    let panics = scope.shared.panics.load(Ordering::Relaxed);
    match result {
        Err(panic) => resume_unwind(panic),
        Ok(_) if panics != 0 => panic!("a light thread of the scope panicked"),
        Ok(result) => result,
    }
}
