//! Stacks of light threads.
//!
//! A *shell* is a stack with its [`Light`] at the top: one page when little used. Shells are cut
//! from reservations of 64 MiB, or less under a limit. They are never unmapped, and reused last in,
//! first out; so a stale reference to a light thread always finds a `Light`.

use super::STACK_SIZE;
use super::host::{Host, Light};
use super::places::Region;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// The smallest stack.
const LEAST: usize = 16 << 10;
/// The largest stack.
const MOST: usize = 1 << 30;
const RESERVATION: usize = 64 << 20;
/// Linux's MADV_GUARD_INSTALL (6.13): a guard that takes no mapping.
const MADV_GUARD_INSTALL: i32 = 102;
/// The free shells of a size that keep all their memory.
const WARM: usize = 1024;

/// An unused shell.
struct Free(NonNull<Light>);

// SAFETY: a free shell belongs to the holder of this.
unsafe impl Send for Free {}

/// Free shells of one size, and the rest of the last reservation.
#[derive(Default)]
struct Class {
    free: Vec<Free>,
    next: usize,
    end: usize,
    /// That reservation, as tools see it.
    region: Option<&'static Region>,
}

type Classes = Option<HashMap<usize, Class>>;

/// The lock while a fork is made.
struct Held(UnsafeCell<Option<MutexGuard<'static, Classes>>>);

// SAFETY: used only by the holder of the lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Takes the lock before a fork, so that no other thread is changing the free shells.
pub(super) extern "C" fn hold() {
    let guard = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

/// Releases the lock after a fork, in both processes.
pub(super) extern "C" fn let_go() {
    // SAFETY: this thread, or its copy, holds the lock.
    drop(unsafe { (*HELD.0.get()).take() });
}

fn lock() -> MutexGuard<'static, Classes> {
    CLASSES.lock().unwrap_or_else(PoisonError::into_inner)
}

static CLASSES: Mutex<Classes> = Mutex::new(None);

/// Takes a shell with a stack of at least `bytes`.
pub(super) fn take(bytes: usize) -> io::Result<&'static Light> {
    if bytes == STACK_SIZE
        && let Some(light) = Host::current().and_then(Host::take_free)
    {
        return Ok(light);
    }
    if bytes > MOST {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let size = bytes.max(LEAST).next_power_of_two();
    let mut classes = lock();
    let class = classes.get_or_insert_default().entry(size).or_default();
    if let Some(Free(light)) = class.free.pop() {
        // SAFETY: shells live for ever.
        return Ok(unsafe { light.as_ref() });
    }
    let low = cut(class, size)?;
    // SAFETY: fresh zeroed memory of that size, aligned to pages.
    unsafe {
        if let Err(error) = guard(low) {
            class.next -= size; // no stack without a guard: the next stack lies below
            return Err(error);
        }
        let light = Light::at_top_of(low, size);
        class.region.inspect(|it| it.use_up_to(class.next));
        Ok(light)
    }
}

/// A stack for another use than a light thread; given back when this is dropped.
pub(crate) struct Shell(&'static Light);

// SAFETY: the holder of this owns the stack.
unsafe impl Send for Shell {}

/// Takes a stack of at least `bytes`.
pub(crate) fn take_shell(bytes: usize) -> io::Result<Shell> {
    take(bytes).map(Shell)
}

impl Shell {
    /// Returns the upper end of the stack, aligned to 64 bytes.
    pub(crate) fn top(&self) -> *mut u8 {
        std::ptr::from_ref(self.0).cast_mut().cast()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        give_back(std::iter::once(self.0));
    }
}

/// Cuts the next stack from a reservation; makes a new one if the last is used up.
fn cut(class: &mut Class, size: usize) -> io::Result<*mut u8> {
    if class.next == class.end {
        let (at, length) = reserve(size)?;
        // SAFETY: our own mapping.
        unsafe { libc::madvise(at, length, libc::MADV_NOHUGEPAGE) };
        class.next = at.expose_provenance();
        class.end = class.next + length;
        class.region = Some(Region::note(class.next, length, size));
    }
    let low = class.next;
    class.next += size;
    Ok(std::ptr::with_exposed_provenance_mut(low))
}

/// Maps fresh memory for many stacks of `size` bytes, or for as many as a limit on address space
/// allows.
fn reserve(size: usize) -> io::Result<(*mut c_void, usize)> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let mut length = RESERVATION.max(size);
    loop {
        // SAFETY: a mapping of fresh memory wherever there is room.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0) };
        if at != libc::MAP_FAILED {
            return Ok((at, length));
        }
        if length == size {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        length = (length / 2).max(size);
    }
}

/// Makes the lowest page a guard. Where Linux has no guard regions, the guard splits a mapping, and
/// the process may reach its limit of mappings.
///
/// # Safety
/// `low` must begin an unused stack.
unsafe fn guard(low: *mut u8) -> io::Result<()> {
    // SAFETY: the caller's page.
    unsafe {
        if libc::madvise(low.cast(), PAGE, MADV_GUARD_INSTALL) != 0
            && libc::mprotect(low.cast(), PAGE, libc::PROT_NONE) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Takes back shells that their hosts don't keep. All but the warm ones lose the memory below their
/// top page.
pub(super) fn give_back(shells: impl Iterator<Item = &'static Light>) {
    let mut classes = lock();
    let classes = classes.get_or_insert_default();
    for light in shells {
        let class = classes.entry(light.size()).or_default();
        if class.free.len() >= WARM {
            let below = light.size() - 2 * PAGE;
            // SAFETY: the stack is unused; its guard and its top page stay.
            unsafe { libc::madvise(light.low().add(PAGE).cast(), below, libc::MADV_DONTNEED) };
        }
        class.free.push(Free(NonNull::from(light)));
    }
}
