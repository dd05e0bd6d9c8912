//! Parking, exiting, and the loop on a carrier's own stack.
//!
//! A green thread that gives up the carrier picks its successor itself and switches to it directly.
//! It goes through the carrier's own stack only if there is no successor, if the successor is still
//! on another carrier's CPU (waiting for it on a green stack could deadlock two carriers), or if it
//! exits (its stack must not be in use when the joiner hears of it).

use crate::kernel_events::block_events;
use crate::kernel_threads::kthread;
use crate::scheduling::chaos::Point;
use crate::scheduling::page_rings;
use crate::scheduling::ums;
use crate::scheduling::{bound, chaos, hosts, idle, policies, slow_rings, timed};
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use crate::state::wakers::{self, Cause};
use crate::state::{accounting, clock, delays, events};
use core::sync::atomic::{Ordering, fence};
use raddle_arch::{pause, prepare, set_fs_base, set_gs_base, switch, switch_keep_fs};
use raddle_inspect::EventKind;
use raddle_sched::policies::Reason;
use raddle_sched::policy::Tick;
use raddle_sched::routes::Receiver;
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskRef, Wake};
use raddle_sys::{nr, sys};

/// Parks the running thread, which has prepared its task and linked it wherever it will be woken.
/// Returns why it runs again, perhaps on another carrier.
#[inline(always)]
pub fn park() -> Wake {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    thread
        .since_ns
        .store(carrier.now_ns.get(), Ordering::Relaxed);
    carrier.count_park(thread);
    if thread.is_special() {
        return park_special(carrier, thread);
    }
    if thread.is_interrupted() {
        carrier.attention.store(1, Ordering::Relaxed);
        return Wake::Signalled;
    }
    leave(carrier, thread);
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
    thread.task.outcome()
}

/// As [`park`], for a thread that hosts light threads or is a user-mode scheduler's.
#[cold]
fn park_special(carrier: &Carrier, thread: &Thread) -> Wake {
    if !thread.host.get().is_null() {
        hosts::parks(thread);
    }
    if thread.is_interrupted() {
        carrier.attention.store(1, Ordering::Relaxed);
        return Wake::Signalled;
    }
    ums::leave_parked(carrier, thread);
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
    thread.task.outcome()
}

/// As [`park`], but signals that are already there don't end it: for a wait that they have
/// interrupted and that only has to hear of it.
pub fn park_through_signals() -> Wake {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    carrier.count_park(thread);
    if !thread.host.get().is_null() {
        hosts::parks(thread);
    }
    ums::leave_parked(carrier, thread);
    if thread.signals.deliverable() != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
    thread.task.outcome()
}

/// As [`park`], until `deadline_ns` (CLOCK_MONOTONIC) at most; [`NEVER`] is for ever.
#[inline(always)]
pub fn park_until(deadline_ns: u64) -> Wake {
    if deadline_ns == NEVER {
        park()
    } else {
        park_with_timer(deadline_ns)
    }
}

/// As [`park_until`], for waits in which `pthread_cancel(3)` wakes the thread.
///
/// A canceller sets [`Thread::cancelled`] (SeqCst) and then claims the wait if it sees one; here
/// the wait is announced, by the SeqCst step that linked its node, before `cancelled` is read. So
/// one of the two sees the other, and a cancellation that comes after the waiter's last
/// `pthread_testcancel` isn't lost.
#[inline(always)]
pub fn park_cancellable(thread: &Thread, deadline_ns: u64) -> Wake {
    if thread.cancelled.load(Ordering::SeqCst) != 0 && thread.claim(Wake::Signalled) {
        return Wake::Signalled;
    }
    park_until(deadline_ns)
}

#[inline(never)]
fn park_with_timer(deadline_ns: u64) -> Wake {
    let task = Carrier::current().thread().task_ref();
    if PROCESS.timers.insert(task, deadline_ns) {
        idle::deadline_moved(deadline_ns);
    }
    let outcome = park();
    if outcome == Wake::TimedOut {
        Carrier::count(&Carrier::current().time_outs);
    } else {
        PROCESS.timers.remove(task);
    }
    outcome
}

