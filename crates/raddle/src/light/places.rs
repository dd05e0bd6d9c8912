//! Where tools find the light threads: [`LightPlaces`], and the regions of stacks.
//!
//! A region is noted when its memory is mapped, and a stack in it when it is used first. What
//! begins and ends is told by the light thread itself. So neither a switch nor a wake-up notes
//! anything.

use super::group::GROUP;
use super::host::Light;
use raddle_interface::{LIGHT_MAGIC, LightPlaces, LightRegion};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A region of stacks, as a [`LightRegion`]. It lives for ever.
#[repr(C)]
pub(super) struct Region {
    next: u64,
    low: u64,
    stack_bytes: u64,
    /// Stored under the lock of the free stacks; read by tools.
    used: AtomicU64,
    first: u64,
}

const _: () = {
    assert!(size_of::<Region>() == size_of::<LightRegion>());
    assert!(offset_of!(Region, used) == offset_of!(LightRegion, used));
    assert!(offset_of!(Region, first) == offset_of!(LightRegion, first));
};

/// The address of the newest region. Stored (release) under the lock of the free stacks; read by
/// tools.
static REGIONS: AtomicUsize = AtomicUsize::new(0);

/// The number of stacks that have room in all regions. Counted under that lock.
static STACKS: AtomicU64 = AtomicU64::new(0);

impl Region {
    /// Notes `bytes` bytes of fresh memory for stacks of `stack_bytes` bytes. Called under the lock
    /// of the free stacks.
    pub(super) fn note(low: usize, bytes: usize, stack_bytes: usize) -> &'static Self {
        let stacks = (bytes / stack_bytes) as u64;
        let region: &'static Self = Box::leak(Box::new(Self {
            next: REGIONS.load(Ordering::Relaxed) as u64,
            low: low as u64,
            stack_bytes: stack_bytes as u64,
            used: AtomicU64::new(0),
            first: STACKS.fetch_add(stacks, Ordering::Relaxed),
        }));
        let at = std::ptr::from_ref(region).expose_provenance();
        REGIONS.store(at, Ordering::Release);
        region
    }

    /// Notes that the stacks up to the address `end` have a light thread's structure. Called under
    /// the lock of the free stacks.
    pub(super) fn use_up_to(&self, end: usize) {
        let used = (end as u64 - self.low) / self.stack_bytes;
        self.used.store(used, Ordering::Release);
    }
}

/// Tells the runtime's tables where the light threads are. Called once.
pub(super) fn publish() {
    let places = Box::leak(Box::new(LightPlaces {
        magic: LIGHT_MAGIC,
        size: size_of::<LightPlaces>() as u64,
        regions: REGIONS.as_ptr().expose_provenance() as u64,
        epoch: GROUP.epoch.as_ptr().expose_provenance() as u64,
        light_bytes: size_of::<Light>() as u64,
        light: Light::OFFSETS,
    }));
    GROUP.control.lights.store(places, Ordering::Release);
}
