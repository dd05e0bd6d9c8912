//! The ring: reads and writes that wait for a disk, many at a time, by one kernel thread.
//!
//! A green thread leaves a *transfer* (on its own stack) and parks; the ring's thread puts all
//! transfers that are there into an io_uring by one system call, and wakes the threads of those
//! that are done. A helper for each would cost two switches of kernel threads a transfer; here many
//! share them.
//!
//! How transfers are posted, and how the thread sleeps and leaves, is
//! [`raddle_sched::transfers`]'s. The thread's wait is one for the futex `posted` in its ring. A
//! wake-up for each transfer would cost more than the transfers, so one waits for others if its
//! carrier has threads to run, none of which is known to compute: until there are eight, or the
//! carrier has nothing else, or looks around. Sysmon announces what was left by a carrier that
//! doesn't come to that, at its next look, within a millisecond.
//!
//! The ring belongs to a thread that waits nowhere else (buffers are in memory when they come): a
//! completion is not held up by a carrier that blocks, and no carrier's system call is disturbed by
//! the kernel's work for the ring. Its descriptor is registered with that thread and closed, so
//! that the program never sees one.
//!
//! Where the kernel refuses (before Linux 6.7, `io_uring_disabled`, seccomp, no memory), and until
//! the ring is there, transfers are for helpers. In the child of a fork there is no ring.
//!
//! The kernel may also refuse later, to every thread at once ([`crate::kernel_threads::filters`]),
//! or the installer of such a filter says so before. Then the ring's thread *leaves*: it refuses,
//! under the list's lock, so that what is posted is all there is; hands back what the kernel hasn't
//! been told of; and waits, without the ring, for what it has. The kernel finishes that in any
//! system call of this thread (IORING_SETUP_COOP_TASKRUN), and writes what came of it to memory.

use crate::kernel_threads::kthread;
pub use crate::os::io_uring::Work;
use crate::os::io_uring::{Entered, Queues, Rest};
use crate::scheduling::switch;
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::parts::ring::Job;
pub use crate::state::parts::ring::Ring;
use crate::state::process::PROCESS;
use crate::state::wakers::Cause;
use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use raddle_arch::timestamp;
use raddle_sched::transfers::{State, Transfer};
use raddle_sched::{TaskList, Wake};
use raddle_sys::{err, errno};

const STACK: usize = 64 * 1024;
const ENTRIES: usize = 128;
const COMPLETIONS: u32 = 4096;
/// Transfers that are put into the ring before those that are done are looked at, and of which the
/// ring's thread is told together.
const AT_ONCE: u32 = 8;

/// How often a thread that has left its ring looks what the kernel has done.
const LOOK_NS: u64 = 1_000_000;

/// `user_data` of the wait for `posted`; transfers have their addresses there.
const POSTED: u64 = 0;

impl Ring {
    /// Reads or writes; the running thread parks meanwhile, through signals. Gives the result and
    /// the time stamp ticks that it took; `None` if there is no ring.
    ///
    /// # Safety
    /// As for the system call that the work stands for.
    pub unsafe fn transfer(&self, work: Work) -> Option<(isize, u64)> {
        if Carrier::current().is_apart() {
            return None; // the ring's thread would act for the rest of the process
        }
        let transfers = &self.transfers;
        if !transfers.is_ready() {
            self.start();
            return None;
        }
        let thread = Carrier::current().thread();
        let job = Job {
            work,
            ticks: Cell::new(0),
            result: Cell::new(0),
        };
        let transfer = Transfer::new(job, thread.task_ref());
        thread.task.prepare();
        if !self.post(&transfer) {
            if !thread.task.claim(Wake::Retry) {
                let _ = switch::park(); // a signal has pushed it
            }
            return None;
        }
        let mut outcome = switch::park();
        while outcome != Wake::Woken {
            if transfers.is_done_or_prepares(&transfer) {
                break;
            }
            outcome = switch::park_through_signals();
        }
        Some((transfer.work.result.get(), transfer.work.ticks.get()))
    }

    #[cold]
    fn start(&self) {
        let is_free = self.transfers.is(State::None) && !self.is_served();
        let first = is_free && self.transfers.change(State::None, State::Starting);
        if first && kthread::spawn(ring_main, 0, STACK).is_err() {
            self.transfers.change(State::Starting, State::None);
        }
    }

    /// Ends the posting of transfers, and tells the ring's thread to leave.
    pub(crate) fn stop(&self) {
        self.transfers.refuse();
        kthread::futex_wake(self.transfers.address(), 1);
    }

    /// Returns true while the ring's thread may make calls for the ring.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::SeqCst) != 0
    }

    /// After [`Ring::stop`]: there may be a ring again.
    pub(crate) fn resume(&self) {
        self.transfers.change(State::Refused, State::None);
    }

    /// Returns false if there is no ring any more.
    fn post(&self, transfer: &Transfer<Job>) -> bool {
        // SAFETY: the transfer's thread is parked until it is done.
        let Some(unannounced) = (unsafe { self.transfers.post(transfer) }) else {
            return false;
        };
        // The next thread here is likely to post a transfer, too, unless threads compute.
        let alone = Carrier::current().queue.is_empty();
        if unannounced >= AT_ONCE || alone || PROCESS.first().has_computing() {
            self.announce();
        }
        true
    }

    /// Tells the ring's thread of transfers that it doesn't know of.
    #[inline(always)]
    pub(crate) fn announce(&self) {
        if self.transfers.has_unannounced() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.transfers.announce() {
            kthread::futex_wake(self.transfers.address(), 1);
        }
    }

    /// A transfer is done: its thread is to be pushed, unless a signal has done that.
    fn complete(&self, transfer: &Transfer<Job>, result: isize, woken: &TaskList) {
        let job = &transfer.work;
        job.result.set(result);
        job.ticks.set(timestamp().wrapping_sub(job.ticks.get()));
        if let Some(task) = self.transfers.complete(transfer) {
            woken.push(task);
        }
    }

    /// In the child of a fork: there is no ring; its memory isn't in the child either.
    pub(crate) fn reset(&self) {
        let Self { transfers, served } = self;
        // SAFETY: no other thread exists in the child.
        unsafe { transfers.reset() };
        served.store(0, Ordering::Relaxed);
    }
}

