//! Events for tools: what each carrier runs, what threads wait for, and what wakes them.
//!
//! A carrier writes events to a ring of its own, other kernel threads to a common one. The tool
//! reads the rings from outside. Nothing is recorded until a tool asks ([`record`]), and then until
//! the time that it has asked for is over: a tool that dies leaves nothing on.
//!
//! Off, it costs nothing, because the hot paths look at no word that they don't read anyway:
//!
//! | hot path | the word | what is set there meanwhile |
//! |---|---|---|
//! | a switch | [`accounting::ON`] | [`accounting::EVENTS`] |
//! | a wake-up | the thread's *routes* | [`Thread::is_followed`] |
//!
//! Threads are followed from the begin of recording on, new ones from their first turn. A thread
//! that is still followed afterwards takes the longer way once.
//!
//! The rings' memory is mapped at the first request, left out of forks, and never unmapped: a tool
//! may read it at any time. Pages are used as events come.
//!
//! Rejected: a time stamp by `clock_gettime` (three times the cost of the counter); one ring for
//! all carriers (each event would move a cache line between CPUs).

use crate::state::accounting;
use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::process::PROCESS;
use crate::state::samples;
use crate::state::thread::{Thread, WaitKind};
use crate::state::wakers::{self, Cause};
use crate::state::word_wakes;
use core::sync::atomic::Ordering;
use raddle_inspect::{Event, EventKind};
use raddle_sched::event_ring::Slot;
use raddle_sched::{EventRing, TaskRef};
use raddle_sys::abi::Timespec;
use raddle_sys::{mem, nr, sys};

/// The least and the most events that a ring keeps.
const CAPACITIES: core::ops::RangeInclusive<u64> = 1 << 10..=1 << 22;
/// What it keeps if the tool doesn't say.
const CAPACITY: u64 = 1 << 16;

/// Has events recorded for `seconds` more, `u32::MAX` for ever; 0 ends what others have asked for,
/// too. `capacity` is how many events a ring keeps, 0 for the default; the largest that was asked
/// for counts. `samples` is how often in a second the runtime samples carriers for as long, 0 for
/// not, and `wakes` how often it samples wake-ups. For sysmon.
pub(crate) fn record(seconds: u32, capacity: u32, [samples, wakes]: [u32; 2]) {
    let recorder = &PROCESS.recorder;
    if seconds == 0 {
        return stop();
    }
    let kept = match capacity {
        0 => CAPACITY,
        _ => u64::from(capacity).clamp(*CAPACITIES.start(), *CAPACITIES.end()),
    };
    let kept = kept.next_power_of_two();
    let grows = recorder.capacity.fetch_max(kept, Ordering::AcqRel) < kept;
    if recorder.moments[0].load(Ordering::Relaxed) == 0 {
        note_moment(0);
    }
    let more_ns = u64::from(seconds) * 1_000_000_000;
    let until_ns = match seconds {
        u32::MAX => u64::MAX,
        _ => clock::now_ns().saturating_add(more_ns),
    };
    recorder.until_ns.fetch_max(until_ns, Ordering::Relaxed);
    open(&recorder.common);
    PROCESS
        .all_carriers()
        .for_each(|carrier| open(&carrier.events));
    if grows || !is_on() {
        // Earlier events are not in the new memory. Carriers record once they see the bit.
        note_elsewhere(EventKind::START, None, 0);
    }
    let before = accounting::ON.fetch_or(accounting::EVENTS, Ordering::SeqCst);
    if before & accounting::EVENTS == 0 {
        // Those that wait already would be followed only once they have run.
        PROCESS.threads.iter().for_each(Thread::is_followed);
    }
    samples::record(seconds, samples);
    wakers::record(seconds, wakes);
}

/// Records from the start of the engine on, if that is a setting. Before sysmon exists.
pub(crate) fn begin() {
    if PROCESS.recorder.is_flight_recorder.load(Ordering::Relaxed) != 0 {
        record(u32::MAX, 0, [0; 2]);
    }
}

