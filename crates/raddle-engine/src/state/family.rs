//! CPU time of the *family*: this process and its relatives by forks without an exec.
//!
//! A server of several processes divides the CPUs among them. Each of them alone gets little, and
//! the others are no strangers ([`crate::scheduling::contention`]). The relatives add their CPU
//! time to one word of shared memory, which is mapped when the program starts: forks before its
//! first thread are not seen. A word can't be damaged by a relative that is killed.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use raddle_sys::{is_err, mem, nr, sys};

/// The word, until [`Family::join`] nothing.
pub struct Family {
    total_ns: AtomicPtr<AtomicU64>,
}

/// Maps the word that all later children share; `None` if the kernel refuses.
#[unsafe(link_section = ".text.raddle_start")] // see `raddle_preload::start`
pub fn found() -> Option<&'static AtomicU64> {
    let access = nr::PROT_READ | nr::PROT_WRITE;
    let flags = nr::MAP_SHARED | nr::MAP_ANONYMOUS;
    // SAFETY: a fresh mapping at an address of the kernel's choice replaces no other.
    let at = unsafe {
        sys!(
            nr::__NR_mmap,
            0usize,
            mem::PAGE_SIZE,
            access,
            flags,
            usize::MAX,
            0usize
        )
    };
    // SAFETY: zeroed memory that is never unmapped, of which only this word is used.
    (!is_err(at)).then(|| unsafe { &*core::ptr::with_exposed_provenance(at as usize) })
}

impl Family {
    pub(crate) const fn new() -> Self {
        Self {
            total_ns: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Makes this process a member of the family with this word.
    pub fn join(&self, word: &'static AtomicU64) {
        let word = core::ptr::from_ref(word).cast_mut();
        self.total_ns.store(word, Ordering::Relaxed);
    }

    /// Adds CPU time of this process. Returns the family's, counted from any time; the sum of what
    /// was added by this process alone, `own_ns`, without a family.
    pub(crate) fn add(&self, added_ns: u64, own_ns: u64) -> u64 {
        let word = self.total_ns.load(Ordering::Relaxed);
        // SAFETY: null, or the word of `found`, which lives for ever.
        match unsafe { word.as_ref() } {
            Some(total_ns) => total_ns.fetch_add(added_ns, Ordering::Relaxed) + added_ns,
            None => own_ns,
        }
    }
}
