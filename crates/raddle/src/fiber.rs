//! Fibers: stacks that one thread switches between by name, without a scheduler.
//!
//! The shape is that of Windows' fibers. A thread [becomes a fiber](convert_thread), makes others,
//! and [switches](Fiber::switch_to) to them; all of them are the same thread to std and libc, with
//! the same thread-locals. When a fiber blocks, its thread blocks.
//!
//! | call | what it does |
//! |---|---|
//! | [`convert_thread`], [`convert_back`] | makes the thread its first fiber, and undoes it |
//! | [`Fiber::new`] | makes a fiber, which runs at the first switch to it |
//! | [`Fiber::switch_to`] | suspends the running fiber, and continues another one |
//! | [`Fiber::delete`] | frees a fiber that will not be continued |
//! | [`Local`] | a value for each fiber |
//!
//! ```
//! use raddle::fiber::{self, Fiber};
//! use std::{cell::Cell, rc::Rc};
//! let main = fiber::convert_thread()?;
//! let sum = Rc::new(Cell::new(0));
//! let adds = Fiber::new(64 << 10, {
//!     let (main, sum) = (main.clone(), Rc::clone(&sum));
//!     move || {
//!         for i in 1..=3 {
//!             sum.set(sum.get() + i);
//!             main.switch_to().expect("it waits");
//!         }
//!         main // the fiber that continues at the end
//!     }
//! })?;
//! while !adds.has_ended() {
//!     adds.switch_to()?;
//! }
//! assert_eq!(sum.get(), 6);
//! fiber::convert_back()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Differences from Windows: a fiber stays on its thread, so that its values may be of any type;
//! its function returns the fiber that continues at its end, instead of ending the thread; and a
//! fiber that was started lives to the end of its function or of its thread, unless it is
//! [deleted](Fiber::delete), since values on its stack would not be dropped.
//!
//! # The end of the thread
//!
//! A thread that ends *unwinds* its suspended fibers, before the destructors of the thread-locals
//! that they may refer to: the call of [`Fiber::switch_to`] in which a fiber waits doesn't return,
//! and the values on the fiber's stack are dropped, as after a panic. So what a fiber has lent ends
//! first: the end of a [`std::thread::scope`] waits for the scope's threads. No message is printed.
//! - A fiber that catches the unwinding and switches again is unwound again. The hundredth such
//!   switch aborts the process.
//! - Where a panic is under way, and in a program that is built with `panic = "abort"`, the call
//!   returns [`Error::ThreadEnds`] instead.
//! - Fibers don't switch any more, and new ones don't begin.
//! - In the child of a fork, fibers that were started in the parent are left alone: the threads to
//!   which they may have lent something don't exist.
//!
//! [`Fiber::new_without_unwinding`] makes a fiber that its thread leaves alone, too.
//!
//! # Soundness
//!
//! The two rules of [`crate::light`], about initializers of thread-locals and about pointers to the
//! stack in thread-locals, hold for fibers, too: no type tells such code apart.

mod ending;
mod local;
mod stack;

pub(crate) use ending::end_fibers;
pub use local::Local;
use raddle_arch::{Context, prepare, switch_keep_fs};
use stack::Stack;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::{fmt, io};

thread_local! {
    /// The running fiber; null on a thread that is no fiber.
    static CURRENT: Cell<*const Inner> = const { Cell::new(null()) };
    /// What the next fiber does first on its own stack: it frees this fiber, which has ended, or
    /// ends itself ([`ending::END`]).
    static DEAD: Cell<*const Inner> = const { Cell::new(null()) };
}

/// Errors of fibers.
///
/// ```
/// use raddle::fiber::{Error, convert_back};
/// assert_eq!(convert_back(), Err(Error::NoFiber));
/// assert_eq!(Error::NoFiber.to_string(), "the thread is no fiber");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The calling thread is a fiber already.
    IsFiber,
    /// The calling thread is no fiber.
    NoFiber,
    /// The calling thread is a light one, or a light worker of a user-mode scheduler: it shares its
    /// thread with others.
    IsLight,
    /// The fiber runs.
    Runs,
    /// The fiber has ended, or its thread is no fiber any more.
    Ended,
    /// The calling fiber isn't the thread's first one.
    NotFirst,
    /// The calling thread ends: destructors of its thread-locals run.
    ThreadEnds,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::IsFiber => "the thread is a fiber already",
            Self::NoFiber => "the thread is no fiber",
            Self::IsLight => "a light thread or light worker can't be a fiber",
            Self::Runs => "the fiber runs",
            Self::Ended => "the fiber has ended",
            Self::NotFirst => "only the thread's first fiber can do that",
            Self::ThreadEnds => "the thread ends",
        })
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    New,
    Suspended,
    Running,
    Ended,
}

