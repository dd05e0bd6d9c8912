//! Page waits: until a file's page is in memory, by an io_uring of each carrier's own.
//!
//! A read of the page cache that must not wait has been tried. It failed, and has told the disk
//! what to read. What is left is to wait until that is in memory, and to try again: the kernel then
//! copies on the thread's own carrier, and no other kernel thread has to run.
//!
//! 1. The carrier submits a read of one byte, the last of those that the thread wants, to its own
//!    io_uring; the thread parks. The byte isn't used. The request is submitted before the thread
//!    parks, so its number means the file that the thread means.
//! 2. The kernel finishes requests when the carrier's kernel thread *enters* the ring
//!    (IORING_SETUP_DEFER_TASKRUN), some at a time. While there are requests, the carrier enters it
//!    whenever it has no thread to run or looks around, whether it knows of something or not.
//! 3. Before it sleeps it looks at nothing of the ring's: it sleeps *in* the ring, which returns
//!    once a request is done, before or after. What else ends its sleep is a request as well: a
//!    wait for its wake word, or, if it is the poller, for the pump's epoll. Such a request stays
//!    until it is done, over many sleeps, so the setter of the wake word must wake all that wait
//!    for it.
//!
//! A request reads a byte, and not what the thread wants: it is only a hint that the thread should
//! try again, so that no thread depends on one carrier. The threads that wait by a carrier which
//! makes no switch (it waits in the kernel, or its thread computes), or gives its queue away, are
//! *relieved*: they go the way of threads without a ring to wait with. Sysmon does that at its
//! looks; it sleeps for long only if all carriers sleep, or are held since its last look at least,
//! and where threads are known to compute none waits here. A request that no thread waits for any
//! more keeps its place, and its byte, until it is done.
//!
//! No wake-up is lost: the kernel thread that waits for a request sleeps in the ring (3), comes to
//! it (2), or has its threads relieved; there is no fourth case. None of this relies on how much
//! the kernel does at a time, nor on when it says that there is more.
//!
//! A request holds its file open. The kernel lets go of it as the carrier's kernel thread enters
//! the ring; where that thread sits in a call of the program's, sysmon sends it a signal now and
//! then, and the handler enters ([`let_go`]). The call goes on.
//!
//! A waiter holds the descriptor's row ([`crate::io::pump`]): if the program closes the number, the
//! thread goes on with the file by one of its own.
//!
//! Where the kernel refuses (before Linux 6.7, `io_uring_disabled`, seccomp, no memory) there are
//! none, nor on carriers of bound threads and of further engines, nor under a policy that orders
//! all threads; [`crate::io::ring`] and [`crate::io::helpers`] read there. The child of a fork has
//! none at first. A carrier's ring ends with its kernel thread.

use crate::os::io_uring::{Entered, Queues, Rest, Work};
use crate::state::carrier::{Carrier, CarrierState, PREEMPT};
use crate::state::clock;
use crate::state::parts::pages::{Own, PLACES, Pages};
use crate::state::process::PROCESS;
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use raddle_arch::timestamp;
use raddle_sched::TaskList;
use raddle_sched::requests::{End, Requests, Wait};
use raddle_sched::timers::NEVER;
use raddle_sys::{mem, nr, sys};

/// `user_data` of the waits for the wake word and for the pump; others have their places there.
const WAKE_WORD: u64 = PLACES as u64;
const PUMP: u64 = WAKE_WORD + 1;
/// The shortest time between two adoptions (some 4 ms), and the longest (some 1 s).
const MIN_GAP_TICKS: u64 = 10_000_000;
const MAX_GAP_TICKS: u64 = 2_500_000_000;
/// How long a reminded carrier waits for its requests.
const LET_GO_NS: u64 = 1_000_000;
/// Requests of which the kernel isn't told: one, and those two.
const ENTRIES: usize = 4;
/// More than requests can be under way.
const COMPLETIONS: u32 = 2 * PLACES as u32;

