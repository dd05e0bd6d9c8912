//! Thread stacks from one arena: a hundred thousand stacks in a handful of memory mappings.
//!
//! glibc maps each stack by itself and protects its guard, two mappings a thread of the 65,530 that
//! Linux allows. The arena answers these calls of glibc's instead.
//!
//! - *Arena*: addresses far from where the kernel puts mappings. They aren't reserved: what the
//!   program maps there stays the program's.
//! - *Segment*: a gigabyte of the arena, cut into *slots* of one size.
//! - *Slot*: one stack with its guard. Each slot is mapped by itself, when it is needed; the kernel
//!   merges neighbours into one mapping.
//! - *Guard*: the lowest pages of a slot, without access by `MADV_GUARD_INSTALL` (Linux 6.13),
//!   which takes no mapping. It stays when a slot is used again, so a warm stack costs no system
//!   call.
//!
//! The phases of a slot ([`Phase`]):
//!
//! | phase | mapped | the program sees |
//! |---|---|---|
//! | `Unmapped` | no | nothing |
//! | `Free` | yes | nothing: no call of the program's may find it there |
//! | `Opening` | yes | a mapping without access: glibc has asked for it, and gives access next |
//! | `Used` | yes | a stack that can be read and written above its guard |
//! | `Kernel` | by the program | what the kernel knows |
//!
//! The arena emulates guards and nothing else. It answers a call that moves the end of a used
//! slot's guard. Any other call on a slot goes to the kernel; before that the slot is *handed
//! over*: its guard becomes a protected page, and the slot is an ordinary mapping from then on. The
//! slot is used again once the program has unmapped it as a whole.
//!
//! In a program with a limit on its address space (`RLIMIT_AS`, `RLIMIT_DATA`, or
//! `vm.overcommit_memory` 2), free slots are unmapped at once. The runtime doesn't see a limit that
//! another process sets: [`Stacks::retreat`] unmaps free slots when the kernel refuses memory.
//!
//! Rejected: a reservation for all stacks, which counts against the limit; an arena for all that
//! the program maps with `MAP_STACK`, since any call may follow.

mod changes;
mod limits;
mod slots;

use changes::{begin, clear, empty, grow, hand_over, set_guard, shrink, unmap};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_sched::SpinLock;
use raddle_sys::mem::{self, PAGE_SIZE};
use raddle_sys::{err, errno, is_err, nr, sys};
use slots::{ARENA, Lists, MAX_SLOT, MIN_SLOT, Phase, Segments, Slot, State};

const DONTNEED: usize = nr::MADV_DONTNEED as usize;
const GUARD_INSTALL: usize = nr::MADV_GUARD_INSTALL as usize;
const GUARD_REMOVE: usize = nr::MADV_GUARD_REMOVE as usize;
/// The most bytes of free slots that stay mapped. They cost page tables of 4 MiB, and as many empty
/// bytes in a core dump.
const WARM_MOST: usize = 2 << 30;

/// A range of whole pages, from `from` to `to`; not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub from: usize,
    pub to: usize,
}

impl Range {
    /// Returns the pages that a call with this address and length is about, as the kernel rounds
    /// them; `None` if the kernel refuses the pair, or finds nothing to do.
    pub fn of_call(address: usize, len: usize) -> Option<Self> {
        let to = address.checked_add(len.checked_next_multiple_of(PAGE_SIZE)?)?;
        let is_right = address.is_multiple_of(PAGE_SIZE) && to > address;
        is_right.then_some(Self { from: address, to })
    }

    fn len(self) -> usize {
        self.to - self.from
    }

    /// Returns true if the two have addresses in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to
    }

    fn contains(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// The access that `mprotect(2)` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    None,
    ReadWrite,
}

/// The way in which the program has made a guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// By `mprotect(2)`: the pages keep their content, and `mprotect` gives access again.
    Protected,
    /// By `madvise(2)` with MADV_GUARD_INSTALL, which empties the pages; `mprotect` gives no access
    /// to them.
    Installed,
}

/// The answer to a call on memory of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The call is done.
    Done,
    /// The kernel answers, since nothing that the arena emulates concerns the call.
    Kernel,
    /// The call fails with this errno, negated.
    Fails(isize),
}

