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

use crate::{cleanup, original};
use core::ffi::{c_int, c_void};
use core::mem::transmute;
use core::ptr::null;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_engine::chaos::{self, Point};
use raddle_engine::process::Futexes;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, Thread, switch, ums};
use raddle_kernel::clocks::deadlines::deadline_at;
use raddle_kernel::user::User;
use raddle_kernel::{signal, words};
use raddle_sched::timers::NEVER;
use raddle_sched::{Absences, TaskList, Wake};
use raddle_sys::abi::Timespec;
use raddle_sys::errno;

pub(crate) const ANY: u32 = u32::MAX;
const EINTR: isize = raddle_sys::err(errno::EINTR);
pub(crate) const CLOCK_REALTIME: c_int = raddle_sys::nr::CLOCK_REALTIME as c_int;
pub(crate) const CLOCK_MONOTONIC: c_int = raddle_sys::nr::CLOCK_MONOTONIC as c_int;
const NORMAL: u32 = 0;
const RECURSIVE: u32 = 1;
const ADAPTIVE: u32 = 3;

/// Head of `pthread_mutex_t`.
#[repr(C)]
pub(crate) struct Mutex {
    /// 0 free, 1 locked, 2 locked with waiters.
    lock: AtomicU32,
    count: AtomicU32,
    owner: AtomicU32,
    users: AtomicU32,
    kind: AtomicU32,
}

