//! Schedulers: threads in scheduling mode.

use super::Error;
use super::claimed::Claimed;
use super::context::Context;
use super::dispatch::Dispatcher;
use super::light::give_host;
use super::list::CompletionList;
use crate::{light, runtime};
use raddle_arch::call_by_jumps;
use raddle_interface::{Claim, Ended, SchedulerToken, WorkerControl, WorkerState};
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

thread_local! {
    /// True while the thread is in scheduling mode.
    static SCHEDULES: Cell<bool> = const { Cell::new(false) };
}

/// The reason for a call of a scheduler's procedure.
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
// The discriminant is a word, so that it is read as it was written: by words.
#[repr(u64)]
#[derive(Debug)]
pub enum Reason {
    /// The thread has entered scheduling mode.
    Startup,
    /// The executed worker is blocked, or has ended. It will be listed, or is already.
    Blocked {
        /// The worker.
        context: Context,
        /// The cause.
        cause: Cause,
    },
    /// The executed worker has yielded: the scheduler may execute it again, now or later, or give
    /// the claim to another thread.
    Yielded {
        /// The worker.
        worker: Claimed,
        /// The argument of [`super::yield_now`].
        parameter: usize,
    },
}

/// The cause that keeps a worker from running.
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
    /// A libc call that waits.
    Call,
    /// A wait in the kernel for something that the runtime doesn't see: a page fault, for instance.
    Kernel,
    /// The end of the worker's thread.
    End,
}

impl Cause {
    /// Returns the number in `raddle_ums.h`.
    pub(super) fn number(self) -> usize {
        let ended = match self {
            Self::Call => Ended::Parked,
            Self::Kernel => Ended::InKernel,
            Self::End => Ended::Exited,
        };
        ended as usize
    }
}

/// The reason why a context can't be executed.
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
    /// The worker has just left another carrier, which still saves its registers: try again.
    Locked,
    /// The worker runs, is blocked, or another scheduler is about to execute it.
    Busy,
    /// The worker is on its list: it must be taken from there first.
    Listed,
    /// The worker has ended.
    Ended,
    /// The context has no thread.
    New,
}

/// A context that can't be executed, with the reason.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, Why};
/// /// Executes a worker; tries again while its registers are being saved.
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
    /// The reason.
    pub why: Why,
}

impl Why {
    /// Returns the reason of a claim that failed.
    pub(super) fn of(claim: Claim) -> Self {
        match claim {
            Claim::Locked => Self::Locked,
            Claim::Listed => Self::Listed,
            Claim::Ended => Self::Ended,
            Claim::New => Self::New,
            Claim::Claimed | Claim::Busy => Self::Busy,
        }
    }
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

/// The decision of a scheduler's procedure: the worker that the thread executes next, or that it
/// leaves scheduling mode.
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
    /// The worker to execute. If this is dropped instead, any scheduler can execute it.
    worker: Option<Claimed>,
    /// Keeps the decision on the thread.
    here: PhantomData<*const ()>,
}

impl Next {
    /// Returns the worker to be executed; the decision itself, if the scheduler leaves.
    #[inline(always)]
    pub(super) fn into_worker(mut self) -> Result<Claimed, Self> {
        self.worker.take().ok_or(self)
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
    /// The thread of the worker that decides in the scheduler's place, or null.
    own: *mut c_void,
}

impl<'a> Scheduler<'a> {
    #[inline(always)]
    pub(super) fn new(list: &'a CompletionList, own: *mut c_void) -> Self {
        Self { list, own }
    }

    /// Returns the list that the thread entered scheduling mode with.
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

    /// Claims a worker, which the thread executes as soon as its procedure has returned the
    /// decision.
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
    ///         Reason::Yielded { worker, .. } => scheduler.resume(worker).expect("it is ours"),
    ///         Reason::Blocked { .. } => scheduler.leave(),
    ///     })
    /// });
    /// schedules.join().unwrap()?;
    /// assert_eq!(worker.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the context. After [`Why::Locked`], the same call will succeed soon.
    #[inline]
    pub fn execute(&self, context: Context) -> Result<Next, Refused> {
        match context.0.claim_by(self.own) {
            Claim::Claimed => Ok(self.next(Some(Claimed::of(context)))),
            claim => {
                let why = Why::of(claim);
                Err(Refused { context, why })
            }
        }
    }