/// Ends the recording if its time is over. For sysmon, at any look: while nothing runs, there are
/// no events.
pub(crate) fn look(now_ns: u64) {
    if !is_on() {
        return;
    }
    let recorder = &PROCESS.recorder;
    if recorder.until_ns.load(Ordering::Relaxed) <= now_ns {
        stop();
    } else if recorder.moment_due_ns.load(Ordering::Relaxed) <= now_ns {
        let due_ns = now_ns + MOMENTS_NS;
        recorder.moment_due_ns.store(due_ns, Ordering::Relaxed);
        note_moment(2);
    }
    samples::look(now_ns);
    wakers::look(now_ns);
}

/// How long the later of the two moments stays the same.
const MOMENTS_NS: u64 = 1_000_000_000;

/// Notes the counter and CLOCK_BOOTTIME at `at` and behind it in `Recorder::moments`.
pub(crate) fn note_moment(at: usize) {
    const BOOTTIME: u32 = nr::CLOCK_BOOTTIME;
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_clock_gettime, BOOTTIME, &raw mut time) };
    let moments = &PROCESS.recorder.moments;
    moments[at].store(raddle_arch::timestamp(), Ordering::Relaxed);
    moments[at + 1].store(time.to_ns().unwrap_or(0), Ordering::Relaxed);
}

fn stop() {
    samples::stop();
    wakers::stop();
    PROCESS.recorder.until_ns.store(0, Ordering::Relaxed);
    accounting::ON.fetch_and(!accounting::EVENTS, Ordering::SeqCst);
}

/// Returns true while events are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    accounting::ON.load(Ordering::Relaxed) & accounting::EVENTS != 0
}

/// Gives a ring its memory, or more. Without memory its events are lost, and counted.
fn open(ring: &EventRing) {
    const DONTFORK: usize = nr::MADV_DONTFORK as usize;
    let capacity = PROCESS.recorder.capacity.load(Ordering::Acquire);
    if ring.capacity() >= capacity {
        return;
    }
    let len = capacity as usize * size_of::<Slot>();
    let Ok(memory) = mem::map(len) else {
        return;
    };
    // SAFETY: a fresh mapping of that size, zeroed, never unmapped; only sysmon opens rings, and a
    // carrier its own before it is listed.
    unsafe {
        sys!(nr::__NR_madvise, memory, len, DONTFORK);
        ring.open(memory.cast(), capacity);
    }
}

/// A carrier begins to run threads.
pub(crate) fn carrier_starts(carrier: &Carrier) {
    if is_on() {
        open(&carrier.events);
    }
    samples::carrier_starts(carrier);
    wakers::carrier_starts(carrier);
}

/// The thread that runs on `carrier` makes room for `next`, or for the scheduler loop.
pub(crate) fn switched(carrier: &Carrier, next: Option<&Thread>) {
    let thread = carrier.thread_or_none();
    if thread.is_none() && next.is_none() {
        return;
    }
    let ends = thread.is_some_and(|thread| core::ptr::eq(carrier.exiting.get(), thread));
    let kind = if ends {
        EventKind::END
    } else {
        EventKind::SWITCH
    };
    let event = event(kind, thread, next.map_or(0, Thread::tid));
    if let Some(thread) = thread.filter(|_| ends) {
        note_name(carrier, thread); // no tool can read it any more
    }
    push(carrier, event);
    if let Some(thread) = thread {
        wakers::waits(thread, event.stamp);
    }
    if event.stamp.wrapping_sub(carrier.queues_noted.get()) > QUEUES_TICKS {
        note_queues(carrier, event.stamp);
    }
    if let Some(next) = next {
        next.is_followed();
    }
}

/// How often a carrier notes the lengths of queues at most, in ticks of the counter: some 300 us.
const QUEUES_TICKS: u64 = 1 << 20;

/// Notes how many threads are in the queues of `carrier` and of its engine.
#[cold]
fn note_queues(carrier: &Carrier, stamp: u64) {
    carrier.queues_noted.set(stamp);
    let engine = carrier.engine();
    let queues = Event {
        stamp,
        kind: EventKind::QUEUE,
        thread: carrier.queue.len() as u32,
        other: engine.queue.len() as u32,
        wait: WaitKind::NONE,
        arg: engine.number().into(),
    };
    push(carrier, queues);
}

