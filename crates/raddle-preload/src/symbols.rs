//! The symbol layer: pthread functions that are faster when they know the scheduler.
//!
//! An accelerator only: removing a function here changes speed, nothing else. Each works on glibc's
//! own memory layout, parks in the same tables as the system call it replaces, and hands what it
//! doesn't know (shared, robust, priority-inheriting objects; a process with one thread) to glibc.
//!
//! A waiter on a condition variable is in the futex table under the variable's address + 1, and not
//! in glibc's groups; a signal looks there first and calls glibc if glibc has waiters of its own
//! (`cnd_wait` and libc's internal users). Between linking the waiter and parking no code but ours
//! runs, so a signal handler can't come between: the mutex is unlocked right here.

use crate::original;
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use raddle_engine::chaos::{self, Point};
use raddle_engine::engine::Futexes;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE, Thread, switch, ums};
use raddle_kernel::time::absolute_deadline;
use raddle_kernel::{futex, signal};
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, Wake};
use raddle_sys::errno;

const ANY: u32 = u32::MAX;
const EINTR: isize = raddle_sys::err(errno::EINTR);
const ETIMEDOUT: isize = raddle_sys::err(errno::ETIMEDOUT);
const REALTIME: c_int = 0;
const MONOTONIC: c_int = 1;
const NORMAL: u32 = 0;
const RECURSIVE: u32 = 1;
const ADAPTIVE: u32 = 3;

/// Head of `pthread_mutex_t`.
#[repr(C)]
pub struct Mutex {
    /// 0 free, 1 locked, 2 locked with waiters.
    lock: AtomicU32,
    count: AtomicU32,
    owner: AtomicU32,
    users: AtomicU32,
    kind: AtomicU32,
}

/// `pthread_cond_t`.
#[repr(C)]
pub struct Condvar {
    words: [AtomicU32; CONDVAR_WORDS],
}

const CONDVAR_WORDS: usize = 12;

/// Which word of a condition variable holds glibc's waiters x 8 | clock (2) | shared (1): 9, then
/// from glibc 2.41 on and in corrected older ones 7. Written once at start-up.
static REFERENCES: AtomicUsize = AtomicUsize::new(0);

/// Finds that word, by the bit that glibc sets in it for a shared variable. False if there is none.
///
/// # Safety
/// The originals have been looked up.
pub unsafe fn learn_condvar() -> bool {
    let shared: c_int = 1; // pthread_condattr_t: shared (1) | clock (2)
    let probe = Condvar {
        words: [const { AtomicU32::new(0) }; CONDVAR_WORDS],
    };
    if original::COND_INIT.get() == 0 {
        return false;
    }
    call_original!(
        original::COND_INIT,
        fn(*const Condvar, *const c_int) -> c_int,
        &raw const probe,
        &raw const shared
    );
    let is_set = |word: &AtomicU32| word.load(Ordering::Relaxed) == 1;
    let found = probe.words.iter().position(is_set);
    REFERENCES.store(found.unwrap_or(0), Ordering::Relaxed);
    found.is_some()
}

impl Condvar {
    /// glibc's waiters x 8 | clock (2) | shared (1).
    #[inline(always)]
    fn references(&self) -> u32 {
        let index = REFERENCES.load(Ordering::Relaxed);
        // SAFETY: `learn_condvar` found it among these words.
        unsafe { self.words.get_unchecked(index) }.load(Ordering::Relaxed)
    }
}

/// `sem_t`: value in the low half, waiters in the high half.
#[repr(C)]
pub struct Semaphore {
    data: AtomicU64,
    /// 0 if private.
    shared: c_int,
}

/// The running green thread, once there is more than one.
#[inline(always)]
pub(crate) fn green<'a>() -> Option<(&'a Carrier, &'a Thread)> {
    if !ENGINE.is_calm() {
        if !ENGINE.is_started() {
            return None;
        }
        chaos::at_safe_point(Point::Symbol);
    }
    let carrier = Carrier::current();
    if carrier.raw.get() != 0 {
        return None;
    }
    carrier.thread_or_none().map(|thread| (carrier, thread))
}

/// Signals that came while we were in here.
#[inline(always)]
pub(crate) fn leave() {
    if Carrier::current().attention.load(Ordering::Relaxed) != 0 {
        signal::on_attention(0);
    }
}

/// Calls libc's own function of that name.
macro_rules! call_original {
    ($original:expr, fn($($kind:ty),*) -> $ret:ty, $($arg:expr),*) => {{
        let address = $original.get();
        // SAFETY: the address of libc's function of that name, whose type this is.
        let function: extern "C" fn($($kind),*) -> $ret = unsafe { transmute(address) };
        function($($arg),*)
    }};
}

pub(crate) use call_original;

/// The cancellation point at the start of a wait. The bell is silenced before glibc is asked: who
/// rings later is heard by the wait itself ([`switch::park_cancellable`]).
#[inline(always)]
fn cancellation_point(thread: &Thread) {
    if thread.cancelled.load(Ordering::Relaxed) != 0 {
        thread.cancelled.swap(0, Ordering::SeqCst);
    }
    test_cancel();
}

