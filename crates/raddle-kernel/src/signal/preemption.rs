//! Preemption: a green thread that computes while others wait gives its carrier up.
//!
//! Sysmon decides and sends [`PREEMPT`] to the carrier's kernel thread. If the signal interrupts
//! the program's code, the handler moves the frame into the thread's *save area*, memory of the
//! runtime's, and the thread yields from there. So nothing is written to a stack of unknown size
//! (one near its end, one that the program switched to by itself), and the red zone needs no care.
//! An `rt_sigreturn` from the area resumes the thread, on any carrier. A signal that the thread
//! takes moves the frame from the area to the program's stack. Signals that the thread doesn't take
//! use the area in the same way.
//!
//! If the signal interrupts the runtime's code, the thread gives way at the end of the call.

use core::sync::atomic::Ordering;
use raddle_engine::carrier::PREEMPT;
use raddle_engine::{Carrier, PROCESS, Thread, preemption, switch};
use raddle_sys::abi::SigInfo;
use raddle_sys::mem;

/// Bytes of a save area: a frame (AMX state takes some 12 KiB) and what yielding needs below it.
pub const AREA: usize = 32 * 1024;

/// Returns true for sysmon's signal.
pub fn is_request(info: &SigInfo) -> bool {
    const SI_TKILL: i32 = raddle_sys::nr::SI_TKILL;
    info.signo as usize == PREEMPT
        && info.code == SI_TKILL
        && info.pid as u32 == PROCESS.pid.load(Ordering::Relaxed)
}

/// Returns the top of the running thread's save area; `None` without memory for one.
pub fn area(thread: &Thread) -> Option<usize> {
    if thread.save_area.get() == 0 {
        let area = mem::map(AREA).ok()?;
        thread.save_area.set(area.expose_provenance());
    }
    Some(thread.save_area.get() + AREA)
}

/// Returns true if `address` is in the thread's save area.
pub fn is_in_area(thread: &Thread, address: usize) -> bool {
    let area = thread.save_area.get();
    area != 0 && (area..area + AREA).contains(&address)
}

/// At the end of a call that sysmon's signal hit, or that sysmon found waiting in the kernel; and
/// before interrupted code goes on. Returns true if others may have run.
pub fn at_end_of_call() -> bool {
    let carrier = Carrier::current();
    if switch::come_back(carrier) {
        return true;
    }
    let gives_way = carrier.is_to_preempt() && !carrier.is_bound();
    if gives_way {
        preemption::give_way();
    }
    gives_way
}
