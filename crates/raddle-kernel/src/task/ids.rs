//! Thread ids, and the attributes that the kernel keeps of a thread by its id.

use crate::frame::{Frame, Outcome};
use crate::line::Line;
use crate::mode::is_multiplexed;
use crate::rules::{exclusion, shares};
use crate::scheduling;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, PROCESS, Thread, events, switch};
use raddle_sys::{err, errno, is_err, nr, prctl, sys};

/// `gettid(2)`.
pub extern "C" fn gettid(_: &Frame) -> Outcome {
    Outcome::of(Carrier::current().thread().tid() as isize)
}

/// `set_tid_address(2)`.
pub extern "C" fn set_tid_address(frame: &Frame) -> Outcome {
    let thread = Carrier::current().thread();
    thread.clear_tid.set(frame.arg(0));
    if !PROCESS.is_started() {
        return Outcome::PASS; // the kernel, too, is asked for it
    }
    Outcome::of(thread.tid() as isize)
}

/// `rseq(2)`: absent, because a kernel thread's registration can't follow green threads over
/// carriers. glibc was told so at start-up, and doesn't ask.
pub extern "C" fn rseq(_: &Frame) -> Outcome {
    Outcome::of(err(errno::ENOSYS))
}

/// Returns true if the main thread runs on the process's first kernel thread, which has its name.
pub fn has_name_of_first() -> bool {
    let carrier = Carrier::current();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    carrier.kernel_tid.load(Ordering::Relaxed) == pid && carrier.thread().tid() == pid
}

/// In the child of a fork: its kernel thread takes the name of the thread that forked.
pub fn in_child() {
    name_own_kernel_thread(&Carrier::current().thread().name());
}

/// Names a thread, and the kernel threads that are only its own: the first one for the main thread,
/// and its own one for a bound thread.
pub fn set_name(thread: &Thread, name: &[u8]) {
    thread.set_name(name);
    events::named(thread);
    shares::named(thread, name);
    // SAFETY: null or a carrier, which lives for ever.
    let own = unsafe { thread.bound.load(Ordering::Acquire).as_ref() };
    let bound = own.map(|own| own.kernel_tid.load(Ordering::Acquire));
    let first = is_main(thread).then(|| thread.tid());
    let current = Carrier::current().kernel_tid.load(Ordering::Relaxed);
    for kernel_tid in [bound, first.filter(|_| first != bound)]
        .into_iter()
        .flatten()
    {
        if kernel_tid == current {
            name_own_kernel_thread(&thread.name());
        } else {
            name_kernel_thread(kernel_tid, &thread.name());
        }
    }
}

fn is_main(thread: &Thread) -> bool {
    thread.tid() == PROCESS.pid.load(Ordering::Relaxed)
}

fn name_own_kernel_thread(name: &[u8; 16]) {
    // SAFETY: the kernel reads 16 bytes at most.
    unsafe { sys!(nr::__NR_prctl, prctl::PR_SET_NAME, name.as_ptr()) };
}

/// `prctl(PR_SET_NAME)`.
pub fn prctl_set_name(frame: &Frame) -> Outcome {
    let thread = Carrier::current().thread();
    let mut name = [0u8; 15];
    let len = match frame.user::<u8>(1).read_text(&mut name) {
        Ok(len) => len.unwrap_or(name.len()), // the rest is cut
        Err(errno) => return Outcome::of(errno),
    };
    set_name(thread, &name[..len]);
    if exclusion::excludes_name(&name[..len]) && is_multiplexed() {
        switch::bind_current();
        scheduling::give_to_kernel(thread);
        set_name(thread, &name[..len]);
    }
    Outcome::of(0)
}

/// `prctl(PR_GET_NAME)`. The main thread has the first kernel thread's name, which a write to
/// `/proc/self/comm` changes, by this process or another.
pub fn prctl_get_name(frame: &Frame) -> Outcome {
    const PR_GET_NAME: usize = prctl::PR_GET_NAME as usize;
    let thread = Carrier::current().thread();
    if is_main(thread) {
        let mut name = [0u8; 16];
        let args = [
            PR_GET_NAME,
            name.as_mut_ptr().expose_provenance(),
            0,
            0,
            0,
            0,
        ];
        // SAFETY: the kernel fills a live array of the length that it wants.
        if unsafe { PROCESS.roster.on_first(nr::__NR_prctl, args) } == 0 {
            let len = name.iter().position(|&byte| byte == 0).unwrap_or(15);
            thread.set_name(&name[..len]);
        }
    }
    let done = frame.user(1).write(&thread.name());
    Outcome::of(done.err().unwrap_or(0))
}

/// `setpgid(2)`: a thread that doesn't lead its process has no group of its own.
pub extern "C" fn setpgid(frame: &Frame) -> Outcome {
    let id = frame.word(0);
    if (id as i32) >= TID_BASE as i32 && PROCESS.find(id).is_some() {
        Outcome::of(err(errno::EINVAL))
    } else {
        Outcome::PASS
    }
}

/// Names a kernel thread of ours that isn't the calling one.
fn name_kernel_thread(kernel_tid: u32, name: &[u8; 16]) {
    const WRITE: usize = 0o2000001; // and close-on-exec
    const AT_CWD: isize = -100;
    let mut path = Line::new();
    let _ = write!(path, "/proc/self/task/{kernel_tid}/comm\0");
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(15);
    // SAFETY: a zero-terminated path and a live buffer. Nothing is written for an empty name.
    unsafe {
        let fd = sys!(nr::__NR_openat, AT_CWD, path.bytes.as_ptr(), WRITE);
        if !is_err(fd) {
            sys!(nr::__NR_write, fd, name.as_ptr(), len);
            sys!(nr::__NR_close, fd);
        }
    }
}