fn test_cancel() {
    call_original!(original::TESTCANCEL, fn() -> (),);
}

pub(crate) fn set_errno(value: u32) -> c_int {
    let location = call_original!(original::ERRNO_LOCATION, fn() -> *mut c_int,);
    // SAFETY: the calling thread's errno.
    unsafe { *location = value as c_int };
    -1
}

impl Mutex {
    /// True for mutexes that one swap unlocks: normal or adaptive, private, not robust, no
    /// priority protocol.
    #[inline(always)]
    fn is_simple(&self) -> bool {
        match self.plain_kind() {
            NORMAL | ADAPTIVE => true,
            RECURSIVE => self.count.load(Ordering::Relaxed) == 1,
            _ => false,
        }
    }

    /// The kind without the bits that concern lock elision.
    #[inline(always)]
    fn plain_kind(&self) -> u32 {
        const ELISION: u32 = 0x300;
        self.kind.load(Ordering::Relaxed) & !ELISION
    }

    #[inline(always)]
    fn set_count(&self, count: u32) {
        if self.plain_kind() == RECURSIVE {
            self.count.store(count, Ordering::Relaxed);
        }
    }

    /// Unlocks without giving up the user count, as glibc does inside a wait.
    #[inline(always)]
    fn unlock(&self) {
        self.set_count(0);
        self.owner.store(0, Ordering::Relaxed);
        if self.lock.swap(0, Ordering::Release) == 2 {
            futex::wake(self.lock.as_ptr().expose_provenance(), 1, ANY);
        }
    }

    #[inline(always)]
    fn lock(&self, tid: u32) {
        let free = self
            .lock
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            self.lock_contended();
        }
        self.owner.store(tid, Ordering::Relaxed);
        self.set_count(1);
    }

    #[cold]
    fn lock_contended(&self) {
        while self.lock.swap(2, Ordering::Acquire) != 0 {
            let address = self.lock.as_ptr().expose_provenance();
            if futex::wait(address, 2, ANY, NEVER, WaitKind::Mutex) == EINTR {
                signal::deliver();
            }
        }
    }
}

/// Waits on a condition variable until `deadline_ns`. Returns 0 or ETIMEDOUT (positive).
#[inline(always)]
fn wait_on(thread: &Thread, condvar: &Condvar, mutex: &Mutex, deadline_ns: u64) -> c_int {
    cancellation_point(thread);
    let key = core::ptr::from_ref(condvar).expose_provenance() + 1;
    let shown = if deadline_ns == NEVER { 0 } else { deadline_ns };
    thread.waits_for(WaitKind::Condvar, key - 1, shown);
    if deadline_ns == NEVER {
        Futexes::prepare(&thread.node, thread.task_ref(), key);
    } else {
        thread.task.prepare();
    }
    // SAFETY: the thread's own node, cancelled below if anything but the table wakes it.
    let _ = unsafe {
        ENGINE
            .futexes
            .enqueue(&thread.node, thread.task_ref(), key, ANY, || true)
    };
    mutex.unlock();
    let outcome = switch::park_cancellable(thread, deadline_ns);
    if outcome == Wake::Woken {
        mutex.lock(thread.tid());
        leave();
        return 0;
    }
    // SAFETY: the node was given to this table.
    unsafe { ENGINE.futexes.cancel(&thread.node) };
    signal::deliver();
    mutex.lock(thread.tid());
    test_cancel(); // a cancellation wakes us like a signal; without one this is a spurious wake-up
    if outcome == Wake::TimedOut {
        errno::ETIMEDOUT as c_int
    } else {
        0
    }
}

#[inline(always)]
fn is_ours(condvar: &Condvar, mutex: &Mutex) -> bool {
    condvar.references() & 1 == 0 && mutex.is_simple()
}

/// `pthread_cond_wait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_wait(condvar: *mut Condvar, mutex: *mut Mutex) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    match green() {
        Some((_, thread)) if is_ours(c, m) => wait_on(thread, c, m, NEVER),
        _ => call_original!(
            original::COND_WAIT,
            fn(*mut Condvar, *mut Mutex) -> c_int,
            condvar,
            mutex
        ),
    }
}

/// `pthread_cond_timedwait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    if let Some((_, thread)) = green()
        && is_ours(c, m)
    {
        let realtime = c.references() & 2 == 0;
        return match absolute_deadline(until.expose_provenance(), realtime) {
            Ok(deadline_ns) => wait_on(thread, c, m, deadline_ns),
            Err(errno) => -errno as c_int,
        };
    }
    call_original!(
        original::COND_TIMEDWAIT,
        fn(*mut Condvar, *mut Mutex, *const c_void) -> c_int,
        condvar,
        mutex,
        until
    )
}

/// `pthread_cond_clockwait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    if let Some((_, thread)) = green()
        && is_ours(c, m)
        && matches!(clock, REALTIME | MONOTONIC)
    {
        return match absolute_deadline(until.expose_provenance(), clock == REALTIME) {
            Ok(deadline_ns) => wait_on(thread, c, m, deadline_ns),
            Err(errno) => -errno as c_int,
        };
    }
    call_original!(
        original::COND_CLOCKWAIT,
        fn(*mut Condvar, *mut Mutex, c_int, *const c_void) -> c_int,
        condvar,
        mutex,
        clock,
        until
    )
}

