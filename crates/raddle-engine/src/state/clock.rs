//! CLOCK_MONOTONIC and CLOCK_REALTIME through the vDSO, without libc.
//!
//! The vDSO's code is foreign to the runtime but runs inside it, so a signal that arrives there
//! must be deferred as one inside the runtime's text: [`crate::state::carrier::Carrier::in_clock`]
//! says so.

use crate::state::carrier::Carrier;
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};
use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

/// `CLOCK_REALTIME`.
pub const REALTIME: u32 = nr::CLOCK_REALTIME;
/// `CLOCK_MONOTONIC`.
pub const MONOTONIC: u32 = nr::CLOCK_MONOTONIC;

type ClockGettime = extern "C" fn(u32, *mut Timespec) -> i32;

/// Address of `__vdso_clock_gettime`, or 0. Written once at start-up.
static VDSO_CLOCK_GETTIME: AtomicUsize = AtomicUsize::new(0);

/// Finds the vDSO's clock.
///
/// # Safety
/// `vdso` is AT_SYSINFO_EHDR's value, or 0.
pub unsafe fn init(vdso: usize) {
    if vdso != 0 {
        // SAFETY: the kernel mapped a well-formed ELF image there.
        let found = unsafe { find_symbol(vdso, b"__vdso_clock_gettime\0") };
        VDSO_CLOCK_GETTIME.store(found, Ordering::Relaxed);
    }
}

/// The time of `clock` in nanoseconds.
#[inline(always)]
pub fn read_ns(clock: u32) -> u64 {
    let mut time = Timespec::default();
    let function = VDSO_CLOCK_GETTIME.load(Ordering::Relaxed);
    if function == 0 {
        // SAFETY: the kernel fills a live structure.
        unsafe { sys!(nr::__NR_clock_gettime, clock, &raw mut time) };
    } else {
        let carrier = Carrier::current_or_null();
        // SAFETY: non-null carriers live for ever; the pointer is the vDSO's function.
        unsafe {
            let call: ClockGettime = transmute(function);
            if let Some(carrier) = carrier.as_ref() {
                carrier.in_clock.set(1);
                call(clock, &raw mut time);
                carrier.in_clock.set(0);
            } else {
                call(clock, &raw mut time);
            }
        }
    }
    (time.sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nsec as u64)
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub fn now_ns() -> u64 {
    read_ns(MONOTONIC)
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    vaddr: u64,
    paddr: u64,
    filesz: u64,
    memsz: u64,
    align: u64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Looks a name (with its final zero) up in a mapped image's dynamic symbols.
unsafe fn find_symbol(base: usize, wanted: &[u8]) -> usize {
    // SAFETY: offsets of the ELF header and tables of an image that the kernel made.
    unsafe {
        let headers = (base + *((base + 32) as *const u64) as usize) as *const ProgramHeader;
        let count = *((base + 56) as *const u16) as usize;
        let headers = core::slice::from_raw_parts(headers, count);
        let Some(load) = headers.iter().find(|h| h.kind == 1) else {
            return 0;
        };
        let Some(dynamic) = headers.iter().find(|h| h.kind == 2) else {
            return 0;
        };
        let bias = base
            .wrapping_add(load.offset as usize)
            .wrapping_sub(load.vaddr as usize);
        let mut entry = (base + dynamic.offset as usize) as *const [u64; 2];
        let (mut symbols, mut strings, mut hash) = (0usize, 0usize, 0usize);
        while (*entry)[0] != 0 {
            let value = bias.wrapping_add((*entry)[1] as usize);
            match (*entry)[0] {
                4 => hash = value,
                5 => strings = value,
                6 => symbols = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        if symbols == 0 || strings == 0 {
            return 0;
        }
        // Without DT_HASH the symbol table ends where the string table begins.
        let total = if hash != 0 {
            *((hash + 4) as *const u32) as usize
        } else {
            strings.saturating_sub(symbols) / size_of::<Symbol>()
        };
        for symbol in core::slice::from_raw_parts(symbols as *const Symbol, total) {
            let name = (strings + symbol.name as usize) as *const u8;
            if (0..wanted.len()).all(|i| *name.add(i) == wanted[i]) {
                return bias.wrapping_add(symbol.value as usize);
            }
        }
        0
    }
}
