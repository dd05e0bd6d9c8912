//! Memory calls that concern thread stacks: answered from the arena of `raddle_engine::stacks`.
//!
//! The arena answers glibc's requests for stacks, and calls that reach no further than the guard of
//! a stack. Before any other call about a range with stacks of the arena in it, the arena hands
//! these stacks over to the kernel, which then answers.

use crate::callers::{self, Caller};
use crate::frame::{Frame, Outcome};
use crate::kernel_threads;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::stacks::{Access, Answer, Range};
use raddle_engine::{Carrier, PROCESS};
use raddle_sys::abi::IoVec;
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{err, errno, is_err, nr, sys, syscall6};

mod clean;
mod keep;
pub mod loading;

const PROT_NONE: usize = nr::PROT_NONE as usize;
const PROT_WRITE: usize = nr::PROT_WRITE as usize;
const PROT_READ_WRITE: usize = (nr::PROT_READ | nr::PROT_WRITE) as usize;
/// MAP_PRIVATE, MAP_ANONYMOUS and MAP_STACK: what glibc maps stacks with.
const STACK: usize = 0x2_0022;
const MAP_FIXED: usize = nr::MAP_FIXED as usize;
const MREMAP_FIXED: usize = nr::MREMAP_FIXED as usize;
const MADV_DONTNEED: i32 = nr::MADV_DONTNEED as i32;
const ENOMEM: isize = err(errno::ENOMEM);

/// One thread end of so many really gives the stack's pages back.
const TRIM_EVERY: u32 = 32;

static ENDS: AtomicU32 = AtomicU32::new(0);

/// In the child of a fork, on its only thread.
pub fn in_child() {
    keep::in_child();
}

/// The program is about to make a thread by libc.
#[inline]
pub fn expect_thread() {
    if !PROCESS.stacks.is_open() {
        open_arena();
    }
}

#[cold]
fn open_arena() {
    if PROCESS.main.load(Ordering::Relaxed).is_null() {
        return; // the program runs on kernel threads, maybe without `rdgsbase`
    }
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { Carrier::current_or_null().as_ref() };
    if carrier.is_some_and(|carrier| carrier.raw.get() == 0) {
        PROCESS.stacks.open();
    }
}

/// The call's range, if it concerns the arena.
fn covered(address: usize, len: usize) -> Option<Range> {
    Range::of_call(address, len).filter(|&range| PROCESS.stacks.covers(range))
}

/// Returns true for calls that may find no memory.
fn may_lack_memory(number: u32) -> bool {
    matches!(
        number,
        nr::__NR_mmap
            | nr::__NR_mremap
            | nr::__NR_mprotect
            | nr::__NR_pkey_mprotect
            | nr::__NR_brk
            | nr::__NR_shmat
    )
}

/// Lets the kernel make the call; if there is no memory, free stacks are given back first.
fn pass(frame: &Frame) -> Outcome {
    if PROCESS.stacks.has_warm() && may_lack_memory(frame.number()) {
        // SAFETY: the program's own call.
        Outcome::of(again_if_refused(frame, unsafe { frame.raw() }))
    } else {
        Outcome::PASS
    }
}

/// Repeats a call that found no memory, after free stacks were given back.
fn again_if_refused(frame: &Frame, result: isize) -> isize {
    let wanted = frame.arg(0);
    let has_failed = match frame.number() {
        nr::__NR_brk => wanted != 0 && (result as usize) < wanted,
        _ => result == ENOMEM,
    };
    if !has_failed || !PROCESS.stacks.retreat() {
        return result;
    }
    PROCESS.stacks.read_limits();
    // SAFETY: the program's own call.
    unsafe { frame.raw() }
}

/// Hands the arena's stacks in the range over to the kernel, which then gets the call.
fn hand_over(frame: &Frame, range: Range) -> Outcome {
    match PROCESS.stacks.hand_over(range) {
        Ok(()) => pass(frame),
        Err(errno) => Outcome::of(errno),
    }
}