impl Pages {
    /// Returns true if threads may be adopted again; then it counts as done. If the carrier that
    /// had all threads couldn't cope, adoption is tried more rarely.
    fn may_adopt(&self) -> bool {
        let now = timestamp();
        let gap = self.gap_ticks.load(Ordering::Relaxed).max(MIN_GAP_TICKS);
        if now.wrapping_sub(self.adopted_at.load(Ordering::Relaxed)) < gap {
            return false;
        }
        let next = match self.strained.swap(0, Ordering::Relaxed) {
            0 => MIN_GAP_TICKS,
            _ => (2 * gap).min(MAX_GAP_TICKS),
        };
        self.gap_ticks.store(next, Ordering::Relaxed);
        self.adopted_at.store(now, Ordering::Relaxed);
        true
    }

    pub(crate) fn own(&self, carrier: &Carrier) -> Option<&'static Own> {
        if !carrier.has_queue() || carrier.is_apart() {
            return None;
        }
        if !PROCESS.is_started() || carrier.engine().has_computing() {
            return None;
        }
        match own_of(carrier) {
            Some(own) if own.queues().is_some() => Some(own),
            _ if self.refused.load(Ordering::Relaxed) != 0 => None,
            own => self.start(carrier, own),
        }
    }

    #[cold]
    fn start(&self, carrier: &Carrier, own: Option<&'static Own>) -> Option<&'static Own> {
        let make = || {
            let mut queues = Queues::make(ENTRIES, COMPLETIONS, Rest::There).ok()?;
            // Finds out, too, whether a ring that can be made can be used.
            if queues.can_wait_for(carrier.wake_word.futex().as_ptr()) {
                own.or_else(|| make_own(carrier)).map(|own| (own, queues))
            } else {
                queues.unmake();
                None
            }
        };
        let started = PROCESS.filters.unless_coming(carrier, make)?;
        let Some((own, queues)) = started else {
            self.refused.store(1, Ordering::Relaxed);
            return None;
        };
        *own.queues() = Some(queues);
        Some(own)
    }

    /// In the child of a fork: there are no rings; their memory isn't in the child either.
    pub(crate) fn reset(&self) {
        let Self {
            refused,
            strained: _,
            adopted_at: _,
            gap_ticks: _,
        } = self;
        for carrier in PROCESS.all_carriers() {
            carrier.pages.store(null_mut(), Ordering::Relaxed);
        }
        refused.store(0, Ordering::Relaxed);
    }
}

fn make_own(carrier: &Carrier) -> Option<&'static Own> {
    const DONTFORK: usize = nr::MADV_DONTFORK as usize;
    let page = mem::map(mem::PAGE_SIZE).ok()?;
    let own = page.cast::<Own>();
    // SAFETY: a fresh page, large enough and aligned, that is never unmapped.
    let own = unsafe {
        sys!(nr::__NR_madvise, page, mem::PAGE_SIZE, DONTFORK);
        own.write(Own {
            queues: UnsafeCell::new(None),
            requests: AtomicU32::new(0),
            reminded: AtomicU64::new(0),
            finished: AtomicU32::new(0),
            has_word: Cell::new(false),
            has_pump: Cell::new(false),
            pages: Requests::new(),
            bytes: UnsafeCell::new([0; PLACES]),
        });
        &*own
    };
    let at = core::ptr::from_ref(own).cast_mut();
    carrier.pages.store(at, Ordering::Release);
    Some(own)
}

