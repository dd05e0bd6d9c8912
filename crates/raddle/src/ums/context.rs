//! Contexts: names of workers.

use super::Error;
use super::colour::spread;
use super::dispatch::yield_in_place;
use super::light::Rest;
use super::list::{CompletionList, List};
use crate::runtime;
use crate::thread::{Builder, NextIsGreen};
use raddle_arch::call_by_jumps;
use raddle_interface::{WorkerControl, WorkerState};
use std::io;
use std::ptr::{NonNull, null};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// A context's state. The runtime holds a reference from the start of the worker's thread until the
/// ended thread was taken from its list.
#[repr(C)]
pub(super) struct Inner {
    /// First: a list's link is cast back to its context.
    pub(super) control: WorkerControl,
    /// State of a light worker.
    pub(super) rest: Rest,
    /// True once a worker was asked for.
    pub(super) in_use: AtomicBool,
    user: AtomicUsize,
    /// The next item of those that a C program took from a list.
    pub(super) next_item: AtomicPtr<Inner>,
    /// The list that `control.list` points into.
    list: Arc<List>,
}

/// The name of a UMS worker. Clones are the same context.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// use raddle::ums::{CompletionList, Context};
/// let context = Context::new(&CompletionList::new()?);
/// assert!(context == context.clone());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Context(pub(super) Arc<Inner>);

/// A worker's state as seen from outside; it may change a moment later.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Context, State};
/// let list = CompletionList::new()?;
/// let (worker, _) = ums::spawn(&list, || ())?;
/// assert_eq!(worker.state(), State::Listed); // it is still on its list
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum State {
    /// The worker has no thread yet.
    New,
    /// The worker is on its completion list.
    Listed,
    /// The worker was taken from its list, or has yielded: it can be executed.
    Ready,
    /// The worker is executed, claimed or blocked.
    Running,
    /// The worker's thread has ended.
    Ended,
}

impl Context {
    /// Makes a context for a worker, which is listed whenever it can be executed.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context, State};
    /// let context = Context::new(&CompletionList::new()?);
    /// assert_eq!(context.state(), State::New);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(list: &CompletionList) -> Self {
        let list = Arc::clone(&list.0);
        Self(Arc::new(Inner {
            control: WorkerControl::new(&raw const list.control),
            in_use: AtomicBool::new(false),
            user: AtomicUsize::new(0),
            next_item: AtomicPtr::new(std::ptr::null_mut()),
            rest: Rest::default(),
            list,
        }))
    }

    /// Returns the word of [`Context::set_user_context`]; 0 before.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context, State};
    /// assert_eq!(Context::new(&CompletionList::new()?).user_context(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn user_context(&self) -> usize {
        self.0.user.load(Ordering::Relaxed)
    }

    /// Sets a word of the program's own.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context, State};
    /// let context = Context::new(&CompletionList::new()?);
    /// context.set_user_context(5);
    /// assert_eq!(context.clone().user_context(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_user_context(&self, word: usize) {
        self.0.user.store(word, Ordering::Relaxed);
    }

    /// Returns the worker's thread id (`gettid(2)`) once it has a thread; `None` for a light one.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context};
    /// let list = CompletionList::new()?;
    /// assert_eq!(Context::new(&list).thread_id(), None);
    /// let (worker, _) = ums::spawn(&list, || ())?;
    /// assert!(worker.thread_id().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_id(&self) -> Option<i32> {
        let control = &self.0.control;
        if control.thread.load(Ordering::Acquire).is_null() {
            return None;
        }
        let id = control.thread_id.load(Ordering::Relaxed).cast_signed();
        Some(id).filter(|&id| id != 0)
    }

    /// Returns the worker's `pthread_t`, which is the address of libc's block for the thread, once
    /// it has a thread; `None` for a light one.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context};
    /// let list = CompletionList::new()?;
    /// assert_eq!(Context::new(&list).pthread(), None);
    /// let (worker, _) = ums::spawn(&list, || ())?;
    /// assert!(worker.pthread().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pthread(&self) -> Option<libc::pthread_t> {
        self.thread_id()?;
        Some(self.0.control.storage.load(Ordering::Relaxed) as libc::pthread_t)
    }

    /// Returns the worker's state.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context, State};
    /// let list = CompletionList::new()?;
    /// let (worker, _) = ums::spawn(&list, || ())?;
    /// let taken: Vec<_> = list.dequeue(None)?.collect();
    /// assert_eq!(taken[0].state(), State::Ready);
    /// # let _ = worker;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn state(&self) -> State {
        match self.0.control.state.get() {
            WorkerState::NEW => State::New,
            WorkerState::LISTED => State::Listed,
            WorkerState::READY => State::Ready,
            WorkerState::RUNNING => State::Running,
            _ => State::Ended,
        }
    }

    /// Returns true once the worker's thread has ended: it can't be executed any more.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Context, State};
    /// let (worker, _) = ums::spawn(&CompletionList::new()?, || ())?;
    /// assert!(!worker.has_ended());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_ended(&self) -> bool {
        self.state() == State::Ended
    }

    /// Returns a context that was taken from its list.
    ///
    /// # Safety
    /// `at` must have been listed by the runtime, and taken by the caller.
    pub(super) unsafe fn taken(at: NonNull<Inner>) -> Self {
        // SAFETY: the runtime's reference holds it. After the thread's end that reference is passed
        // on.
        unsafe {
            if at.as_ref().control.state.get() == WorkerState::ENDED {
                return Self(Arc::from_raw(at.as_ptr()));
            }
            at.as_ref().control.state.set(WorkerState::READY);
            Self::borrowed(at.as_ptr())
        }
    }

    /// Returns one more reference to a context.
    ///
    /// # Safety
    /// `at` must be a context with a live reference.
    pub(super) unsafe fn borrowed(at: *const Inner) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Arc::increment_strong_count(at);
            Self(Arc::from_raw(at))
        }
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut context = to.debug_struct("Context");
        context.field("thread_id", &self.thread_id());
        context.field("state", &self.state()).finish()
    }
}

