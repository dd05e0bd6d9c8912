//! Schedulers: threads in scheduling mode.

use super::Error;
use super::context::Context;
use super::list::CompletionList;
use crate::{light, runtime};
use raddle_interface::{Claim, Ended, WorkerState};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    /// True in scheduling mode.
    static SCHEDULES: Cell<bool> = const { Cell::new(false) };
}

/// Why a scheduler's procedure is called.
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
            context.0.control.set(WorkerState::READY);
        }
    }
}

/// The calling thread as a scheduler: see [`enter_scheduling_mode`].
#[derive(Debug)]
pub struct Scheduler<'a> {
    list: &'a CompletionList,
    here: PhantomData<*const ()>,
}

impl Scheduler<'_> {
    /// The list that the thread entered scheduling mode with.
    pub fn list(&self) -> &CompletionList {
        self.list
    }

    /// Claims a worker, which the thread executes as soon as its procedure has returned the answer.
    ///
    /// # Errors
    /// [`Refused`], with the context. If it is [`Why::Locked`], the same call will succeed soon.
    #[inline]
    pub fn execute(&self, context: Context) -> Result<Next, Refused> {
        match claim(&context) {
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
    pub fn leave(&self) -> Next {
        Next {
            context: None,
            here: PhantomData,
        }
    }
}

pub(crate) fn claim(context: &Context) -> Claim {
    match runtime::table() {
        Some(runtime) => (runtime.claim_worker)(&context.0.control),
        None => Claim::New,
    }
}

/// Runs a claimed worker until it gives the carrier back: why, and the parameter of a yield.
pub(super) fn run(context: &Context) -> (Ended, usize) {
    let mut parameter = 0;
    let ended = runtime::table().map(|runtime| {
        let control = &context.0.control;
        (runtime.execute_worker)(control, &mut parameter)
    });
    (ended.unwrap_or(Ended::Exited), parameter)
}

/// Runs a claimed worker until it gives the carrier back, or has computed for so long; 0 is for
/// ever.
pub(crate) fn run_for(context: &Context, quantum_ns: u64) -> Ended {
    let mut parameter = 0;
    let ended = runtime::table().map(|runtime| {
        let control = &context.0.control;
        (runtime.execute_worker_for)(control, &mut parameter, quantum_ns)
    });
    ended.unwrap_or(Ended::Exited)
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
        Ok(Self(()))
    }
}

impl Drop for Mode {
    fn drop(&mut self) {
        SCHEDULES.set(false);
    }
}

/// Makes the calling thread a scheduler until its procedure says [`Scheduler::leave`].
///
/// The procedure is called with [`Reason::Startup`] first, and then each time a worker that it
/// executed is blocked or yields. Between two calls nothing of it is on the stack: it decides by
/// returning a [`Next`].
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
        let (ended, parameter) = run(&context);
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
