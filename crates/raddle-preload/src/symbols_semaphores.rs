//! The symbol layer for semaphores: see [`crate::symbols`].
//!
//! What is looked at first is glibc's order: the clock, the nanoseconds, a cancellation (but not by
//! `sem_clockwait`), the value, a time before the clock's beginning, and then the wait.

use crate::symbols::{
    ANY, CLOCK_MONOTONIC, CLOCK_REALTIME, Until, call_original, cancellation_point, green, leave,
    set_errno,
};
use crate::{cleanup, original};
use core::ffi::{c_int, c_uint, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_engine::thread::WaitKind;
use raddle_engine::{PROCESS, Thread};
use raddle_kernel::{signal, words};
use raddle_sched::TaskList;
use raddle_sched::timers::NEVER;
use raddle_sys::errno;

const EINTR: isize = raddle_sys::err(errno::EINTR);
const ETIMEDOUT: isize = raddle_sys::err(errno::ETIMEDOUT);

/// `sem_t`: value in the low half, waiters in the high half.
#[repr(C)]
pub(crate) struct Semaphore {
    data: AtomicU64,
    /// 0 if private.
    shared: c_int,
    padding: c_int,
    /// The thread that took it last, for tools, in bytes of `sem_t` that libc doesn't use. Written
    /// by takers, relaxed.
    taker: AtomicU32,
}

const _: () = assert!(size_of::<Semaphore>() <= 32); // sem_t

/// One waiter, in units of the whole word.
const WAITER: u64 = 1 << 32;

impl Semaphore {
    /// A signal handler doesn't return to the wait.
    extern "C" fn give_up(semaphore: *mut c_void) {
        // SAFETY: `deliver_or` was given a semaphore.
        let semaphore = unsafe { &*semaphore.cast::<Self>() };
        semaphore.data.fetch_sub(WAITER, Ordering::Relaxed);
    }

    /// Takes one for `thread`, and gives up `waiters` (in units of the whole word) with it.
    #[inline(always)]
    fn try_take(&self, thread: &Thread, waiters: u64) -> bool {
        let mut data = self.data.load(Ordering::Relaxed);
        while data as u32 != 0 {
            match self.data.compare_exchange_weak(
                data,
                data - 1 - waiters,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.taker.store(thread.tid(), Ordering::Relaxed);
                    return true;
                }
                Err(now) => data = now,
            }
        }
        false
    }

    /// Waits as glibc does, with its waiter count, so that any post finds us. A cancellation that
    /// came before is acted upon already.
    #[inline(always)]
    fn wait(&self, thread: &Thread, deadline_ns: u64) -> c_int {
        self.data.fetch_add(WAITER, Ordering::SeqCst);
        let address = self.data.as_ptr().expose_provenance();
        loop {
            if self.try_take(thread, WAITER) {
                leave();
                return 0;
            }
            let result = words::wait(address, 0, ANY, deadline_ns, WaitKind::SEMAPHORE);
            let failure = match result {
                ETIMEDOUT => errno::ETIMEDOUT,
                EINTR => match cleanup::deliver_or(self, Self::give_up) {
                    signal::Delivered::Interrupting => errno::EINTR,
                    // As Linux: no handler restarts a futex wait that has a timeout.
                    signal::Delivered::Restarting if deadline_ns != NEVER => errno::EINTR,
                    _ => {
                        self.data.fetch_sub(WAITER, Ordering::Relaxed);
                        cancellation_point(thread);
                        self.data.fetch_add(WAITER, Ordering::SeqCst);
                        continue;
                    }
                },
                _ => continue,
            };
            self.data.fetch_sub(WAITER, Ordering::Relaxed);
            return set_errno(failure);
        }
    }
}

/// `sem_init(3)`: libc's, and then no thread has taken it.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_init(
    semaphore: *mut Semaphore,
    shared: c_int,
    value: c_uint,
) -> c_int {
    let result = call_original!(
        original::SEM_INIT,
        fn(*mut Semaphore, c_int, c_uint) -> c_int,
        semaphore,
        shared,
        value
    );
    if result == 0 && shared == 0 {
        // SAFETY: the caller's object, which libc has just written to.
        unsafe { (*semaphore).taker.store(0, Ordering::Relaxed) };
    }
    result
}

/// `sem_trywait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_trywait(semaphore: *mut Semaphore) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    match green().filter(|_| s.shared == 0) {
        Some((_, thread)) if s.try_take(thread, 0) => 0,
        Some(_) => set_errno(errno::EAGAIN),
        None => call_original!(
            original::SEM_TRYWAIT,
            fn(*mut Semaphore) -> c_int,
            semaphore
        ),
    }
}

/// `sem_wait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_wait(semaphore: *mut Semaphore) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    let Some((_, thread)) = green().filter(|_| s.shared == 0) else {
        return call_original!(original::SEM_WAIT, fn(*mut Semaphore) -> c_int, semaphore);
    };
    cancellation_point(thread);
    if s.try_take(thread, 0) {
        return 0;
    }
    s.wait(thread, NEVER)
}

/// `sem_timedwait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_timedwait(
    semaphore: *mut Semaphore,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    if let Some((_, thread)) = green()
        && s.shared == 0
        && let Some(until) = Until::read(until)
    {
        if !until.is_valid() {
            return set_errno(errno::EINVAL);
        }
        cancellation_point(thread);
        if s.try_take(thread, 0) {
            return 0;
        }
        return match until.deadline_ns(true) {
            Some(deadline_ns) => s.wait(thread, deadline_ns),
            None => set_errno(errno::ETIMEDOUT),
        };
    }
    call_original!(
        original::SEM_TIMEDWAIT,
        fn(*mut Semaphore, *const c_void) -> c_int,
        semaphore,
        until
    )
}

/// `sem_clockwait(3)`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_clockwait(
    semaphore: *mut Semaphore,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    if let Some((_, thread)) = green()
        && s.shared == 0
        && matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC)
        && let Some(until) = Until::read(until)
    {
        if !until.is_valid() {
            return set_errno(errno::EINVAL);
        }
        if s.try_take(thread, 0) {
            return 0;
        }
        let Some(deadline_ns) = until.deadline_ns(clock == CLOCK_REALTIME) else {
            return set_errno(errno::ETIMEDOUT);
        };
        cancellation_point(thread); // of the wait alone
        return s.wait(thread, deadline_ns);
    }
    call_original!(
        original::SEM_CLOCKWAIT,
        fn(*mut Semaphore, c_int, *const c_void) -> c_int,
        semaphore,
        clock,
        until
    )
}

/// `sem_post(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sem_post(semaphore: *mut Semaphore) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    let Some((carrier, _)) = green().filter(|_| s.shared == 0) else {
        return call_original!(original::SEM_POST, fn(*mut Semaphore) -> c_int, semaphore);
    };
    let mut data = s.data.load(Ordering::Relaxed);
    loop {
        if data as u32 == i32::MAX as u32 {
            return set_errno(errno::EOVERFLOW);
        }
        match s
            .data
            .compare_exchange_weak(data, data + 1, Ordering::SeqCst, Ordering::Relaxed)
        {
            Ok(_) => break,
            Err(now) => data = now,
        }
    }
    if data >> 32 != 0 {
        let woken = TaskList::new();
        let address = s.data.as_ptr().expose_provenance();
        PROCESS.futexes.wake_fenced(address, 1, ANY, &woken);
        if let Some(task) = woken.pop() {
            PROCESS.unpark_on(carrier, task);
        }
        leave();
    }
    0
}
