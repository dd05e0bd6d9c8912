//! Requests to the kernel that parked tasks wait for, in numbered places.
//!
//! A *request* has a place from its submission until the kernel is done with it. A *wait* is a
//! task's interest in a request. It is on the waiter's stack, and may end before the request is
//! done: then the place stays taken, and the end of the request wakes no task.
//!
//! 1. The waiter prepares its task ([`Task::prepare`](crate::Task::prepare)), and then begins
//!    ([`Requests::begin`]): an end that comes at once finds a task that it can claim.
//! 2. It parks. A waker that isn't the end of its wait (a signal) may claim the task: then the
//!    waiter asks whether the wait is over, and otherwise prepares again, both under the lock
//!    ([`Requests::is_over_or_prepares`]). An end sets the wait's outcome and claims under the same
//!    lock: it comes before the question, which then sees it, or after it, and then it finds the
//!    task prepared.
//! 3. The waiter withdraws ([`Requests::withdraw`]), in any case: the thread that has ended the
//!    wait reached it under the lock, so it doesn't touch the wait any more once the lock is free.
//!    Only then may the waiter's stack be used for something else.

use crate::sync::spin::SpinLock;
use crate::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::task::{TaskList, TaskRef, Wake};
use core::ptr::null;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    NotYet,
    /// The request is done.
    Done,
    /// The task is to wait elsewhere.
    Adopted,
    /// The task waits for the request no longer.
    Relieved,
}

/// A wait of one task for one request.
pub struct Wait {
    task: TaskRef,
    /// Read and written under the lock.
    end: UnsafeCell<End>,
}

impl Wait {
    /// A wait of the running task.
    pub fn new(task: TaskRef) -> Self {
        Self {
            task,
            end: UnsafeCell::new(End::NotYet),
        }
    }

    /// Returns how the wait ended. Called by the waiter, after it has withdrawn.
    pub fn outcome(&self) -> End {
        self.end()
    }

    /// Under the lock of its requests, or by the waiter once no other thread reaches the wait.
    fn end(&self) -> End {
        // SAFETY: the caller's lock, or the withdrawal, keeps other threads away.
        self.end.with_mut(|end| unsafe { *end })
    }

    /// Under the lock of its requests.
    fn set_end(&self, to: End) {
        // SAFETY: the lock is held by the caller.
        self.end.with_mut(|end| unsafe { *end = to });
    }
}

struct Places<const PLACES: usize> {
    /// One bit for each place that no request uses.
    free: u64,
    /// The wait for the request in a place; null if there is none any more.
    waits: [*const Wait; PLACES],
}

// SAFETY: waits are reached under the lock, and live until they are withdrawn.
unsafe impl<const PLACES: usize> Send for Places<PLACES> {}

/// Requests of one submitter, `PLACES` at most, and the waits for them.
pub struct Requests<const PLACES: usize> {
    places: SpinLock<Places<PLACES>>,
    /// Waits that aren't over. Changed under the lock; a hint for readers without it.
    count: AtomicU32,
}

impl<const PLACES: usize> Requests<PLACES> {
    const FITS: () = assert!(PLACES <= u64::BITS as usize);

    /// No requests.
    pub fn new() -> Self {
        let () = Self::FITS;
        Self {
            places: SpinLock::new(Places {
                free: u64::MAX,
                waits: [null(); PLACES],
            }),
            count: AtomicU32::new(0),
        }
    }

