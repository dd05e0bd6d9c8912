//! Page waits: a thread waits until a file's page is in memory, by an io_uring of its carrier.
//!
//! A read of the page cache without waiting has failed, and has started the disk's read. The thread
//! waits until the page is in memory, and tries again. The kernel then copies on the thread's own
//! carrier, and no other kernel thread has to run.
//!
//! 1. The carrier submits a read of one byte, the last that the thread wants, to its own io_uring;
//!    then the thread parks. The byte isn't used. Since the request is submitted before the thread
//!    parks, its descriptor means the file that the thread means.
//! 2. The kernel finishes requests when the carrier's kernel thread *enters* the ring
//!    (IORING_SETUP_DEFER_TASKRUN), some at a time. While there are requests, the carrier enters
//!    the ring whenever it has no thread to run, and whenever it looks at timers and descriptors.
//! 3. A carrier with requests sleeps *in* the ring, which returns once a request is done, even one
//!    that was done before the sleep. Whatever else ends the sleep is a request, too: a wait for
//!    the carrier's wake word, or, for the poller, for the pump's epoll. Such a request stays until
//!    it is done, over many sleeps. So the setter of a wake word must wake all its waiters.
//!
//! A request is only a hint that the thread should try again: it reads a byte, and not what the
//! thread wants. So no thread depends on one carrier. If a carrier makes no switch, because it
//! waits in the kernel or its thread computes, or if it gives its queue away, the threads that wait
//! by its ring are *relieved*: they read in another way. Sysmon relieves them at its looks. It
//! sleeps for long only if all carriers sleep, or have been held since its last look; while threads
//! are known to compute, none waits here. A request that no thread waits for any more keeps its
//! place, and its byte, until it is done.
//!
//! No wake-up is lost. A carrier with requests sleeps in the ring (3), enters it (2), or has its
//! threads relieved: there is no fourth case. None of this relies on how many requests the kernel
//! finishes at a time, nor on when it reports that there are more.
//!
//! A request holds its file open. The kernel lets go of the file when the carrier's kernel thread
//! enters the ring. If that thread waits in a call of the program's, sysmon sends it a signal now
//! and then; the handler enters the ring ([`let_go`]), and the call goes on.
//!
//! A waiter holds the descriptor's entry ([`crate::io::pump`]). If the program closes the number,
//! the thread goes on with the file by a number of its own.
//!
//! Without the kernel's support (before Linux 6.7, `io_uring_disabled`, seccomp, no memory) there
//! are no such rings. Carriers of bound threads and of further engines have none, nor have carriers
//! under a policy that orders all threads. [`crate::io::ring`] and [`crate::io::helpers`] read
//! there. The child of a fork has no ring at first. A carrier's ring ends with its kernel thread.

use crate::os::io_uring::{Entered, Queues, Rest, Work};
use crate::state::carrier::{Carrier, CarrierState, PREEMPT};
use crate::state::clock;
use crate::state::parts::pages::{Own, PLACES, Pages};
use crate::state::process::PROCESS;
use crate::state::wakers::{self, Cause};
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
/// The entries of the submission queue: one request, and the waits for the wake word and for the
/// pump.
const ENTRIES: usize = 4;
/// The entries of the completion queue: more than requests can be under way.
const COMPLETIONS: u32 = 2 * PLACES as u32;

impl Pages {
    /// Returns true if threads may be adopted now, and notes the time of the adoption. After a
    /// carrier with all threads couldn't cope, the time between adoptions grows.
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

    /// Forgets all rings, in the child of a fork: neither the rings nor their memory are there.
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
    /// Returns the ring's queues. On its carrier, which uses one reference at a time.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    fn queues(&self) -> &mut Option<Queues> {
        // SAFETY: the carrier's kernel thread alone comes here, and no caller keeps the reference
        // while it calls another that comes here.
        unsafe { &mut *self.queues.get() }
    }

    /// Gives a request to the kernel. Returns false if there is no free place, or the kernel
    /// refuses. On this carrier.
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

    /// Enters the ring, and collects the threads of requests that are done. On this carrier.
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
        wakers::for_cause(Some(carrier), Cause::Kernel, || {
            PROCESS.unpark_list(woken, !copes);
        });
        entered
    }

    /// Gives up rings: the kernel doesn't let this one be used any more, for instance because of a
    /// filter that the program has installed. The ring stays as it is, since requests may still be
    /// done. No thread waits by a ring again.
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

/// Returns the carrier's ring, if the kernel has requests for pages there.
#[inline(always)]
fn waiting(carrier: &Carrier) -> Option<&'static Own> {
    own_of(carrier).filter(|own| own.requests.load(Ordering::Relaxed) != 0)
}

/// Returns true if the kernel holds files open for requests of the carrier's. On any thread.
pub(crate) fn holds_files(carrier: &Carrier) -> bool {
    waiting(carrier).is_some_and(|own| own.finished.load(Ordering::Relaxed) == 0)
}

/// Sends a signal to a carrier that has been in the kernel since its switch number `switches`, so
/// that its handler lets go of files ([`let_go`]). In sysmon.
pub(crate) fn remind(carrier: &Carrier, switches: u64) {
    if let Some(own) = own_of(carrier) {
        own.reminded.store(switches + 1, Ordering::Release);
        carrier.send(PREEMPT);
    }
}

/// Waits for a moment until the carrier's requests are done, and the kernel has let go of their
/// files, if sysmon has sent the carrier a reminder since its last switch.
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

/// Makes the threads runnable that wait for pages by this carrier, as far as their requests are
/// done. On this carrier.
#[inline(always)]
pub(crate) fn look(carrier: &Carrier) {
    if let Some(own) = waiting(carrier) {
        own.enter(carrier, |queues| queues.enter(false));
    }
}

/// Sleeps until a page is there or the wake word isn't 0. Returns false, without a sleep, if there
/// is no page to wait for. On this carrier.
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

/// Sleeps until a page is there, the pump has events, or the deadline has come. Returns true if the
/// pump is to be asked; `None`, without a sleep, if there is no page to wait for. On this carrier.
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

/// Returns true if other carriers should not steal from this one, because the threads in its queue
/// wait for pages again and again. On any thread.
pub(crate) fn is_exempt_from_stealing(carrier: &Carrier) -> bool {
    let waits = own_of(carrier).map_or(0, |own| own.pages.waiting());
    waits != 0 && carrier.run_length.copes_with(carrier.queue.ring_len())
}

/// Returns true if threads wait in the carrier's queue behind a thread that has stopped to read:
/// the threads that wait for pages by this carrier will need help, too. On any thread.
pub(crate) fn is_held_up(carrier: &Carrier) -> bool {
    let has_waits = own_of(carrier).is_some_and(|own| own.pages.waiting() != 0);
    has_waits && !carrier.queue.is_empty() && carrier.run_length.is_held_up()
}

/// Takes over the threads that wait for pages by carriers that sleep; they wait once more, by this
/// carrier's ring. Returns true if there are any. On this carrier, before it sleeps.
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

/// Relieves the threads that wait for pages by a carrier. On any thread.
pub(crate) fn relieve(carrier: &Carrier, woken: &TaskList) {
    let Some(own) = own_of(carrier).filter(|own| own.pages.waiting() != 0) else {
        return;
    };
    own.pages.end_all(End::Relieved, woken);
}

/// Gives the carrier's ring back, because its kernel thread is about to end. Returns false if that
/// must wait for requests. On this carrier.
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