/// Gives the running thread to whichever carrier is first. `meanwhile` runs before this one looks
/// for work.
pub(crate) fn move_away(meanwhile: fn()) {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    thread.waits_for(WaitKind::YIELD, 0, 0);
    PROCESS.post_as(thread.task_ref(), Reason::Yielded);
    meanwhile();
    leave(carrier, thread);
    has_moved(thread);
}

/// The running thread goes on, on another carrier perhaps: it looks at signals that came while no
/// carrier ran it. If that carrier is its own, sysmon makes no look good that comes too early: the
/// fence stands between the store by which the thread runs and its look.
#[cold]
fn has_moved(thread: &Thread) {
    fence(Ordering::SeqCst);
    ums::look_at_signals(thread);
}

/// At the end of a call in which the carrier may have counted as blocked. If another carrier has
/// taken its place meanwhile, the running thread waits for a carrier in turn, and this one becomes
/// spare; true then.
pub fn come_back(carrier: &Carrier) -> bool {
    if carrier.handed_off.load(Ordering::Relaxed) == 0 {
        return false;
    }
    idle::came_back(carrier);
    let thread = carrier.thread();
    if events::is_on() {
        events::note(carrier, EventKind::RETURN, Some(thread), 0);
    }
    if !ums::came_back(thread) {
        if !carrier.engine().has_surplus() {
            return false;
        }
        thread.waits_for(WaitKind::YIELD, 0, 0);
        PROCESS.post_as(thread.task_ref(), Reason::Preempted);
    }
    leave_for_scheduler(carrier, thread);
    has_moved(thread);
    true
}

/// Expires timers and polls descriptors, without waiting.
pub fn look_around(carrier: &Carrier) {
    look_around_at(carrier, clock::now_ns());
}

/// As [`look_around`], at `now_ns`.
pub(crate) fn look_around_at(carrier: &Carrier, now_ns: u64) {
    carrier.now_ns.set(now_ns);
    carrier.looked.set(carrier.switches.load(Ordering::Relaxed));
    PROCESS.unpark_due(PROCESS.timers.expire(now_ns), Cause::Timer);
    PROCESS.ring.announce();
    page_rings::look(carrier);
    if PROCESS.pump.has_waiters() {
        PROCESS.unpark_due(PROCESS.pump.poll_now(Some(carrier)), Cause::Kernel);
        PROCESS.unpark_due(PROCESS.pump.sweep_at(now_ns), Cause::Kernel);
    }
    slow_rings::look(carrier, now_ns);
}

/// Returns true if a carrier has no thread, and has looked at timers and descriptors since the last
/// one. What comes afterwards ends its sleep.
pub(crate) fn has_looked_for_work(carrier: &Carrier) -> bool {
    carrier.thread_or_none().is_none()
        && carrier.looked.get() == carrier.switches.load(Ordering::Relaxed)
}

/// Moves the running thread to a carrier of its own, which runs nothing else. Without memory or a
/// kernel thread, the running thread stays where it is.
pub fn bind_current() {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    thread.task.prepare();
    let _ = PROCESS.bind(thread);
    if thread.task.claim(Wake::Woken) {
        PROCESS.unpark(thread.task_ref());
    }
    ums::leave_parked(carrier, thread);
    has_moved(thread);
}

/// Makes the running thread green again if its carrier was only lent to it, which ends then.
pub fn unbind_current() {
    let carrier = Carrier::current();
    if bound::give_up(carrier, carrier.thread()) {
        move_away(|| ());
    }
}

