//! Kernel threads of the runtime: raw `clone`, no libc.

use crate::state::process::PROCESS;
use raddle_arch::{raw_clone, raw_clone3};
use raddle_sys::abi::{CloneArgs, SchedAttr};
use raddle_sys::{change_signal_mask, is_err, mem, nr, sys};

/// CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM.
const FLAGS: usize = 0x100 | 0x200 | FILES | 0x800 | 0x10000 | 0x40000;

/// CLONE_FILES: one table of descriptors.
const FILES: usize = nr::CLONE_FILES as usize;

/// CLONE_VM: another process, with descriptors and handlers of its own; its end sends no signal.
const OTHER_PROCESS: usize = 0x100;

pub(crate) use crate::os::kernel_calls::{cpu_ns, nap};
pub use crate::os::kernel_calls::{futex_wait, futex_wait_for, futex_wake, give_cpu_away};
pub use crate::state::carrier::STACK_SIZE;
pub use raddle_arch::KernelThread as Entry;

/// Starts a kernel thread on `stack_size` bytes of fresh stack. The thread starts with every signal
/// blocked, with the creator's GS base, and with the FS base of libc's first thread. The lowest
/// page of its stack is a guard.
///
/// # Errors
/// ENOMEM or EAGAIN.
pub fn spawn(entry: Entry, argument: usize, stack_size: usize) -> Result<u32, isize> {
    PROCESS
        .roster
        .enter(|| spawn_as(FLAGS, entry, argument, stack_size))
}

/// As [`spawn`], with a copy of the creator's table of descriptors as it is now.
///
/// # Errors
/// ENOMEM or EAGAIN.
pub(crate) fn spawn_with_own_table(
    entry: Entry,
    argument: usize,
    stack_size: usize,
) -> Result<u32, isize> {
    PROCESS
        .roster
        .enter(|| spawn_as(FLAGS & !FILES, entry, argument, stack_size))
}

/// As [`spawn`], of the kind that a program asked for: with the flags, the cgroup and the place for
/// a descriptor of `asked`, and its FS base if the flags name one. The kernel checks these, and
/// writes the descriptor.
///
/// # Errors
/// What the kernel says; ENOMEM or EAGAIN.
pub(crate) fn spawn_asked(
    entry: Entry,
    argument: usize,
    stack_size: usize,
    asked: &CloneArgs,
) -> Result<u32, isize> {
    PROCESS.roster.enter(|| {
        spawn_on(stack_size, |stack| {
            let args = CloneArgs {
                stack: stack.expose_provenance() as u64,
                stack_size: (stack_size - ABOVE) as u64,
                exit_signal: 0,
                set_tid: 0,
                set_tid_size: 0,
                ..*asked
            };
            // SAFETY: the child runs `entry` on memory that is its own.
            unsafe { raw_clone3(&args, size_of::<CloneArgs>(), entry, argument, stack) }
        })
    })
}

/// As [`spawn`], but another process, in the same memory.
///
/// # Errors
/// ENOMEM or EAGAIN.
pub fn spawn_process(entry: Entry, argument: usize, stack_size: usize) -> Result<u32, isize> {
    match spawn_as(OTHER_PROCESS, entry, argument, stack_size) {
        made if is_err(made) => Err(made),
        made => Ok(made as u32),
    }
}

/// Ends the calling kernel thread, which has left the roster, and unmaps `stacks` (lowest addresses
/// and sizes in bytes).
///
/// # Safety
/// The first must be the stack in use, the second one's lowest address may be null. No other thread
/// uses them, and all signals are blocked.
pub unsafe fn end(stacks: [(*mut u8, usize); 2]) -> ! {
    let [(own, own_size), (other, other_size)] = stacks;
    // SAFETY: the caller's promise; from the first call on the stack isn't touched.
    unsafe {
        if !other.is_null() {
            mem::unmap(other, other_size);
        }
        raddle_arch::unmap_and_exit(own, own_size)
    }
}

fn spawn_as(flags: usize, entry: Entry, argument: usize, stack_size: usize) -> isize {
    spawn_on(stack_size, |stack| {
        let top = stack.wrapping_add(stack_size - ABOVE);
        // SAFETY: the child runs `entry` on memory that is its own.
        unsafe { raw_clone(flags, top, entry, argument, stack) }
    })
}

/// Bytes above a new kernel thread's first stack pointer.
const ABOVE: usize = 64;

/// Maps a stack for `make`, which makes a kernel thread on it and returns its id.
fn spawn_on(stack_size: usize, make: impl FnOnce(*mut u8) -> isize) -> isize {
    let stack = match mem::map(stack_size) {
        Ok(stack) => stack,
        Err(errno) => return errno,
    };
    // SAFETY: just mapped, and not in use yet. Without the guard (ENOMEM) the stack is as good.
    let _ = unsafe { mem::protect(stack, mem::PAGE_SIZE, 0) };
    let (all, mut old) = (u64::MAX, 0u64);
    // SAFETY: mask and FS base are restored below, and nothing between uses thread-locals.
    let tid = unsafe {
        sys!(
            nr::__NR_rt_sigprocmask,
            nr::SIG_SETMASK,
            &raw const all,
            &raw mut old,
            8usize
        );
        let fs = raddle_arch::fs_base();
        raddle_arch::set_fs_base(PROCESS.roster.first_fs());
        let tid = make(stack);
        raddle_arch::set_fs_base(fs);
        sys!(
            nr::__NR_rt_sigprocmask,
            nr::SIG_SETMASK,
            &raw const old,
            0usize,
            8usize
        );
        tid
    };
    if is_err(tid) {
        // SAFETY: no thread was made, so none uses the stack.
        unsafe { mem::unmap(stack, stack_size) };
    }
    tid
}

