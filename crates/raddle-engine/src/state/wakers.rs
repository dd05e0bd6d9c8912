//! Samples of wake-ups, with the stacks of both threads: for a tool that shows which code ends the
//! waits of which.
//!
//! 1. A tool asks for so many a second with its request for events ([`record`]).
//! 2. A carrier that notes a wake-up as an event ([`woken`]) draws whether it is a sample, by the
//!    time that the woken thread has waited ([`raddle_sched::draw`]).
//! 3. The carrier copies its own registers and stack, and the woken thread's stack, to a slot of
//!    its ring. The woken thread is claimed and in no queue yet, so it stays where it is.
//! 4. The tool reads the rings from outside ([`raddle_sched::sample_ring`]). The sample is written
//!    before the event: a tool that finds the event finds the sample.
//!
//! A thread that is in the kernel for a shared word is woken there: which one it is, its waker
//! doesn't know ([`wakes_word`]). Such a sample has the word in the place of the thread and its
//! stack. It stands for the wait of the one that began last, as far as the tool finds no shorter.
//!
//! Off, nothing looks at a word of it: [`woken`] is called where an event is written.

use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use crate::state::word_wakes;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use raddle_inspect::{By, Event, EventKind, SAMPLE_STACK_BYTES, WakeHeader};
use raddle_sched::draw::Draw;
use raddle_sched::sample_ring::SampleRing;
use raddle_sys::mem::{self, PAGE_SIZE};

/// The samples that a carrier keeps.
const CAPACITY: u64 = 8;
/// The most samples in a second that a tool can ask for.
const WAKES_MAX: u32 = 1000;
/// The counter's ticks in a second, roughly.
const TICKS_PER_S: u64 = 1 << 31;
/// Where a sample stands.
#[repr(C)]
pub(crate) struct WakeSlot {
    header: WakeHeader,
    waker: [u8; SAMPLE_STACK_BYTES],
    woken: [u8; SAMPLE_STACK_BYTES],
}

const _: () = assert!(size_of::<WakeSlot>() == WakeHeader::SLOT_BYTES);

/// A carrier's part. Used by the carrier alone, but for the ring, which tools read. Zero at first.
#[repr(C)]
pub(crate) struct Wakes {
    ring: SampleRing<WakeSlot>,
    /// A [`Cause`] while the carrier makes threads runnable for it, else 0.
    cause: Cell<u32>,
    /// In ticks.
    draw: Draw,
}

impl Wakes {
    /// Offset of the ring.
    pub(crate) const RING: usize = core::mem::offset_of!(Wakes, ring);
}

/// What ends the waits of threads that a carrier makes runnable, while it is not its thread.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    Timer = 1,
    Kernel = 2,
    /// The end of a thread, which has left its stack.
    End = 3,
}

impl Cause {
    /// Returns [`Event::other`] of such a wake-up.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Cause::Timer => Event::TIMER,
            Cause::Kernel => 0,
            Cause::End => Event::END,
        }
    }
}

/// Calls `wake`, which makes threads runnable for this cause.
pub(crate) fn for_cause(carrier: Option<&Carrier>, cause: Cause, wake: impl FnOnce()) {
    let Some(carrier) = carrier else {
        return wake();
    };
    let before = carrier.wakes.cause.replace(cause as u32);
    wake();
    carrier.wakes.cause.set(before);
}

/// Returns [`Event::other`] of a wake-up by the calling carrier.
pub(crate) fn waker(carrier: &Carrier) -> u32 {
    const TIMER: u32 = Cause::Timer as u32;
    const END: u32 = Cause::End as u32;
    match carrier.wakes.cause.get() {
        0 => carrier.thread_or_none().map_or(0, Thread::tid),
        TIMER => Cause::Timer.code(),
        END => Cause::End.code(),
        _ => Cause::Kernel.code(),
    }
}

/// Has carriers sample wake-ups, so many times a second together, for `seconds` more.
pub(crate) fn record(seconds: u32, wakes: u32) {
    let recorder = &PROCESS.recorder;
    if wakes == 0 {
        return;
    }
    let until_ns = clock::now_ns().saturating_add(u64::from(seconds) * 1_000_000_000);
    recorder
        .wakes_until_ns
        .fetch_max(until_ns, Ordering::Relaxed);
    let mut carriers = 0;
    PROCESS.all_carriers().for_each(|carrier| {
        open(carrier);
        carriers += 1;
    });
    let period = TICKS_PER_S / u64::from(wakes.min(WAKES_MAX)) * carriers.max(1);
    recorder.wakes_period.store(period, Ordering::Relaxed);
}

/// Ends it if its time is over. For sysmon.
pub(crate) fn look(now_ns: u64) {
    let recorder = &PROCESS.recorder;
    if is_on() && recorder.wakes_until_ns.load(Ordering::Relaxed) <= now_ns {
        stop();
    }
}

pub(crate) fn stop() {
    let recorder = &PROCESS.recorder;
    recorder.wakes_until_ns.store(0, Ordering::Relaxed);
    recorder.wakes_period.store(0, Ordering::Relaxed);
}

fn is_on() -> bool {
    PROCESS.recorder.wakes_period.load(Ordering::Relaxed) != 0
}