/// Ends the running thread, which is returned, up to the switch to the carrier's own stack: that is
/// the caller's to make at once. One with a reuse control continues when it is another one
/// ([`crate::state::reusable`]).
pub fn end<'a>() -> &'a Thread {
    let carrier = Carrier::current();
    let thread = carrier.thread();
    carrier.exiting.set(thread.as_ptr());
    if carrier.takes_detour() {
        end_by_detour(carrier, thread);
    }
    prepare_to_leave(carrier);
    thread
}

/// The CPU time of a thread that ends counts where such time is counted.
#[cold]
fn end_by_detour(carrier: &Carrier, thread: &Thread) {
    if carrier.is_timed() {
        timed::ends(carrier, thread)
    } else if !carrier.is_bound() {
        policies::ends(carrier, thread)
    }
}

/// Ends the running thread; its hooks run on the carrier's own stack.
pub fn exit() -> ! {
    let thread = end();
    switch_to_scheduler(Carrier::current(), thread);
    raddle_sys::fatal(b"raddle: a thread came back after its exit\n")
}

/// Gives the carrier up; returns when the thread was pushed and picked again.
#[inline(always)]
pub(crate) fn leave(carrier: &Carrier, thread: &Thread) {
    leave_to(carrier, thread, pick(carrier));
}

/// As [`leave`], to `next`, which was popped; without one the carrier looks for work.
#[inline(always)]
pub(crate) fn leave_to(carrier: &Carrier, thread: &Thread, next: Option<&Thread>) {
    match next {
        // The thread stays, and sysmon's request is done.
        Some(next) if core::ptr::eq(next, thread) => {
            carrier.preempt_at.store(0, Ordering::Relaxed);
        }
        Some(next)
            if next.task.on_cpu.load(Ordering::Acquire) == 0 && next.is_taken_by(carrier) =>
        {
            enter(carrier, next);
            let on_cpu = thread.task.on_cpu.as_ptr();
            // SAFETY: `next` was popped, so it is this carrier's, and off its stack; `thread` waits
            // in some queue, and a waker will push it.
            unsafe {
                switch(
                    thread.context.as_ptr(),
                    next.context.get(),
                    next.fs.get(),
                    on_cpu,
                );
            }
        }
        Some(next) => {
            carrier.next.set(next.as_ptr());
            leave_for_scheduler(carrier, thread);
        }
        None => leave_for_scheduler(carrier, thread),
    }
}

#[inline(never)]
fn leave_for_scheduler(carrier: &Carrier, thread: &Thread) {
    prepare_to_leave(carrier);
    switch_to_scheduler(carrier, thread);
}

#[inline(always)]
fn prepare_to_leave(carrier: &Carrier) {
    if accounting::is_told() {
        accounting::switched(carrier, None);
    }
    if carrier.is_timed() {
        timed::leaves(carrier);
    }
    carrier.set_thread(core::ptr::null_mut());
}

#[inline(always)]
fn switch_to_scheduler(carrier: &Carrier, thread: &Thread) {
    let on_cpu = thread.task.on_cpu.as_ptr();
    // SAFETY: the scheduler loop is parked in `run` while a green thread is on the carrier.
    unsafe { switch_keep_fs(thread.context.as_ptr(), carrier.scheduler.get(), on_cpu) };
}

/// Notes that `next` ran on another carrier before, if it ran.
#[cold]
fn note_move(carrier: &Carrier, next: &Thread, from: *const Carrier) {
    // SAFETY: null or a carrier, which lives for ever.
    if let (true, Some(from)) = (events::is_on(), unsafe { from.as_ref() }) {
        events::moved(carrier, next, from);
    }
}

/// Notes on both sides that `next`, which is marked as on a CPU, is about to run on `carrier`.
#[inline(always)]
pub(crate) fn enter(carrier: &Carrier, next: &Thread) {
    let here = core::ptr::from_ref(carrier).cast_mut();
    let from = next.carrier.load(Ordering::Relaxed);
    if from != here {
        next.carrier.store(here, Ordering::Relaxed);
        if !from.is_null() {
            Carrier::count(&next.steal);
        }
        if accounting::is_told() {
            note_move(carrier, next, from);
        }
    }
    Carrier::count(&next.switches);
    Carrier::count(&carrier.switches);
    delays::runs(carrier, next);
    carrier.calls.set(0);
    if accounting::is_told() {
        accounting::switched(carrier, Some(next));
    }
    carrier.set_thread(next.as_ptr());
}