    /// Returns how many waits aren't over, a moment ago.
    #[inline(always)]
    pub fn waiting(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a place for a request that the task of `wait` waits for; `None` if there is none.
    ///
    /// # Safety
    /// `wait` must stay where it is until it was withdrawn, or the place was given back.
    pub unsafe fn begin(&self, wait: &Wait) -> Option<usize> {
        let mut places = self.places.lock();
        let place = places.free.trailing_zeros() as usize;
        if place >= PLACES {
            return None;
        }
        places.free &= !(1 << place);
        places.waits[place] = core::ptr::from_ref(wait);
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    /// The request in a place is done: its task, if one waits, is claimed and added to `woken`.
    pub fn end(&self, place: usize, woken: &TaskList) {
        let mut places = self.places.lock();
        places.free |= 1 << place;
        self.finish(&mut places, place, End::Done, Some(woken));
    }

    /// Gives a place back: the request was not submitted. Called by the waiter.
    pub fn give_back(&self, place: usize) {
        let mut places = self.places.lock();
        places.free |= 1 << place;
        self.finish(&mut places, place, End::Done, None);
    }

    /// Ends all waits; the requests keep their places.
    pub fn end_all(&self, end: End, woken: &TaskList) {
        let mut places = self.places.lock();
        for place in 0..PLACES {
            self.finish(&mut places, place, end, Some(woken));
        }
    }

    fn finish(
        &self,
        places: &mut Places<PLACES>,
        place: usize,
        end: End,
        woken: Option<&TaskList>,
    ) {
        let wait = core::mem::replace(&mut places.waits[place], null());
        // SAFETY: null, or a wait that isn't over and so lives while the lock is held.
        let Some(wait) = (unsafe { wait.as_ref() }) else {
            return;
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        let task = wait.task;
        wait.set_end(end);
        if let Some(woken) = woken
            && task.get().claim(Wake::Woken)
        {
            woken.push(task);
        }
    }

    /// Returns true if the wait is over; else its task is prepared to park again. Called by the
    /// waiter.
    pub fn is_over_or_prepares(&self, wait: &Wait) -> bool {
        let _places = self.places.lock();
        let is_over = wait.end() != End::NotYet;
        if !is_over {
            wait.task.get().prepare();
        }
        is_over
    }

    /// Ends the wait if it isn't over; the request keeps its place. Called by the waiter, which may
    /// then leave the wait's memory. Takes the lock in any case: the thread that has ended the wait
    /// may still hold it.
    pub fn withdraw(&self, wait: &Wait) {
        let mut places = self.places.lock();
        if wait.end() == End::NotYet {
            let at = core::ptr::from_ref(wait);
            if let Some(place) = places.waits.iter().position(|&other| other == at) {
                self.finish(&mut places, place, End::Relieved, None);
            }
        }
    }
}

impl<const PLACES: usize> Default for Requests<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use crate::task::Task;
    use core::ptr::NonNull;

    fn task_ref(task: &Task) -> TaskRef {
        // SAFETY: the tasks outlive their waits.
        unsafe { TaskRef::new(NonNull::from(task)) }
    }

    #[test]
    fn a_place_is_used_again_once_its_request_is_done() {
        let (task, requests, woken) = (Task::new(), Requests::<2>::new(), TaskList::new());
        task.prepare();
        let waits = [(); 3].map(|()| Wait::new(task_ref(&task)));
        // SAFETY: the waits live until the end.
        let begin = |at: usize| unsafe { requests.begin(&waits[at]) };
        assert_eq!([begin(0), begin(1), begin(2)], [Some(0), Some(1), None]);
        requests.withdraw(&waits[0]);
        assert_eq!(waits[0].outcome(), End::Relieved);
        assert_eq!((begin(2), requests.waiting()), (None, 1));
        requests.end(0, &woken);
        assert!(woken.is_empty(), "no task waits for it any more");
        assert_eq!(begin(2), Some(0));
        requests.end(1, &woken);
        assert_eq!(woken.pop(), Some(task_ref(&task)));
        requests.withdraw(&waits[1]);
        assert_eq!(waits[1].outcome(), End::Done);
    }

    #[test]
    fn all_waits_end_at_once_and_their_tasks_are_claimed() {
        let (tasks, requests) = ([Task::new(), Task::new()], Requests::<4>::new());
        let waits = [0, 1].map(|at| Wait::new(task_ref(&tasks[at])));
        for (task, wait) in tasks.iter().zip(&waits) {
            task.prepare();
            // SAFETY: as above.
            assert!(unsafe { requests.begin(wait) }.is_some());
        }
        assert!(tasks[1].claim(Wake::Signalled));
        let woken = TaskList::new();
        requests.end_all(End::Adopted, &woken);
        assert_eq!((woken.len(), requests.waiting()), (1, 0));
        assert!(requests.is_over_or_prepares(&waits[1]));
        requests.withdraw(&waits[1]);
        assert_eq!(waits[1].outcome(), End::Adopted);
    }
}
