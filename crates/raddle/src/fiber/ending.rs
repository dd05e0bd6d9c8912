//! The end of a thread with suspended fibers.
//!
//! A suspended fiber may hold references into thread-locals. At the thread's end libc calls their
//! destructors, the newest first, and one of them could continue the fiber after another one has
//! run. So a *guard* lies among the destructors, which forbids all switches from then on. The guard
//! must run before the destructor of each thread-local that the fiber may know: when a fiber is
//! left, and destructors were added since the newest guard, another guard is added.
//!
//! Added destructors show in libc's own list: its head is a word at the same place in the
//! thread-locals of each thread, which [`find`] looks for. Where it isn't found, each fiber that is
//! left costs a guard.

use super::{CURRENT, Inner};
use raddle_arch::thread_local_word;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::Once;
use std::sync::atomic::{AtomicIsize, Ordering};

type Destructor = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    /// Adds a destructor to the calling thread's, on behalf of the library that holds `library`.
    #[link_name = "__cxa_thread_atexit_impl"]
    fn add(destructor: Destructor, object: *mut c_void, library: *const c_void) -> c_int;
}

/// [`HEAD`] before the search, and after one that failed: the word at offset 0, the block's
/// address, is never 0.
const UNKNOWN: isize = 0;

/// Offset in bytes of libc's head of the list of destructors from the thread block.
static HEAD: AtomicIsize = AtomicIsize::new(UNKNOWN);
static SEARCH: Once = Once::new();

thread_local! {
    /// The head of the list after the newest guard was added; 0 where the head isn't known.
    static SEEN: Cell<usize> = const { Cell::new(0) };
    /// True once there was a guard: fibers may be suspended.
    static HAS_GUARD: Cell<bool> = const { Cell::new(false) };
    /// True once a guard was called: no fiber is continued any more.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
    /// The fiber that ran when a guard was called.
    static LAST: Cell<*const Inner> = const { Cell::new(null()) };
}

/// Returns true once the calling thread's fibers are lost.
pub(super) fn is_over() -> bool {
    IS_OVER.get()
}

/// Returns the fiber that ran when the fibers were lost; null after the first call.
pub(super) fn take_last() -> *const Inner {
    LAST.replace(null())
}

/// Forbids switches: no suspended fiber of the calling thread is continued any more.
pub(crate) fn lose_fibers() {
    if !HAS_GUARD.get() {
        return;
    }
    let current = CURRENT.replace(null());
    if !current.is_null() {
        LAST.set(current);
    }
    IS_OVER.set(true);
}

/// Adds a guard if destructors were added since the newest one. The running fiber is about to be
/// left.
#[inline(always)]
pub(super) fn guard() {
    // SAFETY: `HEAD` is the offset of a word in libc's thread-locals, which lie at the same place
    // in each thread; or 0, the first word of the block.
    if unsafe { thread_local_word(HEAD.load(Ordering::Relaxed)) } != SEEN.get() {
        add_guard();
    }
}

#[cold]
fn add_guard() {
    unsafe extern "C" fn ends(_: *mut c_void) {
        lose_fibers();
    }
    HAS_GUARD.set(true);
    SEARCH.call_once(|| HEAD.store(find().unwrap_or(UNKNOWN), Ordering::Relaxed));
    // SAFETY: a function that any thread may call at its end. Without memory libc aborts.
    unsafe { add(ends, null_mut(), library()) };
    SEEN.set(match HEAD.load(Ordering::Relaxed) {
        UNKNOWN => 0,
        // SAFETY: as in `guard`.
        head => unsafe { thread_local_word(head) },
    });
}

/// An address in this library.
fn library() -> *const c_void {
    (&raw const HEAD).cast()
}

/// An entry of libc's list.
#[repr(C)]
struct Entry {
    function: usize,
    object: usize,
    map: usize,
    next: usize,
}

/// The calling thread's thread-locals of libc.
struct Area {
    at: *const usize,
    words: usize,
}

impl Area {
    fn find() -> Option<Self> {
        unsafe extern "C" fn look(
            info: *mut libc::dl_phdr_info,
            _: usize,
            to: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader's record of one library, and the caller's place for the answer.
            unsafe {
                let info = &*info;
                let name = std::ffi::CStr::from_ptr(info.dlpi_name).to_bytes();
                if !name.ends_with(b"/libc.so.6") || info.dlpi_tls_data.is_null() {
                    return 0;
                }
                let headers = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
                let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_TLS)
                else {
                    return 0;
                };
                to.cast::<Option<Area>>().write(Some(Area {
                    at: info.dlpi_tls_data.cast::<usize>().cast_const(),
                    words: header.p_memsz as usize / 8,
                }));
            }
            1
        }
        let mut found: Option<Self> = None;
        // SAFETY: the function gets a place for its answer.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        found
    }

    fn read(&self) -> Vec<usize> {
        // SAFETY: the calling thread's words, which no other thread writes.
        let words = (0..self.words).map(|index| unsafe { self.at.add(index).read_volatile() });
        words.collect()
    }
}

/// Finds the head of libc's list: adds two destructors that do nothing, and looks for the word that
/// pointed to the first entry and then to the second.
fn find() -> Option<isize> {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let area = Area::find()?;
    let mut before = Vec::with_capacity(area.words);
    before.extend(area.read());
    let mut marks = [0u8; 2].map(|_| Box::new(0u8));
    let mut heads = [0; 2];
    let mut found = None;
    for (mark, head) in marks.iter_mut().zip(&mut heads) {
        let object = std::ptr::from_mut(&mut **mark).cast::<c_void>();
        before = area.read();
        // SAFETY: a function that any thread may call at its end; the object is a name only.
        unsafe { add(nothing, object, library()) };
        let leads_to_it = |&index: &usize| {
            // SAFETY: as in `read`.
            let now = unsafe { area.at.add(index).read_volatile() };
            let is_new = now != before[index] && now != 0 && now.is_multiple_of(16);
            // SAFETY: libc has just stored the address of an entry, or of something as large: any
            // pointer that this call changes there is to memory of libc's heap.
            let leads = |at: usize| unsafe {
                (*std::ptr::with_exposed_provenance::<Entry>(at)).object == object.addr()
            };
            is_new && leads(now)
        };
        let index = (0..area.words).find(leads_to_it)?;
        // SAFETY: as in `read`.
        *head = unsafe { area.at.add(index).read_volatile() };
        if found.is_some_and(|before| before != index) {
            return None;
        }
        found = Some(index);
    }
    // SAFETY: the second entry, which is there until the thread ends.
    let second = unsafe { &*std::ptr::with_exposed_provenance::<Entry>(heads[1]) };
    if second.next != heads[0] || second.function == 0 || second.map == 0 {
        return None;
    }
    let at = area.at.addr().wrapping_add(8 * found?);
    // SAFETY: the calling thread's name, which on x86-64 is its block's address.
    let block = unsafe { libc::pthread_self() } as usize;
    let offset = at.wrapping_sub(block) as isize;
    (offset != UNKNOWN && offset & 7 == 0).then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_destructors_is_found() {
        let at = find().expect("libc has it where it always was");
        let in_another = std::thread::spawn(move || {
            // SAFETY: the place that was found.
            let read = || unsafe { thread_local_word(at) };
            let before = read();
            thread_local!(static VALUE: Box<u8> = Box::new(5));
            VALUE.with(|_| ());
            let after = read();
            VALUE.with(|_| ());
            (before != after, after == read())
        });
        assert_eq!(in_another.join().unwrap(), (true, true));
    }
}
