//! User-mode schedulers: threads that run other threads, their *UMS workers*, on their carrier.
//!
//! A UMS worker is a green thread like any other but for two things: where a wake-up puts it (onto
//! its completion list instead of a run queue), and what runs when it parks (the thread that
//! executed it, its *scheduler*, instead of the carrier's next). Nothing of the program's is called
//! here: a scheduler is a thread that continues behind its own call.
//!
//! 1. A scheduler claims a worker, then [executes](execute) it: it leaves a [`Lease`] with the
//!    worker, and its carrier switches to the worker. The scheduler is in no queue meanwhile; the
//!    taker of the lease makes it run again. While the lease is there, the worker stands for both:
//!    preempted or moved, it waits in run queues as other threads do.
//! 2. The worker parks, [yields](yield_to_scheduler) or ends: it takes the lease, says why, and its
//!    carrier switches back. Or sysmon takes the lease, since the worker sits in the kernel; the
//!    scheduler is posted then, and the worker goes to its list when it comes back.
//! 3. A waker puts the worker onto its list, perhaps before the worker has left its stack. A
//!    scheduler that claims it then finds `on_cpu` and is told to try again: no thread waits on a
//!    green stack.
//!
//! A carrier that is bound to a scheduler runs no worker: calls that block would be the kernel's
//! there. The worker is posted, and the scheduler sleeps on its own carrier.
//!
//! A worker that yields may *decide in place*, if its scheduler lets it: it takes the lease, calls
//! the scheduler's procedure itself, and [passes](pass) the lease to the next worker, without a
//! switch to the scheduler. While it decides it is an ordinary thread, which may be preempted, wait
//! and be woken as others; no scheduler can execute it
//! ([`raddle_interface::ThreadView::is_locked_as`]).
//!
//! Sysmon may take a lease that is newer than the one it looked for. So a worker without a lease
//! may run; it parks as other threads do, and to yield it goes through its list first.

use crate::kernel_threads::kthread;
use crate::scheduling::switch::{enter, leave};
use crate::scheduling::yields;
use crate::state::carrier::Carrier;
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use core::ptr::{NonNull, from_ref, null_mut};
use core::sync::atomic::Ordering;
use raddle_arch::switch;
use raddle_interface::{Ended, Lease, WorkerControl, WorkerState};
use raddle_sched::completion_list::Found;
use raddle_sched::{Link, TaskList, TaskRef};
use raddle_sys::{nr, sys};

pub mod path;

const ANY: u32 = u32::MAX;

/// The next thread that the calling one creates becomes the worker of `control`, or an ordinary one
/// (null).
pub fn next_is_worker(control: *const WorkerControl) {
    Carrier::current().thread().ums_next.set(control);
}

/// Makes a new thread the worker that its maker asked for, if it did.
pub fn adopt(thread: &Thread, maker: &Thread) {
    let control = maker.ums_next.replace(core::ptr::null()).cast_mut();
    thread.lease.store(null_mut(), Ordering::Relaxed);
    thread.leased_ns.store(0, Ordering::Relaxed);
    thread.ums.store(control, Ordering::Relaxed);
    // SAFETY: null, or a control that its maker keeps until the worker has ended.
    if let Some(control) = unsafe { control.as_ref() } {
        thread.is_routed();
        control.thread_id.store(thread.tid(), Ordering::Relaxed);
        let storage = thread.fs.get() as usize;
        control.storage.store(storage, Ordering::Relaxed);
        control
            .thread
            .store(thread.as_ptr().cast(), Ordering::Release);
    }
}

/// Runs a claimed worker on the calling thread's carrier, until it parks, yields or ends: `lease`
/// says which. The calling thread is no worker. [`path`] is the short way.
pub fn execute(control: &WorkerControl, lease: &Lease) {
    breathe(path::BREATH);
    let carrier = Carrier::current();
    let own = carrier.thread();
    lease.scheduler.set(own.as_ptr().cast());
    let worker = control.thread.load(Ordering::Relaxed).cast::<Thread>();
    // SAFETY: a claimed worker has a thread.
    let worker = unsafe { &*worker };
    own.waits_for(WaitKind::OTHER, 0, 0);
    let lease = from_ref(lease).cast_mut();
    worker.lease.store(lease, Ordering::Release);
    if !carrier.is_bound() {
        // SAFETY: the worker is the caller's, off its stack, as the claim found; this thread is in
        // no queue, and continues when the lease is taken.
        unsafe { change(carrier, own, worker) };
    } else {
        PROCESS.post(worker.task_ref());
        leave(carrier, own); // until the lease's taker posts this thread
    }
    look_at_signals(own);
}

