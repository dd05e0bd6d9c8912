//! User-mode schedulers: threads that run other threads, their *UMS workers*, on their carrier.
//!
//! A UMS worker is a green thread that differs from others in two points. A wake-up puts it onto
//! its completion list instead of a run queue. When it parks, the thread that executed it, its
//! *scheduler*, runs next, instead of the carrier's next thread. No function of the program's is
//! called here: a scheduler is a thread that continues behind its own call.
//!
//! 1. A scheduler claims a worker, then [executes](execute) it: it leaves a [`SchedulerToken`] with
//!    the worker, and its carrier switches to the worker. The scheduler is in no queue meanwhile.
//!    The taker of the token makes the scheduler run again. A worker with a token that is preempted
//!    or moved waits in run queues as other threads do, and keeps the token.
//! 2. The worker parks, [yields](yield_to_scheduler) or ends. It takes the token, notes the reason
//!    there, and its carrier switches back. If the worker waits in the kernel instead, sysmon takes
//!    the token and posts the scheduler; the worker goes to its list when it comes back.
//! 3. A waker puts the worker onto its list, perhaps before the worker has left its stack. A
//!    scheduler that claims the worker then finds `on_cpu` set, and is told to try again: no thread
//!    waits on a green stack.
//!
//! A carrier that is bound to a scheduler runs no worker, because calls of a bound thread block in
//! the kernel. The worker is posted, and the scheduler sleeps on its own carrier.
//!
//! A worker that yields may *decide in place*, if its scheduler lets it. It takes the token, calls
//! the scheduler's procedure itself, and [passes](pass) the token to the next worker, without a
//! switch to the scheduler. While the worker decides, it is an ordinary thread, which may be
//! preempted, wait and be woken as others. No scheduler can execute it meanwhile
//! ([`raddle_interface::ThreadView::is_locked_as`]).
//!
//! Sysmon may take a token that is newer than the one that it looked for, of a worker that runs. A
//! worker without a token parks as other threads do; to yield, it goes through its list.

