//! A filter of system calls that kills for what `raddle run` asks the kernel.
//!
//! A program under such a filter starts natively, so it starts here: by `execve(2)` alone
//! ([`super::native`]). Whether the filter kills for a call is known when the call has been made.
//! So a child makes each of them, as the runtime's does before the first thread; a process without
//! a filter makes no child.
//!
//! This stands before all other work of the command. Until it is known that nothing kills, the
//! command makes the calls only that ld.so and libc make at the start of every program.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// No descriptor, no process, no address that is there.
const NONE: libc::c_long = -1;

struct Call {
    name: &'static str,
    number: libc::c_long,
    first: libc::c_long,
}

macro_rules! calls {
    ($($name:ident($number:ident, $first:expr)),* $(,)?) => {
        [$(Call { name: stringify!($name), number: libc::$number, first: $first }),*]
    };
}

/// What `raddle run` asks, with a first argument that makes the call fail or do nothing. The others
/// are zeros.
static CALLS: [Call; 17] = calls![
    wait4(SYS_wait4, NONE), // first: see `ask`
    rt_sigaction(SYS_rt_sigaction, NONE),
    fcntl(SYS_fcntl, NONE),
    readlink(SYS_readlink, 0),
    getcwd(SYS_getcwd, 0),
    lseek(SYS_lseek, NONE),
    statx(SYS_statx, NONE),
    statfs(SYS_statfs, 0),
    prctl(SYS_prctl, libc::PR_GET_NO_NEW_PRIVS as libc::c_long),
    faccessat(SYS_faccessat, NONE),
    faccessat2(SYS_faccessat2, NONE),
    getxattr(SYS_getxattr, 0),
    mremap(SYS_mremap, NONE),
    pipe2(SYS_pipe2, 0),
    pidfd_open(SYS_pidfd_open, NONE),
    clone(SYS_clone, libc::CLONE_THREAD as libc::c_long), // refused without CLONE_VM
    rt_sigprocmask(SYS_rt_sigprocmask, NONE),
];

/// What [`find`] has found. Written before all else.
static KILLS: OnceLock<Option<&'static str>> = OnceLock::new();

/// Returns the first call of this command that ends it, if there is one.
pub(crate) fn find() -> Option<&'static str> {
    *KILLS.get_or_init(|| has_filter().then(ask).flatten())
}

/// Returns true if this process has a filter. `prctl(2)` may kill, so a file tells.
fn has_filter() -> bool {
    match read_status() {
        Some(status) => status.lines().any(|line| {
            line.strip_prefix("Seccomp:")
                .is_some_and(|it| it.trim() != "0")
        }),
        // SAFETY: a query without pointers.
        None => unsafe { libc::prctl(libc::PR_GET_SECCOMP) != 0 },
    }
}

/// Reads `/proc/self/status` by the calls of each start of a program: `fs::read` makes others.
fn read_status() -> Option<String> {
    let mut text = vec![0; 4096];
    // SAFETY: a path and a buffer that live.
    let length = unsafe {
        let file = libc::open(
            c"/proc/self/status".as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC,
        );
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    text.truncate(usize::try_from(length).ok()?);
    String::from_utf8(text).ok()
}

/// Has a child make the calls. What isn't known kills nothing.
fn ask() -> Option<&'static str> {
    let bytes = size_of::<AtomicU32>();
    let (access, shared) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
    );
    // SAFETY: fresh memory of zeros at an address of the kernel's choice; it stays.
    let at = unsafe {
        let memory = libc::mmap(ptr::null_mut(), bytes, access, shared, -1, 0);
        if memory == libc::MAP_FAILED {
            return None;
        }
        &*memory.cast::<AtomicU32>()
    };
    let child = make_child()?;
    if child == 0 {
        answer(at);
    }
    // The child has ended. If it was killed at its first call, it can't be waited for either.
    let place = at.load(Ordering::Relaxed);
    if place != 0 {
        // SAFETY: a child of this process; no status is wanted.
        unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
    }
    CALLS.get(place as usize).map(|call| call.name)
}

/// Makes a child with a copy of the memory, and returns in both when the child has ended. Its end
/// sends no signal.
fn make_child() -> Option<libc::pid_t> {
    const FIRST_SIZE: usize = 64; // CLONE_ARGS_SIZE_VER0
    let flags = libc::CLONE_VFORK as u64;
    let asked = [flags, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: as `fork(2)`, in a process of one thread. As libc makes threads: by the older call
    // where the newer one is refused.
    let made = unsafe {
        match libc::syscall(libc::SYS_clone3, asked.as_ptr(), FIRST_SIZE) {
            -1 => libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0),
            made => made,
        }
    };
    libc::pid_t::try_from(made).ok().filter(|&made| made >= 0)
}

/// Makes the calls, in the child; `at` has the place of the one that is being made.
fn answer(at: &AtomicU32) -> ! {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is this process's own. The calls change nothing.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        for (place, call) in (0u32..).zip(&CALLS) {
            at.store(place, Ordering::Relaxed);
            libc::syscall(call.number, call.first, 0, 0, 0, 0, 0);
        }
        at.store(CALLS.len() as u32, Ordering::Relaxed);
        libc::_exit(0)
    }
}
