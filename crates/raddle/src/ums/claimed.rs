//! The right to execute a worker.

use super::context::Context;
use super::scheduler::{Refused, Why};
use raddle_interface::{Claim, ThreadView, WorkerState};
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::read;
use std::sync::atomic::Ordering;

/// A worker that only the holder of this can execute.
///
/// A scheduler gets one with each worker that yields, and keeps it, or hands it to another thread,
/// until the worker is to run: [`super::Scheduler::resume`]. Contexts are names, of which there may
/// be many, so who executes one must first win it from all others; this is one, and costs nothing.
/// When it is dropped, anybody can execute the worker.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Claimed, CompletionList, State};
/// let list = CompletionList::new()?;
/// let (name, _) = ums::spawn(&list, || ())?;
/// let worker: Claimed = list.dequeue(None)?.next().expect("the worker").claim()?;
/// assert_eq!(worker.state(), State::Running); // nobody else can execute it
/// drop(worker);
/// assert_eq!(name.state(), State::Ready);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "when it is dropped, anybody can execute the worker"]
pub struct Claimed {
    context: Context, // one word, which travels in a register
}

impl Claimed {
    /// A worker that gave its carrier back, and that nobody else has claimed.
    #[inline(always)]
    pub(super) fn of(context: Context) -> Self {
        Self { context }
    }

    /// Tells the CPU that the worker will soon be executed, as the next but one for instance: what
    /// a switch to it touches is fetched meanwhile. That pays if there are so many workers that
    /// they aren't in the caches.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList};
    /// let list = CompletionList::new()?;
    /// let (_name, _) = ums::spawn(&list, || ())?;
    /// let worker = list.dequeue(None)?.next().expect("the worker").claim()?;
    /// worker.prefetch();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn prefetch(&self) {
        let thread = self.thread();
        match thread.is_null() {
            true => self.context.0.prefetch_rest(),
            // SAFETY: a thread of the runtime's.
            false => unsafe { ThreadView::prefetch(thread) },
        }
    }

    /// Lets anybody execute the worker who has a context of it.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, State};
    /// let list = CompletionList::new()?;
    /// let (_name, _) = ums::spawn(&list, || ())?;
    /// let worker = list.dequeue(None)?.next().expect("the worker").claim()?;
    /// assert_eq!(worker.release().state(), State::Ready);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(self) -> Context {
        self.context.0.control.state.set(WorkerState::READY);
        self.into_context()
    }

    /// The context, still claimed: it is about to be executed.
    #[inline(always)]
    pub(super) fn into_context(self) -> Context {
        let own = ManuallyDrop::new(self);
        // SAFETY: nothing else drops it.
        unsafe { read(&raw const own.context) }
    }

    /// The runtime's thread of it; null of a light one at rest.
    #[inline(always)]
    pub(super) fn thread(&self) -> *mut c_void {
        self.context.0.control.thread.load(Ordering::Relaxed)
    }

    /// True while it can't be executed by another thread than its own.
    #[inline(always)]
    pub(super) fn is_locked(&self) -> bool {
        self.context.0.is_locked()
    }
}

impl Deref for Claimed {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.context.0.control.state.get() == WorkerState::RUNNING {
            self.context.0.control.state.set(WorkerState::READY);
        } // else it has ended, in the child of a fork
    }
}

impl Context {
    /// Makes the worker the caller's alone to execute.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, Claimed, CompletionList, Context, Why};
    /// let list = CompletionList::new()?;
    /// let (name, _) = ums::spawn(&list, || ())?;
    /// let listed: Context = list.dequeue(None)?.next().expect("the worker");
    /// let worker: Claimed = listed.claim()?;
    /// assert_eq!(name.claim().unwrap_err().why, Why::Busy); // it is claimed
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the context; never [`Why::Locked`].
    pub fn claim(self) -> Result<Claimed, Refused> {
        match self.0.control.state.claim(|| false) {
            Claim::Claimed => Ok(Claimed::of(self)),
            claim => Err(Refused {
                context: self,
                why: Why::of(claim),
            }),
        }
    }
}