/// Gives the carrier to `next`; returns when `own`, which runs, was given one again.
///
/// # Safety
/// `next` must be the caller's, and off its stack; `own` must be where another thread finds it.
#[inline(always)]
unsafe fn change(carrier: &Carrier, own: &Thread, next: &Thread) {
    enter(carrier, next);
    // SAFETY: the caller's promise; the thread that takes `own` from there looks at `on_cpu`.
    unsafe {
        switch(
            own.context.as_ptr(),
            next.context.get(),
            next.fs.get(),
            own.task.on_cpu.as_ptr(),
        );
    }
}

/// The calling thread runs again: signals may have come meanwhile.
#[inline(always)]
pub fn look_at_signals(own: &Thread) {
    if own.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// Schedulers switch past the carrier's own look at its queue, timers and descriptors; so they let
/// others run when the count of switches has none of the bits of `rhythm`.
#[inline(always)]
pub fn breathe(rhythm: u64) {
    let carrier = Carrier::current();
    let switches = carrier.switches.load(Ordering::Relaxed);
    if switches & rhythm == 0 && !carrier.is_bound() {
        yields::yield_now();
    }
}

/// Gives the carrier back to the scheduler; returns when the worker was executed again. Returns
/// false if the calling thread is no worker. [`path`] is the short way.
pub fn yield_to_scheduler(parameter: usize) -> bool {
    loop {
        let carrier = Carrier::current();
        let thread = carrier.thread();
        let done = hand_back(carrier, thread, Ended::Yielded, parameter);
        if !done {
            if !is_worker(thread) {
                return false;
            }
            list(thread);
            leave(carrier, thread);
        }
        look_at_signals(thread);
        if done {
            return true;
        }
    }
}

/// The calling thread has taken `lease` and decided: `next`, a claimed worker or the caller itself,
/// runs. Returns when the caller is executed again. [`path`] is the short way.
pub fn pass(next: &Thread, lease: &Lease) {
    breathe(path::IN_PLACE); // before others can execute the caller
    let carrier = Carrier::current();
    let own = carrier.thread();
    own.ums.store(lease.worker.get(), Ordering::Release);
    let at = from_ref(lease).cast_mut();
    next.lease.store(at, Ordering::Release); // from here on the lease is its taker's
    if core::ptr::eq(own, next) {
        let switches = carrier.switches.load(Ordering::Relaxed);
        carrier.switches.store(switches + 1, Ordering::Relaxed); // it may be another worker now
        return;
    }
    if !carrier.is_bound() {
        // SAFETY: the next one is claimed and off its stack, as the claim found; the caller belongs
        // to the thread that saw it yield.
        unsafe { change(carrier, own, next) }
    } else {
        PROCESS.post(next.task_ref());
        leave(carrier, own);
    }
    look_at_signals(own);
}

/// The calling worker takes its lease if that lets it decide; else null.
pub fn take_lease_to_decide() -> *const Lease {
    let own = Carrier::current().thread();
    let at = own.lease.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the scheduler keeps the lease until it continues, for which this is the only
    // permission.
    let Some(lease) = (unsafe { at.as_ref() }) else {
        return core::ptr::null();
    };
    if lease.decide.is_none() || !is_worker(own) {
        own.lease.store(at, Ordering::Release); // as if it had just been left with this worker
        return core::ptr::null();
    }
    lease.worker.set(own.ums.load(Ordering::Relaxed));
    own.ums.store(null_mut(), Ordering::Release);
    at
}

/// The calling thread has taken `lease`, and its scheduler goes on. Returns when the caller is
/// executed again.
pub fn return_lease(lease: &Lease) {
    let carrier = Carrier::current();
    let own = carrier.thread();
    own.ums.store(lease.worker.get(), Ordering::Release);
    hand_over(carrier, own, end_lease(lease, Ended::Yielded, 0));
    look_at_signals(own);
}

/// `sched_yield(2)`: a worker lets its scheduler choose, any other thread the carrier.
#[inline(always)]
pub fn sched_yield() {
    let thread = Carrier::current().thread();
    if thread.ums.load(Ordering::Relaxed).is_null() || !yield_to_scheduler(0) {
        yields::yield_now();
    }
}

/// The control of the calling thread, null if it is no worker.
pub fn current() -> *const WorkerControl {
    let thread = Carrier::current().thread();
    if is_worker(thread) {
        thread.ums.load(Ordering::Relaxed)
    } else {
        core::ptr::null()
    }
}

/// Returns true for a UMS worker; false if it has got a kernel thread of its own, and so has left
/// its scheduler for good.
fn is_worker(thread: &Thread) -> bool {
    !thread.ums.load(Ordering::Relaxed).is_null() && thread.bound.load(Ordering::Relaxed).is_null()
}

/// A worker parks: its scheduler continues if it has one, else the carrier's next.
#[cold]
pub(crate) fn leave_parked(carrier: &Carrier, thread: &Thread) {
    if !hand_back(carrier, thread, Ended::Parked, 0) {
        leave(carrier, thread);
    }
}

/// A claimed worker computes for `quantum_ns` at most each time that it is executed; 0 for ever.
pub fn limit(control: &WorkerControl, quantum_ns: u64) {
    let worker = control.thread.load(Ordering::Relaxed).cast::<Thread>();
    // SAFETY: null, or a thread, which lives in type-stable memory.
    if let Some(worker) = unsafe { worker.as_ref() } {
        worker.leased_ns.store(quantum_ns, Ordering::Relaxed);
    }
}

/// The running thread is to give way, and only its scheduler wants its carrier: the scheduler goes
/// on, if it set a quantum. Returns when the worker is executed again; false if there is none to
/// tell.
pub(crate) fn preempted(carrier: &Carrier, thread: &Thread) -> bool {
    if thread.leased_ns.load(Ordering::Relaxed) == 0 {
        return false;
    }
    thread.waits_for(WaitKind::YIELD, 0, 0);
    hand_back(carrier, thread, Ended::Preempted, 0)
}

/// What the scheduler of the thread on `carrier` lets it compute; `None` for ever.
pub(crate) fn quantum_on(carrier: &Carrier) -> Option<u64> {
    let thread = carrier.thread_or_none().filter(|_| carrier.is_leased())?;
    Some(thread.leased_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)
}

/// Takes the lease, and lets the scheduler continue in the worker's place; returns when the worker
/// runs again. Returns false if there was no lease.
fn hand_back(carrier: &Carrier, thread: &Thread, end: Ended, parameter: usize) -> bool {
    let Some(scheduler) = take_lease(thread, end, parameter) else {
        return false;
    };
    hand_over(carrier, thread, scheduler);
    true
}

/// The running thread has taken the lease of `scheduler`, which goes on in its place.
fn hand_over(carrier: &Carrier, thread: &Thread, scheduler: &Thread) {
    match unless_misplaced(scheduler, carrier) {
        // SAFETY: the taker of the lease owns the scheduler, which left its stack before the worker
        // could run; the worker is its waker's, or its scheduler's.
        Some(scheduler) => unsafe { change(carrier, thread, scheduler) },
        None => leave(carrier, thread),
    }
}

/// Takes the lease, if there is one, and says why it ends.
fn take_lease(thread: &Thread, end: Ended, parameter: usize) -> Option<&'static Thread> {
    if thread.lease.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let lease = thread.lease.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the scheduler keeps the lease on its stack until it continues, for which this is the
    // only permission.
    let lease = unsafe { lease.as_ref() }?;
    Some(end_lease(lease, end, parameter))
}

