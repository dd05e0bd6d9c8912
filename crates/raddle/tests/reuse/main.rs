//! A reused thread is new in every respect.
//!
//! In each test one thread leaves something behind, and the threads after it look for it. A buffer
//! of libc's own, which libc clears for each new thread, shows that they are one thread and not
//! only use the same memory.

mod libraries;
mod processes;

use raddle::runtime::{Status, status};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

unsafe extern "C" {
    fn inet_ntoa(address: u32) -> *const c_char;
    fn pthread_setcancelstate(state: i32, old: *mut i32) -> i32;
}

/// One test at a time: others' threads would come between.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves a mark in the calling thread's libc, and returns where.
fn mark() -> usize {
    // SAFETY: fills the calling thread's buffer and returns its address.
    unsafe { inet_ntoa(u32::from_ne_bytes([9, 8, 7, 6])) }.expose_provenance()
}

/// Returns true on a thread that has the marked thread's block, and the mark.
fn has_mark(at: usize) -> bool {
    // SAFETY: asks for the calling thread's name.
    let block = unsafe { libc::pthread_self() } as usize;
    at.abs_diff(block) < 1 << 20 && {
        let at: *const [u8; 8] = std::ptr::with_exposed_provenance(at);
        // SAFETY: inside the calling thread's thread-locals, if the distance is theirs.
        unsafe { at.read_volatile() == *b"9.8.7.6\0" }
    }
}

/// Has threads do `first` and then `second`, which returns whether it finds all new, until `second`
/// was on the same thread a few times. Returns how often that was.
pub(crate) fn one_after_the_other(
    first: impl Fn() + Send + Sync + 'static,
    second: impl Fn() -> bool + Send + Sync + 'static,
) -> u32 {
    let (first, second) = (Arc::new(first), Arc::new(second));
    let mut same = 0;
    for _ in 0..200 {
        let (one, two) = (Arc::clone(&first), Arc::clone(&second));
        let at = raddle::spawn(move || {
            one();
            mark()
        });
        let at = at.join().unwrap();
        let looks = raddle::spawn(move || {
            let is_same = has_mark(at);
            (is_same, two())
        });
        let (is_same, is_new) = looks.join().unwrap();
        assert!(is_new, "something was left, by the same thread: {is_same}");
        same += u32::from(is_same);
    }
    same
}

/// As [`one_after_the_other`], for a thread that must have been reused.
pub(crate) fn reused(
    first: impl Fn() + Send + Sync + 'static,
    second: impl Fn() -> bool + Send + Sync + 'static,
) {
    let same = one_after_the_other(first, second);
    assert!(
        same > 0 || status() != Status::Green,
        "no thread was reused"
    );
}

/// As [`one_after_the_other`], for a thread that must have ended for good.
pub(crate) fn never_reused(
    first: impl Fn() + Send + Sync + 'static,
    second: impl Fn() -> bool + Send + Sync + 'static,
) {
    assert_eq!(one_after_the_other(first, second), 0);
}

#[test]
fn an_id_does_not_come_again_soon() {
    const COUNT: usize = 4000;
    let _alone = alone();
    // SAFETY: a query.
    let id = || raddle::spawn(|| unsafe { libc::gettid() }).join();
    let ids: HashSet<_> = (0..COUNT).map(|_| id().unwrap()).collect();
    assert_eq!(ids.len(), COUNT);
}

#[test]
fn thread_locals_begin_anew() {
    thread_local! {
        static PLAIN: Cell<u64> = const { Cell::new(5) };
        static ZERO: Cell<[usize; 40]> = const { Cell::new([0; 40]) };
        static LAZY: RefCell<Vec<u8>> = RefCell::new(b"warp".to_vec());
    }
    let _alone = alone();
    let change = || {
        PLAIN.set(6);
        ZERO.set([7; 40]);
        LAZY.with_borrow_mut(|lazy| lazy.push(b's'));
    };
    let is_new = || {
        PLAIN.get() == 5
            && ZERO.get() == [0; 40]
            && LAZY.with_borrow(|lazy| lazy.as_slice() == b"warp")
    };
    reused(change, is_new);
}

#[test]
fn destructors_run_once_and_before_the_join() {
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            std::thread::sleep(std::time::Duration::from_micros(50));
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static OWN: Counts = const { Counts });
    let _alone = alone();
    for i in 1..200 {
        raddle::spawn(|| OWN.with(|_| ())).join().unwrap();
        assert_eq!(DROPPED.load(Ordering::SeqCst), i);
    }
    reused(|| (), || true);
    assert_eq!(DROPPED.load(Ordering::SeqCst), 199);
}

