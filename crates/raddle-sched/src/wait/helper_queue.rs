//! Requests that parked tasks leave to helper kernel threads, and how many helpers there must be.
//!
//! 1. The poster *reserves*: under the lock it counts its request as queued. While more requests
//!    are queued than helpers are free, it makes another helper, and says whether that succeeded.
//! 2. It prepares its task ([`Task::prepare`](crate::Task::prepare)), links the request
//!    ([`HelperQueue::push`]), and parks. `posted` is raised after the request was linked.
//! 3. A helper reads `posted`, then takes a request. If there is none, it sleeps while `posted` is
//!    unchanged.
//! 4. It executes the request and completes it ([`HelperQueue::complete`]). The task is claimed
//!    under the lock. From the end of the lock on the request may be gone.
//! 5. A waiter that a signal has claimed *withdraws* ([`HelperQueue::withdraw`]): it takes the
//!    request back if no helper has it, or prepares again under the lock, so that the completion
//!    finds the task prepared.
//!
//! **A request waits behind a call only if there can't be another helper.** `free` counts the
//! helpers that execute nothing, those that are being made included. `queued` counts the requests
//! that no helper has taken, those that are about to be linked included. Both are changed under the
//! lock. A poster that finds more queued than free makes helpers for those before it as well, which
//! could get none.
//!
//! **No request is queued without a helper.** A poster that could not make a helper leaves its
//! request only if a helper exists; one that another poster is still making may fail as well.
//!
//! Rejected: one count of idle helpers, which posters lower and helpers raise. A poster that finds
//! 0 and can't make a helper has nothing to lower; the helper that takes its request later raises
//! the count all the same, and a later request waits for a helper that isn't there.

use crate::sync::spin::SpinLock;
use crate::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::task::{TaskRef, Wake};
use core::ptr::null;

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// No helper has it.
    Queued,
    /// A helper has taken it.
    Taken,
    /// It is executed.
    Done,
}

/// A request of one task.
pub struct Request<W> {
    /// What is to be done, and what comes of it.
    pub work: W,
    task: TaskRef,
    /// True for a request that isn't taken back.
    is_patient: bool,
    /// Read and written under the lock.
    progress: UnsafeCell<Progress>,
    /// The next in the queue. As `progress`.
    next: UnsafeCell<*const Self>,
}

impl<W> Request<W> {
    /// A request of the running task.
    pub fn new(work: W, task: TaskRef, is_patient: bool) -> Self {
        Self {
            work,
            task,
            is_patient,
            progress: UnsafeCell::new(Progress::Queued),
            next: UnsafeCell::new(null()),
        }
    }

    /// Returns true for a request that isn't taken back.
    pub fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// Under the lock.
    fn progress(&self) -> Progress {
        // SAFETY: the lock is held by the caller.
        self.progress.with_mut(|progress| unsafe { *progress })
    }

    /// Under the lock.
    fn set_progress(&self, to: Progress) {
        // SAFETY: as above.
        self.progress.with_mut(|progress| unsafe { *progress = to });
    }

    /// Under the lock.
    fn next(&self) -> *const Self {
        // SAFETY: as above.
        self.next.with_mut(|next| unsafe { *next })
    }

    /// Under the lock.
    fn set_next(&self, to: *const Self) {
        // SAFETY: as above.
        self.next.with_mut(|next| unsafe { *next = to });
    }
}

/// What a poster does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Next {
    /// The poster pushes its request.
    Push,
    /// The poster makes a helper, and says what came of it ([`HelperQueue::made`],
    /// [`HelperQueue::not_made`]).
    Make,
}

struct State<W> {
    head: *const Request<W>,
    tail: *const Request<W>,
    /// Helpers that execute nothing, those that are being made included.
    free: u32,
    /// Requests that no helper has taken, those that are about to be linked included.
    queued: u32,
    /// Helpers that are being made.
    starting: u32,
    /// Helpers that exist.
    total: u32,
}

impl<W> State<W> {
    const EMPTY: Self = Self {
        head: null(),
        tail: null(),
        free: 0,
        queued: 0,
        starting: 0,
        total: 0,
    };

    /// Counts a helper that is to be made, if one is missing and may be made.
    fn next_step(&mut self, most: u32) -> Next {
        if self.queued <= self.free || self.total + self.starting >= most {
            return Next::Push;
        }
        self.starting += 1;
        self.free += 1;
        Next::Make
    }

    fn unlink(&mut self, request: &Request<W>) {
        let (mut before, mut at) = (null::<Request<W>>(), self.head);
        // SAFETY: queued requests are alive, by the promise of `push`.
        while let Some(entry) = unsafe { at.as_ref() } {
            if core::ptr::eq(entry, request) {
                // SAFETY: as above.
                match unsafe { before.as_ref() } {
                    Some(before) => before.set_next(entry.next()),
                    None => self.head = entry.next(),
                }
                if self.tail == at {
                    self.tail = before;
                }
                self.queued -= 1;
                return;
            }
            before = at;
            at = entry.next();
        }
    }
}