/// Says why a taken lease ends. Returns the scheduler.
fn end_lease(lease: &Lease, end: Ended, parameter: usize) -> &'static Thread {
    lease.end.set(end);
    lease.parameter.set(parameter);
    let scheduler = lease.scheduler.get().cast::<Thread>();
    // SAFETY: threads live in type-stable memory.
    unsafe { &*scheduler }
}

/// The scheduler, if it can continue on `carrier`; else it is posted.
fn unless_misplaced<'a>(scheduler: &'a Thread, carrier: &Carrier) -> Option<&'a Thread> {
    let bound = carrier.bound.load(Ordering::Relaxed);
    if scheduler.was_bound_to_other(carrier) || !bound.is_null() && bound != scheduler.as_ptr() {
        PROCESS.post(scheduler.task_ref());
        return None;
    }
    Some(scheduler)
}

/// `carrier` sits in the kernel: if what it runs is a worker, its scheduler goes on without it. In
/// sysmon.
///
/// [`path`] takes leases without a swap. That is safe here since a carrier that sleeps after it was
/// told that it is watched sees so when it goes on; and one that sleeps in the middle of that, by a
/// page fault, has said so before.
pub(crate) fn replace(carrier: &Carrier) {
    if !carrier.is_leased() {
        return;
    }
    carrier.watched.store(1, Ordering::SeqCst);
    if kthread::is_waiting(carrier.kernel_tid.load(Ordering::Relaxed))
        && let Some(thread) = carrier.thread_or_none()
        && thread.task.on_cpu.load(Ordering::Acquire) != path::HANDS_BACK
        && let Some(scheduler) = take_lease(thread, Ended::InKernel, 0)
    {
        PROCESS.post(scheduler.task_ref());
    }
    carrier.watched.store(0, Ordering::Release);
}

