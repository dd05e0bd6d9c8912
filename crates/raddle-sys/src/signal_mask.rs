//! The signal mask of a kernel thread.

use crate::{nr, sys};

/// Changes the set of signals that the calling kernel thread blocks: by `signals`, and as `how`
/// says (`SIG_BLOCK`, `SIG_UNBLOCK`, `SIG_SETMASK`). Signal N is bit N - 1. Returns the set from
/// before.
///
/// # Safety
/// Signals that are open afterwards may arrive before the return: their handlers must be fit for
/// this kernel thread, here.
pub unsafe fn change_signal_mask(how: u32, signals: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the kernel reads and fills live words; the caller answers for what arrives.
    unsafe {
        sys!(
            nr::__NR_rt_sigprocmask,
            how,
            &raw const signals,
            &raw mut before,
            size_of::<u64>()
        )
    };
    before
}