/// A call that changes the mappings of an address and a length, its first two arguments:
/// `mlock(2)`, `munlock(2)`, `mlock2(2)`, `mbind(2)`, `set_mempolicy_home_node(2)`, `mseal(2)`.
pub extern "C" fn by_range(frame: &Frame) -> Outcome {
    match covered(frame.arg(0), frame.arg(1)) {
        Some(range) => hand_over(frame, range),
        None => Outcome::PASS,
    }
}

/// `madvise(2)`.
///
/// At a thread's end glibc gives the pages of its own stack back, one call a thread. The next
/// thread on the stack touches them again at once, so most of these calls are dropped; every
/// [`TRIM_EVERY`]th end gives the pages back. glibc relies on nothing that the pages hold.
pub extern "C" fn madvise(frame: &Frame) -> Outcome {
    let [address, len, advice, ..] = frame.args();
    let Some(range) = Range::of_call(address, len) else {
        return Outcome::PASS;
    };
    if !PROCESS.stacks.covers(range) {
        return match advice as i32 {
            MADV_DONTNEED => keep::emptying(frame, range, Outcome::PASS),
            _ => Outcome::PASS,
        };
    }
    let here = core::ptr::from_ref(frame).addr();
    if advice as i32 == MADV_DONTNEED
        && PROCESS.stacks.is_low_end_of_own(range, here)
        && callers::of(frame, &callers::MADVISE) == Caller::Libc
        && !ENDS
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(TRIM_EVERY)
    {
        return Outcome::of(0);
    }
    advised(frame, range, advice as i32)
}

/// Advice about a range with stacks of the arena in it.
fn advised(frame: &Frame, range: Range, advice: i32) -> Outcome {
    const MADV_WILLNEED: i32 = nr::MADV_WILLNEED as i32;
    const MADV_FREE: i32 = nr::MADV_FREE as i32;
    const MADV_COLD: i32 = nr::MADV_COLD as i32;
    const MADV_PAGEOUT: i32 = nr::MADV_PAGEOUT as i32;
    const MADV_DONTNEED_LOCKED: i32 = nr::MADV_DONTNEED_LOCKED as i32;
    const MADV_GUARD_INSTALL: i32 = nr::MADV_GUARD_INSTALL as i32;
    const MADV_GUARD_REMOVE: i32 = nr::MADV_GUARD_REMOVE as i32;
    match advice {
        // Advice about the content of pages: a guard counts as a protected page.
        MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
            PROCESS.stacks.clear(range);
            keep::emptying(frame, range, Outcome::PASS)
        }
        MADV_WILLNEED | MADV_FREE | MADV_COLD | MADV_PAGEOUT => {
            PROCESS.stacks.clear(range);
            Outcome::PASS
        }
        MADV_GUARD_INSTALL | MADV_GUARD_REMOVE => {
            match PROCESS
                .stacks
                .advise_guard(range, advice == MADV_GUARD_INSTALL)
            {
                Answer::Done => Outcome::of(0),
                Answer::Kernel => Outcome::PASS,
                Answer::Fails(errno) => Outcome::of(errno),
            }
        }
        _ => hand_over(frame, range),
    }
}

/// `mmap(2)` of a thread's stack by glibc, or of anything else.
pub extern "C" fn mmap(frame: &Frame) -> Outcome {
    if let Some(outcome) = loading::mmap(frame) {
        return outcome;
    }
    let [address, len, prot, flags, ..] = frame.args();
    if address == 0 {
        return match allocate(frame, len, prot, flags) {
            Some(base) => Outcome::of(base as isize),
            None => pass(frame),
        };
    }
    match Range::of_call(address, len) {
        Some(range) if flags & MAP_FIXED != 0 => map_over(frame, range),
        Some(range) if PROCESS.stacks.covers(range) => {
            PROCESS.stacks.clear(range);
            pass(frame)
        }
        _ => pass(frame),
    }
}