impl From<Result<(), isize>> for Answer {
    fn from(handed_over: Result<(), isize>) -> Self {
        handed_over.map_or_else(Self::Fails, |()| Self::Kernel)
    }
}

/// The arena and its slots.
pub struct Stacks {
    /// The arena's lowest address; 0 without an arena. Written once.
    base: AtomicUsize,
    segments: Segments,
    lists: SpinLock<Lists>,
    /// Bytes of free slots that are mapped. Changed under the slot's lock.
    warm: AtomicUsize,
    /// The number of slots that are locked, for the child of a fork.
    held: AtomicU32,
    /// 1 if the process has a limit on its address space. Written when limits are read.
    limited: AtomicU32,
    /// 1 if the kernel doesn't overcommit memory. Written once.
    counted: AtomicU32,
}

impl Stacks {
    pub(crate) const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            segments: Segments::new(),
            lists: SpinLock::new(Lists::new()),
            warm: AtomicUsize::new(0),
            held: AtomicU32::new(0),
            limited: AtomicU32::new(0),
            counted: AtomicU32::new(0),
        }
    }

    /// Opens the arena, if the kernel has guard regions.
    pub fn open(&self) {
        if self.is_open() {
            return;
        }
        let mut lists = self.lists.lock();
        if lists.was_opened {
            return;
        }
        lists.was_opened = true;
        if !has_guard_regions() {
            return;
        }
        self.counted
            .store(u32::from(limits::is_memory_counted()), Ordering::Relaxed);
        self.read_limits();
        self.base.store(slots::choose_base(), Ordering::Release);
    }

    /// Returns true if there is an arena.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.base.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the range touches the arena.
    #[inline(always)]
    pub fn covers(&self, range: Range) -> bool {
        let base = self.base.load(Ordering::Relaxed);
        base != 0 && range.from < base + ARENA && range.to > base
    }

    /// Reads again whether the process has a limit on its address space.
    pub fn read_limits(&self) {
        let is_limited = self.counted.load(Ordering::Relaxed) != 0 || limits::are_set();
        self.limited.store(u32::from(is_limited), Ordering::Relaxed);
    }

    /// Returns the slot that holds `address`, if the slot was ever used.
    #[inline(always)]
    fn slot_of(&self, address: usize) -> Option<Slot<'_>> {
        let base = self.base.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(base);
        if base == 0 || offset >= ARENA {
            return None;
        }
        self.segments.slot_of(base, offset)
    }

    /// Returns the used slots that the range touches.
    fn slots_in(&self, range: Range) -> impl Iterator<Item = Slot<'_>> {
        let base = self.base.load(Ordering::Relaxed);
        let from = range.from.saturating_sub(base);
        let to = range.to.saturating_sub(base).min(ARENA);
        self.segments.slots_in(base, from, to)
    }

    /// Locks a slot while `act` changes it.
    fn with<R>(&self, slot: &Slot<'_>, act: impl FnOnce(&mut State) -> R) -> R {
        self.held.fetch_add(1, Ordering::Relaxed);
        let result = {
            let _lock = slot.lock();
            let before = slot.state();
            let mut state = before;
            let result = act(&mut state);
            slot.set_state(state);
            self.count_warm(slot, before, state);
            result
        };
        self.held.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn count_warm(&self, slot: &Slot<'_>, before: State, after: State) {
        match (before.phase == Phase::Free, after.phase == Phase::Free) {
            (false, true) => self.warm.fetch_add(slot.range.len(), Ordering::Relaxed),
            (true, false) => self.warm.fetch_sub(slot.range.len(), Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Returns the address of a stack of `size` bytes for glibc; `None` if the arena has none.
    pub fn allocate(&self, size: usize, access: Access) -> Option<usize> {
        let is_served = (MIN_SLOT..=MAX_SLOT).contains(&size) && size.is_multiple_of(PAGE_SIZE);
        if !self.is_open() || !is_served {
            return None;
        }
        loop {
            let slot = self.lists.lock().take(&self.segments, self.base(), size)?;
            match self.with(&slot, |state| begin(&slot, state, access)) {
                Ok(()) => return Some(slot.range.from),
                // The program has mapped something of its own there.
                Err(errno) if errno == err(errno::EEXIST) => {}
                Err(_) => {
                    self.lists.lock().give(&slot, false);
                    return None;
                }
            }
        }
    }

    fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }

    /// Answers `munmap` of a stack by glibc. Returns false if the range isn't a whole slot that the
    /// arena answers for.
    pub fn release(&self, range: Range) -> bool {
        let Some(slot) = self.slot_of(range.from).filter(|slot| slot.range == range) else {
            return false;
        };
        let ended = self.with(&slot, |state| match state.phase {
            Phase::Used | Phase::Opening => self.end(&slot, state),
            _ => false,
        });
        if ended {
            let is_warm = slot.state().phase == Phase::Free;
            self.lists.lock().give(&slot, is_warm);
        }
        ended
    }

    /// Frees the stack of an ended thread: empties or unmaps it. Returns false if the kernel does
    /// neither.
    fn end(&self, slot: &Slot<'_>, state: &mut State) -> bool {
        let Range { from, to } = slot.range;
        let is_full = self.warm.load(Ordering::Relaxed) + (to - from) > WARM_MOST;
        let stays = self.limited.load(Ordering::Relaxed) == 0 && !is_full;
        *state = if stays && empty(from, to) {
            State::free(state.guard)
        } else if unmap(slot) {
            State::UNMAPPED
        } else if empty(from, to) {
            State::free(state.guard)
        } else {
            return false;
        };
        true
    }

    /// Answers `mprotect` of a range that is in one slot. `is_clean` tells whether pages hold
    /// nothing.
    pub fn protect(
        &self,
        range: Range,
        access: Access,
        is_clean: impl FnOnce(Range) -> bool,
    ) -> Answer {
        let Some(slot) = self.slot_of(range.from).filter(|slot| slot.holds(range)) else {
            return self.hand_over(range).into();
        };
        self.with(&slot, |state| match state.phase {
            Phase::Opening if access == Access::ReadWrite && range.to == slot.range.to => {
                let pages = (range.from - slot.range.from) / PAGE_SIZE;
                if set_guard(&slot, state, pages) {
                    state.phase = Phase::Used;
                    state.kind = Guard::Protected;
                    return Answer::Done;
                }
                hand_over(&slot, state).into()
            }
            Phase::Used => {
                let is_open = state.guard == 0 || state.kind == Guard::Installed;
                let done = match access {
                    Access::ReadWrite if is_open => true,
                    Access::ReadWrite => shrink(&slot, state, range),
                    Access::None if state.guard == 0 || state.kind == Guard::Protected => {
                        grow(&slot, state, range, Guard::Protected, is_clean)
                    }
                    Access::None => false,
                };
                if done {
                    Answer::Done
                } else {
                    hand_over(&slot, state).into()
                }
            }
            _ => hand_over(&slot, state).into(),
        })
    }

    /// Answers `mmap` of private anonymous memory over a range that is in one slot: the content is
    /// gone.
    pub fn map_over(&self, range: Range, access: Access) -> Answer {
        let Some(slot) = self.slot_of(range.from).filter(|slot| slot.holds(range)) else {
            return self.hand_over(range).into();
        };
        self.with(&slot, |state| {
            let is_fit = state.guard == 0 || state.kind == Guard::Protected;
            let done = state.phase == Phase::Used
                && is_fit
                && match access {
                    Access::None => grow(&slot, state, range, Guard::Protected, |_| true),
                    Access::ReadWrite => {
                        let open = range.from.max(slot.page(state.guard));
                        shrink(&slot, state, range) && (range.to <= open || empty(open, range.to))
                    }
                };
            if done {
                Answer::Done
            } else {
                hand_over(&slot, state).into()
            }
        })
    }

    /// Answers `madvise` with MADV_GUARD_INSTALL or MADV_GUARD_REMOVE.
    pub fn advise_guard(&self, range: Range, installs: bool) -> Answer {
        let Some(slot) = self.slot_of(range.from).filter(|slot| slot.holds(range)) else {
            return self.hand_over(range).into();
        };
        self.with(&slot, |state| {
            let is_fit = state.guard == 0 || state.kind == Guard::Installed;
            let done = state.phase == Phase::Used
                && is_fit
                && if installs {
                    grow(&slot, state, range, Guard::Installed, |_| true)
                } else {
                    shrink(&slot, state, range)
                };
            if done {
                Answer::Done
            } else {
                hand_over(&slot, state).into()
            }
        })
    }

    /// Returns true if the range begins where the slot of `here` begins, ends at or below `here`,
    /// and the program has had nothing but glibc's stack there.
    #[inline(always)]
    pub fn is_low_end_of_own(&self, range: Range, here: usize) -> bool {
        self.slot_of(range.from).is_some_and(|slot| {
            let is_own = (range.to..slot.range.to).contains(&here);
            slot.range.from == range.from && is_own && slot.state().phase == Phase::Used
        })
    }

    /// Hands the slots of the range over to the kernel, which answers the program's next call about
    /// the range: emulated guards become real ones.
    ///
    /// # Errors
    /// ENOMEM, if there may not be so many mappings.
    pub fn hand_over(&self, range: Range) -> Result<(), isize> {
        self.slots_in(range)
            .try_for_each(|slot| self.with(&slot, |state| hand_over(&slot, state)))
    }

    /// Unmaps the free slots of the range, before a call that must find no mapping there, and that
    /// leaves the program's mappings as they are.
    pub fn clear(&self, range: Range) {
        for slot in self.slots_in(range) {
            self.with(&slot, |state| clear(&slot, state));
        }
    }

    /// Notes that the kernel has unmapped the range for the program: the slots that lie in it can
    /// be used again.
    pub fn unmapped(&self, range: Range) {
        for slot in self.slots_in(range) {
            let is_empty = range.contains(slot.range)
                && self.with(&slot, |state| match state.phase {
                    Phase::Kernel => {
                        *state = State::UNMAPPED;
                        true
                    }
                    _ => false,
                });
            if is_empty {
                self.lists.lock().give(&slot, false);
            }
        }
    }

    /// Returns true if there are free slots that are mapped.
    #[inline(always)]
    pub fn has_warm(&self) -> bool {
        self.warm.load(Ordering::Relaxed) != 0
    }

    /// Unmaps the free slots. Returns false if there were none.
    pub fn retreat(&self) -> bool {
        if !self.has_warm() {
            return false;
        }
        let used = self.lists.lock().segments();
        let base = self.base();
        for slot in self.segments.slots_in(base, 0, used * slots::SEGMENT) {
            if slot.state().phase == Phase::Free {
                self.with(&slot, |state| clear(&slot, state));
            }
        }
        true
    }

    /// Notes that the program has set a limit, or is about to: free slots don't stay mapped from
    /// now on.
    pub fn limit(&self) {
        self.limited.store(1, Ordering::Relaxed);
        self.retreat();
    }

    /// Frees the locks, in the child of a fork, where their holders don't exist. A slot that was
    /// locked may be half changed: it becomes the kernel's.
    pub(crate) fn reset(&self) {
        let Self {
            lists,
            held,
            warm,
            segments,
            base: _,
            limited: _,
            counted: _, // the same in the child
        } = self;
        // SAFETY: the child has one thread. A slot being taken when the parent forked is lost.
        unsafe { lists.break_lock() };
        if held.load(Ordering::Relaxed) == 0
            || held.swap(0, Ordering::Relaxed) == 0
            || !self.is_open()
        {
            return;
        }
        let used = lists.lock().segments();
        for slot in segments.slots_in(self.base(), 0, used * slots::SEGMENT) {
            if slot.is_locked() {
                // SAFETY: as above.
                unsafe { slot.break_lock() };
                let mut state = slot.state();
                let _ = hand_over(&slot, &mut state);
                slot.set_state(State::KERNEL);
            }
        }
        let bytes = |slot: Slot<'_>| match slot.state().phase {
            Phase::Free => slot.range.len(),
            _ => 0,
        };
        let slots = segments.slots_in(self.base(), 0, used * slots::SEGMENT);
        warm.store(slots.map(bytes).sum(), Ordering::Relaxed);
    }
}

fn has_guard_regions() -> bool {
    let Ok(page) = mem::map(PAGE_SIZE) else {
        return false;
    };
    // SAFETY: the fresh page just mapped.
    unsafe {
        let works = !is_err(sys!(nr::__NR_madvise, page, PAGE_SIZE, GUARD_INSTALL));
        mem::unmap(page, PAGE_SIZE);
        works
    }
}