/// A carrier begins to run threads.
pub(crate) fn carrier_starts(carrier: &Carrier) {
    if is_on() {
        open(carrier);
    }
}

/// Gives a carrier's ring its memory, once. Without memory it has no samples.
fn open(carrier: &Carrier) {
    const LEN: usize = CAPACITY as usize * size_of::<WakeSlot>();
    if carrier.wakes.ring.is_open() {
        return;
    }
    let Ok(memory) = mem::map(LEN) else {
        return;
    };
    // SAFETY: a fresh mapping of that size, zeroed, never unmapped; only sysmon opens rings, and a
    // carrier its own before it is listed.
    unsafe {
        mem::leave_out_of_forks(memory, LEN);
        carrier.wakes.ring.open(memory.cast(), CAPACITY);
    }
}

/// `thread` leaves its carrier at this stamp.
pub(crate) fn waits(thread: &Thread, stamp: u64) {
    thread.waits_from.store(stamp, Ordering::Relaxed);
}

/// Counts a wake-up by the calling carrier, before its event is written.
#[inline]
pub(crate) fn woken(carrier: &Carrier, thread: &Thread, event: &Event) {
    let period = PROCESS.recorder.wakes_period.load(Ordering::Relaxed);
    if period == 0 || !matches!(Event::by(event.other), By::Thread(_)) {
        return;
    }
    let from = thread.waits_from.load(Ordering::Relaxed);
    // While the thread is still on its stack, it has hardly waited.
    if from == 0 || thread.task.on_cpu.load(Ordering::Acquire) != 0 {
        return;
    }
    let waited = event.stamp.saturating_sub(from);
    let draw = &carrier.wakes.draw;
    if let Some(stands_for) = draw.woken(waited, event.stamp, period) {
        take(carrier, Some(thread), event, [waited, stands_for]);
    }
}

/// Counts a wake-up of a shared word by a thread that runs on `carrier`, the calling one, before
/// the kernel makes it.
pub(crate) fn wakes_word(carrier: &Carrier, address: usize, waker: u32, stamp: u64) {
    let period = PROCESS.recorder.wakes_period.load(Ordering::Relaxed);
    if period == 0 {
        return;
    }
    let Some(from) = word_wakes::waited_from(address) else {
        return;
    };
    let waited = stamp.saturating_sub(from);
    if let Some(stands_for) = carrier.wakes.draw.woken(waited, stamp, period) {
        let event = Event {
            stamp,
            kind: EventKind::WAKE,
            thread: 0,
            other: waker,
            wait: WaitKind::FUTEX,
            arg: address as u64,
        };
        take(carrier, None, &event, [waited, stands_for]);
    }
}

/// Writes a sample of a wake-up by the calling carrier.
#[cold]
#[inline(never)]
fn take(carrier: &Carrier, thread: Option<&Thread>, event: &Event, [waited, stands_for]: [u64; 2]) {
    let registers = raddle_arch::own_registers();
    let [_, _, pointer, ..] = registers;
    let context = thread.map_or(event.arg as usize, |thread| thread.context.get().addr());
    carrier.wakes.ring.write(|at, slot| {
        // SAFETY: a slot of the ring's, which this kernel thread alone writes to, and no thread of
        // the process reads.
        let slot = unsafe { &mut *slot };
        let header = WakeHeader {
            number: at + 1,
            stamp: event.stamp,
            thread: event.thread,
            waker: event.other,
            waited,
            stands_for,
            registers,
            context: context as u64,
            waker_bytes: copy_stack(pointer as usize, carrier.thread(), &mut slot.waker),
            woken_bytes: thread.map_or(0, |it| copy_stack(context, it, &mut slot.woken)),
        };
        // SAFETY: as above. Volatile, as the reader is another process.
        unsafe { (&raw mut slot.header).write_volatile(header) };
    });
}

/// Copies the stack of `thread` from `pointer` upwards, page by page up to the first that is
/// missing. The C library has its thread block at the end of the stacks that it makes: nothing is
/// copied from there on, so that most copies end without a fault. Returns how many bytes it has
/// copied.
fn copy_stack(pointer: usize, thread: &Thread, to: &mut [u8; SAMPLE_STACK_BYTES]) -> u32 {
    let block = (thread.fs.get() as usize).checked_sub(pointer);
    let length = block.map_or(to.len(), |bytes| bytes.min(to.len()));
    let mut copied = 0;
    while copied < length {
        let from = pointer.wrapping_add(copied);
        let piece = (PAGE_SIZE - from % PAGE_SIZE).min(length - copied);
        let at = to[copied..].as_mut_ptr();
        // SAFETY: so many bytes of `to`; a fault ends the copy, because the handlers of faults are
        // there since the second thread was made, and a carrier never blocks these signals.
        if unsafe { raddle_arch::user_copy(at.expose_provenance(), from, piece) } != 0 {
            break;
        }
        copied += piece;
    }
    copied as u32
}

/// In the child of a fork, which has none of the rings' memory.
pub(crate) fn in_child() {
    stop();
    PROCESS.all_carriers().for_each(|carrier| {
        if carrier.wakes.ring.is_open() {
            carrier.wakes.ring.forget();
        }
    });
}
