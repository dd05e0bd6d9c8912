//! The program's memory, as a kernel sees it: a bad address is EFAULT, not a crash of ours.
//!
//! Handlers touch what the program pointed at through the routines below alone. They are leaf
//! functions in one stretch of text and keep nothing on the stack, so when one of them faults, the
//! signal handler lets it return -EFAULT to its caller ([`resume_after_fault`]): an access costs a
//! call, a check nothing. Asking the kernel before each access (`process_vm_readv`, `madvise`)
//! would cost a system call and still race with an unmap.
//!
//! The handler is installed for SIGSEGV and SIGBUS as soon as there is a second thread. Before that
//! nearly every call passes to the kernel; what is read all the same is read by the kernel.

use crate::signal;
use core::arch::global_asm;
use core::mem::MaybeUninit;
use raddle_sys::abi::{
    CloneArgs, IoVec, PollFd, SchedAttr, SigAction, SigEvent, SigInfo, StackT, Timespec,
};
use raddle_sys::{err, errno, nr, sys};

unsafe extern "C" {
    /// `*address`, or -EFAULT.
    fn raddle_user_load(address: usize) -> i64;
    /// Stores `new` to `*address` if it holds `old`; what it held, or -EFAULT.
    fn raddle_user_exchange(address: usize, old: u32, new: u32) -> i64;
    /// Copies bytes, one word of four or eight bytes at once; 0 or -EFAULT.
    fn raddle_user_copy(to: usize, from: usize, bytes: usize) -> i64;
    static raddle_user_begin: u8;
    static raddle_user_fault: u8;
}

/// Types without padding that matters or invalid bit patterns: copied from and to the program.
///
/// # Safety
/// Every bit pattern is a value.
pub unsafe trait Plain: Copy {}

// SAFETY: integers, and structures of integers.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: as above.
unsafe impl Plain for Timespec {}
// SAFETY: as above.
unsafe impl Plain for SigAction {}
// SAFETY: as above.
unsafe impl Plain for SigInfo {}
// SAFETY: as above.
unsafe impl Plain for StackT {}
// SAFETY: as above.
unsafe impl Plain for CloneArgs {}
// SAFETY: as above.
unsafe impl Plain for PollFd {}
// SAFETY: as above.
unsafe impl Plain for IoVec {}
// SAFETY: as above.
unsafe impl Plain for SchedAttr {}
// SAFETY: as above.
unsafe impl Plain for SigEvent {}

fn result(value: i64) -> Result<u32, isize> {
    u32::try_from(value).map_err(|_| err(errno::EFAULT))
}

/// The futex word at an aligned address. As strong as a SeqCst load on this architecture.
///
/// # Errors
/// EFAULT, negated.
#[inline(always)]
pub fn load(address: usize) -> Result<u32, isize> {
    // SAFETY: a fault is turned into an error.
    result(unsafe { raddle_user_load(address) })
}

/// Stores `new` to the word at `address` if it holds `old`; returns what it held. SeqCst.
///
/// # Errors
/// EFAULT, negated.
#[inline(always)]
pub fn exchange(address: usize, old: u32, new: u32) -> Result<u32, isize> {
    // SAFETY: the program asked for the change of its word; a fault is turned into an error.
    result(unsafe { raddle_user_exchange(address, old, new) })
}

