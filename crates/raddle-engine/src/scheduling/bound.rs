//! Bound threads: a carrier that runs one green thread and nothing else.
//!
//! Such a carrier finds its thread in its mailbox and sleeps on its wake word between. It ends with
//! its thread, in one of two ways: the thread exits on it, or the thread, which was bound by
//! another one, exits elsewhere before it ever came here, and says so ([`Carrier::retired`]).
//!
//! To end: leave the roster, block all signals, route those that came until then, give the slot
//! back, unmap the stacks, exit. In this order, since an order of the roster is answered with
//! signals open, and since another thread may use the slot from then on.
//!
//! A thread may be bound by another while it exits. The binder looks whether the thread lives,
//! stores the carrier and looks again; the exiting thread says that it exits, and then takes the
//! carrier. So one of the two sees to the carrier, and no carrier waits for a thread that is gone.
//! Meanwhile the slot keeps its thread: the next one there must neither get the carrier nor forget
//! it.

use crate::kernel_threads::kthread;
use crate::scheduling::idle;
use crate::scheduling::switch::{look_around, move_away, pick};
use crate::state::attributes::Attributes;
use crate::state::carrier::{Carrier, CarrierState, Source};
use crate::state::clock;
use crate::state::events;
use crate::state::process::{PROCESS, Process};
use crate::state::thread::{Life, Thread};
use core::ptr::null_mut;
use core::sync::atomic::{Ordering, fence};
use raddle_arch::pause;
use raddle_sys::abi::CloneArgs;
use raddle_sys::{err, errno, nr, sys};

impl Process {
    /// Gives `thread` a carrier of its own, which runs nothing else; from its next wait, yield or
    /// preemption on, or once another carrier than its last one picks it, as for a thread that
    /// hasn't run yet. See [`Process::call_home`] for one that runs.
    ///
    /// # Errors
    /// EAGAIN.
    pub fn bind(&self, thread: &Thread) -> Result<(), isize> {
        self.bind_to(thread, None).map_err(|_| err(errno::EAGAIN))
    }

    /// As [`Process::bind`], with a kernel thread of the kind that a program asked for by `clone3`:
    /// one that shares less with the others is apart from them.
    ///
    /// # Errors
    /// What the kernel says of that; EAGAIN or ENOMEM.
    pub fn bind_as(&self, thread: &Thread, asked: &CloneArgs) -> Result<(), isize> {
        self.bind_to(thread, Some(asked))
    }

    fn bind_to(&self, thread: &Thread, asked: Option<&CloneArgs>) -> Result<(), isize> {
        let tid = thread.tid();
        let maker = Carrier::current();
        let carrier = self.new_carrier(self.first())?;
        carrier.bound.store(thread.as_ptr(), Ordering::Relaxed);
        carrier.set_source(Source::Mailbox);
        carrier.apart.set(maker.apart.get());
        carrier.own_files.set(maker.own_files.get());
        if let Some(asked) = asked {
            carrier.become_as(asked.flags);
        }
        self.start_carrier_as(carrier, asked)?;
        let own = core::ptr::from_ref(carrier).cast_mut();
        let exchange = |from, to| {
            let done = thread
                .bound
                .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
            done.is_ok()
        };
        let lives = || thread.life() == Life::Live && thread.tid() == tid;
        let is_given = self.threads.with_slots_kept(|| {
            // Not if it has ended, or is bound already. If it ends now, either it takes the
            // carrier, or it hasn't seen it.
            lives() && exchange(null_mut(), own) && (lives() || !exchange(own, null_mut()))
        });
        if is_given {
            events::bound(thread, carrier);
        } else {
            self.retire_carrier(carrier);
        }
        thread.is_routed();
        Ok(())
    }

