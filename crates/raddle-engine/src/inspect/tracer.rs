//! The right to read this process's memory, where Yama gives it to parents and declared tracers
//! only: `prctl(PR_SET_PTRACER)`. The inspection client gets it while it is connected; then the
//! process that the program declared, if any, has it again.

use crate::state::process::PROCESS;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_sys::{is_err, nr, prctl, sys};

/// The process that the program declared as its tracer. Written by the program's threads, read by
/// sysmon. A mixture with [`DECLARER`] of another process can't be: a fork copies both.
static DECLARED: AtomicUsize = AtomicUsize::new(0);
/// The process that declared it: a child of a fork inherits no tracer.
static DECLARER: AtomicU32 = AtomicU32::new(0);

/// Notes that the program declares a tracer.
pub fn program_declares(tracer: usize) {
    DECLARED.store(tracer, Ordering::Relaxed);
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    DECLARER.store(pid, Ordering::Relaxed);
}

/// Declares a process, by its id in this process's namespace. Returns false where there is no Yama,
/// or no such process.
pub(super) fn declare(pid: u32) -> bool {
    pid != 0 && set(pid as usize)
}

/// Gives the right back to the process that the program declared.
pub(super) fn restore() {
    let is_ours = DECLARER.load(Ordering::Relaxed) == PROCESS.pid.load(Ordering::Relaxed);
    let declared = if is_ours {
        DECLARED.load(Ordering::Relaxed)
    } else {
        0
    };
    if !set(declared) {
        set(0);
    }
}

fn set(tracer: usize) -> bool {
    let zero = 0usize;
    // SAFETY: changes a right to this process, and no memory.
    !is_err(unsafe {
        sys!(
            nr::__NR_prctl,
            prctl::PR_SET_PTRACER,
            tracer,
            zero,
            zero,
            zero
        )
    })
}
