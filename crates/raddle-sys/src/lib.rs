//! Raw Linux: system calls, their numbers and the ABI structures that the runtime reads
//! and writes.
//!
//! This crate knows nothing of green threads, and never calls libc: the runtime runs beneath libc.
//! Results are the kernel's own: a non-negative value or a negated errno.
#![no_std]

pub mod abi;
pub mod mem;
mod signal_mask;

pub use linux_raw_sys::errno;
pub use linux_raw_sys::general as nr;
pub use linux_raw_sys::prctl;

pub use raddle_arch::syscall6;
pub use signal_mask::change_signal_mask;

/// Negates an errno constant of [`errno`] into a system call result.
pub const fn err(errno: u32) -> isize {
    -(errno as isize)
}

/// Returns true if `result` is a negated errno (`-4095..=-1`).
pub const fn is_err(result: isize) -> bool {
    (result as usize) > (-4096isize) as usize
}

/// `sys!(nr, a, b, ...)`: one system call; missing arguments are zero.
///
/// Expands to a call of [`syscall6`], so it must stand in an `unsafe` block.
#[macro_export]
macro_rules! sys {
    ($nr:expr $(, $arg:expr)* $(,)?) => {{
        let args = [$($arg as usize),*];
        let mut all = [0usize; 6];
        let mut i = 0;
        while i < args.len() {
            all[i] = args[i];
            i += 1;
        }
        $crate::syscall6($nr, all)
    }};
}

const STDERR: u32 = 2;
/// What shells add to the number of the signal that ended a process.
const SIGNALLED: u32 = 128;

/// Writes `bytes` to standard error, and ignores the result.
pub fn write_stderr(bytes: &[u8]) {
    // SAFETY: the buffer is a live slice.
    unsafe { sys!(nr::__NR_write, STDERR, bytes.as_ptr(), bytes.len()) };
}

/// Writes one line to standard error and ends the process by SIGABRT.
///
/// For impossible states only: it neither allocates nor unwinds.
pub fn fatal(message: &[u8]) -> ! {
    write_stderr(message);
    // SAFETY: SIGABRT is sent to this very process after its action has been reset; the loop ends
    // the thread if a debugger swallows the signal.
    unsafe {
        let default = [0usize; 4];
        sys!(
            nr::__NR_rt_sigaction,
            nr::SIGABRT,
            default.as_ptr(),
            0usize,
            8usize
        );
        change_signal_mask(nr::SIG_SETMASK, 0);
        let pid = sys!(nr::__NR_getpid);
        sys!(nr::__NR_kill, pid, nr::SIGABRT);
        loop {
            sys!(nr::__NR_exit_group, SIGNALLED + nr::SIGABRT);
        }
    }
}
