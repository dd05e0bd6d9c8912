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
/// A scheduler gets a claim with each worker that yields, and keeps it, or hands it to another
/// thread, until the worker is to run: [`super::Scheduler::resume`]. A worker may have many
/// contexts, so executing one of them needs a claim first; executing a claimed worker doesn't. When
/// the claim is dropped, any scheduler can execute the worker.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, Claimed, CompletionList, State};
/// let list = CompletionList::new()?;
/// let (name, _) = ums::spawn(&list, || ())?;
/// let worker: Claimed = list.dequeue(None)?.next().expect("the worker").claim()?;
/// assert_eq!(worker.state(), State::Running); // no other scheduler can execute it
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
    /// Makes the claim of a worker that gave its carrier back and is otherwise unclaimed.
    #[inline(always)]
    pub(super) fn of(context: Context) -> Self {
        Self { context }
    }

    /// Tells the CPU that the worker will soon be executed, as the next but one for instance: the
    /// memory that a switch to it touches is fetched meanwhile. That pays if there are too many
    /// workers for the caches.
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
        if thread.is_null() {
            self.context.0.prefetch_rest()
        } else {
            // SAFETY: the runtime's thread.
            unsafe { ThreadView::prefetch(thread) }
        }
    }

    /// Drops the claim: any owner of a context can execute the worker. Returns the context.
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

    /// Returns the context, still claimed: the worker is about to be executed.
    #[inline(always)]
    pub(super) fn into_context(self) -> Context {
        let own = ManuallyDrop::new(self);
        // SAFETY: the context is read once, and not dropped here.
        unsafe { read(&raw const own.context) }
    }

    /// Returns the worker's thread in the runtime; null for a light worker at rest.
    #[inline(always)]
    pub(super) fn thread(&self) -> *mut c_void {
        self.context.0.control.thread.load(Ordering::Relaxed)
    }

    /// Returns true while only the worker's own thread can execute it.
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
    /// Claims the worker: only the caller may execute it.
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
