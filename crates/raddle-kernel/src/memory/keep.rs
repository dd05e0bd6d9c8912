//! Calls that empty the pages right below the caller's frame.
//!
//! A program may give back the pages of its stack that lie below its stack pointer, or map others
//! in their place. The runtime's own frames are there during the call: they are copied before the
//! call and written again after it. Without the copy the call would return to address zero.

use crate::frame::{Frame, Outcome};
use raddle_arch::call_keeping_stack;
use raddle_engine::stacks::Range;
use raddle_sched::SpinLock;

/// Bytes of frames that can be saved.
const ROOM: usize = 4096;
/// Bytes of the handlers' frames, at most.
const BELOW: usize = 2048;

/// Locked during a call that empties a page with the caller's frames.
static SAVED_FRAMES: SpinLock<[u8; ROOM]> = SpinLock::new([0; ROOM]);

/// The entry's frames on the program's stack, which it needs to return.
#[inline(always)]
fn entry_frames(frame: &Frame) -> Range {
    Range {
        from: core::ptr::from_ref(frame).addr(),
        to: frame.program_stack().addr(),
    }
}

/// Returns true if a handler can't empty the range, because its own frames are there.
pub(super) fn is_own_stack(frame: &Frame, range: Range) -> bool {
    let Range { from, to } = entry_frames(frame);
    let from = from.saturating_sub(BELOW);
    range.overlaps(Range { from, to })
}

/// Makes a call that empties the pages of the range and leaves them writable, if the entry's frames
/// are there; else returns `otherwise`.
#[inline(always)]
pub(super) fn emptying(frame: &Frame, range: Range, otherwise: Outcome) -> Outcome {
    if range.overlaps(entry_frames(frame)) {
        call_keeping_frames(frame).unwrap_or(otherwise)
    } else {
        otherwise
    }
}

/// In the child of a fork: another thread of the parent may have been in such a call.
pub(super) fn in_child() {
    // SAFETY: the child has one thread, and the copy is written before it is read.
    unsafe { SAVED_FRAMES.break_lock() };
}

#[cold]
fn call_keeping_frames(frame: &Frame) -> Option<Outcome> {
    let Range { from, to } = entry_frames(frame);
    if to - from + BELOW > ROOM {
        return None;
    }
    let mut saved = SAVED_FRAMES.lock();
    let (args, number) = (frame.args(), u64::from(frame.number()));
    // SAFETY: the program's own call; the copy has room for all frames from here to its stack
    // pointer.
    let result = unsafe { call_keeping_stack(number, &raw const args, saved.as_mut_ptr(), to) };
    Some(Outcome::of(result))
}
