//! Questions that only the kernel can answer, asked by trying. Each probe undoes its changes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use libc::{c_int, c_void};

use crate::own_path;

const PAGE_BYTES: usize = 4096;

/// `include/uapi/asm-generic/mman-common.h`, from Linux 6.13.
const MADV_GUARD_INSTALL: c_int = 102;
/// `arch/x86/include/uapi/asm/prctl.h`.
const ARCH_SHSTK_STATUS: c_int = 0x5005;
const SHSTK_ENABLED: u64 = 1;
/// `include/uapi/linux/prctl.h`.
/// `struct io_uring_params`.
const IO_URING_PARAMS_BYTES: usize = 120;
/// `arch/x86/include/uapi/asm/hwcap2.h`.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// A private mapping, unmapped when this is dropped.
struct Mapping(*mut c_void);

impl Mapping {
    fn new(protection: c_int, file: Option<&File>) -> io::Result<Mapping> {
        let anonymous = if file.is_none() {
            libc::MAP_ANONYMOUS
        } else {
            0
        };
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        let flags = libc::MAP_PRIVATE | anonymous;
        // SAFETY: a new private mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE_BYTES,
                protection,
                flags,
                descriptor,
                0,
            )
        };
        match start {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Mapping(start)),
        }
    }

    fn protect(&self, protection: c_int) -> io::Result<()> {
        // SAFETY: the page is ours, and nothing is executed in it or refers to it.
        checked(unsafe { libc::mprotect(self.0, PAGE_BYTES, protection) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the page is ours, and this was the last reference to it.
        unsafe { libc::munmap(self.0, PAGE_BYTES) };
    }
}

fn checked(result: c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns whether the kernel lets user code set the FS base.
pub(super) fn fs_base_instructions() -> bool {
    // SAFETY: it reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Tries guard regions without a mapping of their own.
pub(super) fn guard_install() -> io::Result<()> {
    let page = Mapping::new(libc::PROT_READ | libc::PROT_WRITE, None)?;
    // SAFETY: the page is ours and nothing is in it.
    checked(unsafe { libc::madvise(page.0, PAGE_BYTES, MADV_GUARD_INSTALL) })
}

/// Patches a page like one of libc's: private file text, made writable, changed, and executable
/// again, never both at once.
pub(super) fn patch_text() -> io::Result<()> {
    let file = File::open(own_path::executable()?)?;
    let page = Mapping::new(libc::PROT_READ | libc::PROT_EXEC, Some(&file))?;
    page.protect(libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: the page is ours, private and writable now; it is never executed.
    unsafe { page.0.cast::<u8>().write_volatile(0x90) };
    page.protect(libc::PROT_READ | libc::PROT_EXEC)
}

/// Makes a ring of one entry, and closes it.
pub(super) fn io_uring() -> io::Result<()> {
    let mut params = [0_u64; IO_URING_PARAMS_BYTES / 8];
    // SAFETY: the parameters have the size the kernel expects, and zero asks for nothing special.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, params.as_mut_ptr()) };
    close(ring)
}

/// Opens and closes a software event of this thread's switches, without the kernel's own time. Not
/// for a process with a seccomp filter: some filters kill a process that makes an unknown call.
pub(super) fn perf_event() -> io::Result<()> {
    const SIZE_BYTES: u32 = 64; // PERF_ATTR_SIZE_VER0, which every kernel knows
    const TYPE_SOFTWARE: u32 = 1;
    const CONFIG_DUMMY: u64 = 9;
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const CONTEXT_SWITCH: u64 = 1 << 26;
    if seccomp_mode().is_some_and(|mode| mode != 0) {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    let mut attributes = [0_u64; SIZE_BYTES as usize / 8];
    attributes[0] = u64::from(TYPE_SOFTWARE) | u64::from(SIZE_BYTES) << 32;
    attributes[1] = CONFIG_DUMMY;
    attributes[5] = DISABLED | EXCLUDE_KERNEL | CONTEXT_SWITCH;
    let (this_thread, any_cpu, no_group, flags) = (0, -1, -1, 0_u64);
    // SAFETY: the attributes are as long as they say.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            this_thread,
            any_cpu,
            no_group,
            flags,
        )
    };
    close(event)
}

fn close(descriptor: i64) -> io::Result<()> {
    match c_int::try_from(descriptor) {
        Ok(descriptor) if descriptor >= 0 => {
            // SAFETY: the descriptor was made a moment ago, and is used only here.
            checked(unsafe { libc::close(descriptor) })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether this process has a shadow stack; false on a kernel without shadow stacks.
pub(super) fn shadow_stack() -> bool {
    let mut features = 0_u64;
    // SAFETY: the kernel writes one u64 to the address given.
    let result =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    result == 0 && features & SHSTK_ENABLED != 0
}

/// A number in a file of `/proc/sys`.
pub(super) fn setting(path: &str) -> Option<i64> {
    fs::read_to_string(format!("/proc/sys/{path}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Returns the mode of this process's filter of system calls: 0 is none, 2 a filter. `None` if the
/// kernel knows no filters.
pub(super) fn seccomp_mode() -> Option<u32> {
    // SAFETY: a query without pointers.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    u32::try_from(mode).ok()
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_leave_nothing_behind() {
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        // One warm-up, so that what libc opens once is open.
        let all = || {
            (
                guard_install().is_ok(),
                io_uring().is_ok(),
                perf_event().is_ok(),
            )
        };
        all();
        let before = descriptors();
        for _ in 0..64 {
            all();
            assert!(patch_text().is_ok());
        }
        // Other tests run beside this one and open files, but not that many.
        assert!(descriptors() < before + 32);
    }

    #[test]
    fn settings_are_read() {
        assert!(setting("vm/max_map_count").is_some_and(|count| count > 0));
        assert_eq!(setting("no/such"), None);
    }
}
