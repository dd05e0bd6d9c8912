//! Gives pages of patched text back that the patching only read.
//!
//! A text of which one page was changed has anonymous memory, and then a fork copies the entries of
//! all its pages that are there: of those that were only read, too, which are nearly all after a
//! look for system calls. The kernel finds such a page in its cache when it is needed again.

use raddle_patch::Image;
use raddle_sys::{is_err, mem, nr, sys};

/// Entries of the page map that are read at a time.
const EACH: usize = 256;

/// Gives the clean pages of an image's text back. Without the page map nothing happens: pages that
/// were changed, by a debugger perhaps, can't be told from others.
pub(crate) fn give_back(image: &Image) {
    const FOLDER: isize = -100;
    const READ_ONLY: usize = 0o2000000; // O_RDONLY | O_CLOEXEC
    let path = c"/proc/self/pagemap";
    // SAFETY: a zero-terminated path; the descriptor is closed below, and one thread exists.
    let fd = unsafe { sys!(nr::__NR_openat, FOLDER, path.as_ptr(), READ_ONLY, 0usize) };
    if is_err(fd) {
        return;
    }
    let (from, to) = image.text_range();
    let mut at = from & !(mem::PAGE_SIZE - 1);
    while at < to {
        let count = (to - at).div_ceil(mem::PAGE_SIZE).min(EACH);
        if !give_some_back(fd as usize, at, count) {
            break;
        }
        at += count * mem::PAGE_SIZE;
    }
    // SAFETY: the descriptor that was opened above.
    unsafe { sys!(nr::__NR_close, fd) };
}

/// The same for `count` pages from `at`; false if the page map can't be read.
fn give_some_back(map: usize, at: usize, count: usize) -> bool {
    const MADV_DONTNEED: usize = nr::MADV_DONTNEED as usize;
    const PRESENT: u64 = 1 << 63;
    const OF_FILE: u64 = 1 << 61;
    let mut entries = [0u64; EACH];
    let bytes = count * size_of::<u64>();
    let offset = at / mem::PAGE_SIZE * size_of::<u64>();
    // SAFETY: the kernel fills at most `bytes` of the array.
    let read = unsafe { sys!(nr::__NR_pread64, map, entries.as_mut_ptr(), bytes, offset) };
    if read != bytes as isize {
        return false;
    }
    let is_clean = |entry: &u64| entry & (PRESENT | OF_FILE) == PRESENT | OF_FILE;
    let mut first = 0;
    for run in entries[..count].chunk_by(|a, b| is_clean(a) == is_clean(b)) {
        if is_clean(&run[0]) {
            let (start, len) = (at + first * mem::PAGE_SIZE, run.len() * mem::PAGE_SIZE);
            // SAFETY: these pages are as in the file, from where the kernel maps them again.
            unsafe { sys!(nr::__NR_madvise, start, len, MADV_DONTNEED) };
        }
        first += run.len();
    }
    true
}