type Function = Box<dyn FnOnce() -> Fiber>;

#[repr(C)] // what a switch touches comes first, in one cache line
struct Inner {
    context: Cell<Context>,
    /// Written by the switch when the stack was left; not read.
    on_cpu: Cell<u32>,
    state: Cell<State>,
    /// `None` for a thread's first fiber.
    stack: Option<Stack>,
    function: Cell<Option<Function>>,
    /// Keys and values of [`Local`].
    locals: RefCell<Vec<(usize, Rc<dyn Any>)>>,
    end: ending::End,
}

/// A fiber of the calling thread. Clones are the same fiber.
///
/// ```
/// # use raddle::fiber::{self, Fiber};
/// let main = fiber::convert_thread()?;
/// let same: Fiber = main.clone();
/// assert!(!same.has_ended());
/// # fiber::convert_back()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Fiber(Rc<Inner>);

impl fmt::Debug for Fiber {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fiber = to.debug_struct("Fiber");
        fiber.field("state", &self.0.state.get()).finish()
    }
}

impl Inner {
    fn new(state: State, stack: Option<Stack>, function: Option<Function>) -> Self {
        Self {
            context: Cell::new(null_mut()),
            on_cpu: Cell::new(0),
            state: Cell::new(state),
            stack,
            function: Cell::new(function),
            locals: RefCell::new(Vec::new()),
            end: ending::End::default(),
        }
    }
}

/// Makes the calling thread a fiber: its first one, on the thread's own stack.
///
/// ```
/// use raddle::fiber::{Error, convert_thread};
/// let _first = convert_thread()?;
/// assert_eq!(convert_thread().unwrap_err(), Error::IsFiber);
/// # raddle::fiber::convert_back()?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::IsFiber`], [`Error::IsLight`], or [`Error::ThreadEnds`] in a destructor of a
/// thread-local, if fibers of the thread wait.
pub fn convert_thread() -> Result<Fiber, Error> {
    if ending::is_over() {
        return Err(Error::ThreadEnds);
    }
    if crate::light::is_light_thread() || crate::ums::is_host() {
        return Err(Error::IsLight);
    }
    if !CURRENT.get().is_null() {
        return Err(Error::IsFiber);
    }
    let inner = Rc::new(Inner::new(State::Running, None, None));
    CURRENT.set(Rc::into_raw(Rc::clone(&inner))); // a fiber that was started holds itself
    Ok(Fiber(inner))
}

/// Makes the calling thread an ordinary one again. Its other fibers wait until it is converted
/// anew.
///
/// ```
/// use raddle::fiber;
/// let first = fiber::convert_thread()?;
/// fiber::convert_back()?;
/// assert!(first.has_ended() && fiber::current().is_none());
/// # Ok::<(), fiber::Error>(())
/// ```
///
/// # Errors
/// [`Error::NoFiber`], or [`Error::NotFirst`] on another fiber than the thread's first one.
pub fn convert_back() -> Result<(), Error> {
    let at = match CURRENT.get() {
        at if at.is_null() => ending::take_last(),
        at => at,
    };
    // SAFETY: null or the running fiber, which holds itself.
    let current = unsafe { at.as_ref() }.ok_or(Error::NoFiber)?;
    if current.stack.is_some() {
        return Err(Error::NotFirst);
    }
    current.state.set(State::Ended);
    CURRENT.set(null());
    // SAFETY: made by `convert_thread`; it runs no more as a fiber.
    drop(unsafe { Rc::from_raw(at) });
    Ok(())
}

/// Returns the running fiber.
///
/// ```
/// use raddle::fiber;
/// assert!(fiber::current().is_none());
/// fiber::convert_thread()?;
/// assert!(fiber::current().is_some());
/// # fiber::convert_back()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub fn current() -> Option<Fiber> {
    let at = CURRENT.get();
    // SAFETY: null or the running fiber, which holds itself.
    (!at.is_null()).then(|| unsafe {
        Rc::increment_strong_count(at);
        Fiber(Rc::from_raw(at))
    })
}

