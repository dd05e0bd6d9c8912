//! Thread stacks from one arena: a hundred thousand stacks in a handful of memory mappings.
//!
//! glibc maps each stack by itself and protects its guard, two mappings a thread of the 65,530 that
//! Linux allows. The arena answers those calls from one reservation instead: *segments* of 64 MiB,
//! each cut into *slots* of one size, guards by `MADV_GUARD_INSTALL` (Linux 6.13), which takes no
//! mapping. A slot keeps its guard when it is reused, so a warm stack costs no system call at all.
//!
//! What the arena doesn't know (executable or huge stacks, parts of slots unmapped) is the
//! kernel's.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_sched::SpinLock;
use raddle_sys::mem::{self, PAGE_SIZE};
use raddle_sys::{is_err, nr, sys};

const SEGMENT: usize = 64 << 20;
const SEGMENTS: usize = 4096;
/// The smallest slot, which bounds the slots of a segment.
const MIN_SLOT: usize = 16 << 10;
/// The largest: eight to a segment.
const MAX_SLOT: usize = 8 << 20;
const SLOTS: usize = SEGMENT / MIN_SLOT;
const CLASSES: usize = 16;
const DONTNEED: usize = 4;
const NOHUGEPAGE: usize = 15;
const GUARD_INSTALL: usize = 102;
const GUARD_REMOVE: usize = 103;

/// A slot's guard in pages + 1; 0 for a slot without one, `LOST` for one that can't be used again.
type Guard = AtomicU32;
const LOST: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Class {
    size: usize,
    /// Head of the free slots, linked through the table of links; 0 ends it, else slot number + 1.
    free: u32,
    /// The segment that is being cut, and how many slots it has given.
    segment: u32,
    cut: u32,
}

struct State {
    classes: [Class; CLASSES],
    used: usize,
    segments: usize,
}

/// See the module.
pub struct Stacks {
    base: AtomicUsize,
    /// Guards, then links: one word each per slot of every segment.
    guards: AtomicUsize,
    links: AtomicUsize,
    /// Slot size of each segment; 0 before it is used.
    sizes: [AtomicUsize; SEGMENTS],
    state: SpinLock<State>,
}

/// A slot that holds an address.
#[derive(Clone, Copy)]
struct Slot {
    number: usize,
    base: usize,
    size: usize,
}

impl Stacks {
    pub(crate) const fn new() -> Self {
        let class = Class {
            size: 0,
            free: 0,
            segment: 0,
            cut: 0,
        };
        Self {
            base: AtomicUsize::new(0),
            guards: AtomicUsize::new(0),
            links: AtomicUsize::new(0),
            sizes: [const { AtomicUsize::new(0) }; SEGMENTS],
            state: SpinLock::new(State {
                classes: [class; CLASSES],
                used: 0,
                segments: 0,
            }),
        }
    }

    /// Reserves the arena if the kernel has guard regions; without them there is no arena.
    pub(crate) fn start(&self) {
        if self.base.load(Ordering::Relaxed) != 0 || !has_guard_regions() {
            return;
        }
        let words = SEGMENTS * SLOTS * size_of::<u32>();
        let (Ok(guards), Ok(links)) = (mem::map(words), mem::map(words)) else {
            return;
        };
        let Ok(base) = mem::reserve(SEGMENTS * SEGMENT) else {
            return;
        };
        self.guards
            .store(guards.expose_provenance(), Ordering::Relaxed);
        self.links
            .store(links.expose_provenance(), Ordering::Relaxed);
        self.base.store(base.expose_provenance(), Ordering::Release);
    }

    fn guard(&self, number: usize) -> &Guard {
        let table = with_exposed_provenance_mut::<Guard>(self.guards.load(Ordering::Relaxed));
        // SAFETY: the table has a word for every slot.
        unsafe { &*table.add(number) }
    }

    fn link(&self, number: usize) -> &AtomicU32 {
        let table = with_exposed_provenance_mut::<AtomicU32>(self.links.load(Ordering::Relaxed));
        // SAFETY: as above.
        unsafe { &*table.add(number) }
    }

    /// The slot that holds `address`, if the arena does.
    #[inline(always)]
    fn slot_of(&self, address: usize) -> Option<Slot> {
        let base = self.base.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(base);
        if base == 0 || offset >= SEGMENTS * SEGMENT {
            return None;
        }
        let segment = offset / SEGMENT;
        let size = self.sizes[segment].load(Ordering::Relaxed);
        if size == 0 {
            return None;
        }
        let index = offset % SEGMENT / size;
        let start = base + segment * SEGMENT + index * size;
        Some(Slot {
            number: segment * SLOTS + index,
            base: start,
            size,
        })
    }

    /// True if the range lies inside one slot.
    pub fn holds(&self, address: usize, len: usize) -> bool {
        self.slot_of(address)
            .is_some_and(|slot| address + len <= slot.base + slot.size)
    }

    /// A stack of `size` bytes; `None` if the arena can't serve it.
    pub fn allocate(&self, size: usize, accessible: bool) -> Option<usize> {
        if self.base.load(Ordering::Relaxed) == 0
            || !(MIN_SLOT..=MAX_SLOT).contains(&size)
            || !size.is_multiple_of(PAGE_SIZE)
        {
            return None;
        }
        let number = self.take(size)?;
        let base = self.base.load(Ordering::Relaxed);
        let (segment, index) = (number / SLOTS, number % SLOTS);
        let slot = Slot {
            number,
            base: base + segment * SEGMENT + index * size,
            size,
        };
        if accessible {
            self.set_guard(slot, 0);
        }
        Some(slot.base)
    }

