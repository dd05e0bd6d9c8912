//! The program's memory, as a kernel sees it: a bad address is EFAULT, not a crash of ours.
//!
//! An address that the program gave is a [`User`], or a plain number. Neither can be dereferenced,
//! and tidy refuses every other way from a number to memory in this crate. The routines below copy
//! from and to such addresses. They are leaf functions in one range of text and keep nothing on the
//! stack: after a fault in one of them the signal handler makes it return -EFAULT to its caller
//! ([`raddle_arch::resume_after_fault`]). So an access costs a call, and the check costs nothing.
//! Rejected: to ask the kernel before each access (`process_vm_readv`, `madvise`), which costs a
//! system call and still races with an unmap.
//!
//! The memory may change between two looks at it. A value that a decision depends on is copied
//! once, and the kernel gets the copy as well.
//!
//! The handler is installed for SIGSEGV and SIGBUS as soon as there is a second thread, whatever
//! the program does with these signals. SIGSEGV comes for an address that isn't mapped or isn't
//! canonical, SIGBUS for an address behind a file's end. Before the second thread nearly every call
//! passes to the kernel, and the kernel makes the few copies.

pub mod vectors;

use crate::mode::is_virtual;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use raddle_arch::{Context, SwitchFrame};
use raddle_sys::abi::{CloneArgs, EventsArg, IoVec, PollFd, SchedAttr};
use raddle_sys::abi::{SigAction, SigEvent, SigInfo, StackT, Timespec};
use raddle_sys::{err, errno, nr, sys};

/// Types without padding that matters or invalid bit patterns: copied from and to the program.
///
/// # Safety
/// Every bit pattern is a value.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),+ $(,)?) => {$(
        // SAFETY: an integer, or a structure of integers.
        unsafe impl Plain for $type {}
    )+};
}

plain!(u8, u16, u32, i32, u64, usize);
plain!(CloneArgs, EventsArg, IoVec, PollFd, SchedAttr);
plain!(SigAction, SigEvent, SigInfo, StackT, Timespec);
// SAFETY: every element is one.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The address of a `T` in the program's memory, or of several. It may lead anywhere.
#[derive(Debug)]
pub struct User<T> {
    address: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for User<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for User<T> {}

impl<T> From<usize> for User<T> {
    fn from(address: usize) -> Self {
        Self::at(address)
    }
}

impl<T> User<T> {
    /// Returns an address that the program says is a `T`'s.
    #[inline(always)]
    pub const fn at(address: usize) -> Self {
        Self {
            address,
            of: PhantomData,
        }
    }

    /// Returns the number, for the kernel and for comparisons.
    #[inline(always)]
    pub const fn address(self) -> usize {
        self.address
    }

    /// Returns true for the address 0, which means nothing to most calls.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// Returns the same address as that of another type.
    #[inline(always)]
    pub const fn cast<U>(self) -> User<U> {
        User::at(self.address)
    }

    /// Returns the address `bytes` behind this one.
    #[inline(always)]
    pub const fn byte_add(self, bytes: usize) -> Self {
        Self::at(self.address.wrapping_add(bytes))
    }

    /// Returns the address of element `index` of an array.
    #[inline(always)]
    pub const fn index(self, index: usize) -> Self {
        self.byte_add(index.wrapping_mul(size_of::<T>()))
    }
}

impl<T: Plain> User<T> {
    /// Copies the value in.
    ///
    /// # Errors
    /// EFAULT, negated.
    #[inline(always)]
    pub fn read(self) -> Result<T, isize> {
        let mut value = MaybeUninit::<T>::uninit();
        copy_in(value.as_mut_ptr().cast(), self.address, size_of::<T>())?;
        // SAFETY: all its bytes were written, and any bytes are a value.
        Ok(unsafe { value.assume_init() })
    }