    /// Makes a thread that has been bound while it ran on another carrier leave that at once, and
    /// waits for it. One that sits in the kernel there, and one that runs too late to be seen, goes
    /// home when it comes back, or when sysmon sees it compute.
    ///
    /// # Blocking
    /// The carrier, for a millisecond at most; for ten while another carrier is about to run the
    /// thread or to leave it, and has no CPU or waits for a page.
    pub fn call_home(&self, thread: &Thread) {
        const PATIENCE_NS: u64 = 1_000_000;
        const PATIENCE_IN_SWITCH_NS: u64 = 10_000_000;
        let from_ns = clock::now_ns();
        let mut asked = None;
        fence(Ordering::SeqCst);
        loop {
            let patience_ns = match settled_whereabouts(thread) {
                Whereabouts::Home => break,
                Whereabouts::InSwitch => PATIENCE_IN_SWITCH_NS,
                Whereabouts::On(carrier) => {
                    let switches = carrier.switches.load(Ordering::Relaxed);
                    let at = Some((carrier.id.get(), switches));
                    if asked != at && computes(carrier) {
                        asked = at;
                        carrier.preempt(switches);
                    }
                    PATIENCE_NS
                }
            };
            if clock::now_ns() - from_ns > patience_ns {
                break;
            }
            // SAFETY: no memory is involved.
            unsafe { sys!(nr::__NR_sched_yield) };
        }
    }

    /// Ends a bound thread's carrier that waits for a thread that will not come.
    fn retire_carrier(&self, carrier: &Carrier) {
        carrier.retired.store(1, Ordering::SeqCst);
        self.wake_carrier(carrier);
    }
}

/// A thread has ended on `carrier`, perhaps its own; `own` is its own, if it has one.
pub(crate) fn thread_ended(carrier: &Carrier, own: *mut Carrier) {
    if carrier.is_bound() {
        end(carrier); // it has nothing else to run
    }
    // SAFETY: null or a carrier that waits for this thread.
    if let Some(own) = unsafe { own.as_ref() } {
        PROCESS.retire_carrier(own);
    }
}

/// Takes its own carrier from an exiting thread, which has said that it exits. A binder looks for
/// that after it has stored the carrier (both SeqCst), so that either this call finds the carrier,
/// or the binder takes it back.
pub(crate) fn take_own(thread: &Thread) -> *mut Carrier {
    let left = thread.away_from.load(Ordering::Relaxed); // the thread's own to change
    let bound = if thread.bound.load(Ordering::SeqCst).is_null() {
        null_mut()
    } else {
        thread.bound.swap(null_mut(), Ordering::SeqCst)
    };
    if bound.is_null() {
        return left;
    }
    retire_left(left);
    bound
}

/// The thread was bound anew while it had left its own carrier.
fn retire_left(left: *mut Carrier) {
    // SAFETY: null, or a carrier that waits for a thread which has let go of it.
    if let Some(left) = unsafe { left.as_ref() } {
        PROCESS.retire_carrier(left);
    }
}

/// The running thread is green until [`bind_again`], and its own carrier waits. Does nothing unless
/// the thread is bound because it didn't ask to be green: its kernel thread is as any other then.
pub fn unbind() {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    if !PROCESS.is_explicit() || carrier.is_apart() {
        return;
    }
    let own = core::ptr::from_ref(carrier).cast_mut();
    let is_own = thread.bound.load(Ordering::Relaxed) == own;
    if !is_own || thread.attributes.get() != Attributes::DEFAULT {
        return;
    }
    thread.away_from.store(own, Ordering::Relaxed);
    thread.bound.store(null_mut(), Ordering::SeqCst);
    thread.is_unbound();
    move_away(|| ());
}

/// Gives the running thread the carrier back that it has left. Returns true if it had left one.
pub fn bind_again() -> bool {
    let thread = Carrier::current().thread();
    if thread.away_from.load(Ordering::Relaxed).is_null() {
        return false;
    }
    let left = thread.away_from.swap(null_mut(), Ordering::Relaxed);
    let (seqcst, no) = (Ordering::SeqCst, null_mut());
    match thread.bound.compare_exchange(no, left, seqcst, seqcst) {
        Ok(_) => {
            thread.is_routed();
            move_away(|| ());
        }
        Err(_) => retire_left(left), // it was bound anew meanwhile
    }
    true
}

impl Carrier {
    /// Returns true if this carrier runs one green thread and nothing else.
    #[inline(always)]
    pub fn is_bound(&self) -> bool {
        !self.bound.load(Ordering::Relaxed).is_null()
    }
}

impl Thread {
    /// Returns true if this thread has a carrier of its own. Acquire, as for a use of that carrier.
    #[inline(always)]
    pub fn is_bound(&self) -> bool {
        !self.bound.load(Ordering::Acquire).is_null()
    }
}

/// Where a thread that has a carrier of its own is.
enum Whereabouts<'a> {
    /// On its own carrier, or on none.
    Home,
    /// A carrier is about to run the thread, or has not left it yet.
    InSwitch,
    /// On another carrier.
    On(&'a Carrier),
}