extern "C" fn ring_main(_: usize, stack: *mut u8) -> ! {
    // SAFETY: this thread is no carrier; only PREEMPT may interrupt it, for what every kernel
    // thread must do.
    unsafe {
        raddle_arch::set_gs_base(0);
        kthread::accept_only(&[PREEMPT]);
    }
    let ring = &PROCESS.ring;
    ring.served.store(1, Ordering::SeqCst);
    // In this order: the installer of a filter says that one is on its way, then stops the ring.
    let is_wanted = ring.transfers.is(State::Starting);
    let made = (is_wanted && !PROCESS.filters.is_any_coming())
        .then(|| make(ring.transfers.address()))
        .flatten();
    if let Some(mut queues) = made {
        let under_way = if ring.transfers.change(State::Starting, State::Ready) {
            serve(ring, &mut queues)
        } else {
            0
        };
        leave(ring, &mut queues, under_way);
        queues.unmap();
    } else {
        ring.transfers.change(State::Starting, State::Refused);
        ring.served.store(0, Ordering::SeqCst);
    }
    PROCESS.roster.leave();
    // SAFETY: no other thread uses this stack, and its own has left the roster.
    unsafe {
        kthread::accept_only(&[]);
        kthread::end([(stack, STACK), (null_mut(), 0)])
    }
}

fn make(word: *const u32) -> Option<Queues> {
    let mut queues = Queues::make(ENTRIES, COMPLETIONS, Rest::Anywhere).ok()?;
    if queues.can_wait_for(word) {
        Some(queues)
    } else {
        queues.unmake();
        None
    }
}

/// Serves until there is to be no ring any more. Returns how many transfers are under way then.
fn serve(ring: &Ring, queues: &mut Queues) -> usize {
    let transfers = &ring.transfers;
    let word = transfers.address();
    let mut armed = false;
    let mut under_way = 0;
    loop {
        let seen = transfers.begin_round();
        let mut taken = 0;
        while taken < AT_ONCE
            && let Some(transfer) = transfers.take()
        {
            transfer.work.ticks.set(timestamp());
            let address = core::ptr::from_ref(transfer).expose_provenance();
            queues.push_work(&transfer.work.work, address as u64);
            taken += 1;
        }
        under_way += taken as usize;
        if !armed {
            queues.push_wait(word, seen, POSTED);
            armed = true;
        }
        let Some(may_wait) = transfers.may_wait(seen) else {
            return under_way;
        };
        let entered = queues.enter(taken < AT_ONCE && may_wait);
        transfers.woke();
        let woken = TaskList::new();
        under_way -= reap(ring, queues, &woken, || armed = false);
        PROCESS.inject_all(woken, Cause::Kernel);
        if entered == Entered::Refused {
            return under_way;
        }
    }
}

/// Takes what is done. Returns how many transfers that were.
fn reap(ring: &Ring, queues: &mut Queues, woken: &TaskList, mut posted: impl FnMut()) -> usize {
    let mut count = 0;
    while let Some((data, result)) = queues.pop() {
        if data == POSTED {
            posted();
            continue;
        }
        // SAFETY: the kernel has done it once.
        unsafe { complete(ring, data, result as isize, woken) };
        count += 1;
    }
    count
}

/// # Safety
/// `data` names a transfer that isn't complete.
unsafe fn complete(ring: &Ring, data: u64, result: isize, woken: &TaskList) {
    // SAFETY: the transfer stays alive until it is completed, which is once.
    let transfer = unsafe { &*core::ptr::with_exposed_provenance::<Transfer<Job>>(data as usize) };
    ring.complete(transfer, result, woken);
}

/// See the module; that many transfers are under way.
#[cold]
fn leave(ring: &Ring, queues: &mut Queues, mut under_way: usize) {
    ring.transfers.change(State::Ready, State::Refused);
    ring.served.store(0, Ordering::SeqCst);
    let woken = TaskList::new();
    while let Some(data) = queues.take_back() {
        if data != POSTED {
            under_way -= 1;
            // SAFETY: the kernel never knew it.
            unsafe { complete(ring, data, err(errno::EAGAIN), &woken) };
        }
    }
    while let Some(transfer) = ring.transfers.take() {
        transfer.work.ticks.set(timestamp());
        ring.complete(transfer, err(errno::EAGAIN), &woken);
    }
    PROCESS.inject_all(woken, Cause::Kernel);
    while under_way != 0 {
        let woken = TaskList::new();
        under_way -= reap(ring, queues, &woken, || {});
        if woken.is_empty() {
            kthread::nap(LOOK_NS);
        }
        PROCESS.inject_all(woken, Cause::Kernel);
    }
}
