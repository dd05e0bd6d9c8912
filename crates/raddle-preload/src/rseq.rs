//! Restartable sequences, which a kernel thread's registration can't give to green threads.

use crate::objects::find;
use crate::original::{self, LinkMap};
use core::ptr::with_exposed_provenance_mut;
use raddle_sys::{is_err, mem, nr, sys};

const PROT_READ: usize = nr::PROT_READ as usize;
const PROT_WRITE: usize = nr::PROT_WRITE as usize;

/// Takes the kernel's rseq registration of the main thread back: it would go on writing the CPU of
/// carrier 0 while the thread runs on another. Then says what glibc says where there is no rseq:
/// "registration failed" in the area, which new threads inherit, and a size of 0.
///
/// # Safety
/// `map` must be ld.so's list.
pub(crate) unsafe fn withdraw(map: &LinkMap) {
    const UNREGISTER: usize = 1;
    const SIGNATURE: usize = 0x5305_3053;
    const REGISTRATION_FAILED: u32 = -2i32 as u32;
    let Some(ldso) = find(map, c"ld-linux-x86-64.so.2") else {
        return;
    };
    // SAFETY: an entry of ld.so's list; the symbols are of these types since glibc 2.35. The size
    // lies in memory that ld.so has protected after its relocation; cpu_id is the second word.
    unsafe {
        let (offset, size) = (
            original::symbol(ldso, c"__rseq_offset"),
            original::symbol(ldso, c"__rseq_size"),
        );
        if offset == 0 || size == 0 || *(size as *const u32) == 0 {
            return;
        }
        let area = (raddle_arch::fs_base() as i64 + *(offset as *const i64)) as usize;
        let len = (*(size as *const u32)).max(32);
        if is_err(sys!(nr::__NR_rseq, area, len, UNREGISTER, SIGNATURE)) {
            return;
        }
        with_exposed_provenance_mut::<u32>(area + 4).write_volatile(REGISTRATION_FAILED);
        let page = with_exposed_provenance_mut::<u8>(size & !(mem::PAGE_SIZE - 1));
        if mem::protect(page, mem::PAGE_SIZE, PROT_READ | PROT_WRITE).is_ok() {
            with_exposed_provenance_mut::<u32>(size).write_volatile(0);
            let _ = mem::protect(page, mem::PAGE_SIZE, PROT_READ);
        }
    }
}
