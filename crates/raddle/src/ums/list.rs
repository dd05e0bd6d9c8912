//! Completion lists: where workers that can be executed wait for a scheduler.

use super::Error;
use super::context::{Context, Inner};
use crate::runtime;
use raddle_interface::ListControl;
use raddle_sched::completion_list::{Found, SLEEPING, Taken};
use raddle_sched::{CompletionList as Ready, Link};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A list's state; contexts hold it.
pub(super) struct List {
    pub(super) control: ListControl,
    /// The owner of the descriptor `control.event`.
    event: Option<OwnedFd>,
}

/// Workers that can be executed: see the [module](super). Clones are the same list.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Error};
/// let list = CompletionList::new()?;
/// let (_worker, _handle) = ums::spawn(&list.clone(), || ())?;
/// assert!(!list.is_empty()); // it was the same one
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct CompletionList(pub(super) Arc<List>);

impl CompletionList {
    /// Makes an empty list.
    ///
    /// ```
    /// # use raddle::{runtime, ums::CompletionList};
    /// let is_there = CompletionList::new().is_ok();
    /// assert_eq!(is_there, runtime::status() == runtime::Status::Green);
    /// ```
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] without an engine.
    pub fn new() -> io::Result<Self> {
        Self::of(None)
    }

    /// Makes an empty list with an event: an eventfd that becomes readable whenever the list
    /// becomes non-empty, for threads that wait for other things, too. A waiter reads it, and then
    /// takes everything that is listed.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Error};
    /// use raddle::pool::{Interest, Pool};
    /// let (list, pool) = (CompletionList::with_event()?, Pool::new());
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let event = list.event().expect("it was asked for");
    /// pool.when_ready(event, Interest::Readable, move || tell.send(()).unwrap()).unwrap();
    /// let (_worker, _handle) = ums::spawn(&list, || ())?;
    /// told.recv().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`CompletionList::new`], and those of `eventfd(2)`.
    pub fn with_event() -> io::Result<Self> {
        // SAFETY: a new descriptor or -1.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is ours alone.
        Self::of(Some(unsafe { OwnedFd::from_raw_fd(event) }))
    }

    fn of(event: Option<OwnedFd>) -> io::Result<Self> {
        runtime::table().ok_or(Error::Unsupported)?;
        let control = ListControl {
            ready: Ready::new(),
            event: event.as_ref().map_or(-1, AsRawFd::as_raw_fd),
        };
        Ok(Self(Arc::new(List { control, event })))
    }

    /// Returns the list's event, if it has one.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Error};
    /// assert!(CompletionList::new()?.event().is_none());
    /// assert!(CompletionList::with_event()?.event().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.0.event.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Returns true if the list was empty a moment ago.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Error};
    /// assert!(CompletionList::new()?.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.control.ready.is_empty()
    }

    /// Takes everything that is listed, oldest first; waits until there is something, for `timeout`
    /// at most, or for ever. Only the caller may execute the taken workers.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList, Error};
    /// use std::time::Duration;
    /// let list = CompletionList::new()?;
    /// assert_eq!(list.dequeue(Some(Duration::ZERO)).unwrap_err(), Error::TimedOut);
    /// let workers = [ums::spawn(&list, || 1)?, ums::spawn(&list, || 2)?];
    /// let taken: Vec<_> = list.dequeue(None)?.collect();
    /// assert!(taken == [workers[0].0.clone(), workers[1].0.clone()]); // oldest first
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Blocking
    /// The calling thread. A scheduler that has workers to execute passes [`Duration::ZERO`], which
    /// never blocks.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub fn dequeue(&self, timeout: Option<Duration>) -> Result<Items, Error> {
        let mut deadline = None;
        loop {
            let taken = self.0.control.ready.take();
            if !taken.is_empty() {
                let list = Arc::clone(&self.0);
                return Ok(Items { taken, list });
            }
            let mut left = None;
            if let Some(timeout) = timeout {
                let now = match timeout {
                    Duration::ZERO => return Err(Error::TimedOut),
                    _ => Instant::now(),
                };
                let end = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                left = end.map(|end| end.saturating_duration_since(now));
                if left == Some(Duration::ZERO) {
                    return Err(Error::TimedOut);
                }
            }
            self.sleep(left);
        }
    }

    /// Lists a context that has no thread and isn't listed: a message to the thread that takes it.
    /// The caller must hold the context.
    pub(crate) fn post(&self, context: &Context) {
        let link = NonNull::from(&*context.0).cast();
        // SAFETY: the caller's promise, and contexts hold their list.
        unsafe { self.0.push(link) };
    }

    fn sleep(&self, left: Option<Duration>) {
        if !self.0.control.ready.announce() {
            return;
        }
        let timeout = left.map(|left| libc::timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let word = self.0.control.ready.word();
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let timeout = timeout.as_ref().map_or(null(), std::ptr::from_ref);
        // SAFETY: a live word; spurious returns are allowed.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, SLEEPING as u32, timeout) };
    }
}

impl std::fmt::Debug for CompletionList {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut list = to.debug_struct("CompletionList");
        list.field("is_empty", &self.is_empty()).finish()
    }
}

/// Workers that were taken from a list. Dropping this lists the remaining ones again.
///
/// ```
/// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
/// # use raddle::ums::{self, CompletionList, Error};
/// let list = CompletionList::new()?;
/// let (_worker, _handle) = ums::spawn(&list, || ())?;
/// let items: ums::Items = list.dequeue(None)?;
/// assert!(list.is_empty());
/// drop(items); // the worker was not taken out: it is listed again
/// assert!(!list.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Items {
    taken: Taken,
    list: Arc<List>,
}

impl Iterator for Items {
    type Item = Context;

    fn next(&mut self) -> Option<Context> {
        let link = self.taken.next()?;
        // SAFETY: the runtime lists contexts of which it holds a reference.
        Some(unsafe { Context::taken(link.cast::<Inner>()) })
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        for link in self.taken.by_ref() {
            // SAFETY: the item was taken, so it is in no list, and its context holds this list.
            unsafe { self.list.push(link) };
        }
    }
}

impl List {
    /// Lists a context and wakes waiters, like the runtime.
    ///
    /// # Safety
    /// It must be in no list, and live until it is taken.
    pub(super) unsafe fn push(&self, link: NonNull<Link>) {
        // SAFETY: the caller's promise; contexts hold their list, and the caller this one.
        let found = unsafe { self.control.ready.push(link) };
        if found == Found::Items {
            return;
        }
        if self.control.event >= 0 {
            let one = 1u64;
            // SAFETY: eight bytes into the list's own eventfd, which never blocks.
            unsafe { libc::write(self.control.event, (&raw const one).cast(), 8) };
        }
        if found == Found::Sleepers {
            let word = self.control.ready.word();
            let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            let no = null_mut::<libc::timespec>();
            // SAFETY: the list lives.
            unsafe { libc::syscall(libc::SYS_futex, word, operation, i32::MAX, no) };
        }
    }
}

impl std::fmt::Debug for List {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("List").finish_non_exhaustive()
    }
}
