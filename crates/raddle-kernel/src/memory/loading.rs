//! Libraries that ld.so loads while the program runs.
//!
//! ld.so maps a file (the first mapping of it reserves all of its addresses), maps its segments
//! over that, and closes the file; only then it relocates, shows the library to others and calls
//! its constructors. So at that `close` the whole text is there and no thread executes it: the
//! moment to patch it. ld.so does one library at a time, under a lock of its own; the sites of its
//! calls tell them from the program's.
//!
//! Rejected: to interpose `dlopen`, which depends on its caller's address and has relatives; and
//! the moment when ld.so protects its relocated pages, which not every library has.

use crate::frame::{Frame, Outcome};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use raddle_engine::events;
use raddle_sched::SpinLock;
use raddle_sys::{is_err, nr, sys};

const PROT_EXEC: usize = nr::PROT_EXEC as usize;
const MAP_FIXED: usize = nr::MAP_FIXED as usize;

/// Maps and unmaps by ld.so, plus 1; 0 before [`watch`]. Raised before the call: a reader that
/// finds the same number twice has missed none between.
static LOADS: AtomicUsize = AtomicUsize::new(0);

/// Returns a number that changes before a library comes or goes; 0 if changes aren't seen.
pub extern "C" fn count() -> usize {
    LOADS.load(Ordering::SeqCst)
}

/// What the preloaded library does when libraries come and go.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// A file with text was loaded with its ELF header at this address.
    pub loaded: fn(usize),
    /// The addresses from the first to the second are about to be unmapped.
    pub unmapped: fn(usize, usize),
    /// The process is the child of a fork and has one thread.
    pub forked: fn(),
}

static HOOKS: SpinLock<Option<Hooks>> = SpinLock::new(None);
/// ld.so's text, from and to.
static LDSO: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The file that ld.so maps: descriptor + 1 or 0, and where it begins. Written under ld.so's lock.
static FILE: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
/// True once a mapping of the file is executable.
static HAS_TEXT: AtomicBool = AtomicBool::new(false);

/// Says where ld.so's text is and what to do. Once, at start-up.
pub fn watch(from: usize, to: usize, hooks: Hooks) {
    *HOOKS.lock() = Some(hooks);
    LDSO[0].store(from, Ordering::Relaxed);
    LDSO[1].store(to, Ordering::Release);
    LOADS.store(1, Ordering::Relaxed);
}

/// Returns true if ld.so makes the call.
fn is_loader(frame: &Frame) -> bool {
    let [from, to] = [0, 1].map(|end| LDSO[end].load(Ordering::Relaxed));
    (from..to).contains(&frame.site())
}

/// `mmap(2)` of a file by ld.so; `None` for another caller's.
pub fn mmap(frame: &Frame) -> Option<Outcome> {
    let file = frame.arg(4);
    if (file as i32) < 0 || !is_loader(frame) {
        return None;
    }
    LOADS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: ld.so's own call.
    let result = unsafe { frame.raw() };
    let is_text = frame.arg(2) & PROT_EXEC != 0;
    if is_err(result) {
        return Some(Outcome::of(result));
    }
    if is_text {
        events::mapped_code(result as usize, || inode(file));
    }
    if frame.arg(3) & MAP_FIXED == 0 {
        BASE.store(result as usize, Ordering::Relaxed);
        HAS_TEXT.store(is_text, Ordering::Relaxed);
        FILE.store(file + 1, Ordering::Relaxed);
    } else if FILE.load(Ordering::Relaxed) == file + 1 && is_text {
        HAS_TEXT.store(true, Ordering::Relaxed);
    }
    Some(Outcome::of(result))
}

/// Returns the number of an open file in its file system; 0 if the kernel doesn't say it.
fn inode(file: usize) -> u64 {
    /// The position in `struct stat`, in words of eight bytes.
    const INODE: usize = 1;
    let mut stat = [0u64; 18];
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_fstat, file, stat.as_mut_ptr()) };
    stat[INODE]
}

/// Before a `close(2)`.
#[inline(always)]
pub fn closes(frame: &Frame) {
    if FILE.load(Ordering::Relaxed) == frame.arg(0) + 1 {
        loaded(frame);
    }
}

#[cold]
fn loaded(frame: &Frame) {
    if !is_loader(frame) {
        return;
    }
    FILE.store(0, Ordering::Relaxed);
    let hooks = *HOOKS.lock();
    if HAS_TEXT.load(Ordering::Relaxed)
        && let Some(hooks) = hooks
    {
        (hooks.loaded)(BASE.load(Ordering::Relaxed));
    }
}

/// Before a `munmap(2)`.
pub fn unmaps(frame: &Frame) {
    if is_loader(frame) {
        LOADS.fetch_add(1, Ordering::SeqCst);
    }
    let hooks = *HOOKS.lock();
    if let Some(hooks) = hooks {
        (hooks.unmapped)(frame.arg(0), frame.arg(0).saturating_add(frame.arg(1)));
    }
}

/// In the child of a fork: another thread of the parent may have been loading.
pub fn in_child() {
    // SAFETY: the child has one thread. The hooks were written before a second one existed.
    let hooks = unsafe {
        HOOKS.break_lock();
        HOOKS.peek()
    };
    if let Some(hooks) = hooks {
        (hooks.forked)();
    }
    // A child writes to as few of its parent's pages as it can.
    if FILE.load(Ordering::Relaxed) != 0 {
        FILE.store(0, Ordering::Relaxed);
    }
}