// SAFETY: requests are reached under the lock until taken, and stay alive until completed.
unsafe impl<W> Send for State<W> {}

/// See the module.
pub struct HelperQueue<W> {
    state: SpinLock<State<W>>,
    /// Raised for every request; what helpers without work sleep on.
    posted: AtomicU32,
}

impl<W> HelperQueue<W> {
    /// No requests, and no helpers.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            state: SpinLock::new(State::EMPTY),
            posted: AtomicU32::new(0),
        }
    }

    /// No requests, and no helpers.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            state: SpinLock::new(State::EMPTY),
            posted: AtomicU32::new(0),
        }
    }

    /// Step 1; there are `most` helpers at most.
    pub fn reserve(&self, most: u32) -> Next {
        let mut state = self.state.lock();
        state.queued += 1;
        state.next_step(most)
    }

    /// After [`Next::Make`]: there is one more helper.
    pub fn made(&self, most: u32) -> Next {
        let mut state = self.state.lock();
        state.starting -= 1;
        state.total += 1;
        state.next_step(most)
    }

    /// After [`Next::Make`]: no helper could be made. Returns true if there are others, and the
    /// poster pushes its request; else the request isn't counted any more.
    #[must_use]
    pub fn not_made(&self) -> bool {
        let mut state = self.state.lock();
        state.starting -= 1;
        state.free -= 1;
        let has_helpers = state.total != 0;
        if !has_helpers {
            state.queued -= 1;
        }
        has_helpers
    }

    /// Links a request. The caller has reserved, its task is prepared, and it wakes one of those
    /// that sleep on `posted`.
    ///
    /// # Safety
    /// `request` must stay where it is until it is done or was withdrawn.
    pub unsafe fn push(&self, request: &Request<W>) {
        let mut state = self.state.lock();
        let at = core::ptr::from_ref(request);
        // SAFETY: queued requests are alive, by the promise of those that pushed them.
        match unsafe { state.tail.as_ref() } {
            Some(tail) => tail.set_next(at),
            None => state.head = at,
        }
        state.tail = at;
        drop(state);
        self.posted.fetch_add(1, Ordering::Release);
    }

    /// Takes a request back that no helper has taken, unless it is patient. Else, if it isn't done,
    /// `interrupt` is called and the task is prepared to park again, both under the lock. Returns
    /// how far the request is: the caller has it back if it is queued and not patient.
    pub fn withdraw(&self, request: &Request<W>, interrupt: impl FnOnce(&W)) -> Progress {
        let mut state = self.state.lock();
        let progress = request.progress();
        match progress {
            Progress::Queued if !request.is_patient => state.unlink(request),
            Progress::Queued | Progress::Taken => {
                interrupt(&request.work);
                request.task.get().prepare();
            }
            Progress::Done => {}
        }
        progress
    }

    /// Returns the number of posted requests: a helper reads it before it takes one.
    pub fn posted(&self) -> u32 {
        self.posted.load(Ordering::Acquire)
    }

    /// Returns the address that helpers without work sleep on.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn address(&self) -> *mut u32 {
        self.posted.as_ptr()
    }

    /// Takes the oldest request, for a helper that executes nothing.
    pub fn take(&self) -> Option<&Request<W>> {
        let mut state = self.state.lock();
        // SAFETY: queued requests are alive; a taken one until it is completed.
        let request = unsafe { state.head.as_ref() }?;
        state.head = request.next();
        if state.head.is_null() {
            state.tail = null();
        }
        state.queued -= 1;
        state.free -= 1;
        request.set_progress(Progress::Taken);
        Some(request)
    }

    /// The request is executed; `finish` writes what came of it. Returns the task if the caller is
    /// to push it.
    #[must_use]
    pub fn complete(&self, request: &Request<W>, finish: impl FnOnce(&W)) -> Option<TaskRef> {
        let task = request.task;
        let mut state = self.state.lock();
        finish(&request.work);
        request.set_progress(Progress::Done);
        state.free += 1;
        let is_claimed = task.get().claim(Wake::Woken);
        drop(state); // from here on the request may be gone
        is_claimed.then_some(task)
    }

    /// In the child of a fork: there are no helpers.
    ///
    /// # Safety
    /// No other thread may exist.
    pub unsafe fn reset(&self) {
        let Self { state, posted: _ } = self;
        // SAFETY: the caller's promise.
        unsafe { state.break_lock() };
        *state.lock() = State::EMPTY;
    }
}

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
impl<W> Default for HelperQueue<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use crate::task::Task;
    use core::ptr::NonNull;

    const MOST: u32 = 4;

    fn request(task: &Task, is_patient: bool) -> Request<()> {
        // SAFETY: the tasks outlive their requests.
        let task = unsafe { TaskRef::new(NonNull::from(task)) };
        Request::new((), task, is_patient)
    }

    fn push(queue: &HelperQueue<()>, request: &Request<()>) {
        request.task.get().prepare();
        // SAFETY: the requests live until the end.
        unsafe { queue.push(request) };
    }

    fn complete(queue: &HelperQueue<()>, request: &Request<()>) {
        assert!(queue.complete(request, |()| {}).is_some());
    }

    #[test]
    fn a_free_helper_gets_the_next_request_and_a_busy_one_does_not() {
        let (queue, tasks) = (HelperQueue::new(), [(); 3].map(|()| Task::new()));
        let requests = [0, 1, 2].map(|at| request(&tasks[at], false));
        assert_eq!(queue.reserve(MOST), Next::Make);
        assert_eq!(queue.made(MOST), Next::Push);
        push(&queue, &requests[0]);
        let first = queue.take().expect("the oldest");
        assert!(core::ptr::eq(first, &requests[0]));
        complete(&queue, first);
        assert_eq!(queue.reserve(MOST), Next::Push, "one is free");
        push(&queue, &requests[1]);
        assert_eq!(
            queue.reserve(MOST),
            Next::Make,
            "the free one has a request"
        );
        assert_eq!(queue.made(MOST), Next::Push);
        push(&queue, &requests[2]);
        let rest = [queue.take(), queue.take(), queue.take()];
        assert!(rest[0].is_some() && rest[1].is_some() && rest[2].is_none());
        assert_eq!(queue.posted(), 3);
        rest.into_iter()
            .flatten()
            .for_each(|it| complete(&queue, it));
        assert_eq!(queue.reserve(MOST), Next::Push, "both are free");
    }

    #[test]
    fn a_helper_that_could_not_be_made_is_not_counted() {
        let (queue, tasks) = (HelperQueue::new(), [(); 2].map(|()| Task::new()));
        let requests = [0, 1].map(|at| request(&tasks[at], false));
        assert_eq!(queue.reserve(MOST), Next::Make);
        assert!(!queue.not_made(), "there is none");
        assert_eq!(queue.reserve(MOST), Next::Make);
        assert_eq!(queue.made(MOST), Next::Push);
        push(&queue, &requests[0]);
        let busy = queue.take().expect("a request");
        assert_eq!(queue.reserve(MOST), Next::Make);
        assert!(queue.not_made(), "the busy one takes it later");
        push(&queue, &requests[1]);
        complete(&queue, busy);
        let busy = queue.take().expect("a request");
        assert_eq!(queue.reserve(MOST), Next::Make, "none is free");
        assert_eq!(queue.made(MOST), Next::Push);
        complete(&queue, busy);
    }

    #[test]
    fn the_next_poster_makes_the_helpers_that_were_missing() {
        let (queue, tasks) = (HelperQueue::new(), [(); 3].map(|()| Task::new()));
        let requests = [0, 1, 2].map(|at| request(&tasks[at], false));
        assert_eq!(queue.reserve(1), Next::Make);
        assert_eq!(queue.made(1), Next::Push);
        push(&queue, &requests[0]);
        assert_eq!(queue.reserve(1), Next::Push, "there may be one");
        push(&queue, &requests[1]);
        assert_eq!(queue.reserve(MOST), Next::Make);
        assert_eq!(queue.made(MOST), Next::Make, "for the one before");
        assert!(queue.not_made(), "there are two");
        push(&queue, &requests[2]);
    }

    #[test]
    fn a_request_that_is_taken_back_leaves_its_helper_to_others() {
        let (queue, tasks) = (HelperQueue::new(), [(); 3].map(|()| Task::new()));
        let requests = [0, 1, 2].map(|at| request(&tasks[at], at == 2));
        for request in &requests {
            assert_eq!(queue.reserve(MOST), Next::Make);
            assert_eq!(queue.made(MOST), Next::Push);
            push(&queue, request);
        }
        let withdraw = |at: usize| queue.withdraw(&requests[at], |()| {});
        assert_eq!(withdraw(1), Progress::Queued);
        assert_eq!(withdraw(2), Progress::Queued, "it stays");
        assert_eq!(queue.reserve(MOST), Next::Push);
        let taken = [queue.take(), queue.take()].map(|it| it.expect("a request"));
        assert!(core::ptr::eq(taken[1], &requests[2]) && queue.take().is_none());
        assert_eq!(withdraw(0), Progress::Taken);
        complete(&queue, taken[0]);
        assert_eq!(withdraw(0), Progress::Done);
        // SAFETY: no other thread uses it.
        unsafe { queue.reset() };
        assert_eq!(queue.reserve(MOST), Next::Make, "a child has no helpers");
    }
}