    /// Copies the first `bytes` of a structure in. The other bytes are those of `rest`.
    ///
    /// # Errors
    /// EFAULT, negated.
    pub fn read_start(self, bytes: usize, rest: T) -> Result<T, isize> {
        let mut value = rest;
        self.read_into(&mut value, bytes)?;
        Ok(value)
    }

    /// As [`User::read_start`], in place.
    ///
    /// # Errors
    /// EFAULT, negated; a part may have been copied.
    pub fn read_into(self, to: &mut T, bytes: usize) -> Result<(), isize> {
        let to = core::ptr::from_mut(to).cast();
        copy_in(to, self.address, bytes.min(size_of::<T>()))
    }

    /// Copies the elements of an array in.
    ///
    /// # Errors
    /// EFAULT, negated; some may have been copied.
    pub fn read_all(self, to: &mut [T]) -> Result<(), isize> {
        copy_in(to.as_mut_ptr().cast(), self.address, size_of_val(to))
    }

    /// Copies the value out.
    ///
    /// # Errors
    /// EFAULT, negated.
    #[inline(always)]
    pub fn write(self, value: &T) -> Result<(), isize> {
        let from = core::ptr::from_ref(value).cast();
        copy_out(self.address, from, size_of::<T>())
    }

    /// Copies the first `bytes` of a structure out.
    ///
    /// # Errors
    /// EFAULT, negated; a part may have been copied.
    pub fn write_start(self, value: &T, bytes: usize) -> Result<(), isize> {
        let from = core::ptr::from_ref(value).cast();
        copy_out(self.address, from, bytes.min(size_of::<T>()))
    }

