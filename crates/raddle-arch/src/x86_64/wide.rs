//! The wide state: what the vector and x87 registers have beyond xmm0 to xmm15.

use core::arch::x86_64::__cpuid_count;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The bit of the component of the x87 and MMX registers.
#[doc(hidden)]
pub const X87: u64 = 1;
/// The other components of the wide state: the upper halves of ymm0 to ymm15, the masks k0 to k7,
/// the upper halves of zmm0 to zmm15, and zmm16 to zmm31 (Intel SDM 1, 13.1).
const COMPONENTS: [u32; 4] = [2, 5, 6, 7];
/// The size of an area with the x87 registers alone: what `fxsave` writes, and the header.
const LEAST: u32 = 576;

/// The instructions that save the state.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Form {
    /// `fxsave`: the CPU has no `xsave`, and no components but x87's.
    Legacy = 0,
    /// `xsave`.
    Extended = 1,
    /// `xsave` of what `xgetbv` says to be in use.
    InUse = 2,
}

/// What an entry saves of the wide state, in the standard form of `xsave`.
///
/// The kernel keeps all registers over a call. The runtime's code uses none of these, but a call
/// that waits may return on another CPU, and other threads run meanwhile. Most functions leave them
/// unused, which one instruction tells on most CPUs.
#[repr(C)]
pub struct WideState {
    /// The components, one bit each; 0 if none is to be saved.
    components: AtomicU32,
    /// A [`Form`].
    form: AtomicU32,
    /// The size of an area in bytes.
    bytes: AtomicU64,
}

impl WideState {
    /// Returns the state of a process in which nothing is to be saved yet.
    pub const fn new() -> Self {
        Self {
            components: AtomicU32::new(0),
            form: AtomicU32::new(Form::Legacy as u32),
            bytes: AtomicU64::new(0),
        }
    }

    /// Asks the CPU for its components.
    pub fn find(&self) {
        let (mut components, mut bytes) = (X87 as u32, LEAST);
        let form = form();
        if !matches!(form, Form::Legacy) {
            let enabled = enabled_components();
            for component in COMPONENTS {
                if enabled & 1 << component != 0 {
                    let place = __cpuid_count(LEAF, component);
                    components |= 1 << component;
                    bytes = bytes.max(place.ebx + place.eax);
                }
            }
        }
        self.form.store(form as u32, Ordering::Relaxed);
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

/// The leaf of `cpuid` that describes `xsave`.
const LEAF: u32 = 0xd;

/// Returns the best form that the CPU has.
fn form() -> Form {
    /// In ecx of leaf 1: the kernel has enabled `xsave`.
    const ENABLED: u32 = 1 << 27;
    /// In eax of leaf 13, 1: `xgetbv` tells what is in use.
    const TELLS_USE: u32 = 1 << 2;
    if __cpuid_count(1, 0).ecx & ENABLED == 0 {
        Form::Legacy
    } else if __cpuid_count(LEAF, 1).eax & TELLS_USE == 0 {
        Form::Extended
    } else {
        Form::InUse
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