use crate::kernel_threads::kthread;
use crate::scheduling::switch::{enter, leave};
use crate::scheduling::yields;
use crate::state::carrier::Carrier;
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use core::ptr::{NonNull, from_ref, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::switch;
use raddle_interface::{Ended, SchedulerToken, WorkerControl, WorkerState};
use raddle_sched::completion_list::Found;
use raddle_sched::{Link, TaskList, TaskRef};
use raddle_sys::{nr, sys};

pub mod path;

const ANY: u32 = u32::MAX;

/// Makes the next thread that the calling thread creates the worker of `control`; an ordinary
/// thread if that is null.
pub fn next_is_worker(control: *const WorkerControl) {
    Carrier::current().thread().ums_next.set(control);
}

/// Makes a new thread the worker that its maker asked for, if it did.
pub fn adopt(thread: &Thread, maker: &Thread) {
    let control = maker.ums_next.replace(core::ptr::null()).cast_mut();
    thread.scheduler_token.store(null_mut(), Ordering::Relaxed);
    thread.worker_quantum_ns.store(0, Ordering::Relaxed);
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

/// Runs a claimed worker on the calling thread's carrier, until it parks, yields or ends: `token`
/// says which. The calling thread is no worker. [`path`] is the short way.
pub fn execute(control: &WorkerControl, token: &SchedulerToken) {
    breathe(path::BREATH);
    let carrier = Carrier::current();
    let own = carrier.thread();
    token.scheduler.set(own.as_ptr().cast());
    let worker = control.thread.load(Ordering::Relaxed).cast::<Thread>();
    // SAFETY: a claimed worker has a thread.
    let worker = unsafe { &*worker };
    own.waits_for(WaitKind::OTHER, 0, 0);
    let token = from_ref(token).cast_mut();
    worker.scheduler_token.store(token, Ordering::Release);
    if !carrier.is_bound() {
        // SAFETY: the worker is the caller's, off its stack, as the claim found; this thread is in
        // no queue, and continues when the token is taken.
        unsafe { change(carrier, own, worker) };
    } else {
        PROCESS.post(worker.task_ref());
        leave(carrier, own); // until the token's taker posts this thread
    }
    look_at_signals(own);
}

/// Gives the carrier of `own`, which runs, to `next`. Returns when `own` has a carrier again.
///
/// # Safety
/// The caller must alone have `next`, which must be off its stack. `own` must be where another
/// thread finds it.
#[inline(always)]
unsafe fn change(carrier: &Carrier, own: &Thread, next: &Thread) {
    next.task.on_cpu.store(1, Ordering::Relaxed);
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

/// Makes the calling thread, which runs again, look at signals that have come meanwhile.
#[inline(always)]
pub fn look_at_signals(own: &Thread) {
    if own.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// Lets other threads run, if the count of switches has none of the bits of `rhythm`. Without that
/// a scheduler and its workers, which switch to each other directly, would keep the carrier from
/// its queue, timers and descriptors.
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

/// Passes `token`, which the calling thread has taken, to `next`, which runs: a claimed worker, or
/// the caller itself. Returns when the caller is executed again. [`path`] is the short way.
pub fn pass(next: &Thread, token: &SchedulerToken) {
    breathe(path::IN_PLACE); // before others can execute the caller
    let carrier = Carrier::current();
    let own = carrier.thread();
    own.ums.store(token.worker.get(), Ordering::Release);
    let at = from_ref(token).cast_mut();
    next.scheduler_token.store(at, Ordering::Release); // from here on the token is its taker's
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

/// Takes the calling worker's token, if the token lets workers decide; else returns null.
pub fn take_token_to_decide() -> *const SchedulerToken {
    let own = Carrier::current().thread();
    let at = own.scheduler_token.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the scheduler keeps the token until it continues, for which this is the only
    // permission.
    let Some(token) = (unsafe { at.as_ref() }) else {
        return core::ptr::null();
    };
    if token.decide.is_none() || !is_worker(own) {
        // As if the scheduler had just left the token with this worker.
        own.scheduler_token.store(at, Ordering::Release);
        return core::ptr::null();
    }
    token.worker.set(own.ums.load(Ordering::Relaxed));
    own.ums.store(null_mut(), Ordering::Release);
    at
}

/// Gives `token`, which the calling thread has taken, back to its scheduler, which goes on. Returns
/// when the caller is executed again.
pub fn return_token(token: &SchedulerToken) {
    let carrier = Carrier::current();
    let own = carrier.thread();
    own.ums.store(token.worker.get(), Ordering::Release);
    hand_over(carrier, own, end_token(token, Ended::Yielded, 0));
    look_at_signals(own);
}

/// `sched_yield(2)`: for a worker its scheduler chooses the next thread, for other threads the
/// carrier.
#[inline(always)]
pub fn sched_yield() {
    let thread = Carrier::current().thread();
    if thread.ums.load(Ordering::Relaxed).is_null() || !yield_to_scheduler(0) {
        yields::yield_now();
    }
}

/// Returns the control of the calling thread; null if the thread is no worker.
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

/// Leaves the carrier of a worker that parks to its scheduler, if one waits; else to the carrier's
/// next thread.
#[cold]
pub(crate) fn leave_parked(carrier: &Carrier, thread: &Thread) {
    if !hand_back(carrier, thread, Ended::Parked, 0) {
        leave(carrier, thread);
    }
}

/// Limits how long a claimed worker computes each time that it is executed, in nanoseconds; 0 for
/// no limit.
pub fn limit(control: &WorkerControl, quantum_ns: u64) {
    let worker = control.thread.load(Ordering::Relaxed).cast::<Thread>();
    // SAFETY: null, or a thread, which lives in type-stable memory.
    if let Some(worker) = unsafe { worker.as_ref() } {
        worker
            .worker_quantum_ns
            .store(quantum_ns, Ordering::Relaxed);
    }
}

/// Ends the run of a worker that has used up its scheduler's quantum: the scheduler goes on.
/// Returns true when the worker is executed again; false if the running thread has no such quantum,
/// or no scheduler waits.
pub(crate) fn preempted(carrier: &Carrier, thread: &Thread) -> bool {
    if thread.worker_quantum_ns.load(Ordering::Relaxed) == 0 {
        return false;
    }
    thread.waits_for(WaitKind::YIELD, 0, 0);
    hand_back(carrier, thread, Ended::Preempted, 0)
}

/// Returns how long the scheduler of the thread on `carrier` lets it compute; `None` for no limit.
pub(crate) fn quantum_on(carrier: &Carrier) -> Option<u64> {
    let thread = carrier
        .thread_or_none()
        .filter(|_| carrier.runs_for_scheduler())?;
    Some(thread.worker_quantum_ns.load(Ordering::Relaxed)).filter(|&ns| ns != 0)
}

/// Takes the token, and lets the scheduler continue in the worker's place; returns when the worker
/// runs again. Returns false if there was no token.
fn hand_back(carrier: &Carrier, thread: &Thread, end: Ended, parameter: usize) -> bool {
    let Some(scheduler) = take_token(thread, end, parameter) else {
        return false;
    };
    hand_over(carrier, thread, scheduler);
    true
}

/// Lets `scheduler`, of which the running thread has taken the token, go on in the thread's place.
fn hand_over(carrier: &Carrier, thread: &Thread, scheduler: &Thread) {
    match unless_misplaced(scheduler, carrier) {
        // SAFETY: the taker of the token owns the scheduler, which left its stack before the worker
        // could run; the worker is its waker's, or its scheduler's.
        Some(scheduler) => unsafe { change(carrier, thread, scheduler) },
        None => leave(carrier, thread),
    }
}

/// Takes the thread's token, if there is one, and notes in it why the execution ends. Returns the
/// scheduler.
fn take_token(thread: &Thread, end: Ended, parameter: usize) -> Option<&'static Thread> {
    if thread.scheduler_token.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let token = thread.scheduler_token.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: the scheduler keeps the token on its stack until it continues, for which this is the
    // only permission.
    let token = unsafe { token.as_ref() }?;
    Some(end_token(token, end, parameter))
}

/// Notes in a taken token why the execution ends. Returns the scheduler.
fn end_token(token: &SchedulerToken, end: Ended, parameter: usize) -> &'static Thread {
    token.end.set(end);
    token.parameter.set(parameter);
    let scheduler = token.scheduler.get().cast::<Thread>();
    // SAFETY: threads live in type-stable memory.
    unsafe { &*scheduler }
}

/// Returns the scheduler if it can continue on `carrier`; else posts it.
fn unless_misplaced<'a>(scheduler: &'a Thread, carrier: &Carrier) -> Option<&'a Thread> {
    let bound = carrier.bound.load(Ordering::Relaxed);
    if scheduler.was_bound_to_other(carrier) || !bound.is_null() && bound != scheduler.as_ptr() {
        PROCESS.post(scheduler.task_ref());
        return None;
    }
    Some(scheduler)
}

/// How many threads fork now.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The running thread is about to fork. Until [`fork_ends`], no scheduler goes on without a worker:
/// libc's `fork` holds the locks of `malloc`, for which the scheduler would wait. The worker would
/// wait for the scheduler, then.
pub fn fork_begins() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// The fork is over, in the parent, or in the child, where no other thread forks.
pub fn fork_ends(is_child: bool) {
    if is_child {
        FORKS.store(0, Ordering::SeqCst);
    } else {
        FORKS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets the scheduler of the worker on `carrier`, which waits in the kernel, go on without the
/// worker. In sysmon.
///
/// [`path`] takes tokens without a swap. That is safe for two reasons. A carrier that sleeps after
/// `watched` was set sees it when it goes on, and swaps. A carrier that sleeps in the middle of the
/// short way, by a page fault, has set `on_cpu` to [`path::HANDS_BACK`] before.
pub(crate) fn replace(carrier: &Carrier) {
    if !carrier.runs_for_scheduler() {
        return;
    }
    carrier.watched.store(1, Ordering::SeqCst);
    if kthread::is_waiting(carrier.kernel_tid.load(Ordering::Relaxed))
        && FORKS.load(Ordering::SeqCst) == 0
        && let Some(thread) = carrier.thread_or_none()
        && thread.task.on_cpu.load(Ordering::Acquire) != path::HANDS_BACK
        && let Some(scheduler) = take_token(thread, Ended::InKernel, 0)
    {
        PROCESS.post(scheduler.task_ref());
    }
    carrier.watched.store(0, Ordering::Release);
}

/// Lists the running thread, which has come back from the kernel, if it is a worker without a
/// scheduler that waits. Returns true then: the worker must leave the carrier.
pub(crate) fn came_back(thread: &Thread) -> bool {
    let is_stray = is_worker(thread) && thread.scheduler_token.load(Ordering::Relaxed).is_null();
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

/// Lists the worker in the given state. Neither the worker nor the list is touched after the push:
/// the taker of the worker may free both.
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

/// The rest of a worker's end, which follows once its thread has ended.
pub(crate) struct Last {
    control: *mut WorkerControl,
    scheduler: Option<&'static Thread>,
}

/// Begins the end of an exiting worker, before its thread's slot may be used again. On the
/// carrier's own stack.
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
        scheduler: take_token(thread, Ended::Exited, 0),
    }
}

impl Last {
    /// Lists the worker as ended, and gives back the scheduler that is to continue here.
    pub(crate) fn finish(self, carrier: &Carrier) -> Option<&'static Thread> {
        push(self.control, WorkerState::ENDED);
        unless_misplaced(self.scheduler?, carrier)
    }
}
