//! The handler's part of [`raddle_engine::samples`]: the registers and the stack of the code that
//! the signal has interrupted.
//!
//! The stack may be any memory: that of a thread, one that the program has made, or its pointer
//! may be no address at all. So it is copied as the program's memory is ([`User`]), page by page up
//! to the first that is missing. The handler runs with all signals blocked, and the kernel ends a
//! process at a fault with a blocked signal: these two are unblocked meanwhile.
//!
//! Rejected: `process_vm_readv` on the process itself, for which a filter may kill, and a copy up
//! to the end of the page where there is a filter, which most containers have.

use super::actions::FAULTS;
use crate::user::User;
use raddle_arch::UContext;
use raddle_engine::Carrier;
use raddle_engine::samples::{self, Interrupted};
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{change_signal_mask, nr};

/// Writes a sample if sysmon wants one. Returns true if it did. In the handler.
pub(super) fn take(carrier: &Carrier, context: &UContext) -> bool {
    if !samples::is_wanted(carrier) {
        return false;
    }
    let interrupted = Interrupted {
        registers: context.context.unwind_registers(),
        copy_stack,
    };
    // SAFETY: the handler is fit for faults in what follows, which it ends, and records other
    // signals of these numbers.
    unsafe { change_signal_mask(nr::SIG_UNBLOCK, FAULTS) };
    samples::take(carrier, &interrupted);
    // SAFETY: as they were.
    unsafe { change_signal_mask(nr::SIG_BLOCK, FAULTS) };
    true
}

fn copy_stack(pointer: usize, to: &mut [u8]) -> usize {
    let mut copied = 0;
    while copied < to.len() {
        let from = pointer.wrapping_add(copied);
        let piece = (PAGE_SIZE - from % PAGE_SIZE).min(to.len() - copied);
        let stack = User::<u8>::at(from);
        if stack.read_all(&mut to[copied..copied + piece]).is_err() {
            break;
        }
        copied += piece;
    }
    copied
}