impl Own {
    /// On its carrier, which uses one reference at a time.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    fn queues(&self) -> &mut Option<Queues> {
        // SAFETY: the carrier's kernel thread alone comes here, and no caller keeps the reference
        // while it calls another that comes here.
        unsafe { &mut *self.queues.get() }
    }

    /// Gives a request to the kernel; on this carrier. Returns false if there is no place, or it
    /// refuses.
    pub(crate) fn submit(&self, fd: u32, offset: u64, wait: &Wait) -> bool {
        // SAFETY: the wait is on the stack of the running thread, which withdraws it before it
        // returns (`Pages::wait`), unless the place is given back below.
        let Some(place) = (unsafe { self.pages.begin(wait) }) else {
            return false;
        };
        let bytes = self.bytes.get().cast::<u8>().wrapping_add(place);
        let work = Work {
            is_write: false,
            fd,
            address: bytes.expose_provenance(),
            len: 1,
            offset,
        };
        let give = |queues: &mut Queues| {
            if !queues.is_told() {
                queues.enter(false); // what a sleep left that was interrupted
            }
            queues.is_told() && {
                queues.push_work(&work, place as u64);
                queues.submit_one()
            }
        };
        let carrier = Carrier::current();
        let is_submitted = PROCESS
            .filters
            .unless_coming(carrier, || self.queues().as_mut().is_some_and(give))
            .unwrap_or(false);
        if is_submitted {
            let requests = self.requests.load(Ordering::Relaxed) + 1;
            self.requests.store(requests, Ordering::Relaxed);
            self.finished.store(0, Ordering::Relaxed);
        } else {
            self.pages.give_back(place);
        }
        is_submitted
    }

    /// Enters the ring and pushes the threads of requests that are done; on this carrier.
    #[inline(never)]
    fn enter(&self, carrier: &Carrier, enter: impl FnOnce(&mut Queues) -> Entered) -> Entered {
        let enter = || self.queues().as_mut().map_or(Entered::Refused, enter);
        let entered = PROCESS.filters.unless_coming(carrier, enter);
        let entered = entered.unwrap_or(Entered::Refused);
        let woken = TaskList::new();
        while let Some((place, _)) = self.queues().as_mut().and_then(Queues::pop) {
            match place {
                WAKE_WORD => self.has_word.set(false),
                PUMP => self.has_pump.set(false),
                place => {
                    let left = self.requests.load(Ordering::Relaxed) - 1;
                    self.requests.store(left, Ordering::Relaxed);
                    self.pages.end(place as usize, &woken);
                }
            }
        }
        if entered == Entered::Refused {
            self.leave(&woken);
        }
        let copes = carrier
            .run_length
            .looked(woken.len() + carrier.queue.ring_len());
        if !copes && carrier.run_length.is_long() {
            PROCESS.pages.strained.store(1, Ordering::Relaxed);
        }
        PROCESS.unpark_list(woken, !copes);
        entered
    }

    /// The kernel doesn't let the ring be used any more (a filter that the program has installed,
    /// say): the ring is left as it is, since requests may still be done, and no thread waits by
    /// one again.
    #[cold]
    fn leave(&self, woken: &TaskList) {
        PROCESS.pages.refused.store(1, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst); // its signal handler
        let _ = self.queues().take();
        self.pages.end_all(End::Relieved, woken);
    }
}

#[inline(always)]
fn own_of(carrier: &Carrier) -> Option<&'static Own> {
    // SAFETY: null, or a page that is never unmapped.
    unsafe { carrier.pages.load(Ordering::Acquire).as_ref() }
}

/// The carrier's ring, if the kernel has requests for pages.
#[inline(always)]
fn waiting(carrier: &Carrier) -> Option<&'static Own> {
    own_of(carrier).filter(|own| own.requests.load(Ordering::Relaxed) != 0)
}

/// Returns true if the kernel holds files open for requests of the carrier's. On any thread.
pub(crate) fn owes(carrier: &Carrier) -> bool {
    waiting(carrier).is_some_and(|own| own.finished.load(Ordering::Relaxed) == 0)
}

/// Reminds a carrier, which sits in the kernel since its switch number `switches`, of what its ring
/// holds; by sysmon.
pub(crate) fn remind(carrier: &Carrier, switches: u64) {
    if let Some(own) = own_of(carrier) {
        own.reminded.store(switches + 1, Ordering::Release);
        carrier.send(PREEMPT);
    }
}

/// If the carrier was reminded, and still runs the same thread: waits for a moment until its
/// requests are done, and the kernel has let go of their files.
///
/// # Signal safety
/// For the carrier's handler.
pub fn let_go(carrier: &Carrier) {
    let Some(own) = waiting(carrier).filter(|_| carrier.asks.load(Ordering::Relaxed) == 0) else {
        return;
    };
    let switches = carrier.switches.load(Ordering::Relaxed);
    if own.reminded.swap(0, Ordering::Acquire) != switches + 1 {
        return;
    }
    let requests = own.requests.load(Ordering::Relaxed);
    let finish = || {
        // SAFETY: there are requests, and so there is a ring; what was interrupted doesn't enter
        // it, and only takes from it what this leaves alone.
        let queues = unsafe { &*own.queues.get() };
        let finish = |queues: &Queues| queues.finish(requests, PLACES as u64, LET_GO_NS);
        queues.as_ref().is_some_and(finish)
    };
    if PROCESS.filters.unless_coming(carrier, finish) == Some(true) {
        own.finished.store(1, Ordering::Relaxed);
    }
}

