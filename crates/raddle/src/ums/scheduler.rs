//! Schedulers: threads in scheduling mode.

use super::Error;
use super::context::Context;
use super::list::CompletionList;
use crate::{light, runtime};
use raddle_context::call_by_jumps;
use raddle_interface::{Claim, Ended, Lease, WorkerState};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::from_ref;

thread_local! {
    /// True in scheduling mode.
    static SCHEDULES: Cell<bool> = const { Cell::new(false) };
}

/// Why a scheduler's procedure is called.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// fn describe(reason: &Reason) -> String {
///     match reason {
///         Reason::Startup => "it begins".to_owned(),
///         Reason::Blocked { cause, .. } => format!("blocked by {cause:?}"),
///         Reason::Yielded { parameter, .. } => format!("yielded {parameter}"),
///     }
/// }
/// assert_eq!(describe(&Reason::Startup), "it begins");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub enum Reason {
    /// The thread has entered scheduling mode.
    Startup,
    /// The worker that was executed is blocked, or has ended. It will be listed, or is already.
    Blocked {
        /// The worker.
        context: Context,
        /// By what.
        cause: Cause,
    },
    /// The worker that was executed has yielded: it is the scheduler's to execute again, now or
    /// later.
    Yielded {
        /// The worker.
        context: Context,
        /// What it passed to [`super::yield_now`].
        parameter: usize,
    },
}

/// What keeps a worker from running.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// let list = CompletionList::new()?;
/// let (_, worker) = ums::spawn(&list, || 5)?;
/// let schedules = raddle::spawn(move || {
///     ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
///         Reason::Startup => {
///             let mut listed = list.dequeue(None).expect("a worker");
///             scheduler.execute(listed.next().expect("the worker")).expect("it was new")
///         }
///         Reason::Blocked { cause: Cause::End, .. } => scheduler.leave(),
///         other => panic!("{other:?}"),
///     })
/// });
/// schedules.join().unwrap()?;
/// assert_eq!(worker.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// A call of libc that waits.
    Call,
    /// The kernel, where the runtime doesn't see for what: a page fault, for instance.
    Kernel,
    /// The end of its thread.
    End,
}

/// Why a context can't be executed.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// let list = CompletionList::new()?;
/// let scheduler = raddle::spawn(move || {
///     let new = Context::new(&list);
///     ums::enter_scheduling_mode(&list, |scheduler, _| match scheduler.execute(new.clone()) {
///         Err(refused) if refused.why == Why::New => scheduler.leave(),
///         other => panic!("{other:?}"),
///     })
/// });
/// scheduler.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// It has just left another carrier, which still saves its registers: try again.
    Locked,
    /// It runs, is blocked, or another scheduler is about to execute it.
    Busy,
    /// It is on its list: it must be taken from there first.
    Listed,
    /// It has ended.
    Ended,
    /// It has no thread.
    New,
}

/// A context that can't be executed, and why.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// /// Executes a worker, however often it is still being saved.
/// fn patiently(scheduler: &Scheduler<'_>, mut context: Context) -> Next {
///     loop {
///         match scheduler.execute(context) {
///             Ok(next) => return next,
///             Err(refused) if refused.why == Why::Locked => context = refused.context,
///             Err(refused) => panic!("{refused}"),
///         }
///     }
/// }
/// # let _ = patiently;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Refused {
    /// The context, as it was passed.
    pub context: Context,
    /// Why.
    pub why: Why,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self.why {
            Why::Locked => "the worker's registers are being saved; try again",
            Why::Busy => "the worker runs or is blocked",
            Why::Listed => "the worker is on its completion list",
            Why::Ended => "the worker has ended",
            Why::New => "the context has no thread",
        })
    }
}

impl std::error::Error for Refused {}

