//! Preemption: a green thread that computes while others wait gives its carrier up.
//!
//! Sysmon decides and sends [`PREEMPT`] to the carrier's kernel thread. If the signal interrupts
//! the program's code, the handler moves the frame into the thread's *save area*, memory of the
//! runtime's, and the thread yields from there. So nothing is written to a stack of unknown size
//! (one near its end, one that the program switched to by itself), and the red zone needs no care.
//! An `rt_sigreturn` from the area resumes the thread, on any carrier. Signals that became due
//! meanwhile take the frame from the area to the program's stack.
//!
//! If the signal interrupts the runtime's code, the thread gives way at the end of the call.

use crate::signal::entry::{Moved, move_frame, raddle_arrive};
use crate::signal::{delivery, routing};
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

/// Returns the top of the running thread's save area; `None` if it isn't to be preempted now.
pub fn area(carrier: &Carrier, thread: &Thread) -> Option<usize> {
    if carrier.is_bound() || !carrier.is_to_preempt() {
        return None;
    }
    if thread.save_area.get() == 0 {
        let area = mem::map(AREA).ok()?; // else it computes on, without an error
        thread.save_area.set(area.expose_provenance());
    }
    Some(thread.save_area.get() + AREA)
}

/// On the save area, behind a moved frame: lets others run, then resumes the frame.
///
/// # Safety
/// `frame` must be the moved frame in the running thread's save area.
pub unsafe extern "C" fn preempted(frame: *mut Moved) -> ! {
    Carrier::current().attention.store(0, Ordering::Relaxed);
    routing::route();
    preemption::give_way();
    Carrier::current().attention.store(0, Ordering::Relaxed);
    routing::route();
    let thread = Carrier::current().thread();
    // SAFETY: the frame stays as it is until it's resumed; the program's stack below its pointer
    // is free.
    unsafe {
        if delivery::deliverable(thread) == 0 {
            delivery::resume(frame)
        }
        let Moved { context, info, .. } = &*frame;
        let stack = delivery::stack_for(thread, None, context.context.stack_pointer(), false);
        raddle_arrive(move_frame(context, info, stack))
    }
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
