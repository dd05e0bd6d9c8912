//! Affinity masks.
//!
//! Which CPUs a mask comes down to (those that exist and that the cpuset allows) only the kernel
//! knows, so it is asked: the carrier takes the mask for a moment, reads back what came of it, and
//! takes its own again.

use super::{calls, carrier_of};
use crate::boundary::{Frame, Outcome};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use raddle_engine::Carrier;
use raddle_engine::attributes::{Attributes, CPU_WORDS};
use raddle_sched::SpinLock;
use raddle_sys::{is_err, nr, sys};

type Cpus = [u64; CPU_WORDS];

/// What the process started its first thread with.
static PROCESS: SpinLock<Cpus> = SpinLock::new([0; CPU_WORDS]);
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
pub fn adopt() {
    *PROCESS.lock() = get(0);
}

/// Gives the kernel thread of a bound thread the thread's mask.
pub fn tell(own: &Carrier, attributes: &Attributes) {
    if attributes.cpus != [0; CPU_WORDS] {
        DIVERGED.store(true, Ordering::Relaxed);
        set(own.kernel_tid.load(Ordering::Acquire), &attributes.cpus);
    }
}

/// A new carrier takes the process's mask, whoever made it.
pub fn restore() {
    if DIVERGED.load(Ordering::Relaxed) {
        let cpus = *PROCESS.lock();
        set(0, &cpus);
    }
}

/// `sched_getaffinity(2)`.
pub extern "C" fn sched_getaffinity(frame: &Frame) -> Outcome {
    let thread = match calls::target(frame.arg(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    // SAFETY: the program's own call, about this kernel thread: it checks and fills the buffer.
    let bytes = unsafe { sys!(frame.rax as u32, 0usize, frame.arg(1), frame.arg(2)) };
    let cpus = thread.attributes.get().cpus;
    if !is_err(bytes) && cpus != [0; CPU_WORDS] {
        let len = (bytes as usize).min(size_of::<Cpus>());
        let to = with_exposed_provenance_mut::<u8>(frame.arg(2));
        // SAFETY: the kernel has just written as many bytes there.
        unsafe { core::ptr::copy_nonoverlapping(cpus.as_ptr().cast(), to, len) };
    }
    Outcome::of(bytes)
}

/// `sched_setaffinity(2)`.
pub extern "C" fn sched_setaffinity(frame: &Frame) -> Outcome {
    let thread = match calls::target(frame.arg(0)) {
        Ok(thread) => thread,
        Err(outcome) => return outcome,
    };
    let own = carrier_of(thread);
    let kernel_tid = own.map_or(0, |own| own.kernel_tid.load(Ordering::Acquire));
    let before = get(kernel_tid);
    // SAFETY: the program's own call, about a kernel thread of ours.
    let result = unsafe { sys!(frame.rax as u32, kernel_tid, frame.arg(1), frame.arg(2)) };
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