/// As [`whereabouts`], after some microseconds if the thread seems to be at home. A carrier marks
/// the thread and then looks at the binding ([`Thread::is_taken_by`]), without a fence. Its mark
/// may thus reach this CPU after its look, by less than a microsecond.
fn settled_whereabouts(thread: &Thread) -> Whereabouts<'_> {
    const LOOKS: u32 = 64;
    for _ in 0..LOOKS {
        match whereabouts(thread) {
            Whereabouts::Home => pause(),
            away => return away,
        }
    }
    Whereabouts::Home
}

fn whereabouts(thread: &Thread) -> Whereabouts<'_> {
    if thread.task.on_cpu.load(Ordering::Acquire) == 0 {
        return Whereabouts::Home;
    }
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { thread.carrier.load(Ordering::Relaxed).as_ref() };
    let runs = |carrier: &&Carrier| {
        let running = carrier.thread_or_none();
        running.is_some_and(|running| core::ptr::eq(running, thread))
    };
    match carrier.filter(runs) {
        None => Whereabouts::InSwitch,
        Some(carrier) if thread.strays_on(carrier) => Whereabouts::On(carrier),
        Some(_) => Whereabouts::Home,
    }
}

/// Returns true if the carrier's kernel thread uses its CPU: a signal to one that waits would
/// interrupt what the program waits for.
fn computes(carrier: &Carrier) -> bool {
    let tid = carrier.kernel_tid.load(Ordering::Relaxed);
    kthread::cpu_ns(tid) != kthread::cpu_ns(tid)
}

/// Takes the running thread's carrier from it, if it was lent; the carrier ends at its next look.
pub(crate) fn give_up(carrier: &Carrier, thread: &Thread) -> bool {
    thread.attributes.with_lock(|| {
        let lent = carrier.lent.swap(0, Ordering::Relaxed) != 0;
        if lent {
            carrier.apart.set(0);
            thread.bound.store(null_mut(), Ordering::Release);
            thread.is_unbound();
            carrier.retired.store(1, Ordering::SeqCst);
        }
        lent
    })
}

pub(crate) fn wait_for_mail<'a>(carrier: &Carrier) -> &'a Thread {
    loop {
        carrier.wake_word.clear();
        if carrier.attention.swap(0, Ordering::Relaxed) != 0 {
            (PROCESS.hooks().route_signals)();
        }
        if let Some(thread) = pick(carrier) {
            return thread;
        }
        if carrier.retired.load(Ordering::SeqCst) != 0 {
            end(carrier);
        }
        carrier.set_state(CarrierState::Idle);
        sleep(carrier);
        carrier.set_state(CarrierState::Running);
    }
}

/// A bound thread's deadline is its carrier's to keep: there may be no poller.
fn sleep(carrier: &Carrier) {
    // SAFETY: the carrier's bound thread lives in type-stable memory.
    let thread = unsafe { carrier.bound.load(Ordering::Relaxed).as_ref() };
    // A thread that runs on another carrier still has the deadline of its last wait.
    let waits = thread.filter(|thread| thread.task.is_waiting());
    let deadline_ns = waits.map_or(0, |thread| thread.deadline_ns.load(Ordering::Relaxed));
    if deadline_ns == 0 {
        return kthread::futex_wait(carrier.wake_word.futex().as_ptr(), 0);
    }
    let left = deadline_ns.saturating_sub(clock::now_ns());
    if left == 0 || kthread::futex_wait_for(carrier.wake_word.futex().as_ptr(), 0, left) {
        look_around(carrier);
    }
}

/// Ends the carrier's kernel thread, on which it is called; see the module.
pub(crate) fn end(carrier: &Carrier) -> ! {
    if carrier.state() != CarrierState::Ended {
        carrier.set_state(CarrierState::Idle);
    }
    PROCESS.roster.leave();
    loop {
        // SAFETY: no handler runs here from now on; routing may open the mask again.
        unsafe { kthread::accept_only(&[]) };
        if carrier.arrivals.is_empty() {
            break;
        }
        (PROCESS.hooks().route_signals)();
    }
    idle::give_queue_away(carrier); // threads that a signal woke
    let stacks = carrier.take_stacks();
    PROCESS.give_back(carrier);
    // SAFETY: of the two stacks this kernel thread uses the first, for the last time, and no signal
    // can reach the other.
    unsafe { kthread::end(stacks) }
}