/// `pthread_cond_t`.
#[repr(C)]
pub(crate) struct Condvar {
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
pub(crate) unsafe fn learn_condvar() -> bool {
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
    /// What the symbol layer's waiters wait for in the futex table.
    #[inline(always)]
    fn key(&self) -> usize {
        core::ptr::from_ref(self).expose_provenance() + 1
    }

    /// glibc's waiters x 8 | clock (2) | shared (1).
    #[inline(always)]
    fn references(&self) -> u32 {
        let index = REFERENCES.load(Ordering::Relaxed);
        // SAFETY: `learn_condvar` found it among these words.
        unsafe { self.words.get_unchecked(index) }.load(Ordering::Relaxed)
    }
}

/// The running green thread, once there is more than one.
#[inline(always)]
pub(crate) fn green<'a>() -> Option<(&'a Carrier, &'a Thread)> {
    if !PROCESS.is_calm() {
        if !PROCESS.is_started() {
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
        signal::on_attention(0, null());
    }
}

/// Calls libc's own function of that name.
macro_rules! call_original {
    ($original:expr, fn($($kind:ty),*) -> $ret:ty, $($arg:expr),*) => {{
        let address = $original.get();
        // SAFETY: the address of libc's function of that name, which has this type.
        let function: extern "C" fn($($kind),*) -> $ret = unsafe { transmute(address) };
        function($($arg),*)
    }};
}

pub(crate) use call_original;

/// The cancellation point at the start of a wait. The bell is silenced before glibc is asked; a
/// later ring is heard by the wait itself ([`switch::park_cancellable`]).
#[inline(always)]
pub(crate) fn cancellation_point(thread: &Thread) {
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

/// The time limit of a wait, which libc's functions look at in two steps.
pub(crate) struct Until(Timespec);

impl Until {
    /// `None` if it can't be read: libc's own function faults on it.
    #[inline(always)]
    pub(crate) fn read(until: *const c_void) -> Option<Self> {
        User::at(until.expose_provenance()).read().ok().map(Self)
    }

    /// False if the nanoseconds are less than none, or a second and more: EINVAL.
    #[inline(always)]
    pub(crate) fn is_valid(&self) -> bool {
        const SECOND_NS: i64 = 1_000_000_000;
        (0..SECOND_NS).contains(&self.0.nsec)
    }

    /// The deadline (CLOCK_MONOTONIC, ns). `None` for a time before the clock's beginning: libc
    /// answers ETIMEDOUT without a wait, where the kernel would say EINVAL.
    #[inline(always)]
    pub(crate) fn deadline_ns(&self, realtime: bool) -> Option<u64> {
        self.0.to_ns().map(|at_ns| deadline_at(at_ns, realtime))
    }
}

impl Mutex {
    /// True for mutexes that one swap of `thread` unlocks: normal or adaptive, or locked once by
    /// it; private, not robust, no priority protocol.
    #[inline(always)]
    fn is_simple(&self, thread: &Thread) -> bool {
        match self.plain_kind() {
            NORMAL | ADAPTIVE => true,
            RECURSIVE => {
                let is_own = self.owner.load(Ordering::Relaxed) == thread.tid();
                is_own && self.count.load(Ordering::Relaxed) == 1
            }
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
            words::wake(self.lock.as_ptr().expose_provenance(), 1, ANY);
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
            if words::wait(address, 2, ANY, NEVER, WaitKind::MUTEX) == EINTR {
                signal::deliver_outside();
            }
        }
    }
}

/// Where threads that wait for condition variables say that they run signal handlers.
static ABSENCES: Absences<64> = Absences::new();

/// Waits on a condition variable until `deadline_ns`. Returns 0 or ETIMEDOUT (positive).
#[inline(always)]
fn wait_on(thread: &Thread, condvar: &Condvar, mutex: &Mutex, deadline_ns: u64) -> c_int {
    cancellation_point(thread);
    let key = condvar.key();
    let told = core::ptr::from_ref(mutex).addr();
    thread.wait_lock.store(told, Ordering::Relaxed);
    // Nothing was missed: the thread holds the mutex.
    let _ = link(thread, key, deadline_ns, || true);
    mutex.unlock();
    let outcome = switch::park_cancellable(thread, deadline_ns);
    if outcome != Wake::Woken {
        return wait_on_after(thread, key, mutex, deadline_ns, outcome);
    }
    mutex.lock(thread.tid());
    leave();
    0
}

/// Announces that the thread waits for `key`, if `still()` holds under the lock of its row. False
/// if it doesn't: the thread doesn't wait.
#[inline(always)]
fn link(thread: &Thread, key: usize, deadline_ns: u64, still: impl FnOnce() -> bool) -> bool {
    let shown = if deadline_ns == NEVER { 0 } else { deadline_ns };
    thread.waits_for(WaitKind::CONDVAR, key - 1, shown);
    if deadline_ns == NEVER {
        Futexes::prepare(&thread.node, thread.task_ref(), key);
    } else {
        thread.task.prepare();
    }
    let task = thread.task_ref();
    // SAFETY: the thread's own node, cancelled by the caller if anything but the table wakes it.
    unsafe { PROCESS.futexes.enqueue(&thread.node, task, key, ANY, still) }
}

/// A wait that doesn't go on as it began.
struct Interrupted<'a> {
    mutex: &'a Mutex,
    key: usize,
    deadline_ns: u64,
    /// What [`Absences::begin`] said.
    seen: u32,
}

impl Interrupted<'_> {
    /// Takes the thread's node out, and runs signal handlers. True if the node was linked.
    fn handle(&self, thread: &Thread) -> bool {
        // SAFETY: the node was given to this table.
        let was_linked = unsafe { PROCESS.futexes.cancel(&thread.node) };
        cleanup::deliver_or(self, Self::undo);
        was_linked
    }

