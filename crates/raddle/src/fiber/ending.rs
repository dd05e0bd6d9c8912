//! The end of a thread with suspended fibers.
//!
//! A suspended fiber may hold references into thread-locals, and may have lent them to other
//! threads. At the thread's end libc calls the destructors of thread-locals, the newest first. A
//! *guard* lies among them:
//!
//! 1. The guard runs before the destructor of each thread-local that a suspended fiber may know:
//!    when a fiber is left, and destructors were added since the newest guard, another guard is
//!    added. The first fiber that is left adds one in any case, since thread-locals without a
//!    destructor go as well.
//! 2. The guard forbids switches, and *ends* each suspended fiber: it switches to it with [`END`]
//!    in [`DEAD`], and the fiber unwinds itself ([`end`]). What borrows a thread-local for other
//!    threads waits for them while it is unwound.
//! 3. An unwound fiber switches back to the guard, its *ender*, instead of to its successor.
//!
//! Rejected: to abort at the end of a thread with suspended fibers, since programs leave fibers in
//! an endless loop and end; to return an error from the switch in any case, since a loop that
//! ignores it would keep the thread.
//!
//! Added destructors show in libc's own list: its head is a word at the same place in the
//! thread-locals of each thread, which [`find`] looks for. Where it isn't found, each fiber that is
//! left costs a guard.

use super::{CURRENT, DEAD, Error, Inner, State, go};
use raddle_arch::thread_local_word;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;
use std::ptr::{null, null_mut, without_provenance};
use std::rc::Rc;
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

/// Neither the address of an entry in libc's list nor that of a thread block.
const NEVER: usize = 1;
/// In [`DEAD`]: the fiber that continues ends itself.
pub(super) const END: *const Inner = without_provenance(NEVER);
/// The number of switches that a fiber may try while it ends.
const MOST_TRIES: u32 = 100;

thread_local! {
    /// The head of the list after the newest guard was added; [`NEVER`] where the head isn't known,
    /// before the first guard, and once switches are forbidden.
    static SEEN: Cell<usize> = const { Cell::new(NEVER) };
    /// True once there was a guard: fibers may be suspended.
    static HAS_GUARD: Cell<bool> = const { Cell::new(false) };
    /// True once a guard was called: no fiber is continued any more, but to end.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
    /// The fiber that ran when a guard was called.
    static LAST: Cell<*const Inner> = const { Cell::new(null()) };
    /// The newest fiber that was started and has not ended; null if there is none.
    static STARTED: Cell<*const Inner> = const { Cell::new(null()) };
    /// The context that waits until a fiber is unwound; null at other times.
    static ENDER: Cell<*const Inner> = const { Cell::new(null()) };
}

/// What a fiber needs for its end.
#[derive(Default)]
pub(super) struct End {
    /// True for a fiber that is unwound at its thread's end.
    pub(super) unwinds: Cell<bool>,
    /// The neighbours in the list of started fibers, or null.
    newer: Cell<Link>,
    older: Cell<Link>,
    /// How often the fiber was told to end.
    tries: Cell<u32>,
}

#[derive(Clone, Copy)]
struct Link(*const Inner);

impl Default for Link {
    fn default() -> Self {
        Self(null())
    }
}

/// Makes a new fiber hold itself, and adds it to the list.
pub(super) fn start(fiber: Rc<Inner>) {
    let older = STARTED.get();
    fiber.end.older.set(Link(older));
    let at = Rc::into_raw(fiber);
    // SAFETY: null, or a fiber on the list, which holds itself.
    if let Some(older) = unsafe { older.as_ref() } {
        older.end.newer.set(Link(at));
    }
    STARTED.set(at);
}

/// Removes a started fiber from the list.
pub(super) fn unlink(fiber: &Inner) {
    let (newer, older) = (fiber.end.newer.take().0, fiber.end.older.take().0);
    // SAFETY: null, or fibers on the list, which hold themselves.
    unsafe {
        match newer.as_ref() {
            Some(newer) => newer.end.older.set(Link(older)),
            None => STARTED.set(older),
        }
        if let Some(older) = older.as_ref() {
            older.end.newer.set(Link(newer));
        }
    }
}