/// Blocks every signal on the calling kernel thread but `signals`.
///
/// # Safety
/// The handlers of those must be fit for this kernel thread.
pub unsafe fn accept_only(signals: &[usize]) {
    let mask = !signals.iter().fold(0u64, |set, n| set | 1 << (n - 1));
    // SAFETY: the caller's promise.
    unsafe { change_signal_mask(nr::SIG_SETMASK, mask) };
}

/// Returns true if the calling kernel thread has a seccomp filter, which may kill the thread for a
/// call that it doesn't know.
pub(crate) fn is_filtered() -> bool {
    const GET_SECCOMP: usize = 21;
    // SAFETY: a query.
    unsafe { sys!(nr::__NR_prctl, GET_SECCOMP) != 0 }
}

/// Makes the calling kernel thread one that is woken on time and runs at once: its timers may not
/// be late, and its turns on a CPU are short, so that they come early (Linux 6.12, else nothing).
pub(crate) fn become_prompt() {
    const SET_TIMERSLACK: usize = 29;
    const TURN_NS: u64 = 100_000; // the shortest
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: changes this kernel thread; the kernel fills a live structure.
    let got = unsafe {
        sys!(nr::__NR_prctl, SET_TIMERSLACK, 1usize);
        sys!(nr::__NR_sched_getattr, 0usize, &raw mut attr, size, 0usize)
    };
    if got == 0 && attr.policy == 0 {
        attr.size = SchedAttr::FIRST_SIZE as u32;
        attr.times_ns[0] = TURN_NS;
        // SAFETY: changes this kernel thread; the kernel reads a live structure.
        let set = || unsafe { sys!(nr::__NR_sched_setattr, 0usize, &raw const attr, 0usize) };
        PROCESS.filters.unless_any(set);
    }
}

const TASK_FOLDER: &[u8] = b"/proc/self/task/";
/// Room for the path of a file about a kernel thread.
pub(crate) const TASK_PATH: usize = TASK_FOLDER.len() + 10 + 16;

/// Writes the path of a file about the kernel thread `tid`; `file` is at most 16 bytes and ends in
/// a zero.
pub(crate) fn task_path<'a>(path: &'a mut [u8; TASK_PATH], tid: u32, file: &[u8]) -> &'a [u8] {
    path_in(TASK_FOLDER, path, tid, file)
}

/// As [`task_path`], in another folder. Its name has at most the length of [`TASK_FOLDER`].
fn path_in<'a>(folder: &[u8], path: &'a mut [u8; TASK_PATH], id: u32, file: &[u8]) -> &'a [u8] {
    path[..folder.len()].copy_from_slice(folder);
    let digits = id.max(1).ilog10() as usize + 1;
    let mut left = id;
    let end = folder.len() + digits;
    for at in (folder.len()..end).rev() {
        path[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    path[end..end + file.len()].copy_from_slice(file);
    &path[..end + file.len()]
}

/// Returns true if the kernel thread `tid` sleeps in the kernel; false if it runs or wants to, or
/// if that can't be told. Opens a descriptor: on sysmon only, which has a table of its own.
pub fn is_waiting(tid: u32) -> bool {
    matches!(state(tid), Some(b'S' | b'D' | b't' | b'T'))
}

/// Returns true if a tracer has stopped the kernel thread `tid`, and hasn't let it go on. Opens a
/// descriptor.
pub(crate) fn is_stopped(tid: u32) -> bool {
    state(tid) == Some(b't')
}

/// The state of a kernel thread as `/proc` says it (`proc_pid_stat(5)`).
fn state(tid: u32) -> Option<u8> {
    state_in(TASK_FOLDER, tid)
}

/// Returns true if the process is dead, whether or not its parent has waited for it; `None` if
/// `/proc` doesn't say. Opens a descriptor.
pub fn is_dead(process: u32) -> Option<bool> {
    let state = state_in(b"/proc/", process)?;
    Some(matches!(state, b'Z' | b'X'))
}

/// CPU time of the kernel thread `tid`, and the time for which it waited for a CPU, as `/proc` says
/// (`schedstat`, kernel documentation: scheduler/sched-stats). `None` if it doesn't. Opens a
/// descriptor.
pub(crate) fn schedstat(tid: u32) -> Option<[u64; 2]> {
    let (mut path, mut text) = ([0u8; TASK_PATH], [0u8; 64]);
    let text = beginning(task_path(&mut path, tid, b"/schedstat\0"), &mut text)?;
    let mut numbers = text
        .split(|byte| byte.is_ascii_whitespace())
        .map_while(crate::os::cpus::number);
    Some([numbers.next()?, numbers.next()?])
}

fn state_in(folder: &[u8], id: u32) -> Option<u8> {
    let mut path = [0u8; TASK_PATH];
    let path = path_in(folder, &mut path, id, b"/stat\0");
    let mut text = [0u8; 64];
    let text = beginning(path, &mut text)?;
    let name_ends = text.iter().rposition(|&byte| byte == b')')?;
    text.get(name_ends + 2).copied()
}

/// Reads the beginning of a file; `path` ends in a zero. `None` if it can't be opened. Opens a
/// descriptor.
pub(crate) fn beginning<'a>(path: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    const CLOEXEC: usize = nr::O_CLOEXEC as usize;
    // SAFETY: a path and a buffer that live.
    let got = unsafe {
        let fd = sys!(nr::__NR_open, path.as_ptr(), CLOEXEC);
        if is_err(fd) {
            return None;
        }
        let got = sys!(nr::__NR_read, fd, buffer.as_mut_ptr(), buffer.len());
        sys!(nr::__NR_close, fd);
        got
    };
    Some(&buffer[..got.clamp(0, buffer.len() as isize) as usize])
}