    fn take(&self, size: usize) -> Option<usize> {
        let mut state = self.state.lock();
        let known = state.used;
        let index = match state.classes[..known]
            .iter()
            .position(|class| class.size == size)
        {
            Some(index) => index,
            None if known < CLASSES => {
                let full = (SEGMENT / size) as u32;
                state.classes[known] = Class {
                    size,
                    free: 0,
                    segment: 0,
                    cut: full,
                };
                state.used += 1;
                known
            }
            None => return None,
        };
        let class = state.classes[index];
        if class.free != 0 {
            let number = class.free as usize - 1;
            state.classes[index].free = self.link(number).load(Ordering::Relaxed);
            return Some(number);
        }
        if class.cut as usize >= SEGMENT / size {
            let segment = state.segments;
            if segment == SEGMENTS || !self.open_segment(segment, size) {
                return None;
            }
            state.segments += 1;
            state.classes[index].segment = segment as u32;
            state.classes[index].cut = 0;
        }
        let class = &mut state.classes[index];
        class.cut += 1;
        Some(class.segment as usize * SLOTS + class.cut as usize - 1)
    }

    fn open_segment(&self, segment: usize, size: usize) -> bool {
        let at = self.base.load(Ordering::Relaxed) + segment * SEGMENT;
        // SAFETY: the segment lies in the arena's reservation, unused so far.
        unsafe {
            if mem::commit(with_exposed_provenance_mut(at), SEGMENT).is_err() {
                return false;
            }
            sys!(nr::__NR_madvise, at, SEGMENT, NOHUGEPAGE);
        }
        self.sizes[segment].store(size, Ordering::Release);
        true
    }

    /// `munmap` of a range in the arena. True if it was a whole stack, which is free now.
    pub fn release(&self, address: usize, len: usize) -> bool {
        let Some(slot) = self.slot_of(address) else {
            return false;
        };
        if slot.base != address || slot.size != len {
            self.guard(slot.number).store(LOST, Ordering::Relaxed);
            return false;
        }
        if self.guard(slot.number).load(Ordering::Relaxed) == LOST {
            return false;
        }
        // SAFETY: the program gave the stack up; guards survive this.
        unsafe { sys!(nr::__NR_madvise, address, len, DONTNEED) };
        let mut state = self.state.lock();
        let used = state.used;
        if let Some(class) = state.classes[..used]
            .iter_mut()
            .find(|class| class.size == len)
        {
            self.link(slot.number).store(class.free, Ordering::Relaxed);
            class.free = slot.number as u32 + 1;
        }
        true
    }

    /// `mprotect` to no access (`accessible` = false) or to reading and writing, inside one slot.
    /// False if guard regions can't do it and the kernel should.
    pub fn protect(&self, address: usize, len: usize, accessible: bool) -> bool {
        let Some(slot) = self.slot_of(address) else {
            return false;
        };
        let end = address + len;
        if end > slot.base + slot.size || !address.is_multiple_of(PAGE_SIZE) {
            return false;
        }
        let len = len.next_multiple_of(PAGE_SIZE);
        if accessible && end == slot.base + slot.size {
            // glibc opens all of a new stack but its guard.
            return self.set_guard(slot, address - slot.base);
        }
        let advice = if accessible {
            GUARD_REMOVE
        } else {
            GUARD_INSTALL
        };
        // SAFETY: the program's own range.
        let done = unsafe { sys!(nr::__NR_madvise, address, len, advice) };
        if !is_err(done) {
            // The guard is no longer the one at the low end alone: look again on reuse.
            self.guard(slot.number).store(OTHER, Ordering::Relaxed);
        }
        !is_err(done)
    }

    /// Makes the lowest `bytes` of a slot, and nothing else, a guard.
    fn set_guard(&self, slot: Slot, bytes: usize) -> bool {
        let wanted = if bytes == 0 {
            0
        } else {
            (bytes / PAGE_SIZE) as u32 + 1
        };
        let now = self.guard(slot.number).load(Ordering::Relaxed);
        if now == wanted {
            return true;
        }
        // SAFETY: the slot belongs to the program's new thread, which doesn't run yet.
        let failed = unsafe {
            if now != 0 {
                sys!(nr::__NR_madvise, slot.base, slot.size, GUARD_REMOVE);
            }
            bytes != 0 && is_err(sys!(nr::__NR_madvise, slot.base, bytes, GUARD_INSTALL))
        };
        self.guard(slot.number)
            .store(if failed { 0 } else { wanted }, Ordering::Relaxed);
        !failed
    }

    /// In the child of a fork: the lock's holder doesn't exist.
    pub(crate) fn reset(&self) {
        // SAFETY: the child has one thread. A slot being taken when the parent forked is lost.
        unsafe { self.state.break_lock() };
    }
}

/// A slot with guards in unknown places.
const OTHER: u32 = u32::MAX - 1;

fn has_guard_regions() -> bool {
    let Ok(page) = mem::map(PAGE_SIZE) else {
        return false;
    };
    // SAFETY: our own fresh page.
    unsafe {
        let works = !is_err(sys!(nr::__NR_madvise, page, PAGE_SIZE, GUARD_INSTALL));
        mem::unmap(page, PAGE_SIZE);
        works
    }
}
