//! Patching libraries that are loaded while the program runs, and forgetting them.
//!
//! [`raddle_kernel::memory::loading`] says when, and which thread does it: no other thread executes
//! the text, and ld.so's lock is held, so that there is one at a time. Planning needs more stack
//! than a thread may have left: it gets a stack of its own for the while.

use crate::{own_stack, patching};
use core::sync::atomic::{AtomicUsize, Ordering};
use raddle_patch::stub::Stubs;
use raddle_sched::SpinLock;

/// Libraries with stubs; more are not patched. Each has a page of stubs at least.
const MOST: usize = 64;

/// A library that was patched.
#[derive(Clone, Copy)]
struct Late {
    from: usize,
    to: usize,
    stubs: Stubs,
}

static LIBRARIES: SpinLock<[Option<Late>; MOST]> = SpinLock::new([None; MOST]);
/// How many there are: read first, for most programs have none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Patches the library with its header at `base`. Without memory its calls go to the kernel.
pub(crate) fn loaded(base: usize) {
    own_stack::call(patch, base);
}

extern "C" fn patch(base: usize) {
    let Some(place) = LIBRARIES.lock().iter().position(Option::is_none) else {
        return;
    };
    // SAFETY: ld.so has mapped the file and executes nothing of it before its call returns.
    let Ok((report, (from, to))) = (unsafe { patching::patch_late(base) }) else {
        return;
    };
    if report.patched != 0 {
        let stubs = report.stubs;
        LIBRARIES.lock()[place] = Some(Late { from, to, stubs });
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Forgets the libraries with text in the addresses that go away.
pub(crate) fn unmapped(from: usize, to: usize) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for slot in LIBRARIES.lock().iter_mut() {
        if let Some(late) = *slot
            && from <= late.from
            && late.to <= to
        {
            *slot = None;
            COUNT.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the caller unmaps text, which no thread executes then; ld.so's lock is held.
            unsafe { late.stubs.release() };
        }
    }
}

/// In the child of a fork: another thread of the parent may have been at the list. Then the list
/// may be half written, and the child forgets it: the stubs stay after their libraries.
// Beside the boundary's entries: see `raddle_kernel::task::process`.
#[unsafe(link_section = ".text.raddle_boundary")]
pub(crate) fn in_child() {
    // SAFETY: the child has one thread.
    if unsafe { LIBRARIES.break_lock() } {
        *LIBRARIES.lock() = [None; MOST];
        COUNT.store(0, Ordering::Relaxed);
    }
}