#[test]
fn threads_have_ids_of_their_own() {
    let _alone = alone();
    static LAST: AtomicUsize = AtomicUsize::new(0);
    static LAST_OF_STD: Mutex<Option<std::thread::ThreadId>> = Mutex::new(None);
    // SAFETY: asks for the calling thread's id.
    let own = || unsafe { libc::syscall(libc::SYS_gettid) } as usize;
    let std_id = || std::thread::current().id();
    let first = move || {
        LAST.store(own(), Ordering::SeqCst);
        *LAST_OF_STD.lock().unwrap() = Some(std_id());
    };
    let second = move || {
        let last = LAST.load(Ordering::SeqCst);
        let (pid, last_tid) = (std::process::id(), last as i32);
        // SAFETY: asks whether such a thread is there.
        let is_gone = unsafe { libc::syscall(libc::SYS_tgkill, pid, last_tid, 0) } == -1;
        // The owner's id in libc's mutex is the thread's.
        let mut mutex = MaybeUninit::<[u32; 10]>::zeroed();
        // SAFETY: an unlocked mutex is zeroed, and used only here.
        let owner = unsafe {
            libc::pthread_mutex_lock(mutex.as_mut_ptr().cast());
            let owner = mutex.assume_init()[2] as usize;
            libc::pthread_mutex_unlock(mutex.as_mut_ptr().cast());
            owner
        };
        let is_other = *LAST_OF_STD.lock().unwrap() != Some(std_id());
        own() != last && is_gone && owner == own() && is_other
    };
    reused(first, second);
}

#[test]
fn errno_locale_and_cancellation_are_new_threads() {
    let _alone = alone();
    // SAFETY: a locale that every system has; it lives for ever.
    let locale = unsafe { libc::newlocale(libc::LC_ALL_MASK, c"C".as_ptr(), null_mut()) };
    let locale = locale.expose_provenance();
    let process = usize::MAX; // LC_GLOBAL_LOCALE
    let change = move || {
        // SAFETY: the calling thread's own.
        unsafe {
            *libc::__errno_location() = libc::EXDEV;
            libc::uselocale(std::ptr::with_exposed_provenance_mut(locale));
            let mut old = 0;
            pthread_setcancelstate(1, &raw mut old);
        }
    };
    let is_new = move || {
        let mut state = 7;
        // SAFETY: as above.
        unsafe {
            let errno = *libc::__errno_location();
            let now = libc::uselocale(null_mut()).addr();
            pthread_setcancelstate(0, &raw mut state);
            errno == 0 && now == process && state == 0
        }
    };
    reused(change, is_new);
}

#[test]
fn masks_names_and_alternate_stacks_are_the_makers_or_none() {
    static STACK: [u8; 1 << 14] = [0; 1 << 14];
    let _alone = alone();
    let change = || {
        // SAFETY: the calling thread's own; nothing runs on that stack.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut());
            libc::prctl(libc::PR_SET_NAME, c"left behind".as_ptr());
            let stack = libc::stack_t {
                ss_sp: STACK.as_ptr().cast_mut().cast(),
                ss_flags: 0,
                ss_size: STACK.len(),
            };
            libc::sigaltstack(&raw const stack, null_mut());
        }
    };
    let is_new = || {
        // SAFETY: asks for the calling thread's own.
        unsafe {
            let (mut set, mut stack) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            libc::pthread_sigmask(0, null(), set.as_mut_ptr());
            libc::sigaltstack(null(), stack.as_mut_ptr());
            let mut name = [0 as c_char; 16];
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            let is_blocked = libc::sigismember(set.as_ptr(), libc::SIGUSR1) != 0;
            let is_enabled = stack.assume_init().ss_flags & libc::SS_DISABLE == 0;
            !is_blocked && !is_enabled && CStr::from_ptr(name.as_ptr()) != c"left behind"
        }
    };
    reused(change, is_new);
}

#[test]
fn a_thread_has_its_makers_mask_name_and_rounding() {
    const UP: u32 = 2 << 13;
    let _alone = alone();
    reused(|| (), || true); // one is kept
    let set_up = || {
        // SAFETY: the calling thread's own.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), null_mut());
            libc::prctl(libc::PR_SET_NAME, c"maker".as_ptr());
            let mut control = 0u32;
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control);
            control |= UP;
            std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const control);
        }
    };
    let is_right = || {
        // SAFETY: asks for the calling thread's own.
        unsafe {
            let mut set = MaybeUninit::uninit();
            libc::pthread_sigmask(0, null(), set.as_mut_ptr());
            let mut name = [0 as c_char; 16];
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            let mut control = 0u32;
            std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut control);
            let [blocked, open] = [libc::SIGUSR2, libc::SIGUSR1]
                .map(|signal| libc::sigismember(set.as_ptr(), signal));
            let name = CStr::from_ptr(name.as_ptr());
            (blocked, open, name == c"maker", control & UP) == (1, 0, true, UP)
        }
    };
    let maker = raddle::spawn(move || {
        set_up();
        (0..20).all(|_| raddle::spawn(is_right).join().unwrap())
    });
    assert!(maker.join().unwrap());
    let is_new = move || !is_right();
    reused(|| (), is_new);
}