/// The running thread has come back from the kernel. Returns true if its scheduler didn't wait for
/// it: it is on its list then, and must leave the carrier.
pub(crate) fn came_back(thread: &Thread) -> bool {
    let is_stray = is_worker(thread) && thread.lease.load(Ordering::Relaxed).is_null();
    if is_stray {
        thread.waits_for(WaitKind::YIELD, 0, 0);
        list(thread);
    }
    is_stray
}

/// Puts a worker that was woken onto its completion list. Returns false if `task` is none.
#[cold]
pub(crate) fn woken(task: TaskRef) -> bool {
    let thread = Thread::of(task);
    let is_worker = is_worker(thread);
    if is_worker {
        list(thread);
    }
    is_worker
}

fn list(thread: &Thread) {
    push(thread.ums.load(Ordering::Relaxed), WorkerState::LISTED);
}

/// Lists the worker in that state. Neither it nor the list is touched after that: its taker may
/// free both.
fn push(at: *mut WorkerControl, state: u32) {
    let Some(item) = NonNull::new(at.cast::<Link>()) else {
        return; // no worker
    };
    // SAFETY: a worker's control lives until it was listed as ended and taken; it names a list that
    // lives as long as it does.
    let (control, list) = unsafe { (&*at, &*(*at).list) };
    let (word, event) = (list.ready.word(), list.event);
    control.state.set(state);
    // SAFETY: a worker that runs, waits or was just woken is in no list.
    let found = unsafe { list.ready.push(item) };
    if found == Found::Items {
        return;
    }
    if event >= 0 {
        let one = 1u64;
        // SAFETY: eight bytes of a live value into the list's own eventfd, which never blocks.
        unsafe { sys!(nr::__NR_write, event, &raw const one, 8usize) };
    }
    if found == Found::Sleepers {
        let woken = TaskList::new();
        let word = word.expose_provenance();
        PROCESS.futexes.wake(word, usize::MAX, ANY, &woken);
        PROCESS.unpark_all(woken);
    }
}

/// What is left to do once a thread has ended.
pub(crate) struct Last {
    control: *mut WorkerControl,
    scheduler: Option<&'static Thread>,
}

/// Before the slot of an exiting thread may be used again, on the carrier's own stack.
pub(crate) fn ends(thread: &Thread) -> Last {
    if thread.ums.load(Ordering::Relaxed).is_null() {
        return Last {
            control: null_mut(),
            scheduler: None,
        };
    }
    let control = thread.ums.swap(null_mut(), Ordering::Relaxed);
    Last {
        control,
        scheduler: take_lease(thread, Ended::Exited, 0),
    }
}

impl Last {
    /// Lists the worker as ended, and gives back the scheduler that is to continue here.
    pub(crate) fn finish(self, carrier: &Carrier) -> Option<&'static Thread> {
        push(self.control, WorkerState::ENDED);
        unless_misplaced(self.scheduler?, carrier)
    }
}
