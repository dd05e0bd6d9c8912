//! The kernel calls that patching needs, behind a trait so that tests can let any step fail.

use core::ffi::CStr;

use raddle_sys::{is_err, nr, sys};

/// Bytes in a page.
pub(crate) const PAGE_SIZE: usize = 4096;

/// Access to pages: never writable and executable at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    ReadWrite,
    ReadExecute,
}

/// The memory calls that patching makes. Errors are errno values.
pub trait Memory {
    /// Maps one private page, readable and executable: the first page of the file `path`, or an
    /// empty one if there is no path, or the program can't open the file any more.
    ///
    /// # Errors
    /// The kernel's errno.
    fn map_scratch(&self, path: Option<&CStr>) -> Result<usize, i32>;

    /// Maps `len` bytes of fresh memory, readable and writable, within a gigabyte below `address`.
    ///
    /// # Errors
    /// The kernel's errno.
    fn map_below(&self, address: usize, len: usize) -> Result<usize, i32>;

    /// Changes the access of the pages `[start, end)`.
    ///
    /// # Errors
    /// The kernel's errno.
    ///
    /// # Safety
    /// No code may rely on the access that is taken away.
    unsafe fn protect(&self, start: usize, end: usize, to: Protection) -> Result<(), i32>;

    /// Unmaps memory of [`Memory::map_scratch`] or [`Memory::map_below`].
    ///
    /// # Safety
    /// No code may use the memory any more.
    unsafe fn unmap(&self, start: usize, len: usize);
}

/// The kernel, by raw system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

const PROT_READ: usize = nr::PROT_READ as usize;
const PROT_WRITE: usize = nr::PROT_WRITE as usize;
const PROT_EXEC: usize = nr::PROT_EXEC as usize;
const MAP_PRIVATE: usize = nr::MAP_PRIVATE as usize;
const MAP_ANONYMOUS: usize = nr::MAP_ANONYMOUS as usize;
const MAP_FIXED_NOREPLACE: usize = nr::MAP_FIXED_NOREPLACE as usize;
const ENOMEM: i32 = raddle_sys::errno::ENOMEM as i32;
const O_RDONLY_CLOEXEC: usize = (raddle_sys::nr::O_RDONLY | raddle_sys::nr::O_CLOEXEC) as usize;
const AT_FDCWD: isize = nr::AT_FDCWD as isize;

fn result(value: isize) -> Result<usize, i32> {
    if is_err(value) {
        Err(-value as i32)
    } else {
        Ok(value as usize)
    }
}

impl Linux {
    fn map(fd: Option<usize>) -> Result<usize, i32> {
        let anonymous = if fd.is_none() { MAP_ANONYMOUS } else { 0 };
        let flags = MAP_PRIVATE | anonymous;
        let fd = fd.unwrap_or(usize::MAX);
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces no other.
        result(unsafe {
            sys!(
                nr::__NR_mmap,
                0usize,
                PAGE_SIZE,
                PROT_READ | PROT_EXEC,
                flags,
                fd,
                0usize
            )
        })
    }
}

impl Memory for Linux {
    fn map_scratch(&self, path: Option<&CStr>) -> Result<usize, i32> {
        let Some(path) = path else {
            return Self::map(None);
        };
        // SAFETY: the path is a string that outlives the call.
        let opened = result(unsafe {
            sys!(
                nr::__NR_openat,
                AT_FDCWD,
                path.as_ptr(),
                O_RDONLY_CLOEXEC,
                0usize
            )
        });
        let Ok(fd) = opened else {
            return Self::map(None);
        };
        let page = Self::map(Some(fd));
        // SAFETY: the descriptor was just opened, and no other code has it.
        unsafe { sys!(nr::__NR_close, fd) };
        page
    }

    /// Below, because a program's heap grows above it; at rising distances, because another mapping
    /// may be there.
    fn map_below(&self, address: usize, len: usize) -> Result<usize, i32> {
        const DISTANCES: core::ops::RangeInclusive<u32> = 16..=29;
        let mut errno = ENOMEM;
        for start in DISTANCES.filter_map(|bits| address.checked_sub(len + (1 << bits))) {
            let start = start & !(PAGE_SIZE - 1);
            // SAFETY: MAP_FIXED_NOREPLACE keeps the mapping from replacing another one.
            let mapped = result(unsafe {
                sys!(
                    nr::__NR_mmap,
                    start,
                    len,
                    PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                    usize::MAX,
                    0usize
                )
            });
            match mapped {
                Ok(found) if found == start => return Ok(start),
                // SAFETY: just mapped, elsewhere: a kernel before 4.17 takes the address as a hint.
                Ok(elsewhere) => unsafe { self.unmap(elsewhere, len) },
                Err(why) => errno = why,
            }
        }
        Err(errno)
    }

    unsafe fn protect(&self, start: usize, end: usize, to: Protection) -> Result<(), i32> {
        let prot = match to {
            Protection::ReadWrite => PROT_READ | PROT_WRITE,
            Protection::ReadExecute => PROT_READ | PROT_EXEC,
        };
        // SAFETY: the caller answers for the pages.
        result(unsafe { sys!(nr::__NR_mprotect, start, end - start, prot) }).map(|_| ())
    }

    unsafe fn unmap(&self, start: usize, len: usize) {
        // SAFETY: the caller owns the memory and is done with it.
        unsafe { sys!(nr::__NR_munmap, start, len) };
    }
}
