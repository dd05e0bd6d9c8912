//! What the runtime samples of its carriers while a tool asks for it: registers and the inner part
//! of the stack, in a ring of each carrier's. The tool reads the rings from outside, by
//! [`Layout::carrier_samples`](crate::Layout).
//!
//! A slot is a [`SampleHeader`] with [`SAMPLE_STACK_BYTES`] behind it.
//!
//! Of some wake-ups the runtime keeps the stacks of both threads, in a further ring of each
//! carrier's ([`Layout::carrier_wakes`](crate::Layout)). A slot is a [`WakeHeader`] with the inner
//! part of the waker's stack and that of the woken thread behind it, [`SAMPLE_STACK_BYTES`] each.

use crate::records::Wire;

/// Bytes of the stack that a sample has at most.
pub const SAMPLE_STACK_BYTES: usize = 16 << 10;

/// The most samples in a second that a tool can ask for.
pub const SAMPLES_MAX: u32 = 1000;

/// A carrier at one instant, at the start of a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleHeader {
    /// One more than the number of samples that the carrier had before: a slot without a sample has
    /// 0 here.
    pub number: u64,
    /// The CPU's time-stamp counter.
    pub stamp: u64,
    /// The CPU time of the kernel thread.
    pub cpu_ns: u64,
    /// The carrier's kernel thread.
    pub kernel_tid: u32,
    /// The green thread that it runs; 0 for none.
    pub thread: u32,
    /// rbx, rbp, rsp, rip, r12 to r15.
    pub registers: [u64; 8],
    /// Bytes of the stack that follow, from the stack pointer upwards.
    pub stack_bytes: u64,
    pub reserved: [u64; 3],
}

impl SampleHeader {
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = size_of::<SampleHeader>() + SAMPLE_STACK_BYTES;
}

// SAFETY: integers and arrays of them; `_SIZE` checks that no byte is padding.
unsafe impl Wire for SampleHeader {}

const _SIZE: () = assert!(size_of::<SampleHeader>() == 128);

/// The bit of [`Request::reserved`](crate::Request) from which on it has the number of wake-ups in
/// a second of which the tool wants the stacks. The bits below have the number of samples.
pub const WAKES_SHIFT: u32 = 16;

/// A wake-up by a green thread, at the start of a slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeHeader {
    /// As [`SampleHeader::number`].
    pub number: u64,
    /// The stamp of the event of the wake-up.
    pub stamp: u64,
    /// The thread that was woken; 0 if it is in the kernel for a shared word, see `context`.
    pub thread: u32,
    /// The thread that woke it.
    pub waker: u32,
    /// How long the thread has waited, in ticks of the time-stamp counter.
    pub waited: u64,
    /// The time waited for which this wake-up stands, in ticks.
    pub stands_for: u64,
    /// The waker's rbx, rbp, rsp, rip, r12 to r15.
    pub registers: [u64; 8],
    /// The address of the woken thread's switch frame, with which the copy of its stack begins.
    /// That of the shared word, without a copy, if `thread` is 0.
    pub context: u64,
    /// Bytes that were copied of the waker's stack, and of the woken thread's.
    pub waker_bytes: u32,
    pub woken_bytes: u32,
}

impl WakeHeader {
    /// Bytes of a slot.
    pub const SLOT_BYTES: usize = size_of::<WakeHeader>() + 2 * SAMPLE_STACK_BYTES;
}

// SAFETY: integers and arrays of them; `_WAKE_SIZE` checks that no byte is padding.
unsafe impl Wire for WakeHeader {}

const _WAKE_SIZE: () = assert!(size_of::<WakeHeader>() == 120);
