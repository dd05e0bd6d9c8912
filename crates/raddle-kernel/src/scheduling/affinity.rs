//! Affinity masks.
//!
//! Only the kernel knows the CPUs of a mask that exist and that the cpuset allows. So the carrier
//! takes the mask for a moment, reads the kernel's result back, and takes its own mask again.

use super::carrier_of;
use crate::frame::{Frame, Outcome};
use crate::scheduling::{calls, permission};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use raddle_engine::attributes::{Attributes, CPU_WORDS};
use raddle_engine::{Carrier, Thread, shown};
use raddle_sys::{err, errno, is_err, nr, sys};

type Cpus = [u64; CPU_WORDS];

/// The process's mask when it started its first thread.
static PROCESS: [AtomicU64; CPU_WORDS] = [const { AtomicU64::new(0) }; CPU_WORDS];
/// True once a bound thread's kernel thread has a mask of its own.
static DIVERGED: AtomicBool = AtomicBool::new(false);

fn get(kernel_tid: u32) -> Cpus {
    let mut cpus = [0; CPU_WORDS];
    // SAFETY: the kernel fills a live array.
    unsafe {
        let size = size_of::<Cpus>();
        sys!(
            nr::__NR_sched_getaffinity,
            kernel_tid,
            size,
            cpus.as_mut_ptr()
        );
    }
    cpus
}

fn set(kernel_tid: u32, cpus: &Cpus) {
    // SAFETY: the kernel reads a live array.
    unsafe {
        let size = size_of::<Cpus>();
        sys!(nr::__NR_sched_setaffinity, kernel_tid, size, cpus.as_ptr());
    }
}

/// Notes the process's mask.
pub(super) fn adopt() {
    for (word, cpus) in PROCESS.iter().zip(get(0)) {
        word.store(cpus, Ordering::Relaxed);
    }
}

/// Gives the kernel thread of a bound thread the thread's mask.
pub(super) fn tell(own: &Carrier, attributes: &Attributes) {
    if attributes.cpus != [0; CPU_WORDS] {
        DIVERGED.store(true, Ordering::Relaxed);
        set(own.kernel_tid.load(Ordering::Acquire), &attributes.cpus);
    }
}

/// Gives a new carrier the process's mask, whatever kernel thread made the carrier.
pub(super) fn restore() {
    if DIVERGED.load(Ordering::Relaxed) {
        set(
            0,
            &PROCESS.each_ref().map(|word| word.load(Ordering::Relaxed)),
        );
    }
}

/// Words of the largest mask that any kernel has (8192 CPUs).
const MOST_WORDS: usize = 128;
type Whole = [u64; MOST_WORDS];

/// Asks the kernel for the calling kernel thread's mask with room for `room` bytes. Returns how
/// many bytes the kernel fills, or its error if the mask has more.
///
/// # Safety
/// `mask` has `room` bytes, or as many as any kernel's mask.
unsafe fn fill(mask: &mut [u64], room: u32) -> isize {
    // SAFETY: the kernel fills no more than its masks have, or what there is room for.
    unsafe { sys!(nr::__NR_sched_getaffinity, 0usize, room, mask.as_mut_ptr()) }
}

/// `sched_getaffinity(2)`.
pub extern "C" fn sched_getaffinity(frame: &Frame) -> Outcome {
    let target = calls::target(frame.word(0));
    if let Err(outcome) = target
        && outcome.is_pass()
    {
        return outcome;
    }
    // libc's type has 1024 bits. Some runtimes ask several times for each thing that they do.
    if frame.word(1) as usize <= size_of::<Cpus>() {
        answer(frame, target, &mut [0; CPU_WORDS])
    } else {
        answer_whole(frame, target)
    }
}

#[cold]
fn answer_whole(frame: &Frame, target: Result<&Thread, Outcome>) -> Outcome {
    answer(frame, target, &mut [0; MOST_WORDS])
}

/// Answers by `mask`, which has room for what the program has room for, or for any kernel's mask.
fn answer(frame: &Frame, target: Result<&Thread, Outcome>, mask: &mut [u64]) -> Outcome {
    // SAFETY: as above.
    let bytes = unsafe { fill(mask, frame.word(1)) };
    if is_err(bytes) {
        return Outcome::of(bytes); // the kernel checks this before the thread
    }
    let thread = match target {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let words = bytes as usize / size_of::<u64>();
    match thread.attributes.cpus() {
        Some(cpus) => mask[..CPU_WORDS].copy_from_slice(&cpus),
        None => shown::keep_shown(&mut mask[..words]),
    }
    match frame.user(2).write_all(&mask[..words]) {
        Ok(()) => Outcome::of(bytes),
        Err(errno) => Outcome::of(errno),
    }
}

/// `sched_setaffinity(2)`.
pub extern "C" fn sched_setaffinity(frame: &Frame) -> Outcome {
    let target = calls::target(frame.word(0));
    if let Err(outcome) = target
        && outcome.is_pass()
    {
        return outcome;
    }
    let mut mask: Whole = [0; MOST_WORDS];
    // SAFETY: as many bytes as any kernel's mask.
    let known = unsafe { fill(&mut mask, size_of::<Whole>() as u32) }.max(0) as usize;
    mask = [0; MOST_WORDS]; // a short one is filled up
    let bytes = (frame.word(1) as usize).min(known);
    if let Err(errno) = frame.user::<Whole>(2).read_into(&mut mask, bytes) {
        return Outcome::of(errno);
    }
    let thread = match target {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    if !permission::may_change(thread) {
        return Outcome::of(err(errno::EPERM));
    }
    let own = carrier_of(thread);
    let kernel_tid = own.map_or(0, |own| own.kernel_tid.load(Ordering::Acquire));
    let before = get(kernel_tid);
    // SAFETY: the program's own call, about a kernel thread of ours, with a mask that lives.
    let result = unsafe { sys!(frame.number(), kernel_tid, known, mask.as_ptr()) };
    if is_err(result) {
        return Outcome::of(result);
    }
    let cpus = get(kernel_tid);
    if own.is_none() {
        set(0, &before);
    } else {
        DIVERGED.store(true, Ordering::Relaxed);
    }
    thread
        .attributes
        .change(|attributes| attributes.cpus = cpus);
    Outcome::of(0)
}
