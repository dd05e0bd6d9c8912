//! Segments, slots, and the lists of those that are free.

use super::{Guard, Range};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use raddle_sched::SpinLock;
use raddle_sched::spin::SpinGuard;
use raddle_sys::mem::{self, PAGE_SIZE};
use raddle_sys::{nr, sys};

pub(super) const SEGMENT: usize = 1 << 30;
const SEGMENTS: usize = 8192;
/// Bytes of the arena.
pub(super) const ARENA: usize = SEGMENTS * SEGMENT;
/// The smallest slot, which bounds the slots of a segment.
pub(super) const MIN_SLOT: usize = 16 << 10;
/// The largest: sixteen to a segment.
pub(super) const MAX_SLOT: usize = 64 << 20;
/// Slots of a segment at most.
const SLOTS: usize = SEGMENT / MIN_SLOT;
/// Sizes of slots that there may be.
const CLASSES: usize = 64;

/// What a slot is; see [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Unmapped,
    Free,
    Opening,
    Used,
    Kernel,
}

/// What is known of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub phase: Phase,
    /// Pages of its guard, counted from its low end; 0 outside `Free`, `Opening` and `Used`.
    pub guard: usize,
    pub kind: Guard,
}

impl State {
    pub(super) const UNMAPPED: Self = Self::of(Phase::Unmapped, 0);
    pub(super) const KERNEL: Self = Self::of(Phase::Kernel, 0);

    pub(super) const fn free(guard: usize) -> Self {
        Self::of(Phase::Free, guard)
    }

    const fn of(phase: Phase, guard: usize) -> Self {
        Self {
            phase,
            guard,
            kind: Guard::Protected,
        }
    }

    /// As one word; 0 is [`State::UNMAPPED`].
    fn word(self) -> u32 {
        let installed = u32::from(self.kind == Guard::Installed);
        (self.guard as u32) << 4 | installed << 3 | self.phase as u32
    }

    fn of_word(word: u32) -> Self {
        let phase = match word & 7 {
            0 => Phase::Unmapped,
            1 => Phase::Free,
            2 => Phase::Opening,
            3 => Phase::Used,
            _ => Phase::Kernel,
        };
        let kind = match word & 8 {
            0 => Guard::Protected,
            _ => Guard::Installed,
        };
        let guard = (word >> 4) as usize;
        Self { phase, guard, kind }
    }
}

/// A slot's row in the table of its segment. Zero bytes are an unmapped slot.
struct Row {
    lock: SpinLock<()>,
    /// A [`State`]. Written under the lock; read by any thread, for which it is a hint without it.
    state: AtomicU32,
    /// 0 for a slot in no list, [`END`] for the last of one, else the next one's number + 1. Under
    /// the lists' lock.
    next: AtomicU32,
}

/// The end of a list.
const END: u32 = u32::MAX;

/// A slot.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    number: usize,
    pub range: Range,
    row: &'a Row,
}

impl Slot<'_> {
    pub(super) fn state(&self) -> State {
        State::of_word(self.row.state.load(Ordering::Acquire))
    }

    /// Under the slot's lock.
    pub(super) fn set_state(&self, state: State) {
        self.row.state.store(state.word(), Ordering::Release);
    }

    pub(super) fn lock(&self) -> SpinGuard<'_, ()> {
        self.row.lock.lock()
    }

    pub(super) fn is_locked(&self) -> bool {
        self.row.lock.try_lock().is_none()
    }

    /// # Safety
    /// The holder must not exist any more.
    pub(super) unsafe fn break_lock(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.row.lock.break_lock() };
    }

    /// The address of one of its pages.
    pub(super) fn page(&self, index: usize) -> usize {
        self.range.from + index * PAGE_SIZE
    }

    pub(super) fn holds(&self, range: Range) -> bool {
        self.range.contains(range)
    }
}

/// The segments that were ever used, by their number.
pub(super) struct Segments {
    /// Rows of a segment's slots; null before it is used. Written under the lists' lock (release),
    /// read (acquire) before the size.
    rows: [AtomicPtr<Row>; SEGMENTS],
    /// Pages of a segment's slots. Written before its rows.
    pages: [AtomicU32; SEGMENTS],
}

impl Segments {
    pub(super) const fn new() -> Self {
        Self {
            rows: [const { AtomicPtr::new(null_mut()) }; SEGMENTS],
            pages: [const { AtomicU32::new(0) }; SEGMENTS],
        }
    }

    /// Bytes of the segment's slots, and their rows; `None` before it is used.
    #[inline(always)]
    fn get(&self, segment: usize) -> Option<(usize, *const Row)> {
        let rows = self.rows.get(segment)?.load(Ordering::Acquire);
        let pages = self.pages[segment].load(Ordering::Relaxed);
        (!rows.is_null()).then_some((pages as usize * PAGE_SIZE, rows.cast_const()))
    }