/// `thread` is about to run on `carrier`, the calling one, and ran on carrier `from` before.
#[cold]
pub(crate) fn moved(carrier: &Carrier, thread: &Thread, from: &Carrier) {
    note(carrier, EventKind::STEAL, Some(thread), from.id.get());
}

/// The running thread gets a signal that it handles.
pub fn signalled(thread: &Thread, signal: u32) {
    if is_on() {
        note(Carrier::current(), EventKind::SIGNAL, Some(thread), signal);
    }
}

/// `task` is being woken; `carrier` is the one that does it, none on another kernel thread, which
/// does it for the kernel.
#[cold]
pub(crate) fn woken(carrier: Option<&Carrier>, task: TaskRef) {
    let thread = Thread::of(task);
    if !is_on() {
        return thread.is_not_followed();
    }
    match carrier {
        Some(carrier) => {
            let event = event(EventKind::WAKE, Some(thread), wakers::waker(carrier));
            wakers::woken(carrier, thread, &event);
            push(carrier, event);
        }
        None => note_elsewhere(EventKind::WAKE, Some(thread), 0),
    }
}

/// `task` is being woken by a kernel thread that is no carrier, for this cause.
#[cold]
pub(crate) fn woken_elsewhere(task: TaskRef, cause: Cause) {
    woken_by(task, cause.code());
}

/// As [`woken_elsewhere`], with [`Event::other`] of the wake-up.
#[cold]
pub(crate) fn woken_by(task: TaskRef, other: u32) {
    let thread = Thread::of(task);
    if !is_on() {
        return thread.is_not_followed();
    }
    note_elsewhere(EventKind::WAKE, Some(thread), other);
}

/// Calls `wake`, which makes threads runnable for the kernel, on a carrier that may run a thread.
pub fn in_name_of_kernel(wake: impl FnOnce()) {
    wakers::for_cause(Some(Carrier::current()), Cause::Kernel, wake);
}

/// `thread`, which runs here, is about to wait in the kernel for a shared word.
#[inline]
pub fn waits_for_shared(thread: &Thread, address: usize) {
    if is_on() {
        word_wakes::waits(thread, address);
    }
}

/// Calls `wake`, which wakes up to `count` threads that wait for a shared word, in the kernel. The
/// thread that runs here is what wakes them. Returns what `wake` returns: how many there were, or a
/// negated errno.
#[inline]
pub fn wakes_shared(address: usize, count: usize, wake: impl FnOnce() -> isize) -> isize {
    if !is_on() {
        return wake();
    }
    word_wakes::call(Carrier::current(), address, count, wake)
}

/// `parent`, which runs here, has made `thread`.
#[inline]
pub fn created(thread: &Thread, parent: &Thread) {
    if is_on() {
        note(
            Carrier::current(),
            EventKind::CREATE,
            Some(thread),
            parent.tid(),
        );
    }
}

/// `thread` has another name.
pub fn named(thread: &Thread) {
    if is_on() {
        note_name(Carrier::current(), thread);
    }
}

/// Notes the name of `thread`, on `carrier`, the calling one.
#[cold]
fn note_name(carrier: &Carrier, thread: &Thread) {
    let stamp = raddle_arch::timestamp();
    let name = thread.name();
    let (part, rest) = name.split_at(Event::NAME_PART);
    let note = |kind, part: &[u8]| push(carrier, Event::of_name(kind, stamp, thread.tid(), part));
    if rest.iter().any(|&byte| byte != 0) {
        note(EventKind::NAME_REST, rest);
    }
    note(EventKind::NAME, part);
}

/// `thread` has been given `own`, a carrier that runs nothing else.
#[cold]
pub(crate) fn bound(thread: &Thread, own: &Carrier) {
    if is_on() {
        let carrier = Carrier::current();
        note(carrier, EventKind::BIND, Some(thread), own.id.get());
    }
}

