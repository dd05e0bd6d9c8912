//! Restartable sequences, which a kernel thread's registration can't give to green threads.

use crate::environment::Environment;
use crate::objects::{find, is_protected};
use crate::original::{self, LinkMap};
use core::cell::UnsafeCell;
use core::ptr::with_exposed_provenance_mut;
use raddle_sys::{is_err, mem, nr, sys};

const PROT_READ: usize = nr::PROT_READ as usize;
const PROT_WRITE: usize = nr::PROT_WRITE as usize;
const UNREGISTER: usize = 1;
const SIGNATURE: usize = 0x5305_3053;
const REGISTRATION_FAILED: u32 = -2i32 as u32;

/// What the kernel writes to while the process waits for its first thread.
#[repr(C, align(32))]
struct Area(UnsafeCell<[u32; 8]>);

// SAFETY: the kernel alone writes to it, for the one kernel thread that has registered it.
unsafe impl Sync for Area {}

static PLACEHOLDER: Area = Area(UnsafeCell::new([0; 8]));

/// Takes the kernel's rseq registration of the main thread back: it would go on writing the CPU of
/// carrier 0 while the thread runs on another. Then says what glibc says where there is no rseq:
/// "registration failed" in the area, which new threads inherit, and a size of 0.
///
/// The program must not have a registration instead, since its other threads get none: until the
/// runtime answers its calls, another area takes the place, so that the kernel refuses any other,
/// as it does natively while glibc has one.
///
/// # Safety
/// `map` must be ld.so's list.
pub(crate) unsafe fn withdraw(environment: &Environment, map: &LinkMap) {
    let Some(ldso) = find(map, c"ld-linux-x86-64.so.2") else {
        return;
    };
    // SAFETY: an entry of ld.so's list; the symbols are of these types since glibc 2.35.
    let is_withdrawn = unsafe {
        let (offset, size) = (
            original::symbol(ldso, c"__rseq_offset"),
            original::symbol(ldso, c"__rseq_size"),
        );
        let is_withdrawn = offset != 0 && size != 0 && take_back(offset, size);
        if is_withdrawn {
            set_protected(size, 0);
            // Of a program that refers to it without position-independent code.
            let copy = original::symbol(map, c"__rseq_size");
            if copy != 0 && is_protected(environment, copy) {
                set_protected(copy, 0);
            } else if copy != 0 {
                with_exposed_provenance_mut::<u32>(copy).write_volatile(0);
            }
        }
        is_withdrawn
    };
    if is_withdrawn || !has_filter() {
        let _ = register(0);
    }
}

/// Gives the place back: the runtime answers the program's calls from now on.
pub(crate) fn give_place_back() {
    let _ = register(UNREGISTER);
}

fn register(flags: usize) -> isize {
    let area = PLACEHOLDER.0.get().expose_provenance();
    // SAFETY: the area lives for ever, and is read by the kernel alone.
    unsafe { sys!(nr::__NR_rseq, area, size_of::<Area>(), flags, SIGNATURE) }
}

/// Returns true if a filter of system calls may end the process for a call that glibc didn't make.
fn has_filter() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: no memory is involved.
    unsafe { sys!(nr::__NR_prctl, PR_GET_SECCOMP) != 0 }
}

/// Ends glibc's registration, and says so in its area. Returns false if there was none.
///
/// # Safety
/// `offset` and `size` must be addresses of ld.so's words.
unsafe fn take_back(offset: usize, size: usize) -> bool {
    // SAFETY: the caller's promise. cpu_id is the second word of the area.
    unsafe {
        let size = *(size as *const u32);
        if size == 0 {
            return false;
        }
        let area = (raddle_arch::fs_base() as i64 + *(offset as *const i64)) as usize;
        let len = size.max(32) as usize;
        if is_err(sys!(nr::__NR_rseq, area, len, UNREGISTER, SIGNATURE)) {
            return false;
        }
        with_exposed_provenance_mut::<u32>(area + 4).write_volatile(REGISTRATION_FAILED);
    }
    true
}

/// Writes a word in memory that ld.so has protected after its relocation.
///
/// # Safety
/// `address` must be that of such a word.
unsafe fn set_protected(address: usize, value: u32) {
    let page = with_exposed_provenance_mut::<u8>(address & !(mem::PAGE_SIZE - 1));
    // SAFETY: the caller's promise.
    unsafe {
        if mem::protect(page, mem::PAGE_SIZE, PROT_READ | PROT_WRITE).is_ok() {
            with_exposed_provenance_mut::<u32>(address).write_volatile(value);
            let _ = mem::protect(page, mem::PAGE_SIZE, PROT_READ);
        }
    }
}