    /// Copies the elements of an array out.
    ///
    /// # Errors
    /// EFAULT, negated; some may have been copied.
    pub fn write_all(self, from: &[T]) -> Result<(), isize> {
        copy_out(self.address, from.as_ptr().cast(), size_of_val(from))
    }
}

impl User<usize> {
    /// Copies a word out: all of it or nothing, as calls with a result of one word do.
    ///
    /// # Errors
    /// EFAULT, negated.
    pub fn put(self, value: usize) -> Result<(), isize> {
        if !is_virtual() {
            return self.write(&value);
        }
        if is_kernels(self.address, size_of::<usize>()) {
            return Err(err(errno::EFAULT));
        }
        // SAFETY: the program asked for the word there.
        result(unsafe { raddle_arch::user_store(self.address, value) }).map(drop)
    }
}

impl User<u8> {
    /// Copies a text in up to its final zero, by whole words: a word doesn't cross a page, so it is
    /// there if its first byte is. Returns the text's length; `None` if it is longer than the
    /// buffer.
    ///
    /// # Errors
    /// EFAULT, negated.
    pub fn read_text(self, buffer: &mut [u8]) -> Result<Option<usize>, isize> {
        const WORD: usize = size_of::<u64>();
        let mut skipped = self.address % WORD;
        let mut word = User::<u64>::at(self.address - skipped);
        let mut len = 0;
        while len < buffer.len() {
            let bytes = word.read()?.to_ne_bytes();
            for &byte in &bytes[skipped..] {
                if byte == 0 {
                    return Ok(Some(len));
                }
                match buffer.get_mut(len) {
                    Some(to) => *to = byte,
                    None => return Ok(None),
                }
                len += 1;
            }
            skipped = 0;
            word = word.index(1);
        }
        Ok(None)
    }
}

impl User<SwitchFrame> {
    /// Returns the address as the context of a thread that continues there. The switch reads the
    /// program's memory later, as all code on the program's stack does.
    pub fn as_stack(self) -> Context {
        core::ptr::with_exposed_provenance_mut(self.address)
    }
}

/// The number of bytes that are compared or cleared at once.
const BLOCK: usize = 64;

impl User<u8> {
    /// Returns true if `bytes` bytes are zero, such as those behind the known part of a structure.
    ///
    /// # Errors
    /// EFAULT, negated.
    pub fn are_zero(self, bytes: usize) -> Result<bool, isize> {
        let mut block = [0u8; BLOCK];
        for done in (0..bytes).step_by(BLOCK) {
            let part = &mut block[..BLOCK.min(bytes - done)];
            self.byte_add(done).read_all(part)?;
            if part.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes `bytes` bytes zero.
    ///
    /// # Errors
    /// EFAULT, negated; some may be zero.
    pub fn clear(self, bytes: usize) -> Result<(), isize> {
        for done in (0..bytes).step_by(BLOCK) {
            let part = &[0u8; BLOCK][..BLOCK.min(bytes - done)];
            self.byte_add(done).write_all(part)?;
        }
        Ok(())
    }
}

/// The most bytes that the kernel copies by one call that reads or writes (`MAX_RW_COUNT`).
pub const MOST_BYTES: usize = 0x7fff_f000;

/// Returns true if the kernel accepts a range of `bytes` bytes there, whatever is mapped.
#[inline(always)]
pub const fn is_reachable(address: usize, bytes: usize) -> bool {
    match address.checked_add(bytes) {
        Some(end) => end < USUAL_END,
        None => false,
    }
}

/// The end of the program's addresses with page tables of four levels.
pub const USUAL_END: usize = 1 << 47;

/// Returns true if the kernel accepts the address of a word as the program's, whatever is there.
/// For addresses from [`USUAL_END`] on: with page tables of five levels it accepts some.
#[cold]
pub fn kernel_accepts(address: usize) -> bool {
    const FUTEX_WAKE_PRIVATE: usize = nr::FUTEX_WAKE_PRIVATE as usize;
    // SAFETY: the kernel looks at the address alone; nothing of the program's waits there.
    let result = unsafe { sys!(nr::__NR_futex, address & !3, FUTEX_WAKE_PRIVATE, 1usize) };
    result != err(errno::EFAULT)
}

fn result(value: i64) -> Result<u32, isize> {
    u32::try_from(value).map_err(|_| err(errno::EFAULT))
}

/// Returns the futex word at an aligned address. As strong as a SeqCst load on this architecture.
///
/// # Errors
/// EFAULT, negated.
#[inline(always)]
pub fn load(address: usize) -> Result<u32, isize> {
    // SAFETY: a fault is turned into an error.
    result(unsafe { raddle_arch::user_load(address) })
}

/// Stores `new` to the word at `address` if it holds `old`; returns the old value. SeqCst.
///
/// # Errors
/// EFAULT, negated.
#[inline(always)]
pub fn exchange(address: usize, old: u32, new: u32) -> Result<u32, isize> {
    // SAFETY: the program asked for the change of its word; a fault is turned into an error.
    result(unsafe { raddle_arch::user_exchange(address, old, new) })
}

/// Replaces the word at `address` by what `change` makes of it, by [`exchange`]. Returns the
/// earlier value.
///
/// # Errors
/// EFAULT, negated, or what `change` returns.
#[inline(always)]
pub fn update(
    address: usize,
    mut change: impl FnMut(u32) -> Result<u32, isize>,
) -> Result<u32, isize> {
    let mut word = load(address)?;
    loop {
        let seen = exchange(address, word, change(word)?)?;
        if seen == word {
            return Ok(word);
        }
        word = seen;
    }
}

/// Returns true if no byte of the range can be the program's. The upper half of the addresses is
/// the kernel's, though one page of it may be readable (`vsyscall=emulate`).
#[inline(always)]
const fn is_kernels(address: usize, bytes: usize) -> bool {
    bytes != 0 && ((address | address.wrapping_add(bytes)) as isize) < 0
}

#[inline(always)]
fn copy_in(to: *mut u8, from: usize, bytes: usize) -> Result<(), isize> {
    if is_kernels(from, bytes) {
        return Err(err(errno::EFAULT));
    }
    let to = to.expose_provenance();
    if !is_virtual() {
        return copy_by_kernel(nr::__NR_process_vm_readv, [to, from], bytes);
    }
    // SAFETY: the callers' memory is written.
    unsafe { copy(to, from, bytes) }
}

#[inline(always)]
fn copy_out(to: usize, from: *const u8, bytes: usize) -> Result<(), isize> {
    if is_kernels(to, bytes) {
        return Err(err(errno::EFAULT));
    }
    let from = from.expose_provenance();
    if !is_virtual() {
        return copy_by_kernel(nr::__NR_process_vm_writev, [from, to], bytes);
    }
    // SAFETY: the program asked for the bytes there.
    unsafe { copy(to, from, bytes) }
}

/// Copies bytes; a fault is turned into an error.
///
/// # Safety
/// The memory at `to` may be written.
#[inline(always)]
unsafe fn copy(to: usize, from: usize, bytes: usize) -> Result<(), isize> {
    // SAFETY: the caller's promise.
    result(unsafe { raddle_arch::user_copy(to, from, bytes) }).map(drop)
}

/// Copies between the runtime's memory and the program's, in the direction of the call `number`.
/// Used while the program has one thread and may have its own handler for SIGSEGV.
#[cold]
fn copy_by_kernel(number: u32, [ours, theirs]: [usize; 2], bytes: usize) -> Result<(), isize> {
    let (local, remote) = ([ours, bytes], [theirs, bytes]);
    // SAFETY: the callers' memory; the kernel checks both ranges.
    let done = unsafe {
        let pid = sys!(nr::__NR_getpid);
        let (local, remote) = (local.as_ptr(), remote.as_ptr());
        sys!(number, pid, local, 1usize, remote, 1usize, 0usize)
    };
    if done == err(errno::EPERM) || done == err(errno::ENOSYS) {
        // Not allowed here: a bad address ends the process.
        let (to, from) = match number {
            nr::__NR_process_vm_readv => (ours, theirs),
            _ => (theirs, ours),
        };
        // SAFETY: the callers' memory.
        return unsafe { copy(to, from, bytes) };
    }
    if done == bytes as isize {
        Ok(())
    } else {
        Err(err(errno::EFAULT))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::{copy, is_kernels};
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[test]
    fn nobody_sees_a_part_of_a_word() {
        static VALUES: [u32; 2] = [0, 0x2f12_3456];
        static WORD: AtomicU32 = AtomicU32::new(0);
        static ENDED: AtomicBool = AtomicBool::new(false);
        let writer = std::thread::spawn(|| {
            let to = WORD.as_ptr().expose_provenance();
            for round in 0..2_000_000 {
                let from = (&raw const VALUES[round % 2]).expose_provenance();
                // SAFETY: the word lives, and is read by whole words.
                assert_eq!(unsafe { copy(to, from, 4) }, Ok(()));
            }
            ENDED.store(true, Ordering::Release);
        });
        while !ENDED.load(Ordering::Acquire) && !writer.is_finished() {
            let seen = WORD.load(Ordering::Relaxed);
            assert!(VALUES.contains(&seen), "{seen:#x}");
        }
        assert!(writer.join().is_ok());
    }

    #[test]
    fn copies_have_any_length() {
        let from: [u8; 40] = core::array::from_fn(|index| index as u8 + 1);
        for len in 0..=from.len() {
            let mut to = [0u8; 41];
            let at = to.as_mut_ptr().expose_provenance();
            // SAFETY: both arrays are longer.
            let done = unsafe { copy(at, from.as_ptr().expose_provenance(), len) };
            assert_eq!(done, Ok(()));
            assert_eq!((&to[..len], &to[len..]), (&from[..len], &[0; 41][len..]));
        }
    }

    #[test]
    fn the_upper_half_is_the_kernels() {
        assert!(is_kernels(usize::MAX, 1) && is_kernels(1 << 63, 8));
        assert!(is_kernels((1 << 63) - 4, 8), "it ends there");
        assert!(!is_kernels(0, 8) && !is_kernels(64, 1 << 40));
        assert!(!is_kernels(usize::MAX, 0), "nothing is copied");
    }
}