/// The thread that runs here has mapped code at `address`, of the file with this inode.
#[cold]
pub fn mapped_code(address: usize, inode: impl FnOnce() -> u64) {
    if !is_on() {
        return;
    }
    let carrier = Carrier::current();
    let event = Event {
        stamp: raddle_arch::timestamp(),
        kind: EventKind::CODE,
        thread: carrier.thread_or_none().map_or(0, Thread::tid),
        other: inode() as u32,
        wait: WaitKind::NONE,
        arg: address as u64,
    };
    push(carrier, event);
}

/// The program says something of its thread, which runs here: a `TraceKind`, the address and the
/// length of a text, and a counter's value.
pub fn annotated(thread: &Thread, kind: u32, text: u64, length: u32, value: i64) {
    if !is_on() {
        return;
    }
    let (kind, [thread, other]) = match kind {
        0 => (EventKind::SPAN_BEGIN, [thread.tid(), 0]),
        1 => (EventKind::SPAN_END, [thread.tid(), 0]),
        2 => (EventKind::INSTANT, [thread.tid(), 0]),
        3 => (EventKind::COUNTER, [value as u32, (value >> 32) as u32]),
        _ => return,
    };
    let event = Event {
        stamp: raddle_arch::timestamp(),
        kind,
        thread,
        other,
        wait: WaitKind(length),
        arg: text,
    };
    push(Carrier::current(), event);
}

/// Sysmon has found that `carrier` waits in the kernel with its thread.
pub(crate) fn blocked(carrier: &Carrier) {
    if is_on() {
        note_elsewhere(EventKind::BLOCK, carrier.thread_or_none(), carrier.id.get());
    }
}

/// Notes an event of a thread that runs on `carrier`, the calling one.
#[cold]
pub(crate) fn note(carrier: &Carrier, kind: EventKind, thread: Option<&Thread>, other: u32) {
    push(carrier, event(kind, thread, other));
}

#[inline]
fn push(carrier: &Carrier, event: Event) {
    if !carrier.events.push(event.words()) {
        PROCESS.recorder.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes an event on a kernel thread that is no carrier.
#[cold]
pub(crate) fn note_elsewhere(kind: EventKind, thread: Option<&Thread>, other: u32) {
    let recorder = &PROCESS.recorder;
    let written = match recorder.writer.try_lock() {
        Some(_writer) => recorder.common.push(event(kind, thread, other).words()),
        None => false,
    };
    if !written {
        recorder.lost.fetch_add(1, Ordering::Relaxed);
    }
}

fn event(kind: EventKind, thread: Option<&Thread>, other: u32) -> Event {
    let wait = thread.map_or(0, |thread| thread.wait_kind.load(Ordering::Relaxed));
    let arg = thread.map_or(0, |thread| thread.wait_arg.load(Ordering::Relaxed));
    Event {
        stamp: raddle_arch::timestamp(),
        kind,
        thread: thread.map_or(0, Thread::tid),
        other,
        wait: WaitKind(wait),
        arg: arg as u64,
    }
}

/// In the child of a fork, which has none of the rings' memory, and one kernel thread.
pub(crate) fn in_child() {
    let recorder = &PROCESS.recorder;
    if recorder.capacity.load(Ordering::Relaxed) == 0 {
        return; // no page is written to
    }
    // SAFETY: the holder of the lock, if any, doesn't exist here.
    unsafe { recorder.writer.break_lock() };
    recorder.capacity.store(0, Ordering::Relaxed);
    recorder.until_ns.store(0, Ordering::Relaxed);
    recorder.lost.store(0, Ordering::Relaxed);
    for moment in &recorder.moments {
        moment.store(0, Ordering::Relaxed);
    }
    recorder.moment_due_ns.store(0, Ordering::Relaxed);
    recorder.crashed.store(0, Ordering::Relaxed);
    recorder.common.forget();
    recorder.words.forget();
    PROCESS
        .all_carriers()
        .for_each(|carrier| carrier.events.forget());
    samples::in_child();
    wakers::in_child();
}