/// Wakes up to `count` of our waiters; true if glibc has some of its own to wake.
///
/// No fence: a waiter that must be seen has released the mutex that the caller took since.
#[inline(always)]
fn notify(carrier: &Carrier, condvar: &Condvar, count: usize) -> (usize, bool) {
    let key = core::ptr::from_ref(condvar).expose_provenance() + 1;
    let woken = TaskList::new();
    let n = ENGINE.futexes.wake_fenced(key, count, ANY, &woken);
    if n == 1 {
        if let Some(task) = woken.pop() {
            ENGINE.unpark_on(carrier, task);
        }
    } else {
        ENGINE.unpark_all(woken);
    }
    (n, condvar.references() >> 3 != 0)
}

/// `pthread_cond_signal(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_signal(condvar: *mut Condvar) -> c_int {
    if let Some((carrier, _)) = green() {
        // SAFETY: the caller's object.
        let (n, theirs) = notify(carrier, unsafe { &*condvar }, 1);
        if n != 0 || !theirs {
            leave();
            return 0;
        }
    }
    call_original!(original::COND_SIGNAL, fn(*mut Condvar) -> c_int, condvar)
}

/// `pthread_cond_broadcast(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_broadcast(condvar: *mut Condvar) -> c_int {
    if let Some((carrier, _)) = green() {
        // SAFETY: the caller's object.
        let (_, theirs) = notify(carrier, unsafe { &*condvar }, usize::MAX);
        if !theirs {
            leave();
            return 0;
        }
    }
    call_original!(original::COND_BROADCAST, fn(*mut Condvar) -> c_int, condvar)
}

impl Semaphore {
    /// Takes one, and gives up `waiters` (in units of the whole word) with it.
    #[inline(always)]
    fn try_take(&self, waiters: u64) -> bool {
        let mut data = self.data.load(Ordering::Relaxed);
        while data as u32 != 0 {
            match self.data.compare_exchange_weak(
                data,
                data - 1 - waiters,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => data = now,
            }
        }
        false
    }

    /// Waits as glibc does, with its waiter count, so that any post finds us.
    fn wait(&self, deadline_ns: u64) -> c_int {
        const WAITER: u64 = 1 << 32;
        let thread = Carrier::current().thread();
        cancellation_point(thread);
        if self.try_take(0) {
            return 0;
        }
        self.data.fetch_add(WAITER, Ordering::SeqCst);
        let address = self.data.as_ptr().expose_provenance();
        loop {
            if self.try_take(WAITER) {
                leave();
                return 0;
            }
            let result = futex::wait(address, 0, ANY, deadline_ns, WaitKind::Semaphore);
            let failure = match result {
                ETIMEDOUT => errno::ETIMEDOUT,
                EINTR => match signal::deliver() {
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

/// `sem_wait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_wait(semaphore: *mut Semaphore) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    match green() {
        Some(_) if s.shared == 0 => s.wait(NEVER),
        _ => call_original!(original::SEM_WAIT, fn(*mut Semaphore) -> c_int, semaphore),
    }
}

fn timed(s: &Semaphore, until: *const c_void, realtime: bool) -> c_int {
    if s.try_take(0) {
        return 0; // a bad timeout doesn't matter then
    }
    match absolute_deadline(until.expose_provenance(), realtime) {
        Ok(deadline_ns) => s.wait(deadline_ns),
        Err(errno) => set_errno(-errno as u32),
    }
}

/// `sem_timedwait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(semaphore: *mut Semaphore, until: *const c_void) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    match green() {
        Some(_) if s.shared == 0 => timed(s, until, true),
        _ => call_original!(
            original::SEM_TIMEDWAIT,
            fn(*mut Semaphore, *const c_void) -> c_int,
            semaphore,
            until
        ),
    }
}

/// `sem_clockwait(3)`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(
    semaphore: *mut Semaphore,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's object.
    let s = unsafe { &*semaphore };
    match green() {
        Some(_) if s.shared == 0 && matches!(clock, REALTIME | MONOTONIC) => {
            timed(s, until, clock == REALTIME)
        }
        _ => call_original!(
            original::SEM_CLOCKWAIT,
            fn(*mut Semaphore, c_int, *const c_void) -> c_int,
            semaphore,
            clock,
            until
        ),
    }
}

/// `sem_post(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_post(semaphore: *mut Semaphore) -> c_int {
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
        ENGINE.futexes.wake_fenced(address, 1, ANY, &woken);
        if let Some(task) = woken.pop() {
            ENGINE.unpark_on(carrier, task);
        }
        leave();
    }
    0
}

/// `sched_yield(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn sched_yield() -> c_int {
    match green() {
        Some(_) => {
            ums::sched_yield();
            leave();
            0
        }
        None => call_original!(original::SCHED_YIELD, fn() -> c_int,),
    }
}
