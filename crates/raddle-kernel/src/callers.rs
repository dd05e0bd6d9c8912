//! Calls that libc makes on its own behalf, through functions that programs call as well.
//!
//! `mmap` and its like are one function to libc and to the program, so their site says nothing. The
//! caller does: the function's return address, which lies above the few words that the function has
//! pushed by then, is in libc's text and behind a `call` instruction. libc calls what the program
//! gave it (a thread's routine, a destructor) through pointers, so a function of the program's that
//! ends in a jump to `mmap` isn't taken for libc.

use crate::frame::Frame;
use crate::user::User;
use core::sync::atomic::{AtomicUsize, Ordering};

/// libc's text, from and to.
static LIBC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// libc's function `syscall`, which makes the program's calls.
static RAW: AtomicUsize = AtomicUsize::new(0);
/// Bytes of that function at most.
const RAW_LEN: usize = 64;

/// Says where libc's text is, and its function `syscall`. Once, at start-up.
pub fn know_libc(from: usize, to: usize, raw: usize) {
    LIBC[0].store(from, Ordering::Relaxed);
    LIBC[1].store(to, Ordering::Relaxed);
    RAW.store(raw, Ordering::Relaxed);
}

/// Returns true if a site is one of libc's own calls, not of those that programs make through
/// `syscall`.
pub fn is_libcs(site: usize) -> bool {
    let raw = RAW.load(Ordering::Relaxed);
    is_libc_text(site) && !(raw..raw + RAW_LEN).contains(&site)
}

/// Returns true if the address is in libc's text.
pub fn is_libc_text(address: usize) -> bool {
    let [from, to] = [0, 1].map(|end| LIBC[end].load(Ordering::Relaxed));
    (from..to).contains(&address)
}

/// One of libc's functions. Written once at start-up.
pub struct Function {
    start: AtomicUsize,
    /// The address behind its system call; 0 if the function isn't known.
    site: AtomicUsize,
    /// Words between the stack pointer there and the return address.
    words: AtomicUsize,
}

impl Function {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            site: AtomicUsize::new(0),
            words: AtomicUsize::new(0),
        }
    }

    /// Says where the function is, where its `syscall` instruction ends, and how many words lie on
    /// the stack there below the return address. Once, at start-up.
    pub fn know(&self, start: usize, site: usize, words: usize) {
        self.start.store(start, Ordering::Relaxed);
        self.words.store(words, Ordering::Relaxed);
        self.site.store(site, Ordering::Relaxed);
    }
}

/// `mmap`.
pub static MMAP: Function = Function::new();
/// `mprotect`.
pub static MPROTECT: Function = Function::new();
/// `munmap`.
pub static MUNMAP: Function = Function::new();
/// `madvise`.
pub static MADVISE: Function = Function::new();

/// The maker of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    /// The program, a library, or a function of libc's that isn't known.
    Program,
    /// libc, by a function that ended in a jump to the call's.
    LibcByJump,
    /// libc, by a `call` of the call's function.
    Libc,
}

/// The maker of a call for which libc has this function.
#[inline]
pub fn of(frame: &Frame, function: &Function) -> Caller {
    const CALL: u8 = 0xe8;
    const CALL_LEN: usize = 5;
    if frame.site() != function.site.load(Ordering::Relaxed) {
        return Caller::Program;
    }
    let words = function.words.load(Ordering::Relaxed);
    // SAFETY: the function's return address, and what it has pushed below.
    let back = unsafe { *frame.program_stack().add(words) };
    let call = back.wrapping_sub(CALL_LEN);
    if !is_libc_text(back) || !is_libc_text(call) {
        return Caller::Program;
    }
    let at = User::<u8>::at(call);
    let (Ok(opcode), Ok(displacement)) = (at.read(), at.byte_add(1).cast::<i32>().read()) else {
        return Caller::Program;
    };
    let target = back.wrapping_add_signed(displacement as isize);
    if opcode != CALL || !is_libc_text(target) {
        Caller::Program
    } else if target == function.start.load(Ordering::Relaxed) {
        Caller::Libc
    } else {
        Caller::LibcByJump
    }
}
