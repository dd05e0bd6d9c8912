//! The wide vector state: what the registers have beyond xmm0 to xmm15.

use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The components of the wide state: the upper halves of ymm0 to ymm15, the masks k0 to k7, the
/// upper halves of zmm0 to zmm15, and zmm16 to zmm31 (Intel SDM 1, 13.1).
const COMPONENTS: [u32; 4] = [2, 5, 6, 7];

/// What an entry saves of the wide state, in the standard form of `xsave`.
///
/// The kernel keeps all registers over a call. The runtime's code uses none of these, but a call
/// that waits may return on another CPU, and other threads run meanwhile. Most functions leave them
/// unused, which one instruction tells.
#[repr(C)]
pub struct WideState {
    /// The components, one bit each; 0 if none is to be saved.
    components: AtomicU32,
    unused: u32,
    /// The size of an area in bytes.
    bytes: AtomicU64,
}

impl WideState {
    /// Returns the state of a CPU without vector registers.
    pub const fn new() -> Self {
        Self {
            components: AtomicU32::new(0),
            unused: 0,
            bytes: AtomicU64::new(0),
        }
    }

    /// Asks the CPU for its components.
    pub fn find(&self) {
        /// In ecx of leaf 1: the kernel has enabled `xsave`.
        const ENABLED: u32 = 1 << 27;
        /// In eax of leaf 13, 1: `xgetbv` tells what is in use.
        const TELLS_USE: u32 = 1 << 2;
        const LEAF: u32 = 0xd;
        if __cpuid_count(1, 0).ecx & ENABLED == 0 || __cpuid_count(LEAF, 1).eax & TELLS_USE == 0 {
            return;
        }
        let enabled = enabled_components();
        let (mut components, mut bytes) = (0, 0);
        for component in COMPONENTS {
            if enabled & 1 << component != 0 {
                let place = __cpuid_count(LEAF, component);
                components |= 1 << component;
                bytes = bytes.max(place.ebx + place.eax);
            }
        }
        self.bytes.store(bytes.into(), Ordering::Relaxed);
        self.components.store(components, Ordering::Relaxed);
    }

    /// Returns the components, one bit each, and the size of an area in bytes.
    pub(crate) fn get(&self) -> (u64, usize) {
        let components = self.components.load(Ordering::Relaxed);
        (
            components.into(),
            self.bytes.load(Ordering::Relaxed) as usize,
        )
    }
}

impl Default for WideState {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the components that the kernel has enabled (XCR0).
fn enabled_components() -> u32 {
    let low;
    // SAFETY: reads a register that exists where `xsave` is enabled.
    unsafe {
        core::arch::asm!(
            "xgetbv",
            in("ecx") 0,
            out("eax") low,
            out("edx") _,
            options(nomem, nostack, preserves_flags)
        );
    }
    low
}