    /// A slot of an arena that begins at `base`, if there is one.
    #[inline(always)]
    fn slot(&self, base: usize, segment: usize, index: usize) -> Option<Slot<'_>> {
        let (size, rows) = self.get(segment)?;
        let offset = index * size;
        if offset + size > SEGMENT {
            return None; // behind the segment's last slot
        }
        let from = base + segment * SEGMENT + offset;
        Some(Slot {
            number: segment * SLOTS + index,
            range: Range {
                from,
                to: from + size,
            },
            // SAFETY: the segment has a row for each of its slots; rows are never unmapped.
            row: unsafe { &*rows.add(index) },
        })
    }

    /// The slot that holds the byte at this offset in the arena.
    #[inline(always)]
    pub(super) fn slot_of(&self, base: usize, offset: usize) -> Option<Slot<'_>> {
        let segment = offset / SEGMENT;
        let (size, _) = self.get(segment)?;
        self.slot(base, segment, offset % SEGMENT / size)
    }

    /// The slots that hold bytes of these offsets.
    pub(super) fn slots_in(
        &self,
        base: usize,
        from: usize,
        to: usize,
    ) -> impl Iterator<Item = Slot<'_>> {
        (from / SEGMENT..to.div_ceil(SEGMENT)).flat_map(move |segment| {
            let start = segment * SEGMENT;
            let size = self.get(segment).map_or(SEGMENT, |(size, _)| size);
            let first = from.saturating_sub(start) / size;
            let last = (to - start).min(SEGMENT).div_ceil(size);
            (first..last).filter_map(move |index| self.slot(base, segment, index))
        })
    }

    /// Makes a segment one of slots of `size` bytes; under the lists' lock. Returns false without
    /// memory.
    fn open(&self, segment: usize, size: usize) -> bool {
        let bytes = (SEGMENT / size * size_of::<Row>()).next_multiple_of(PAGE_SIZE);
        let Ok(rows) = mem::map(bytes) else {
            return false;
        };
        self.pages[segment].store((size / PAGE_SIZE) as u32, Ordering::Relaxed);
        self.rows[segment].store(rows.cast(), Ordering::Release);
        true
    }
}

/// Slots of one size.
#[derive(Clone, Copy)]
struct Class {
    size: usize,
    /// First of the free slots that were mapped when they were given, and of the others: their
    /// number + 1, or [`END`].
    warm: u32,
    cold: u32,
    /// The segment that is being cut, and how many of its slots were taken.
    segment: usize,
    cut: usize,
}

/// What the lock of the lists guards.
pub(super) struct Lists {
    classes: [Class; CLASSES],
    /// How many of these there are.
    used: usize,
    /// How many segments were opened.
    segments: usize,
    /// True once the arena was asked for.
    pub was_opened: bool,
}

impl Lists {
    pub(super) const fn new() -> Self {
        let class = Class {
            size: 0,
            warm: 0,
            cold: 0,
            segment: 0,
            cut: 0,
        };
        Self {
            classes: [class; CLASSES],
            used: 0,
            segments: 0,
            was_opened: false,
        }
    }

    /// How many segments were ever used, the first ones.
    pub(super) fn segments(&self) -> usize {
        self.segments
    }

    fn class(&mut self, size: usize) -> Option<&mut Class> {
        let known = self.classes[..self.used]
            .iter()
            .position(|class| class.size == size);
        let index = match known {
            Some(index) => index,
            None if self.used == CLASSES => return None,
            None => {
                self.classes[self.used] = Class {
                    size,
                    warm: END,
                    cold: END,
                    segment: 0,
                    cut: usize::MAX,
                };
                self.used += 1;
                self.used - 1
            }
        };
        Some(&mut self.classes[index])
    }

    /// Takes a free slot of `size` bytes, one that is mapped if there is any.
    pub(super) fn take<'a>(
        &mut self,
        segments: &'a Segments,
        base: usize,
        size: usize,
    ) -> Option<Slot<'a>> {
        let next_segment = self.segments;
        let class = self.class(size)?;
        let list = match class.warm {
            END => &mut class.cold,
            _ => &mut class.warm,
        };
        if *list != END {
            let number = *list as usize - 1;
            let slot = segments.slot(base, number / SLOTS, number % SLOTS)?;
            *list = slot.row.next.swap(0, Ordering::Relaxed);
            return Some(slot);
        }
        if class.cut >= SEGMENT / size {
            if next_segment == SEGMENTS || !segments.open(next_segment, size) {
                return None;
            }
            (class.segment, class.cut) = (next_segment, 0);
            self.segments += 1;
        }
        let class = self.class(size)?;
        class.cut += 1;
        segments.slot(base, class.segment, class.cut - 1)
    }

    /// Lists a slot that can be taken, unless it is in a list.
    pub(super) fn give(&mut self, slot: &Slot<'_>, is_warm: bool) {
        if slot.row.next.load(Ordering::Relaxed) != 0 {
            return;
        }
        let Some(class) = self.class(slot.range.to - slot.range.from) else {
            return;
        };
        let list = if is_warm {
            &mut class.warm
        } else {
            &mut class.cold
        };
        slot.row.next.store(*list, Ordering::Relaxed);
        *list = slot.number as u32 + 1;
    }
}

/// Where the arena begins: between what the kernel maps from above and what it maps from below
/// (the program, its heap, and all mappings with an unlimited stack), and above what allocators and
/// managed runtimes ask for by address. At random, unless the process has random addresses switched
/// off.
pub(super) fn choose_base() -> usize {
    const FROM: usize = 0x5800_0000_0000;
    const TO: usize = 0x7000_0000_0000;
    const NONBLOCK: usize = nr::GRND_NONBLOCK as usize;
    const ASK: usize = 0xffff_ffff;
    const NO_RANDOMIZE: isize = 0x4_0000;
    let mut random = 0u64;
    // SAFETY: the kernel fills a word, or none; the other is a question.
    unsafe {
        if sys!(nr::__NR_personality, ASK) & NO_RANDOMIZE == 0 {
            sys!(nr::__NR_getrandom, &raw mut random, 8usize, NONBLOCK);
        }
    }
    let pages = (TO - FROM - ARENA) / PAGE_SIZE;
    FROM + random as usize % pages * PAGE_SIZE
}
