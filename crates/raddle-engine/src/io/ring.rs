//! The ring: reads and writes that wait for a disk, many at a time, by one kernel thread.
//!
//! A green thread leaves a *transfer* (on its own stack) and parks; the ring's thread puts all
//! transfers that are there into an io_uring by one system call, and wakes the threads of those
//! that are done. A helper for each would cost two switches of kernel threads a transfer; here many
//! share them.
//!
//! 1. A transfer is linked under the lock, then `posted` is raised.
//! 2. It is *announced*: `asleep` is taken; if it was made, `posted` is woken as a futex. A
//!    wake-up for each would cost more than the transfers, so one waits for others if its carrier
//!    has threads to run, none of which is known to compute: until there are eight, or the carrier
//!    has nothing else, or looks around. Sysmon announces what was left by a carrier that doesn't
//!    come to that, at its next look, within a millisecond.
//! 3. The ring's thread always has a wait for that futex in its ring. It reads `posted`, takes the
//!    transfers, sets `asleep`, looks at `posted` again, and waits in `io_uring_enter` only if that
//!    is unchanged. So either the ring's thread sees the transfer, or the poster sees `asleep`.
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
pub use crate::state::parts::ring::Ring;
use crate::state::parts::ring::{NONE, Posted, Transfer};
use crate::state::process::PROCESS;
use crate::state::wakers::Cause;
use core::cell::Cell;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;
use raddle_arch::timestamp;
use raddle_sched::{TaskList, Wake};
use raddle_sys::{err, errno};

const STACK: usize = 64 * 1024;
const ENTRIES: usize = 128;
const COMPLETIONS: u32 = 4096;
/// Transfers that are put into the ring before those that are done are looked at, and of which the
/// ring's thread is told together.
const AT_ONCE: u32 = 8;