#[test]
fn thread_specific_data_is_lost_at_the_end() {
    static LOST: AtomicU32 = AtomicU32::new(0);
    static SET: AtomicU32 = AtomicU32::new(0);
    extern "C" fn lose(_: *mut c_void) {
        LOST.fetch_add(1, Ordering::SeqCst);
    }
    let _alone = alone();
    let mut key = 0;
    assert_eq!(
        // SAFETY: a key of our own.
        unsafe { libc::pthread_key_create(&raw mut key, Some(lose)) },
        0
    );
    let change = move || {
        SET.fetch_add(1, Ordering::SeqCst);
        // SAFETY: a word that is not dereferenced.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(8)) };
    };
    // SAFETY: asks for the calling thread's own.
    let is_new = move || unsafe { libc::pthread_getspecific(key) }.is_null();
    reused(change, is_new);
    assert_eq!(LOST.load(Ordering::SeqCst), SET.load(Ordering::SeqCst));
}

#[test]
fn more_data_than_fits_a_thread_block_ends_it_for_good() {
    let _alone = alone();
    let mut keys = [0; 40];
    for key in &mut keys {
        // SAFETY: keys of our own.
        assert_eq!(unsafe { libc::pthread_key_create(key, None) }, 0);
    }
    let change = move || {
        // SAFETY: a word that is not dereferenced.
        unsafe { libc::pthread_setspecific(keys[39], std::ptr::without_provenance(8)) };
    };
    // SAFETY: asks for the calling thread's own.
    let is_new = move || unsafe { libc::pthread_getspecific(keys[39]) }.is_null();
    never_reused(change, is_new);
    // SAFETY: as above; other tests need the first ones.
    let _ = keys.map(|key| unsafe { libc::pthread_key_delete(key) });
}

#[test]
fn changed_niceness_and_a_cancelled_thread_end_for_good() {
    let _alone = alone();
    // SAFETY: the calling thread's own.
    let nice = || _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) };
    // SAFETY: asks for the calling thread's own.
    let is_new = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } == 0;
    never_reused(nice, is_new);
    let cancelled = || {
        // SAFETY: the calling thread, which looks at it nowhere before its end.
        unsafe {
            let mut old = 0;
            pthread_setcancelstate(1, &raw mut old);
            libc::pthread_cancel(libc::pthread_self());
        }
    };
    let tests_cancel = || {
        std::thread::sleep(std::time::Duration::from_micros(1)); // a cancellation point
        true
    };
    never_reused(cancelled, tests_cancel);
}

/// libc has one name for all lives of a reused thread.
#[test]
fn a_thread_joins_those_that_it_was_before() {
    let _alone = alone();
    for i in 0..50u32 {
        let mut last = raddle::spawn(move || i);
        for sum in 1..4 {
            while !last.is_finished() {
                raddle::yield_now();
            }
            raddle::yield_now();
            last = raddle::spawn(move || last.join().unwrap() + 1);
            if sum == i % 4 {
                raddle::yield_now();
            }
        }
        assert_eq!(last.join().unwrap(), i + 3);
    }
}

#[test]
fn handles_dropped_at_any_moment_lose_nothing() {
    static ALIVE: AtomicU32 = AtomicU32::new(0);
    struct Alive;
    impl Alive {
        fn new() -> Self {
            ALIVE.fetch_add(1, Ordering::SeqCst);
            Self
        }
    }
    impl Drop for Alive {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    thread_local!(static OWN: Cell<Option<Alive>> = const { Cell::new(None) });
    let _alone = alone();
    for i in 0..3000u32 {
        let argument = Alive::new();
        let thread = raddle::spawn(move || {
            OWN.set(Some(Alive::new()));
            drop(argument);
            Alive::new()
        });
        (0..i % 40).for_each(|_| std::hint::spin_loop());
        if i % 3 == 0 {
            raddle::yield_now();
        }
        drop(thread);
    }
    let started = std::time::Instant::now();
    while ALIVE.load(Ordering::SeqCst) != 0 {
        assert!(started.elapsed().as_secs() < 30, "something is left");
        std::thread::yield_now();
    }
}

#[test]
fn many_threads_leave_bounded_memory_and_none_in_the_list() {
    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }
    fn resident() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }
    #[inline(never)]
    fn deep(bytes: usize) -> u8 {
        let room = std::hint::black_box([bytes as u8; 4096]);
        match bytes {
            0 => room[7],
            _ => std::hint::black_box(deep(bytes - 4096)) + room[0],
        }
    }
    let _alone = alone();
    let run = |count: usize| {
        for i in 0..count / 50 {
            let bytes = if i % 20 == 0 { 1 << 20 } else { 0 };
            let all: Vec<_> = (0..50)
                .map(|_| raddle::spawn(move || deep(bytes)))
                .collect();
            all.into_iter()
                .for_each(|thread| _ = thread.join().unwrap());
        }
    };
    let before = threads();
    run(10_000);
    let early = resident();
    run(100_000);
    let late = resident();
    assert!(late < early + (32 << 20), "{early} bytes became {late}");
    // The harness has some of its own, which come and go; 64 are kept.
    let after = threads();
    assert!(after < before + 20, "{before} threads became {after}");
}
