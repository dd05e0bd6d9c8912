//! Signals that have arrived on a carrier: its handler puts them in, and the carrier takes them out
//! in their order.
//!
//! The ring has room for some. A carrier with a full ring blocks further signals, and the kernel
//! keeps them. But a child, or a new program, inherits the mask, so that a carrier that is making
//! one can't; and it never blocks the signal that preempts, which is that of libc's timers, too.
//! What comes then goes to *pages*, which the handler maps.
//!
//! 1. The handler, which nothing interrupts, appends to the newest page, if there is one or the
//!    ring is full.
//! 2. The carrier empties the ring, and then takes all pages at once. From that moment on the
//!    handler uses the ring again.
//! 3. What was taken is older than what is in the ring.

use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use raddle_sched::arrivals::Arrivals;
use raddle_sys::abi::SigInfo;
use raddle_sys::mem::{self, PAGE_SIZE};

/// Signals in the ring.
const RING: usize = 32;
/// Signals in a page.
const IN_PAGE: usize = (PAGE_SIZE - 16) / size_of::<SigInfo>();

/// See the module. Zero bytes are an empty one.
#[repr(C)]
pub struct Inbox {
    ring: Arrivals<SigInfo, RING>,
    /// The newest page of the handler's.
    pages: AtomicPtr<Page>,
    /// The oldest page that was taken, and how many of its signals were taken out. Used by the
    /// carrier alone.
    taken: Cell<*mut Page>,
    out: Cell<usize>,
}

/// In memory of its own.
#[repr(C)]
struct Page {
    /// The page before; once it was taken, the page after.
    next: *mut Page,
    count: usize,
    signals: [SigInfo; IN_PAGE],
}

const _: () = assert!(size_of::<Page>() <= PAGE_SIZE);

impl Inbox {
    /// Appends. Returns false without memory.
    ///
    /// # Signal safety
    /// For the carrier's handler alone.
    pub fn push(&self, info: &SigInfo) -> bool {
        let newest = self.pages.load(Ordering::Relaxed);
        if newest.is_null() && self.ring.push(info) {
            return true;
        }
        let Some(page) = Self::page_with_room(newest) else {
            return false;
        };
        // SAFETY: the handler's own page, until the carrier, which the handler has interrupted,
        // takes it.
        let page_to_fill = unsafe { &mut *page };
        page_to_fill.signals[page_to_fill.count] = *info;
        page_to_fill.count += 1;
        self.pages.store(page, Ordering::Release);
        true
    }

    #[cold]
    fn page_with_room(newest: *mut Page) -> Option<*mut Page> {
        // SAFETY: null, or the handler's own page.
        if unsafe { newest.as_ref() }.is_some_and(|page| page.count < IN_PAGE) {
            return Some(newest);
        }
        let page = mem::map(PAGE_SIZE).ok()?.cast::<Page>();
        // SAFETY: just mapped, zeroed and aligned.
        unsafe { (*page).next = newest };
        Some(page)
    }

    /// Takes the oldest. Called by the carrier.
    #[inline(always)]
    pub fn pop(&self) -> Option<SigInfo> {
        if self.taken.get().is_null() {
            let first = self.ring.pop();
            if first.is_some() || self.pages.load(Ordering::Relaxed).is_null() {
                return first;
            }
        }
        self.pop_from_pages()
    }

    #[cold]
    fn pop_from_pages(&self) -> Option<SigInfo> {
        if self.taken.get().is_null() {
            self.take_pages();
        }
        let page = self.taken.get();
        // SAFETY: null, or a page that was taken, with so many signals.
        let (info, count, next) = unsafe {
            let page = page.as_ref()?;
            (page.signals[self.out.get()], page.count, page.next)
        };
        self.out.set(self.out.get() + 1);
        if self.out.get() == count {
            self.out.set(0);
            self.taken.set(next);
            // SAFETY: the page is in no list any more.
            unsafe { mem::unmap(page.cast(), PAGE_SIZE) };
        }
        Some(info)
    }

    /// Takes all pages, the oldest first.
    fn take_pages(&self) {
        let mut page = self.pages.swap(null_mut(), Ordering::Acquire);
        let mut after = null_mut();
        // SAFETY: null, or a page, which is the carrier's from the swap on.
        while let Some(one) = unsafe { page.as_mut() } {
            let before = core::mem::replace(&mut one.next, after);
            after = page;
            page = before;
        }
        self.taken.set(after);
    }

    /// Returns true if the ring has no room for another.
    pub fn is_full(&self) -> bool {
        self.ring.is_full()
    }

    /// Returns true if there was nothing to look at a moment ago.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
            && self.pages.load(Ordering::Relaxed).is_null()
            && self.taken.get().is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(number: i32) -> SigInfo {
        SigInfo {
            signo: number,
            ..SigInfo::EMPTY
        }
    }

    #[test]
    fn more_than_the_ring_holds_come_out_in_their_order() {
        let inbox = Inbox {
            ring: Arrivals::new(SigInfo::EMPTY),
            pages: AtomicPtr::new(null_mut()),
            taken: Cell::new(null_mut()),
            out: Cell::new(0),
        };
        let pop = || inbox.pop().map(|info| info.signo);
        assert!(inbox.is_empty() && pop().is_none());
        for number in 0..100 {
            assert!(inbox.push(&signal(number)));
        }
        assert!(inbox.is_full());
        assert!(
            (0..50).all(|number| pop() == Some(number)),
            "the ring, and a page"
        );
        for number in 100..120 {
            assert!(inbox.push(&signal(number)), "to the ring again");
        }
        assert!((50..120).all(|number| pop() == Some(number)));
        assert!(inbox.is_empty() && !inbox.is_full() && pop().is_none());
    }
}