const STARTING: u32 = 1;
const READY: u32 = 2;
const REFUSED: u32 = 3;

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
        if self.state.load(Ordering::Acquire) != READY {
            self.start();
            return None;
        }
        let thread = Carrier::current().thread();
        let transfer = Transfer {
            work,
            task: thread.task_ref(),
            ticks: Cell::new(0),
            result: Cell::new(0),
            done: Cell::new(false),
            next: Cell::new(null()),
        };
        thread.task.prepare();
        if !self.post(&transfer) {
            if !thread.task.claim(Wake::Retry) {
                let _ = switch::park(); // a signal has pushed it
            }
            return None;
        }
        let mut outcome = switch::park();
        while outcome != Wake::Woken {
            let list = self.list.lock();
            if transfer.done.get() {
                break;
            }
            // Under the lock, so that the answer wakes it.
            transfer.task.get().prepare();
            drop(list);
            outcome = switch::park_through_signals();
        }
        Some((transfer.result.get(), transfer.ticks.get()))
    }

    #[cold]
    fn start(&self) {
        let is_free = self.state.load(Ordering::Relaxed) == NONE && !self.is_served();
        let first = is_free && self.change(NONE, STARTING);
        if first && kthread::spawn(ring_main, 0, STACK).is_err() {
            self.change(STARTING, NONE);
        }
    }

    /// False, and nothing has changed, if the state is another one.
    fn change(&self, from: u32, to: u32) -> bool {
        let _list = self.list.lock();
        let is_so = self.state.load(Ordering::Relaxed) == from;
        if is_so {
            self.state.store(to, Ordering::SeqCst);
        }
        is_so
    }

    /// Ends the posting of transfers, and tells the ring's thread to leave.
    pub(crate) fn stop(&self) {
        {
            let _list = self.list.lock();
            self.state.store(REFUSED, Ordering::SeqCst);
        }
        self.posted.fetch_add(1, Ordering::SeqCst);
        kthread::futex_wake(self.posted.as_ptr(), 1);
    }

    /// Returns true while the ring's thread may make calls for the ring.
    pub(crate) fn is_served(&self) -> bool {
        self.served.load(Ordering::SeqCst) != 0
    }

    /// After [`Ring::stop`]: there may be a ring again.
    pub(crate) fn resume(&self) {
        self.change(REFUSED, NONE);
    }

    /// Returns false if there is no ring any more.
    fn post(&self, transfer: &Transfer) -> bool {
        let at = core::ptr::from_ref(transfer);
        let mut list = self.list.lock();
        if self.state.load(Ordering::Relaxed) != READY {
            return false;
        }
        // SAFETY: posted transfers are alive: their threads are parked until they are done.
        match unsafe { list.tail.as_ref() } {
            Some(tail) => tail.next.set(at),
            None => list.head = at,
        }
        list.tail = at;
        drop(list);
        self.posted.fetch_add(1, Ordering::SeqCst);
        let unannounced = self.unannounced.fetch_add(1, Ordering::SeqCst) + 1;
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
        if self.unannounced.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.unannounced.store(0, Ordering::SeqCst);
        if self.asleep.is_made() && self.asleep.take() {
            kthread::futex_wake(self.posted.as_ptr(), 1);
        }
    }

    /// Takes the oldest transfer.
    fn take(&self) -> Option<&Transfer> {
        let mut list = self.list.lock();
        // SAFETY: posted transfers are alive, until they are done.
        let transfer = unsafe { list.head.as_ref() }?;
        list.head = transfer.next.get();
        if list.head.is_null() {
            list.tail = null();
        }
        Some(transfer)
    }

    /// A transfer is done: its thread is to be pushed, unless a signal has done that.
    fn complete(&self, transfer: &Transfer, result: isize, woken: &TaskList) {
        let task = transfer.task;
        transfer.result.set(result);
        let took = timestamp().wrapping_sub(transfer.ticks.get());
        transfer.ticks.set(took);
        let list = self.list.lock();
        transfer.done.set(true);
        let claimed = task.get().claim(Wake::Woken);
        drop(list); // from here on the transfer may be gone
        if claimed {
            woken.push(task);
        }
    }

    /// In the child of a fork: there is no ring; its memory isn't in the child either.
    pub(crate) fn reset(&self) {
        let Self {
            state,
            served,
            list,
            posted: _,
            asleep,
            unannounced,
        } = self;
        // SAFETY: no other thread exists in the child.
        unsafe { list.break_lock() };
        *list.lock() = Posted {
            head: null(),
            tail: null(),
        };
        asleep.withdraw();
        unannounced.store(0, Ordering::Relaxed);
        served.store(0, Ordering::Relaxed);
        state.store(NONE, Ordering::Relaxed);
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
    let is_wanted = ring.state.load(Ordering::SeqCst) == STARTING;
    let made = (is_wanted && !PROCESS.filters.is_any_coming())
        .then(|| make(ring.posted.as_ptr()))
        .flatten();
    if let Some(mut queues) = made {
        let under_way = if ring.change(STARTING, READY) {
            serve(ring, &mut queues)
        } else {
            0
        };
        leave(ring, &mut queues, under_way);
        queues.unmap();
    } else {
        ring.change(STARTING, REFUSED);
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
    let word = ring.posted.as_ptr();
    let mut armed = false;
    let mut under_way = 0;
    loop {
        let seen = ring.posted.load(Ordering::SeqCst);
        ring.unannounced.store(0, Ordering::SeqCst);
        let mut taken = 0;
        while taken < AT_ONCE
            && let Some(transfer) = ring.take()
        {
            transfer.ticks.set(timestamp());
            let address = core::ptr::from_ref(transfer).expose_provenance();
            queues.push_work(&transfer.work, address as u64);
            taken += 1;
        }
        under_way += taken as usize;
        if !armed {
            queues.push_wait(word, seen, POSTED);
            armed = true;
        }
        ring.asleep.make();
        if ring.state.load(Ordering::SeqCst) != READY {
            return under_way;
        }
        let idle = taken < AT_ONCE && ring.posted.load(Ordering::SeqCst) == seen;
        let entered = queues.enter(idle);
        ring.asleep.withdraw();
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
    let transfer = unsafe { &*core::ptr::with_exposed_provenance::<Transfer>(data as usize) };
    ring.complete(transfer, result, woken);
}

/// See the module; that many transfers are under way.
#[cold]
fn leave(ring: &Ring, queues: &mut Queues, mut under_way: usize) {
    ring.change(READY, REFUSED);
    ring.served.store(0, Ordering::SeqCst);
    let woken = TaskList::new();
    while let Some(data) = queues.take_back() {
        if data != POSTED {
            under_way -= 1;
            // SAFETY: the kernel never knew it.
            unsafe { complete(ring, data, err(errno::EAGAIN), &woken) };
        }
    }
    while let Some(transfer) = ring.take() {
        transfer.ticks.set(timestamp());
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