    /// As [`Scheduler::execute`], for a worker that is claimed already.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Reason};
    /// let list = CompletionList::new()?;
    /// let (_, worker) = ums::spawn(&list, || ums::yield_now(0).unwrap())?;
    /// let schedules = raddle::spawn(move || {
    ///     ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
    ///         Reason::Startup => {
    ///             let listed = list.dequeue(None).expect("a worker").next().expect("the worker");
    ///             scheduler.resume(listed.claim().expect("it was taken")).expect("it is new")
    ///         }
    ///         Reason::Yielded { worker, .. } => scheduler.resume(worker).expect("it is ours"),
    ///         Reason::Blocked { .. } => scheduler.leave(),
    ///     })
    /// });
    /// schedules.join().unwrap()?;
    /// worker.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The worker, if another carrier still saves its registers, or if it decides in another
    /// scheduler's place: the same call will succeed soon. In the child of a fork, also after its
    /// end.
    #[inline(always)]
    pub fn resume(&self, worker: Claimed) -> Result<Next, Claimed> {
        if worker.is_locked() && worker.thread() != self.own {
            Err(worker)
        } else {
            Ok(self.next(Some(worker)))
        }
    }

    #[inline(always)]
    fn next(&self, worker: Option<Claimed>) -> Next {
        Next {
            worker,
            here: PhantomData,
        }
    }

    /// Leaves scheduling mode as soon as the procedure has returned the decision.
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
        self.next(None)
    }
}

/// Claims the worker: only the calling thread may execute it.
pub(crate) fn claim(context: &Context) -> Claim {
    context.0.claim_by(null_mut())
}

/// Runs a claimed worker until it, or a worker that got the token from it, gives the token back.
/// Returns the reason, and the parameter of a yield.
///
/// # Safety
/// The calling thread must have claimed the worker, in scheduling mode, and own the token.
#[inline(always)]
unsafe fn run(control: *const WorkerControl, token: *const SchedulerToken) -> (Ended, usize) {
    let Some(runtime) = runtime::table() else {
        return (Ended::Exited, 0); // without one there is no worker
    };
    // SAFETY: both live until the scheduler continues.
    unsafe {
        call_by_jumps(
            runtime.execute_worker,
            control.expose_provenance(),
            token.expose_provenance(),
        );
        ((*token).end.get(), (*token).parameter.get())
    }
}

/// Runs a claimed worker until it gives the carrier back; after a yield or a preemption any
/// scheduler may execute it again.
///
/// # Safety
/// The calling thread must have claimed the worker, in scheduling mode.
pub(super) unsafe fn run_alone(context: &Context) -> (Ended, usize) {
    if context.0.control.thread.load(Ordering::Relaxed).is_null() {
        give_host(&context.0);
    }
    let token = SchedulerToken::new(None);
    // SAFETY: the caller's promise.
    let (end, parameter) = unsafe { run(&raw const context.0.control, &raw const token) };
    if matches!(end, Ended::Yielded | Ended::Preempted) {
        context.0.control.state.set(WorkerState::READY);
    }
    (end, parameter)
}

/// As [`run_alone`], with a limit to the worker's computing time; 0 for none.
///
/// # Safety
/// As [`run_alone`].
pub(crate) unsafe fn run_for(context: &Context, quantum_ns: u64) -> Ended {
    if let Some(runtime) = runtime::table() {
        (runtime.limit_worker)(&context.0.control, quantum_ns);
    }
    // SAFETY: the caller's promise.
    unsafe { run_alone(context) }.0
}

/// A guard of the calling thread's scheduling mode.
pub(crate) struct Mode(());

