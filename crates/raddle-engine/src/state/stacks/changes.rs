//! What becomes of a slot, under its lock.

use super::slots::{Phase, Slot, State};
use super::{Access, DONTNEED, GUARD_INSTALL, GUARD_REMOVE, Guard, Range};
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{err, errno, is_err, nr, sys};

/// A slot that was taken begins as a stack.
pub(super) fn begin(slot: &Slot<'_>, state: &mut State, access: Access) -> Result<(), isize> {
    match state.phase {
        Phase::Unmapped => match map(slot) {
            Ok(()) => *state = State::free(0),
            Err(errno) => {
                if errno == err(errno::EEXIST) {
                    *state = State::KERNEL;
                }
                return Err(errno);
            }
        },
        Phase::Free => {}
        _ => return Err(err(errno::EEXIST)),
    }
    match access {
        Access::None => state.phase = Phase::Opening,
        Access::ReadWrite if set_guard(slot, state, 0) => state.phase = Phase::Used,
        Access::ReadWrite => {
            clear(slot, state);
            return Err(err(errno::ENOMEM));
        }
    }
    state.kind = Guard::Protected;
    Ok(())
}

/// Maps a slot where nothing is.
pub(super) fn map(slot: &Slot<'_>) -> Result<(), isize> {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x4022;
    const STACK: usize = nr::MAP_STACK as usize; // no huge pages
    const FIXED_NOREPLACE: usize = nr::MAP_FIXED_NOREPLACE as usize;
    let flags = PRIVATE_ANONYMOUS_NORESERVE | STACK | FIXED_NOREPLACE;
    let Range { from, .. } = slot.range;
    let len = slot.range.len();
    // SAFETY: fresh memory that takes no other mapping's place.
    let at = unsafe {
        sys!(
            nr::__NR_mmap,
            from,
            len,
            READ_WRITE,
            flags,
            usize::MAX,
            0usize
        )
    };
    if is_err(at) { Err(at) } else { Ok(()) }
}

pub(super) fn unmap(slot: &Slot<'_>) -> bool {
    // SAFETY: the slot is the arena's, and no stack.
    !is_err(unsafe { sys!(nr::__NR_munmap, slot.range.from, slot.range.len()) })
}

/// Empties pages of a slot; guards stay. Returns false for locked memory.
pub(super) fn empty(from: usize, to: usize) -> bool {
    // SAFETY: the program gave up what is in the pages.
    !is_err(unsafe { sys!(nr::__NR_madvise, from, to - from, DONTNEED) })
}

/// Makes the lowest `pages` of a slot without contents, and no other page, a guard.
pub(super) fn set_guard(slot: &Slot<'_>, state: &mut State, pages: usize) -> bool {
    if state.guard == pages {
        return true;
    }
    let (low, high) = (pages.min(state.guard), pages.max(state.guard));
    let advice = if pages > state.guard {
        GUARD_INSTALL
    } else {
        GUARD_REMOVE
    };
    let (from, len) = (slot.page(low), (high - low) * PAGE_SIZE);
    // SAFETY: pages of the slot that hold nothing, or that the caller may empty.
    let failed = is_err(unsafe { sys!(nr::__NR_madvise, from, len, advice) });
    if !failed {
        state.guard = pages;
    }
    !failed
}

/// Access is taken from the range: true if the guard reaches so far now, and nothing else changes.
pub(super) fn grow(
    slot: &Slot<'_>,
    state: &mut State,
    range: Range,
    kind: Guard,
    is_clean: impl FnOnce(Range) -> bool,
) -> bool {
    let end = slot.page(state.guard);
    if range.to <= end {
        return true;
    }
    let fresh = Range {
        from: end,
        to: range.to,
    };
    let pages = (range.to - slot.range.from) / PAGE_SIZE;
    let grows = range.from <= end && is_clean(fresh) && set_guard(slot, state, pages);
    if grows {
        state.kind = kind;
    }
    grows
}

/// Access is given to the range: true if the guard ends before it now, and nothing else changes.
pub(super) fn shrink(slot: &Slot<'_>, state: &mut State, range: Range) -> bool {
    let end = slot.page(state.guard);
    if range.from >= end {
        return true;
    }
    let pages = (range.from - slot.range.from) / PAGE_SIZE;
    range.to >= end && set_guard(slot, state, pages)
}

/// Makes true what the arena pretends of a slot.
pub(super) fn hand_over(slot: &Slot<'_>, state: &mut State) -> Result<(), isize> {
    const NONE: usize = nr::PROT_NONE as usize;
    let closed = match (state.phase, state.kind) {
        (Phase::Free, _) => {
            clear(slot, state);
            return Ok(());
        }
        (Phase::Unmapped | Phase::Kernel, _) => return Ok(()),
        (Phase::Opening, _) => slot.range.len(),
        (Phase::Used, Guard::Protected) => state.guard * PAGE_SIZE,
        (Phase::Used, Guard::Installed) => 0,
    };
    if closed != 0 {
        let from = slot.range.from;
        // SAFETY: takes access away that the program doesn't have, before the guard goes.
        unsafe {
            if is_err(sys!(nr::__NR_mprotect, from, closed, NONE)) {
                return Err(err(errno::ENOMEM));
            }
            sys!(
                nr::__NR_madvise,
                from,
                state.guard * PAGE_SIZE,
                GUARD_REMOVE
            );
        }
    }
    *state = State::KERNEL;
    Ok(())
}

/// Unmaps a free slot.
pub(super) fn clear(slot: &Slot<'_>, state: &mut State) {
    if state.phase == Phase::Free {
        *state = if unmap(slot) {
            State::UNMAPPED
        } else {
            State::KERNEL
        };
    }
}