/// What a scheduler's procedure decides: whom the thread is to execute, or that it is to leave
/// scheduling mode.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// fn first(scheduler: &Scheduler<'_>) -> Next {
///     match scheduler.list().dequeue(None).ok().and_then(|mut listed| listed.next()) {
///         Some(worker) => scheduler.execute(worker).unwrap_or_else(|_| scheduler.leave()),
///         None => scheduler.leave(),
///     }
/// }
/// # let _ = first;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the worker is executed when the procedure returns this"]
pub struct Next {
    /// A worker that this thread has claimed.
    context: Option<Context>,
    /// Claims are the thread's.
    here: PhantomData<*const ()>,
}

impl Drop for Next {
    /// A worker that isn't executed after all can be, by anybody.
    fn drop(&mut self) {
        if let Some(context) = &self.context {
            context.0.control.state.set(WorkerState::READY);
        }
    }
}

/// The calling thread as a scheduler: see [`enter_scheduling_mode`].
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// let list = CompletionList::new()?;
/// let (_, worker) = ums::spawn(&list, || 5)?;
/// let schedules = raddle::spawn(move || {
///     ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
///         Reason::Startup => {
///             let mut listed = list.dequeue(None).expect("a worker");
///             scheduler.execute(listed.next().expect("the worker")).expect("it was new")
///         }
///         _ => scheduler.leave(),
///     })
/// });
/// schedules.join().unwrap()?;
/// assert_eq!(worker.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Scheduler<'a> {
    list: &'a CompletionList,
    here: PhantomData<*const ()>,
}

impl Scheduler<'_> {
    /// The list that the thread entered scheduling mode with.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Reason};
    /// let list = CompletionList::new()?;
    /// raddle::spawn(move || {
    ///     ums::enter_scheduling_mode(&list, |scheduler, _| {
    ///         assert!(scheduler.list().is_empty());
    ///         scheduler.leave()
    ///     })
    /// })
    /// .join()
    /// .unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn list(&self) -> &CompletionList {
        self.list
    }

    /// Claims a worker, which the thread executes as soon as its procedure has returned the answer.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Reason};
    /// let list = CompletionList::new()?;
    /// let (_, worker) = ums::spawn(&list, || 5)?;
    /// let schedules = raddle::spawn(move || {
    ///     ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
    ///         Reason::Startup => {
    ///             let mut listed = list.dequeue(None).expect("a worker");
    ///             scheduler.execute(listed.next().expect("the worker")).expect("it was new")
    ///         }
    ///         Reason::Yielded { context, .. } => scheduler.execute(context).expect("it is ours"),
    ///         Reason::Blocked { .. } => scheduler.leave(),
    ///     })
    /// });
    /// schedules.join().unwrap()?;
    /// assert_eq!(worker.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the context. If it is [`Why::Locked`], the same call will succeed soon.
    #[inline]
    pub fn execute(&self, context: Context) -> Result<Next, Refused> {
        match context.0.control.claim() {
            Claim::Claimed => Ok(Next {
                context: Some(context),
                here: PhantomData,
            }),
            claim => {
                let why = match claim {
                    Claim::Locked => Why::Locked,
                    Claim::Listed => Why::Listed,
                    Claim::Ended => Why::Ended,
                    Claim::New => Why::New,
                    _ => Why::Busy,
                };
                Err(Refused { context, why })
            }
        }
    }

    /// Leaves scheduling mode as soon as the procedure has returned the answer.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Reason};
    /// let list = CompletionList::new()?;
    /// let here = raddle::spawn(move || ums::enter_scheduling_mode(&list, |here, _| here.leave()));
    /// assert_eq!(here.join().unwrap(), Ok(()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn leave(&self) -> Next {
        Next {
            context: None,
            here: PhantomData,
        }
    }
}

/// Makes the calling thread the only one who may execute the worker.
pub(crate) fn claim(context: &Context) -> Claim {
    context.0.control.claim()
}