impl Mode {
    /// Enters scheduling mode.
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

/// Makes the calling thread a scheduler until its procedure returns [`Scheduler::leave`].
///
/// The procedure is called with [`Reason::Startup`] first, and then each time the worker that it
/// executed is blocked or yields. Between two calls the stack holds no frame of the procedure: it
/// decides by returning a [`Next`].
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
    procedure: impl FnMut(&Scheduler<'_>, Reason) -> Next,
) -> Result<(), Error> {
    let _mode = Mode::enter()?;
    // SAFETY: the procedure is called on this thread only.
    schedule(&unsafe { Dispatcher::new(list, procedure, false) });
    Ok(())
}

/// As [`enter_scheduling_mode`], but a worker that [yields](super::yield_now) calls the procedure
/// itself, in the scheduler's place, and switches to the next worker at once: about half the price
/// of a yield. Startup, blocked workers and `sched_yield(2)` still go to the scheduler's thread; a
/// yield does, too, if something is out of the ordinary.
///
/// So the procedure is called on different threads, one call at a time, and sees the calling
/// thread's thread-locals. It must not end its thread, fork, ask for what Linux gives to kernel
/// threads only, or wait for one of its workers. A panic of the procedure is continued on the
/// scheduler's thread.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Reason};
/// let list = CompletionList::new()?;
/// let workers = [(); 2].map(|()| ums::spawn(&list, || ums::yield_now(1).unwrap()).unwrap().1);
/// let (mut yields, mut ready) = (0, std::collections::VecDeque::new());
/// raddle::spawn(move || {
///     ums::enter_in_place(&list, move |scheduler, reason| {
///         if let Reason::Yielded { worker, parameter } = reason {
///             yields += parameter;
///             ready.push_back(worker);
///         }
///         while ready.is_empty() {
///             let listed = scheduler.list().dequeue(None).expect("it waits for ever");
///             ready.extend(listed.filter_map(|context| context.claim().ok()));
///             if yields == 2 && ready.is_empty() {
///                 return scheduler.leave(); // both have ended
///             }
///         }
///         let next = ready.pop_front().expect("there is one");
///         scheduler.resume(next).expect("there is no other scheduler")
///     })
/// })
/// .join()
/// .unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Blocking
/// The calling thread, as long as workers run in its place.
///
/// # Errors
/// As [`enter_scheduling_mode`].
pub fn enter_in_place(
    list: &CompletionList,
    procedure: impl FnMut(&Scheduler<'_>, Reason) -> Next + Send,
) -> Result<(), Error> {
    let _mode = Mode::enter()?;
    // SAFETY: the procedure can be called on any thread.
    schedule(&unsafe { Dispatcher::new(list, procedure, true) });
    Ok(())
}

/// Runs the workers that the procedure returns, until it leaves.
fn schedule<F: FnMut(&Scheduler<'_>, Reason) -> Next>(dispatcher: &Dispatcher<'_, F>) {
    let mut reason = Reason::Startup;
    // SAFETY: the token was not given away yet, or was given back.
    while let Some(next) = unsafe { dispatcher.call(reason) } {
        assert!(!next.is_locked(), "a worker was to execute itself");
        if next.control.thread.load(Ordering::Relaxed).is_null() {
            give_host(next);
        }
        // SAFETY: the procedure has claimed the worker, and this thread has the token.
        let (ended, parameter) = unsafe { run(&raw const next.control, dispatcher.token()) };
        match dispatcher.ran() {
            Some(worker) => reason = Reason::of(worker, ended, parameter),
            None => return,
        }
    }
}

impl Reason {
    #[inline(always)]
    fn of(worker: Claimed, ended: Ended, parameter: usize) -> Self {
        let cause = match ended {
            Ended::Yielded => return Self::Yielded { worker, parameter },
            // Without a quantum there is no preemption.
            Ended::Parked | Ended::Preempted => Cause::Call,
            Ended::InKernel => Cause::Kernel,
            Ended::Exited => Cause::End,
        };
        let context = worker.into_context();
        Self::Blocked { context, cause }
    }
}
