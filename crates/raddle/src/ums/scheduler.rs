//! Schedulers: threads in scheduling mode.

use super::Error;
use super::claimed::Claimed;
use super::context::Context;
use super::light::give_host;
use super::list::CompletionList;
use super::place::Seat;
use crate::{light, runtime};
use raddle_context::call_by_jumps;
use raddle_interface::{Claim, Ended, Lease, WorkerControl, WorkerState};
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

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
// A word says which it is, so that it is read as it was written: by words.
#[repr(u64)]
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
    /// later, or somebody else's to whom it is given.
    Yielded {
        /// The worker.
        worker: Claimed,
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

impl Cause {
    /// As `raddle_ums.h` has it.
    pub(super) fn number(self) -> usize {
        let ended = match self {
            Self::Call => Ended::Parked,
            Self::Kernel => Ended::InKernel,
            Self::End => Ended::Exited,
        };
        ended as usize
    }
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

impl Why {
    /// What a claim that failed says.
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
    /// A worker that isn't executed after all can be, by anybody.
    worker: Option<Claimed>,
    /// It is the thread's.
    here: PhantomData<*const ()>,
}

impl Next {
    /// Who is to be executed; itself, if the scheduler leaves.
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
    /// The thread of the worker that decides in its place, or null.
    own: *mut c_void,
}

impl<'a> Scheduler<'a> {
    #[inline(always)]
    pub(super) fn new(list: &'a CompletionList, own: *mut c_void) -> Self {
        Self { list, own }
    }

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
    /// [`Refused`], with the context. If it is [`Why::Locked`], the same call will succeed soon.
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

    /// As [`Scheduler::execute`], of a worker that is claimed already.
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
    /// The worker, if another carrier still saves its registers, or it decides in another
    /// scheduler's place: the same call will succeed soon. In the child of a fork, if it has ended.
    #[inline(always)]
    pub fn resume(&self, worker: Claimed) -> Result<Next, Claimed> {
        match worker.is_locked() && worker.thread() != self.own {
            true => Err(worker),
            false => Ok(self.next(Some(worker))),
        }
    }

    #[inline(always)]
    fn next(&self, worker: Option<Claimed>) -> Next {
        Next {
            worker,
            here: PhantomData,
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
        self.next(None)
    }
}

/// Makes the calling thread the only one who may execute the worker.
pub(crate) fn claim(context: &Context) -> Claim {
    context.0.claim_by(null_mut())
}

/// Runs a claimed worker until it, or one that it was left to, gives the lease back: why, and the
/// parameter of a yield.
///
/// # Safety
/// The calling thread must have claimed it, in scheduling mode, and own the lease.
#[inline(always)]
unsafe fn run(control: *const WorkerControl, lease: *const Lease) -> (Ended, usize) {
    let Some(runtime) = runtime::table() else {
        return (Ended::Exited, 0); // without one there is no worker
    };
    // SAFETY: both live until the scheduler continues.
    unsafe {
        call_by_jumps(
            runtime.execute_worker,
            control.expose_provenance(),
            lease.expose_provenance(),
        );
        ((*lease).end.get(), (*lease).parameter.get())
    }
}

/// Runs a claimed worker until it gives the carrier back; then anybody may execute it again if it
/// has yielded or was preempted.
///
/// # Safety
/// The calling thread must have claimed it, in scheduling mode.
pub(super) unsafe fn run_alone(context: &Context) -> (Ended, usize) {
    if context.0.control.thread.load(Ordering::Relaxed).is_null() {
        give_host(&context.0);
    }
    let lease = Lease::new(None);
    // SAFETY: the caller's promise.
    let (end, parameter) = unsafe { run(&raw const context.0.control, &raw const lease) };
    if matches!(end, Ended::Yielded | Ended::Preempted) {
        context.0.control.state.set(WorkerState::READY);
    }
    (end, parameter)
}

/// As [`run_alone`], but the worker computes for so many nanoseconds at most, unless that is 0.
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
    procedure: impl FnMut(&Scheduler<'_>, Reason) -> Next,
) -> Result<(), Error> {
    let _mode = Mode::enter()?;
    // SAFETY: it is called on this thread only.
    schedule(&unsafe { Seat::new(list, procedure, false) });
    Ok(())
}

/// As [`enter_scheduling_mode`], but a worker that [yields](super::yield_now) calls the procedure
/// itself, in the scheduler's place, and switches to the next worker at once: about half the price
/// of a yield. Startup, blocked workers and `sched_yield(2)` are the scheduler's as before; a yield
/// is, too, if something is out of the ordinary.
///
/// So the procedure is called by one thread or another, one call at a time, and sees the
/// thread-locals of that one. It must not end its thread, fork, ask for what Linux gives to kernel
/// threads only, or wait for what one of its workers is to do. A panic of it is the scheduler's.
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
    schedule(&unsafe { Seat::new(list, procedure, true) });
    Ok(())
}

/// Runs whom the procedure names, until it leaves.
fn schedule<F: FnMut(&Scheduler<'_>, Reason) -> Next>(seat: &Seat<'_, F>) {
    let mut reason = Reason::Startup;
    // SAFETY: nobody has got the lease yet, or it was given back.
    while let Some(next) = unsafe { seat.call(reason) } {
        assert!(!next.is_locked(), "a worker was to execute itself");
        if next.control.thread.load(Ordering::Relaxed).is_null() {
            give_host(next);
        }
        // SAFETY: the procedure has claimed it, and the lease is here.
        let (ended, parameter) = unsafe { run(&raw const next.control, seat.lease()) };
        match seat.ran() {
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
            // Without a quantum nobody is preempted.
            Ended::Parked | Ended::Preempted => Cause::Call,
            Ended::InKernel => Cause::Kernel,
            Ended::Exited => Cause::End,
        };
        let context = worker.into_context();
        Self::Blocked { context, cause }
    }
}
