//! What [`crate::kernel_events::block_events`] keeps.

use core::sync::atomic::{AtomicU32, AtomicUsize};

/// The engine's part: where the rings are.
pub(crate) struct BlockEvents {
    /// Address of a page of entries, one a carrier by its id; 0 before the first.
    pub(crate) table: AtomicUsize,
    /// 1 if carriers may have them.
    pub(crate) permitted: AtomicU32,
    /// 1 once the first event is there. Written by the thread that makes it, read by sysmon.
    pub(crate) ready: AtomicU32,
}

impl BlockEvents {
    pub(crate) const fn new() -> Self {
        Self {
            table: AtomicUsize::new(0),
            permitted: AtomicU32::new(0),
            ready: AtomicU32::new(0),
        }
    }
}