    /// A handler doesn't return: what unwinds the thread finds the mutex locked.
    extern "C" fn undo(wait: *mut c_void) {
        // SAFETY: `deliver_or` was given a wait, which is on a frame that is being left.
        let wait = unsafe { &*wait.cast::<Interrupted<'_>>() };
        ABSENCES.end(wait.key);
        wait.mutex.lock(Carrier::current().thread().tid());
    }

    /// Goes back to the wait until a wake-up or the time limit ends it, as libc's loop around the
    /// futex does. [`Absences`] has the protocol. Returns 0 or ETIMEDOUT.
    fn go_back(&self, thread: &Thread, mut ended: Wake) -> c_int {
        loop {
            let was_linked = self.handle(thread);
            match ended {
                Wake::TimedOut => return errno::ETIMEDOUT as c_int,
                Wake::Signalled if was_linked => {}
                _ => return 0,
            }
            let is_cancelled = thread.cancelled.load(Ordering::SeqCst) != 0;
            if is_cancelled {
                // Clean-up handlers run with the mutex. If they don't, the wait goes on.
                ABSENCES.end(self.key);
                self.mutex.lock(thread.tid());
                cancellation_point(thread);
                ABSENCES.begin(self.key);
            }
            let waits = link(thread, self.key, self.deadline_ns, || {
                !ABSENCES.has_missed(self.key, self.seen)
            });
            if is_cancelled {
                self.mutex.unlock();
            }
            if !waits {
                return 0;
            }
            ended = switch::park_cancellable(thread, self.deadline_ns);
        }
    }
}

/// A signal, a cancellation or the time limit has `ended` the wait, and no wake-up.
#[cold]
fn wait_on_after(
    thread: &Thread,
    key: usize,
    mutex: &Mutex,
    deadline_ns: u64,
    ended: Wake,
) -> c_int {
    let wait = Interrupted {
        mutex,
        key,
        deadline_ns,
        seen: ABSENCES.begin(key),
    };
    let result = wait.go_back(thread, ended);
    ABSENCES.end(key);
    mutex.lock(thread.tid());
    test_cancel();
    result
}

/// As [`wait_on`] with a time before the clock's beginning: libc doesn't ask the kernel then.
#[cold]
fn wait_until_past(thread: &Thread, mutex: &Mutex) -> c_int {
    mutex.unlock();
    mutex.lock(thread.tid());
    leave();
    errno::ETIMEDOUT as c_int
}

/// True if a wait is the symbol layer's: a private condition variable and a mutex that one swap of
/// its owner unlocks.
#[inline(always)]
fn is_ours(condvar: &Condvar, mutex: &Mutex, thread: &Thread) -> bool {
    condvar.references() & 1 == 0 && mutex.is_simple(thread)
}

/// A wait with a time limit. `None` is libc's to answer.
#[inline(always)]
fn timed_wait(
    condvar: &Condvar,
    mutex: &Mutex,
    until: *const c_void,
    realtime: bool,
) -> Option<c_int> {
    let (_, thread) = green()?;
    if !is_ours(condvar, mutex, thread) {
        return None;
    }
    let until = Until::read(until)?;
    if !until.is_valid() {
        return Some(errno::EINVAL as c_int);
    }
    Some(match until.deadline_ns(realtime) {
        Some(deadline_ns) => wait_on(thread, condvar, mutex, deadline_ns),
        None => wait_until_past(thread, mutex),
    })
}

/// `pthread_cond_wait(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_wait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    match green() {
        Some((_, thread)) if is_ours(c, m, thread) => wait_on(thread, c, m, NEVER),
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
pub(crate) unsafe extern "C" fn pthread_cond_timedwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    if let Some(result) = timed_wait(c, m, until, c.references() & 2 == 0) {
        return result;
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
pub(crate) unsafe extern "C" fn pthread_cond_clockwait(
    condvar: *mut Condvar,
    mutex: *mut Mutex,
    clock: c_int,
    until: *const c_void,
) -> c_int {
    // SAFETY: the caller's objects.
    let (c, m) = unsafe { (&*condvar, &*mutex) };
    if matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC)
        && let Some(result) = timed_wait(c, m, until, clock == CLOCK_REALTIME)
    {
        return result;
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
    let key = condvar.key();
    let woken = TaskList::new();
    let mut n = PROCESS.futexes.wake_fenced(key, count, ANY, &woken);
    if n == 1 {
        if let Some(task) = woken.pop() {
            PROCESS.unpark_on(carrier, task);
        }
    } else {
        PROCESS.unpark_all(woken);
    }
    if n < count && ABSENCES.any(key) {
        n += notify_absent(key, count - n);
    }
    (n, condvar.references() >> 3 != 0)
}

/// As [`notify`], for up to `count` more: some waiters run signal handlers, or did.
#[cold]
fn notify_absent(key: usize, count: usize) -> usize {
    ABSENCES.miss(key);
    let woken = TaskList::new();
    let n = PROCESS.futexes.wake_fenced(key, count, ANY, &woken);
    PROCESS.unpark_all(woken);
    n
}

/// `pthread_cond_signal(3)`.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_cond_signal(condvar: *mut Condvar) -> c_int {
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
pub(crate) unsafe extern "C" fn pthread_cond_broadcast(condvar: *mut Condvar) -> c_int {
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

/// `sched_yield(2)`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn sched_yield() -> c_int {
    match green() {
        Some(_) => {
            ums::sched_yield();
            leave();
            0
        }
        None => call_original!(original::SCHED_YIELD, fn() -> c_int,),
    }
}