/// The next runnable thread of this carrier.
#[inline(always)]
pub(crate) fn pick<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    let count = carrier.picks.get().wrapping_add(1);
    carrier.picks.set(count);
    let tick = Tick::of(count);
    if tick.fair || tick.injector || tick.poll || carrier.takes_detour() {
        return pick_with_tick(carrier, tick);
    }
    match carrier.queue.take_lifo() {
        Some(task) => Some(Thread::of(task)),
        None => pick_rest(carrier),
    }
}

#[inline(never)]
fn pick_with_tick<'a>(carrier: &Carrier, tick: Tick) -> Option<&'a Thread> {
    if carrier.is_bound() {
        return pick_rest(carrier);
    }
    carrier.follow_policy();
    if carrier.is_timed() {
        if chaos::is_on() {
            chaos::shuffle(carrier);
        }
        return timed::pick(carrier);
    }
    if tick.poll {
        look_around(carrier);
        block_events::arm(carrier);
    }
    if chaos::is_on() {
        chaos::shuffle(carrier);
    }
    if tick.injector && carrier.has_queue() {
        let engine = carrier.engine();
        if let Some(task) = engine.queue.pop() {
            return Some(Thread::of(task));
        }
        if !engine.ahead.is_empty() {
            return pick_ahead(carrier);
        }
    }
    if tick.fair
        && let Some(task) = carrier.queue.pop_ring()
    {
        return Some(Thread::of(task));
    }
    match carrier.queue.take_lifo() {
        Some(task) => Some(Thread::of(task)),
        None => pick_rest(carrier),
    }
}

/// A bound thread's carrier has its mailbox only; without queues the policy says which thread is
/// next.
#[cold]
fn pick_without_queue<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    if !carrier.is_bound() {
        return carrier.engine().pick_by_policy(carrier);
    }
    let mail = carrier
        .mailbox
        .swap(core::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the mailbox holds threads, which live in type-stable memory.
    unsafe { mail.as_ref() }
}

/// The carrier's ring, then the engine's queue.
#[inline(always)]
fn pick_rest<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    if !carrier.has_queue() {
        return pick_without_queue(carrier);
    }
    if let Some(task) = carrier.queue.pop_ring() {
        return Some(Thread::of(task));
    }
    match take_injected(carrier) {
        Some(task) => Some(Thread::of(task)),
        None if carrier.engine().ahead.is_empty() => None,
        None => pick_ahead(carrier),
    }
}

/// Threads that are ahead wait: the carrier takes them by their accounts.
#[cold]
fn pick_ahead<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    carrier.begin_timing(clock::now_ns());
    timed::pick(carrier)
}

/// Takes a fair share of the injector: one to run, the rest into the ring.
pub(crate) fn take_injected(carrier: &Carrier) -> Option<TaskRef> {
    let engine = carrier.engine();
    let waiting = engine.queue.len();
    if waiting == 0 {
        return None;
    }
    let share = (waiting / engine.active() as usize + 1).min(raddle_sched::run_queue::CAPACITY / 2);
    let taken = engine.queue.pop_some(share);
    let first = taken.pop();
    while let Some(task) = taken.pop() {
        engine.push_ring(carrier, task);
    }
    first
}

/// Gives `carrier` a stack of its own for its scheduler loop.
pub(crate) fn prepare_scheduler(carrier: &Carrier, stack: *mut u8, size: usize) {
    // SAFETY: the stack is fresh memory of that size.
    let context = unsafe {
        prepare(
            stack.wrapping_add(size - 64),
            scheduler_entry as *const () as usize,
        )
    };
    carrier.scheduler.set(context);
}

