//! Tells whether pages hold nothing, so that a guard may take their place.

use crate::user::User;
use raddle_engine::PROCESS;
use raddle_engine::stacks::Range;
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{nr, sys};

/// More pages than a managed runtime protects below its stacks; the kernel protects larger ranges.
const MOST: usize = 64;

/// Words of `struct sysinfo`, and which of them say how much swap there is, and is free.
const SYSTEM_WORDS: usize = 14;
const TOTAL_SWAP: usize = 8;
const FREE_SWAP: usize = 9;

/// Returns true if the pages of a stack hold zeros alone, most likely because no thread has touched
/// them. A write by another thread at this very moment may be missed. Returns false if a filter
/// forbids the question.
#[inline(never)] // callers needn't reserve its frame
pub(super) fn is_clean(range: Range) -> bool {
    let pages = (range.to - range.from) / PAGE_SIZE;
    if pages > MOST {
        return false;
    }
    let mut resident = [0u8; MOST];
    let mut system = [0u64; SYSTEM_WORDS];
    // SAFETY: the kernel fills a byte a page, and a live `struct sysinfo`.
    let ask = || unsafe {
        let (from, len) = (range.from, range.to - range.from);
        let known = sys!(nr::__NR_mincore, from, len, resident.as_mut_ptr());
        known | sys!(nr::__NR_sysinfo, system.as_mut_ptr())
    };
    if PROCESS.filters.unless_any(ask) != Some(0)
        || resident[..pages].iter().any(|page| page & 1 != 0)
    {
        return false;
    }
    // A page that isn't in memory was never touched, or it was swapped out.
    let is_swap_used = system[TOTAL_SWAP] != system[FREE_SWAP];
    !is_swap_used || (0..pages).all(|page| is_zero(range.from + page * PAGE_SIZE))
}

fn is_zero(page: usize) -> bool {
    const PART: usize = 512;
    (page..page + PAGE_SIZE).step_by(PART).all(|at| {
        User::<[u64; PART / 8]>::at(at)
            .read()
            .is_ok_and(|words| words == [0; PART / 8])
    })
}