impl Fiber {
    /// Makes a fiber that runs `function` at the first switch to it, on a stack of its own with
    /// room for `stack_size` bytes. The function returns the fiber that continues at its end.
    ///
    /// A panic out of the function aborts the process: there is no caller to catch it.
    ///
    /// ```
    /// use raddle::fiber::{self, Fiber};
    /// let main = fiber::convert_thread()?;
    /// let back = main.clone();
    /// let greets = Fiber::new(64 << 10, move || {
    ///     println!("on a stack of its own");
    ///     back
    /// })?;
    /// greets.switch_to()?;
    /// assert!(greets.has_ended());
    /// # fiber::convert_back()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(stack_size: usize, function: impl FnOnce() -> Self + 'static) -> io::Result<Self> {
        // SAFETY: the next step undoes what the caller would promise for.
        let fiber = unsafe { Self::new_without_unwinding(stack_size, function) }?;
        fiber.0.end.unwinds.set(true);
        Ok(fiber)
    }

    /// As [`Fiber::new`], but the fiber is left as it is if it is suspended when its thread ends.
    /// Its stack leaks, with all values on it.
    ///
    /// ```
    /// # use raddle::fiber::{self, Fiber};
    /// let thread = std::thread::spawn(|| {
    ///     let main = fiber::convert_thread()?;
    ///     let serves = move || loop {
    ///         main.switch_to().expect("it waits");
    ///     };
    ///     // SAFETY: it lends nothing.
    ///     let serves = unsafe { Fiber::new_without_unwinding(64 << 10, serves)? };
    ///     Ok::<_, std::io::Error>(serves.switch_to()?)
    /// });
    /// thread.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Safety
    /// If the fiber is suspended when its thread ends, it must not have lent a thread-local to
    /// another thread (by [`std::thread::scope`] in [`with`](std::thread::LocalKey::with), for
    /// instance): the other thread would use a value that is gone.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub unsafe fn new_without_unwinding(
        stack_size: usize,
        function: impl FnOnce() -> Self + 'static,
    ) -> io::Result<Self> {
        let stack = Stack::new(stack_size)?;
        let top = stack.top();
        let inner = Inner::new(State::New, Some(stack), Some(Box::new(function)));
        // SAFETY: the end of a fresh stack.
        let context = unsafe { prepare(top.wrapping_sub(64), entry as *const () as usize) };
        inner.context.set(context);
        Ok(Self(Rc::new(inner)))
    }

    /// Continues this fiber in place of the running one; returns at a switch back to the caller.
    ///
    /// ```
    /// use raddle::fiber::{self, Error, Fiber};
    /// let main = fiber::convert_thread()?;
    /// let (back, end) = (main.clone(), main.clone());
    /// let twice = Fiber::new(64 << 10, move || {
    ///     back.switch_to().expect("it waits");
    ///     end
    /// })?;
    /// twice.switch_to()?; // begins
    /// twice.switch_to()?; // continues, and ends
    /// assert_eq!(twice.switch_to(), Err(Error::Ended));
    /// assert_eq!(main.switch_to(), Err(Error::Runs));
    /// # fiber::convert_back()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoFiber`] on a thread that is no fiber, or that ends; [`Error::Runs`] or
    /// [`Error::Ended`]; [`Error::ThreadEnds`] in a fiber that is unwound.
    #[inline(always)] // a return would be predicted to lead to the fiber that was left
    pub fn switch_to(&self) -> Result<(), Error> {
        let target = &*self.0;
        // SAFETY: null or the running fiber, which holds itself.
        let current = unsafe { CURRENT.get().as_ref() }.ok_or(Error::NoFiber)?;
        if target.state.get() == State::Suspended {
            ending::guard()?;
        } else {
            self.begin()?;
        }
        current.state.set(State::Suspended);
        // SAFETY: the target is suspended or new, on this thread; both hold themselves.
        unsafe { go(current, target) }
    }

    /// Prepares the first switch to a fiber that isn't suspended.
    #[cold]
    fn begin(&self) -> Result<(), Error> {
        match self.0.state.get() {
            State::Suspended => Ok(()),
            State::New => {
                ending::guard()?;
                ending::start(Rc::clone(&self.0));
                Ok(())
            }
            State::Running => ending::check().and(Err(Error::Runs)),
            State::Ended => ending::check().and(Err(Error::Ended)),
        }
    }

    /// Returns true once the fiber's function has returned.
    ///
    /// ```
    /// use raddle::fiber::{self, Fiber};
    /// let main = fiber::convert_thread()?;
    /// let back = main.clone();
    /// let ends = Fiber::new(64 << 10, move || back)?;
    /// assert!(!ends.has_ended());
    /// ends.switch_to()?;
    /// assert!(ends.has_ended());
    /// # fiber::convert_back()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_ended(&self) -> bool {
        self.0.state.get() == State::Ended
    }

    /// Frees the fiber's stack and its locals before its end. Values on the stack aren't dropped. A
    /// new fiber never runs. A thread's first fiber is left alone: [`convert_back`] ends it.
    ///
    /// ```
    /// use raddle::fiber::{self, Fiber};
    /// let main = fiber::convert_thread()?;
    /// let (back, end) = (main.clone(), main.clone());
    /// let stays = Fiber::new(64 << 10, move || {
    ///     back.switch_to().expect("it waits");
    ///     end
    /// })?;
    /// stays.switch_to()?;
    /// // SAFETY: nothing refers to the fiber's stack.
    /// unsafe { stays.delete()? };
    /// # fiber::convert_back()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Safety
    /// Nothing may refer to the fiber's stack any more: neither loans (to scoped threads, for
    /// instance) nor lists that link values on it.
    ///
    /// # Errors
    /// [`Error::Runs`].
    pub unsafe fn delete(self) -> Result<(), Error> {
        match self.0.state.get() {
            State::Running => Err(Error::Runs),
            State::Suspended if self.0.stack.is_some() => {
                self.0.state.set(State::Ended);
                self.0.locals.take();
                ending::unlink(&self.0);
                // SAFETY: it held itself since it was started; the caller promises the rest.
                unsafe { Rc::decrement_strong_count(Rc::as_ptr(&self.0)) };
                Ok(())
            }
            State::New => {
                self.0.state.set(State::Ended); // for the owners of clones
                drop(self.0.function.take());
                Ok(())
            }
            State::Suspended | State::Ended => Ok(()),
        }
    }
}