raddle_arch::first_instruction! {
    /// The first instruction of a scheduler loop that starts by a switch.
    scheduler_entry => scheduler_loop
}

/// A carrier's kernel thread.
pub(crate) extern "C" fn carrier_main(address: usize, stack: *mut u8) -> ! {
    let carrier: *const Carrier = core::ptr::with_exposed_provenance(address);
    // SAFETY: this thread becomes the carrier that its maker prepared. The FS base points at zeroed
    // words until the first green thread runs.
    let carrier = unsafe {
        set_gs_base(address as u64);
        set_fs_base(0);
        let carrier = &*carrier;
        carrier
            .kernel_tid
            .store(sys!(nr::__NR_gettid) as u32, Ordering::Release);
        carrier
    };
    carrier.stack.set(stack);
    events::carrier_starts(carrier);
    (PROCESS.hooks().carrier_starts)(carrier);
    carrier.leave_stacks_out();
    carrier.now_ns.set(clock::now_ns()); // with signals open: the clock may be forbidden here
    if !carrier.is_bound() {
        carrier.set_state(CarrierState::Idle);
        if carrier.engine().enlist(carrier) {
            idle::sleep_as_spare(carrier)
        } else {
            carrier.set_state(CarrierState::Running);
            PROCESS.sysmon.wake_up();
        }
    }
    scheduler_loop()
}

/// On the carrier's own stack, for ever: finishes an exited thread, finds the next one, runs it.
extern "C" fn scheduler_loop() -> ! {
    loop {
        let carrier = Carrier::current();
        finish_exit(carrier);
        let next = carrier.next.replace(core::ptr::null_mut());
        // SAFETY: `next` is null or a popped thread.
        let next = match unsafe { next.as_ref() } {
            Some(next) => next,
            None => idle::find_work(carrier),
        };
        wait_until_left(next);
        if !next.is_taken_by(carrier) {
            PROCESS.post(next.task_ref()); // its own carrier gets it
            continue;
        }
        if chaos::is_on() {
            carrier.attention.store(1, Ordering::Relaxed);
        }
        carrier.set_state(CarrierState::Running);
        enter(carrier, next);
        // SAFETY: `next` was popped and is off its stack; the loop's own context is resumed by a
        // thread that leaves without a successor.
        unsafe {
            switch(
                carrier.scheduler.as_ptr(),
                next.context.get(),
                next.fs.get(),
                carrier.scheduler_on_cpu.as_ptr(),
            );
        }
    }
}

/// Looks at a thread that hasn't left its last carrier before the wait becomes a yield: 1 to 5 us.
const LOOKS_BEFORE_YIELD: u32 = 64;

/// Returns once `next` has left the carrier that gave it up, which takes some instructions there.
/// The kernel may have taken the CPU from that carrier meanwhile, and given it to this one, for the
/// carrier that posts a thread wakes another one. Then the CPU goes back.
#[inline(always)]
fn wait_until_left(next: &Thread) {
    let mut looks = 0;
    while next.task.on_cpu.load(Ordering::Acquire) != 0 {
        looks += 1;
        match looks {
            ..=LOOKS_BEFORE_YIELD => pause(),
            _ => kthread::give_cpu_away(looks - LOOKS_BEFORE_YIELD - 1),
        }
    }
}

fn finish_exit(carrier: &Carrier) {
    let exited = carrier.exiting.replace(core::ptr::null_mut());
    // SAFETY: null, or the thread that just left this carrier for good.
    if let Some(thread) = unsafe { exited.as_ref() } {
        let own = bound::take_own(thread);
        let last = ums::ends(thread);
        chaos::stop(Point::Exit);
        wakers::for_cause(Some(carrier), Cause::End, || {
            (PROCESS.hooks().thread_exited)(thread);
        });
        if let Some(scheduler) = last.finish(carrier) {
            carrier.next.set(scheduler.as_ptr());
        }
        bound::thread_ended(carrier, own);
    }
}