/// Copies a value in.
///
/// # Errors
/// EFAULT, negated.
pub fn read<T: Plain>(address: usize) -> Result<T, isize> {
    let mut value = MaybeUninit::<T>::uninit();
    copy_in(
        value.as_mut_ptr().expose_provenance(),
        address,
        size_of::<T>(),
    )?;
    // SAFETY: all its bytes were written, and any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Copies the first `bytes` of a structure in; the rest is as in `rest`.
///
/// # Errors
/// EFAULT, negated.
pub fn read_part<T: Plain>(address: usize, bytes: usize, rest: T) -> Result<T, isize> {
    let mut value = rest;
    let to = (&raw mut value).expose_provenance();
    copy_in(to, address, bytes.min(size_of::<T>()))?;
    Ok(value)
}

/// Copies a value out.
///
/// # Errors
/// EFAULT, negated.
pub fn write<T: Plain>(address: usize, value: &T) -> Result<(), isize> {
    let from = core::ptr::from_ref(value).expose_provenance();
    // SAFETY: the program asked for the value there; a fault is turned into an error.
    result(unsafe { raddle_user_copy(address, from, size_of::<T>()) }).map(drop)
}

fn copy_in(to: usize, from: usize, bytes: usize) -> Result<(), isize> {
    if !signal::is_virtual() {
        return copy_by_kernel(to, from, bytes);
    }
    // SAFETY: the callers' memory; a fault is turned into an error.
    result(unsafe { raddle_user_copy(to, from, bytes) }).map(drop)
}

/// With one thread the program's own handler for SIGSEGV may be installed.
#[cold]
fn copy_by_kernel(to: usize, from: usize, bytes: usize) -> Result<(), isize> {
    let (local, remote) = ([to, bytes], [from, bytes]);
    // SAFETY: the callers' memory; the kernel checks both ranges.
    let done = unsafe {
        let pid = sys!(nr::__NR_getpid);
        let (local, remote) = (local.as_ptr(), remote.as_ptr());
        sys!(
            nr::__NR_process_vm_readv,
            pid,
            local,
            1usize,
            remote,
            1usize,
            0usize
        )
    };
    if done == err(errno::EPERM) || done == err(errno::ENOSYS) {
        // Not allowed here: a bad address ends the process.
        // SAFETY: the callers' memory.
        return result(unsafe { raddle_user_copy(to, from, bytes) }).map(drop);
    }
    if done == bytes as isize {
        Ok(())
    } else {
        Err(err(errno::EFAULT))
    }
}

/// Where to go on after a fault at `rip`, if that is one of the routines here. In the signal
/// handler.
pub fn resume_after_fault(rip: usize) -> Option<usize> {
    let (begin, fault) = (&raw const raddle_user_begin, &raw const raddle_user_fault);
    (begin.addr()..fault.addr())
        .contains(&rip)
        .then(|| fault.addr())
}

// rdi, rsi, rdx: arguments; nothing is pushed, so that `raddle_user_fault` can return for all.
global_asm!(
    ".pushsection .text.raddle_user,\"ax\",@progbits",
    ".hidden raddle_user_begin, raddle_user_fault",
    ".hidden raddle_user_load, raddle_user_exchange, raddle_user_copy",
    ".globl raddle_user_begin, raddle_user_fault",
    ".globl raddle_user_load, raddle_user_exchange, raddle_user_copy",
    ".p2align 4",
    "raddle_user_begin:",
    "raddle_user_load:",
    ".cfi_startproc",
    "mov eax, [rdi]",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "raddle_user_exchange:",
    ".cfi_startproc",
    "mov eax, esi",
    "lock cmpxchg [rdi], edx",
    "mov eax, eax", // a 32-bit result, whether it was exchanged or not
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "raddle_user_copy:",
    ".cfi_startproc",
    "mov rcx, rdx",
    "shr rcx, 3",
    "jz 3f",
    "2:", // whole words
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "dec rcx",
    "jnz 2b",
    "3:",
    "test edx, 4",
    "jz 6f",
    "mov eax, [rsi]", // at once: others may look at a thread's id meanwhile
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "6:",
    "and edx, 3",
    "jz 5f",
    "4:", // the bytes behind them
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec edx",
    "jnz 4b",
    "5:",
    "xor eax, eax",
    "ret",
    ".cfi_endproc",
    ".p2align 4",
    "raddle_user_fault:",
    ".cfi_startproc",
    "mov rax, -14", // EFAULT
    "ret",
    ".cfi_endproc",
    ".popsection",
);

#[cfg(test)]
mod tests {
    extern crate std;
    use super::write;
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[test]
    fn nobody_sees_a_part_of_a_word() {
        const VALUES: [u32; 2] = [0, 0x2f12_3456];
        static WORD: AtomicU32 = AtomicU32::new(0);
        static ENDED: AtomicBool = AtomicBool::new(false);
        let writer = std::thread::spawn(|| {
            let address = WORD.as_ptr().expose_provenance();
            for round in 0..2_000_000 {
                assert_eq!(write(address, &VALUES[round % 2]), Ok(()));
            }
            ENDED.store(true, Ordering::Release);
        });
        while !ENDED.load(Ordering::Acquire) && !writer.is_finished() {
            let seen = WORD.load(Ordering::Relaxed);
            assert!(VALUES.contains(&seen), "{seen:#x}");
        }
        assert!(writer.join().is_ok());
    }
}
