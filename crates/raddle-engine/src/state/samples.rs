//! Samples of carriers that execute, taken by the runtime itself: for a tool, where the kernel
//! permits no perf events.
//!
//! 1. A tool asks for samples with its request for events ([`record`]).
//! 2. Sysmon, at random times so many times a second, asks the carriers that execute
//!    ([`crate::sysmon`]): it sets [`Wanted`] and sends the runtime's own signal.
//! 3. The signal's handler writes a sample to the carrier's ring ([`Carrier::samples`]).
//! 4. The tool reads the rings from outside. The slot of a sample that is being written is never
//!    believed: see [`raddle_sched::sample_ring`].
//!
//! It ends by itself when the time is over that the tool has asked for. Off, nothing looks at a
//! word of it but the handler of the runtime's own signal.
//!
//! The rings' memory is mapped at the first request, left out of forks, and never unmapped. Pages
//! are used as samples come.
//!
//! Rejected: timers of the kernel threads' CPU time, which send the signal by themselves: a filter
//! may kill for them, they are no finer than the kernel's tick, and a program that executes another
//! one must delete them first.

use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::process::PROCESS;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_inspect::{SAMPLE_STACK_BYTES, SAMPLES_MAX, SampleHeader};
use raddle_sched::sample_ring;
use raddle_sys::abi::Timespec;
use raddle_sys::{mem, nr, sys};

/// The samples that a carrier keeps, at the highest rate for 16 ms.
const CAPACITY: u64 = 16;

/// Where a sample stands.
#[repr(C)]
pub struct SampleSlot {
    header: SampleHeader,
    stack: [u8; SAMPLE_STACK_BYTES],
}

const _: () = assert!(size_of::<SampleSlot>() == SampleHeader::SLOT_BYTES);

/// The ring of a carrier's samples.
pub(crate) type SampleRing = sample_ring::SampleRing<SampleSlot>;

/// 1 while sysmon wants a sample. Set by sysmon before it sends the signal, cleared by the
/// carrier's handler.
pub(crate) struct Wanted(AtomicU32);

impl Wanted {
    pub(crate) fn set(&self, is_wanted: bool) {
        self.0.store(u32::from(is_wanted), Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

/// What the handler finds in the interrupted context.
pub struct Interrupted {
    /// rbx, rbp, rsp, rip, r12 to r15.
    pub registers: [u64; 8],
    /// Copies the stack, from the stack pointer upwards. Returns how many bytes it has copied.
    pub copy_stack: fn(pointer: usize, to: &mut [u8]) -> usize,
}

/// Has carriers sampled so many times a second, for `seconds` more.
pub(crate) fn record(seconds: u32, samples: u32) {
    let recorder = &PROCESS.recorder;
    if samples == 0 {
        return;
    }
    let period_ns = 1_000_000_000 / u64::from(samples.min(SAMPLES_MAX));
    let before_ns = recorder.sample_period_ns.load(Ordering::Relaxed);
    let shortest_ns = match before_ns {
        0 => period_ns,
        _ => period_ns.min(before_ns),
    };
    let until_ns = clock::now_ns().saturating_add(u64::from(seconds) * 1_000_000_000);
    recorder
        .samples_until_ns
        .fetch_max(until_ns, Ordering::Relaxed);
    PROCESS.all_carriers().for_each(open);
    recorder
        .sample_period_ns
        .store(shortest_ns, Ordering::Relaxed);
}

/// Ends it if its time is over. For sysmon.
pub(crate) fn look(now_ns: u64) {
    if period_ns() != 0 && PROCESS.recorder.samples_until_ns.load(Ordering::Relaxed) <= now_ns {
        stop();
    }
}

pub(crate) fn stop() {
    let recorder = &PROCESS.recorder;
    recorder.samples_until_ns.store(0, Ordering::Relaxed);
    recorder.sample_period_ns.store(0, Ordering::Relaxed);
}

/// Returns the time between two samples of a carrier; 0 while none are wanted.
pub(crate) fn period_ns() -> u64 {
    PROCESS.recorder.sample_period_ns.load(Ordering::Relaxed)
}

/// A carrier begins to run threads.
pub(crate) fn carrier_starts(carrier: &Carrier) {
    if period_ns() != 0 {
        open(carrier);
    }
}

/// Gives a carrier's ring its memory, once. Without memory it has no samples.
fn open(carrier: &Carrier) {
    const LEN: usize = CAPACITY as usize * size_of::<SampleSlot>();
    if carrier.samples.is_open() {
        return;
    }
    let Ok(memory) = mem::map(LEN) else {
        return;
    };
    // SAFETY: a fresh mapping of that size, zeroed, never unmapped; only sysmon opens rings, and a
    // carrier its own before it is listed.
    unsafe {
        mem::leave_out_of_forks(memory, LEN);
        carrier.samples.open(memory.cast(), CAPACITY);
    }
}

/// Returns true once if sysmon wants a sample of the carrier. For the carrier's handler.
pub fn is_wanted(carrier: &Carrier) -> bool {
    let wanted = &carrier.sample_wanted;
    wanted.is_set() && wanted.0.swap(0, Ordering::Acquire) != 0
}

/// Writes a sample.
///
/// # Signal safety
/// For the carrier's handler, while the signals of faults alone are unblocked: the time-stamp
/// counter and the stack may cause these.
pub fn take(carrier: &Carrier, interrupted: &Interrupted) {
    let header = SampleHeader {
        number: 0,
        stamp: raddle_arch::timestamp(),
        cpu_ns: own_cpu_ns(),
        kernel_tid: carrier.kernel_tid.load(Ordering::Relaxed),
        thread: carrier.thread_or_none().map_or(0, |thread| thread.tid()),
        registers: interrupted.registers,
        ..SampleHeader::default()
    };
    let [_, _, pointer, ..] = interrupted.registers;
    carrier.samples.write(|at, slot| {
        // SAFETY: a slot of the ring's, which this kernel thread alone writes to, and no thread of
        // the process reads.
        let slot = unsafe { &mut *slot };
        let copied = (interrupted.copy_stack)(pointer as usize, &mut slot.stack);
        let header = SampleHeader {
            number: at + 1,
            stack_bytes: copied as u64,
            ..header
        };
        // SAFETY: as above. Volatile, as the reader is another process.
        unsafe { (&raw mut slot.header).write_volatile(header) };
    });
}

/// Returns the CPU time of the calling kernel thread.
fn own_cpu_ns() -> u64 {
    const THREAD_CPU: u32 = nr::CLOCK_THREAD_CPUTIME_ID;
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_clock_gettime, THREAD_CPU, &raw mut time) };
    time.to_ns().unwrap_or(0)
}

/// In the child of a fork, which has none of the rings' memory.
pub(crate) fn in_child() {
    stop();
    PROCESS.all_carriers().for_each(|carrier| {
        if carrier.samples.is_open() {
            carrier.samples.forget();
        }
        if carrier.sample_wanted.is_set() {
            carrier.sample_wanted.set(false);
        }
    });
}