/// `mmap(2)` with MAP_FIXED: replaces what is mapped there.
fn map_over(frame: &Frame, range: Range) -> Outcome {
    const SHARES_NOTHING: usize = 0x32; // MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED
    const WITHOUT_MEANING: usize = 0x2_4000; // MAP_STACK, MAP_NORESERVE
    let [_, _, prot, flags, ..] = frame.args();
    let passes = || match prot & PROT_WRITE {
        0 => pass(frame),
        _ => keep::emptying(frame, range, pass(frame)),
    };
    if !PROCESS.stacks.covers(range) {
        return passes();
    }
    let access = access(prot).filter(|_| flags & !WITHOUT_MEANING == SHARES_NOTHING);
    let answer = match access {
        Some(access) if !keep::is_own_stack(frame, range) => PROCESS.stacks.map_over(range, access),
        _ => PROCESS.stacks.hand_over(range).into(),
    };
    match answer {
        Answer::Done => Outcome::of(range.from as isize),
        Answer::Kernel => passes(),
        Answer::Fails(errno) => Outcome::of(errno),
    }
}

/// A stack that glibc asks for. A stack without access has a guard: glibc gives access to the rest
/// at once.
fn allocate(frame: &Frame, len: usize, prot: usize, flags: usize) -> Option<usize> {
    let access = access(prot)?;
    if flags != STACK || callers::of(frame, &callers::MMAP) != Caller::Libc {
        return None;
    }
    PROCESS.stacks.allocate(len, access)
}

fn access(prot: usize) -> Option<Access> {
    match prot {
        PROT_NONE => Some(Access::None),
        PROT_READ_WRITE => Some(Access::ReadWrite),
        _ => None,
    }
}

/// `munmap(2)`.
pub extern "C" fn munmap(frame: &Frame) -> Outcome {
    let Some(range) = covered(frame.arg(0), frame.arg(1)) else {
        loading::unmaps(frame);
        return Outcome::PASS;
    };
    let is_libcs = callers::of(frame, &callers::MUNMAP) != Caller::Program;
    if is_libcs && PROCESS.stacks.release(range) {
        return Outcome::of(0);
    }
    if let Err(errno) = PROCESS.stacks.hand_over(range) {
        return Outcome::of(errno);
    }
    loading::unmaps(frame);
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if result == 0 {
        PROCESS.stacks.unmapped(range);
    }
    Outcome::of(result)
}

/// `mprotect(2)`.
pub extern "C" fn mprotect(frame: &Frame) -> Outcome {
    let [address, len, prot, ..] = frame.args();
    let Some(range) = covered(address, len) else {
        return pass(frame);
    };
    let Some(access) = access(prot) else {
        return hand_over(frame, range);
    };
    let is_libcs = || callers::of(frame, &callers::MPROTECT) != Caller::Program;
    let is_clean = |range| is_libcs() || clean::is_clean(range);
    match PROCESS.stacks.protect(range, access, is_clean) {
        Answer::Done => Outcome::of(0),
        Answer::Kernel => pass(frame),
        Answer::Fails(errno) => Outcome::of(errno),
    }
}

/// `pkey_mprotect(2)`: as `mprotect` without a key.
pub extern "C" fn pkey_mprotect(frame: &Frame) -> Outcome {
    const NO_KEY: i32 = -1;
    match frame.arg(3) as i32 {
        NO_KEY => mprotect(frame),
        _ => by_range(frame),
    }
}

/// `mremap(2)`.
pub extern "C" fn mremap(frame: &Frame) -> Outcome {
    let [old, old_len, new_len, flags, new, _] = frame.args();
    let target = (flags & MREMAP_FIXED != 0).then_some((new, new_len));
    for (address, len) in [Some((old, old_len)), target].into_iter().flatten() {
        if let Some(range) = covered(address, len)
            && let Err(errno) = PROCESS.stacks.hand_over(range)
        {
            return Outcome::of(errno);
        }
    }
    pass(frame)
}