/// Switches from the running fiber, and returns when it runs again.
///
/// # Errors
/// [`Error::ThreadEnds`], if the fiber shall end.
///
/// # Safety
/// Both fibers must stay alive; `to` must be suspended or new.
#[inline(always)]
unsafe fn go(from: &Inner, to: &Inner) -> Result<(), Error> {
    to.state.set(State::Running);
    CURRENT.set(to);
    // SAFETY: the caller's promise.
    unsafe {
        switch_keep_fs(
            from.context.as_ptr(),
            to.context.get(),
            from.on_cpu.as_ptr(),
        )
    };
    let dead = DEAD.replace(null());
    if dead.is_null() {
        Ok(())
    } else if dead == ending::END {
        ending::end(from)
    } else {
        drop_ended(dead);
        Ok(())
    }
}

#[cold]
fn drop_ended(dead: *const Inner) {
    // SAFETY: it held itself since it was started, and has left its stack for good.
    drop(unsafe { Rc::from_raw(dead) });
}

raddle_arch::first_instruction! {
    /// The first instruction of a fiber.
    entry => run
}

extern "C" fn run() {
    bury_the_last();
    let at = CURRENT.get();
    // SAFETY: the running fiber, which holds itself.
    let own = unsafe { &*at };
    let function = own.function.take();
    let next = catch_unwind(AssertUnwindSafe(|| function.map(|function| function())));
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(own.locals.take())));
    let to = match ending::ender() {
        ender if ender.is_null() => successor(next.ok().flatten().filter(|_| dropped.is_ok())),
        ender => {
            drop(next);
            ender
        }
    };
    ending::unlink(own);
    own.state.set(State::Ended);
    DEAD.set(at);
    // SAFETY: the target is off its stack and stays alive; this stack is freed by it.
    _ = unsafe { go(own, &*to) };
}

/// Returns the fiber that continues when the running one ends.
fn successor(next: Option<Fiber>) -> *const Inner {
    let Some(next) = next else {
        std::process::abort(); // the panic's message was printed
    };
    let to = Rc::as_ptr(&next.0);
    match next.0.state.get() {
        State::Suspended => drop(next), // a fiber that was started holds itself
        State::New => ending::start(next.0),
        State::Running | State::Ended => {
            eprintln!("raddle: a fiber named none that could continue");
            std::process::abort();
        }
    }
    to
}

/// Frees the ended fiber that this one follows.
fn bury_the_last() {
    let dead = DEAD.replace(null());
    if !dead.is_null() {
        drop_ended(dead);
    }
}