/// Calls `f` with each started fiber until it returns true. Returns that fiber.
fn find_started(f: impl Fn(&Inner) -> bool) -> Option<&'static Inner> {
    let mut at = STARTED.get();
    // SAFETY: null, or a fiber on the list, which holds itself until it has ended.
    while let Some(fiber) = unsafe { at.as_ref() } {
        if f(fiber) {
            return Some(fiber);
        }
        at = fiber.end.older.get().0;
    }
    None
}

/// Returns true once the calling thread's fibers are lost.
pub(super) fn is_over() -> bool {
    IS_OVER.get()
}

/// Returns the fiber that ran when the fibers were lost; null after the first call.
pub(super) fn take_last() -> *const Inner {
    LAST.replace(null())
}

/// Returns the context to which the running fiber, which ends with its thread, switches at last;
/// null if it doesn't.
pub(super) fn ender() -> *const Inner {
    ENDER.get()
}

/// Forbids switches, and unwinds the suspended fibers of the calling thread.
pub(crate) fn end_fibers() {
    if !HAS_GUARD.get() {
        return;
    }
    let current = CURRENT.replace(null());
    if !current.is_null() {
        LAST.set(current);
    }
    SEEN.set(NEVER);
    if IS_OVER.replace(true) {
        return;
    }
    let waits = |fiber: &Inner| fiber.end.unwinds.get() && fiber.state.get() == State::Suspended;
    while let Some(fiber) = find_started(waits) {
        let ender = Inner::new(State::Running, None, None);
        ENDER.set(&raw const ender);
        DEAD.set(END);
        // SAFETY: the fiber is suspended and holds itself; the ender lives here. The fiber comes
        // back to the ender, with an unwound stack, and is freed.
        _ = unsafe { go(&ender, fiber) };
        ENDER.set(null());
        CURRENT.set(null());
    }
}

/// Unwinds the running fiber, which the end of its thread has continued.
///
/// # Errors
/// [`Error::ThreadEnds`], where a panic would abort the process.
#[cold]
pub(super) fn end(own: &Inner) -> Result<(), Error> {
    struct ThreadEnds;
    own.end.tries.set(own.end.tries.get() + 1);
    if own.end.tries.get() > MOST_TRIES {
        eprintln!("raddle: a fiber goes on although its thread ends");
        std::process::abort();
    }
    if cfg!(panic = "abort") || std::thread::panicking() {
        return Err(Error::ThreadEnds);
    }
    resume_unwind(Box::new(ThreadEnds))
}

/// Adds a guard if destructors were added since the newest one. The running fiber is about to be
/// left.
///
/// # Errors
/// [`Error::ThreadEnds`], as [`end`], in a fiber that ends with its thread.
#[inline(always)]
pub(super) fn guard() -> Result<(), Error> {
    // SAFETY: `HEAD` is the offset of a word in libc's thread-locals, which lie at the same place
    // in each thread; or 0, the first word of the block.
    if unsafe { thread_local_word(HEAD.load(Ordering::Relaxed)) } == SEEN.get() {
        Ok(())
    } else {
        add_guard()
    }
}

/// Unwinds the running fiber if its thread ends.
///
/// # Errors
/// As [`end`].
#[cold]
pub(super) fn check() -> Result<(), Error> {
    if !IS_OVER.get() {
        return Ok(());
    }
    // SAFETY: null or the running fiber, which holds itself.
    unsafe { CURRENT.get().as_ref() }.map_or(Err(Error::ThreadEnds), end)
}

#[cold]
fn add_guard() -> Result<(), Error> {
    unsafe extern "C" fn ends(_: *mut c_void) {
        end_fibers();
    }
    check()?;
    HAS_GUARD.set(true);
    SEARCH.call_once(|| {
        HEAD.store(find().unwrap_or(UNKNOWN), Ordering::Relaxed);
        // SAFETY: a function that lives for ever. If libc has no memory to note it, a child with a
        // suspended fiber may wait at its end for threads that it doesn't have.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    // SAFETY: a function that any thread may call at its end. Without memory libc aborts.
    unsafe { add(ends, null_mut(), library()) };
    SEEN.set(match HEAD.load(Ordering::Relaxed) {
        UNKNOWN => NEVER,
        // SAFETY: as in `guard`.
        head => unsafe { thread_local_word(head) },
    });
    Ok(())
}

/// Leaves the fibers of the parent alone in the child of a fork: what they wait for may be gone.
extern "C" fn in_child() {
    _ = find_started(|fiber| {
        fiber.end.unwinds.set(false);
        false
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