/// `brk(2)`.
pub extern "C" fn brk(frame: &Frame) -> Outcome {
    pass(frame)
}

/// `mlockall(2)`: free stacks aren't locked.
pub extern "C" fn mlockall(_: &Frame) -> Outcome {
    PROCESS.stacks.retreat();
    Outcome::PASS
}

/// `process_madvise(2)`, of this process as well.
pub extern "C" fn process_madvise(frame: &Frame) -> Outcome {
    const MOST: usize = 1024; // UIO_MAXIOV
    for index in 0..frame.arg(2).min(MOST) {
        let Ok(part) = frame.user::<IoVec>(1).index(index).read() else {
            break;
        };
        if let Some(range) = covered(part.base, part.len)
            && let Err(errno) = PROCESS.stacks.hand_over(range)
        {
            return Outcome::of(errno);
        }
    }
    Outcome::PASS
}

/// `shmat(2)`: with SHM_REMAP it takes the place of what is mapped.
pub extern "C" fn shmat(frame: &Frame) -> Outcome {
    const REMAP: usize = 0o40000;
    const STAT: usize = 2;
    /// Where the size is in the kernel's `shmid64_ds`, in words.
    const SIZE: usize = 6;
    let [id, address, flags, ..] = frame.args();
    if flags & REMAP == 0 {
        return pass(frame);
    }
    let mut description = [0usize; 14];
    // SAFETY: the kernel fills a live structure.
    let known = unsafe { sys!(nr::__NR_shmctl, id, STAT, description.as_mut_ptr()) };
    match covered(address & !(PAGE_SIZE - 1), description[SIZE]) {
        Some(range) if !is_err(known) => hand_over(frame, range),
        _ => pass(frame),
    }
}

/// `prctl(PR_SET_VMA)`.
pub fn name_mapping(frame: &Frame) -> Outcome {
    match covered(frame.arg(2), frame.arg(3)) {
        Some(range) => hand_over(frame, range),
        None => Outcome::PASS,
    }
}

/// `setrlimit(2)`.
pub extern "C" fn setrlimit(frame: &Frame) -> Outcome {
    if counts_memory(frame.arg(0)) {
        limit(frame, frame.args())
    } else {
        Outcome::PASS
    }
}

/// `prlimit64(2)`.
pub extern "C" fn prlimit64(frame: &Frame) -> Outcome {
    let [id, resource, new, ..] = frame.args();
    let id = id as u32;
    // The kernel compares the caller's credentials with those of the thread that the call names.
    let kernel_tid = kernel_threads::kernel_thread_told_apart(id);
    let is_own = kernel_tid.is_some() || id == 0 || id == PROCESS.pid.load(Ordering::Relaxed);
    let mut args = frame.args();
    args[0] = kernel_tid.unwrap_or(id) as usize;
    if is_own && new != 0 && counts_memory(resource) {
        return limit(frame, args);
    }
    // SAFETY: the program's own call, about its process or another.
    Outcome::of(unsafe { syscall6(frame.number(), args) })
}

/// Returns true for the limits that count mappings.
fn counts_memory(resource: usize) -> bool {
    const RLIMIT_DATA: u32 = nr::RLIMIT_DATA;
    const RLIMIT_AS: u32 = nr::RLIMIT_AS;
    matches!(resource as u32, RLIMIT_DATA | RLIMIT_AS)
}

/// Sets a limit that counts mappings, after it has unmapped stacks that the program has no use for.
fn limit(frame: &Frame, args: [usize; 6]) -> Outcome {
    PROCESS.stacks.limit();
    // SAFETY: the program's own call, about its process.
    let result = unsafe { syscall6(frame.number(), args) };
    PROCESS.stacks.read_limits();
    Outcome::of(result)
}