/// Makes the threads runnable that waited for pages by this carrier, on which it is called.
#[inline(always)]
pub(crate) fn look(carrier: &Carrier) {
    if let Some(own) = waiting(carrier) {
        own.enter(carrier, |queues| queues.enter(false));
    }
}

/// Sleeps until a page is there, or while the wake word is 0; false if there is none to wait for.
/// On this carrier.
pub(crate) fn sleep(carrier: &Carrier) -> bool {
    let Some(own) = waiting(carrier) else {
        return false;
    };
    own.enter(carrier, |queues| {
        if !own.has_word.replace(true) {
            queues.push_wait(carrier.wake_word.futex().as_ptr(), 0, WAKE_WORD);
        }
        queues.enter(true)
    });
    true
}

/// Sleeps until a page is there, the pump has events, or the deadline has come; on this carrier.
/// Returns true if the pump is to be asked, `None` if there is no page to wait for.
pub(crate) fn sleep_with_pump(carrier: &Carrier, deadline_ns: u64) -> Option<bool> {
    let own = waiting(carrier)?;
    let entered = own.enter(carrier, |queues| {
        if !own.has_pump.replace(true) {
            let [epoll, ..] = PROCESS.pump.own_descriptors();
            queues.push_poll(epoll, PUMP);
        }
        match deadline_ns {
            NEVER => queues.enter(true),
            _ => queues.enter_for(deadline_ns.saturating_sub(clock::now_ns())),
        }
    });
    Some(entered != Entered::Done || !own.has_pump.get())
}

/// Returns true if the carrier needs no help with the threads in its queue, which wait for pages
/// again and again. On any thread.
pub(crate) fn suffices(carrier: &Carrier) -> bool {
    let waits = own_of(carrier).map_or(0, |own| own.pages.waiting());
    waits != 0 && carrier.run_length.copes_with(carrier.queue.ring_len())
}

/// Returns true if threads wait in the carrier's queue behind one that has stopped to read: the
/// others that wait for pages by it will need help, too. On any thread.
pub(crate) fn is_held_up(carrier: &Carrier) -> bool {
    let has_waits = own_of(carrier).is_some_and(|own| own.pages.waiting() != 0);
    has_waits && !carrier.queue.is_empty() && carrier.run_length.is_held_up()
}

/// Before a carrier sleeps, on which it is called: takes over the threads that wait for pages by
/// carriers that sleep; they wait once more, by this one. Returns true if there are any.
pub(crate) fn adopt(carrier: &Carrier) -> bool {
    let here = own_of(carrier).map_or(0, |own| own.pages.waiting());
    if here == 0 || !carrier.run_length.is_of_short_turns() {
        return false;
    }
    let adopted = TaskList::new();
    for other in carrier.engine().carriers() {
        let own = own_of(other).filter(|own| {
            let there = own.pages.waiting();
            there != 0 && (there, other.id.get()) < (here, carrier.id.get())
        });
        if let Some(own) = own
            && matches!(other.state(), CarrierState::Idle | CarrierState::Polling)
            && other.run_length.is_of_short_turns()
            && PROCESS.pages.may_adopt()
        {
            own.pages.end_all(End::Adopted, &adopted);
        }
    }
    let any = !adopted.is_empty();
    PROCESS.unpark_list(adopted, false);
    any
}

/// The threads that wait for pages by a carrier go another way. On any thread.
pub(crate) fn relieve(carrier: &Carrier, woken: &TaskList) {
    let Some(own) = own_of(carrier).filter(|own| own.pages.waiting() != 0) else {
        return;
    };
    own.pages.end_all(End::Relieved, woken);
}

/// The carrier's kernel thread is about to end, and gives its ring back; on this carrier. Returns
/// false if that must wait for requests.
pub(crate) fn retire(carrier: &Carrier) -> bool {
    look(carrier);
    if waiting(carrier).is_some() {
        return false;
    }
    if let Some(own) = own_of(carrier) {
        let unmake = || own.queues().take().map(Queues::unmake);
        if PROCESS.filters.unless_coming(carrier, unmake).is_none() {
            let _ = own.queues().take().map(Queues::unmap);
        }
        own.has_word.set(false);
        own.has_pump.set(false);
    }
    true
}