/// Starts a worker that runs `f`. The worker is listed at once, and runs when a scheduler executes
/// it.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Context, State};
/// let list = CompletionList::new()?;
/// let (worker, _handle) = ums::spawn(&list, || 5)?;
/// assert!(list.dequeue(None)?.next() == Some(worker));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of [`Builder::spawn`].
pub fn spawn<T: Send + 'static>(
    list: &CompletionList,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(Context, JoinHandle<T>)> {
    let context = Context::new(list);
    let handle = spawn_with(Builder::new(), &context, f)?;
    Ok((context, handle))
}

/// As [`spawn`], with a context, a name and a stack of the caller's choice.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Context, State};
/// let (list, builder) = (CompletionList::new()?, raddle::Builder::new().name("weaver"));
/// let context = Context::new(&list);
/// let _handle = ums::spawn_with(builder, &context, || 5)?;
/// assert!(ums::spawn_with(raddle::Builder::new(), &context, || 5).is_err()); // it has a thread
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of [`Builder::spawn`], and [`Error::InUse`].
pub fn spawn_with<T: Send + 'static>(
    builder: Builder,
    context: &Context,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    builder.check_name()?;
    as_worker(context, || {
        builder.into_std().spawn(move || {
            let (mut f, mut value) = (Some(f), None);
            spread(&mut || value = f.take().map(|f| f()));
            value.expect("it was called once")
        })
    })
}

impl Context {
    /// Lists the caller's worker in that state.
    pub(super) fn list_as(&self, state: u32) {
        self.0.control.state.set(state);
        let link = NonNull::from(&*self.0).cast();
        // SAFETY: the context is in no list, and the runtime's reference, or the caller's, holds
        // it.
        unsafe { self.0.list.push(link) };
    }
}

/// Calls `make`, and makes the thread that it starts the context's worker.
pub(crate) fn as_worker<T>(
    context: &Context,
    make: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let runtime = runtime::table().ok_or(Error::Unsupported)?;
    if context.0.in_use.swap(true, Ordering::Relaxed) {
        return Err(Error::InUse.into());
    }
    let green = NextIsGreen::ask();
    let held = Arc::into_raw(Arc::clone(&context.0));
    (runtime.next_is_worker)(held.cast());
    let made = make();
    drop(green);
    (runtime.next_is_worker)(null());
    if made.is_err() {
        // SAFETY: no thread holds the reference.
        drop(unsafe { Arc::from_raw(held) });
        context.0.in_use.store(false, Ordering::Relaxed);
    }
    made
}

/// Gives the carrier back to the scheduler, which gets `parameter`; returns when the calling worker
/// is executed again.
///
/// ```
/// use raddle::ums::{self, Error};
/// assert_eq!(ums::yield_now(5), Err(Error::NoWorker)); // this thread is no worker
/// ```
///
/// # Blocking
/// The calling thread.
///
/// # Errors
/// [`Error::NoWorker`].
#[inline]
pub fn yield_now(parameter: usize) -> Result<(), Error> {
    let runtime = runtime::table().ok_or(Error::NoWorker)?;
    // SAFETY: the runtime's function, which any thread may call.
    match unsafe { call_by_jumps(runtime.yield_worker, parameter, 0) } {
        0 => return Err(Error::NoWorker),
        1 => {}
        // SAFETY: the runtime has given the calling worker the token.
        token => unsafe { yield_in_place(runtime, token, parameter) },
    }
    Ok(())
}

/// Returns the calling worker.
///
/// ```
/// assert!(raddle::ums::current().is_none()); // no worker
/// ```
pub fn current() -> Option<Context> {
    let at = (runtime::table()?.current_worker)();
    // SAFETY: null, or the calling worker's context, of which the runtime holds a reference.
    (!at.is_null()).then(|| unsafe { Context::borrowed(at.cast()) })
}