/// Runs a claimed worker until it gives the carrier back: why, and the parameter of a yield.
///
/// # Safety
/// The calling thread must have claimed it, in scheduling mode.
#[inline(always)]
pub(super) unsafe fn run(context: &Context) -> (Ended, usize) {
    let control = &context.0.control;
    let lease = Lease::new();
    let Some(runtime) = runtime::table() else {
        return (Ended::Exited, 0); // without one there is no worker
    };
    let (worker, left) = (from_ref(control), &raw const lease);
    // SAFETY: both live until the scheduler continues.
    unsafe {
        call_by_jumps(
            runtime.execute_worker,
            worker.expose_provenance(),
            left.expose_provenance(),
        )
    };
    let end = lease.end.get();
    if matches!(end, Ended::Yielded | Ended::Preempted) {
        control.state.set(WorkerState::READY);
    }
    (end, lease.parameter.get())
}

/// As [`run`], but the worker computes for so many nanoseconds at most, unless that is 0.
///
/// # Safety
/// As [`run`].
pub(crate) unsafe fn run_for(context: &Context, quantum_ns: u64) -> Ended {
    if let Some(runtime) = runtime::table() {
        (runtime.limit_worker)(&context.0.control, quantum_ns);
    }
    // SAFETY: the caller's promise.
    unsafe { run(context) }.0
}

/// The calling thread's time in scheduling mode.
pub(crate) struct Mode(());

impl Mode {
    /// Enters it.
    ///
    /// # Errors
    /// Those of [`enter_scheduling_mode`].
    pub(crate) fn enter() -> Result<Self, Error> {
        let runtime = runtime::table().ok_or(Error::Unsupported)?;
        if light::is_light_thread() {
            return Err(Error::IsLight);
        }
        if !(runtime.current_worker)().is_null() {
            return Err(Error::IsWorker);
        }
        if SCHEDULES.replace(true) {
            return Err(Error::IsScheduler);
        }
        (runtime.set_scheduler)(1);
        Ok(Self(()))
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        SCHEDULES.set(false);
        if let Some(runtime) = runtime::table() {
            (runtime.set_scheduler)(0);
        }
    }
}

/// Makes the calling thread a scheduler until its procedure says [`Scheduler::leave`].
///
/// The procedure is called with [`Reason::Startup`] first, and then each time a worker that it
/// executed is blocked or yields. Between two calls nothing of it is on the stack: it decides by
/// returning a [`Next`].
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// let list = CompletionList::new()?;
/// let (_, worker) = ums::spawn(&list, || 5)?;
/// let schedules = raddle::spawn(move || {
///     ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
///         Reason::Startup => {
///             let mut listed = list.dequeue(None).expect("a worker");
///             scheduler.execute(listed.next().expect("the worker")).expect("it was new")
///         }
///         Reason::Blocked { .. } => scheduler.leave(), // its end
///         Reason::Yielded { .. } => unreachable!("it doesn't"),
///     })
/// });
/// schedules.join().unwrap()?;
/// assert_eq!(worker.join().unwrap(), 5);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Blocking
/// The calling thread, as long as workers run in its place.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::IsScheduler`], [`Error::IsWorker`] or [`Error::IsLight`].
pub fn enter_scheduling_mode(
    list: &CompletionList,
    mut procedure: impl FnMut(&Scheduler<'_>, Reason) -> Next,
) -> Result<(), Error> {
    let _mode = Mode::enter()?;
    let scheduler = Scheduler {
        list,
        here: PhantomData,
    };
    let mut reason = Reason::Startup;
    loop {
        let mut next = procedure(&scheduler, reason);
        let Some(context) = next.context.take() else {
            return Ok(());
        };
        // SAFETY: the procedure has claimed it.
        let (ended, parameter) = unsafe { run(&context) };
        let cause = match ended {
            Ended::Yielded => {
                reason = Reason::Yielded { context, parameter };
                continue;
            }
            // Without a quantum nobody is preempted.
            Ended::Parked | Ended::Preempted => Cause::Call,
            Ended::InKernel => Cause::Kernel,
            Ended::Exited => Cause::End,
        };
        reason = Reason::Blocked { context, cause };
    }
}
