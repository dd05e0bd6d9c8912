//! Who am I: thread ids and what the kernel keeps per thread under them.

use crate::boundary::{Frame, Outcome};
use crate::{exclusion, is_multiplexed, user};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::Ordering;
use raddle_engine::{Carrier, ENGINE, switch};
use raddle_sys::{err, errno, syscall6};

/// `gettid(2)`.
pub extern "C" fn gettid(_: &Frame) -> Outcome {
    Outcome::of(Carrier::current().thread().tid() as isize)
}

/// `set_tid_address(2)`.
pub extern "C" fn set_tid_address(frame: &Frame) -> Outcome {
    let thread = Carrier::current().thread();
    thread
        .clear_tid
        .set(with_exposed_provenance_mut(frame.arg(0)));
    Outcome::of(thread.tid() as isize)
}

/// `rseq(2)`: a kernel thread's registration can't follow green threads over carriers.
///
/// glibc insists on success for threads if the main thread had it, so success it is, with the CPU
/// number saying "unregistered": its users look at that first.
pub extern "C" fn rseq(frame: &Frame) -> Outcome {
    const UNREGISTER: usize = 1;
    if frame.arg(2) & UNREGISTER == 0 && frame.arg(0) != 0 {
        // SAFETY: the program says that an rseq area is there.
        unsafe { mark_unregistered(frame.arg(0)) };
    }
    Outcome::of(0)
}

/// Says in an rseq area that the kernel doesn't keep it.
///
/// # Safety
/// The area must be there.
pub unsafe fn mark_unregistered(area: usize) {
    const CPU_ID_UNREGISTERED: u32 = u32::MAX;
    // SAFETY: the caller's promise; cpu_id is the second word.
    unsafe { with_exposed_provenance_mut::<u32>(area + 4).write_volatile(CPU_ID_UNREGISTERED) };
}

/// Calls whose first argument is a thread id: ours means "the caller" to the kernel, because a
/// green thread has no kernel thread of its own.
pub extern "C" fn on_first_thread(frame: &Frame) -> Outcome {
    on_thread(frame, 0)
}

/// As [`on_first_thread`] for `getpriority`-like calls with the id second.
pub extern "C" fn on_second_thread(frame: &Frame) -> Outcome {
    on_thread(frame, 1)
}

fn on_thread(frame: &Frame, position: usize) -> Outcome {
    let tid = frame.arg(position) as u32;
    if tid < raddle_engine::thread::TID_BASE {
        return Outcome::PASS;
    }
    if ENGINE.find(tid).is_none() {
        return Outcome::of(err(errno::ESRCH));
    }
    let mut args = frame.args();
    args[position] = 0;
    // SAFETY: the program's own call, about this very kernel thread.
    Outcome::of(unsafe { syscall6(frame.rax as u32, args) })
}

/// Setting calls on a thread's scheduling: a bound thread's are the kernel's; a green thread's are
/// accepted and without effect on the carriers that other threads share.
pub extern "C" fn set_scheduling(frame: &Frame) -> Outcome {
    let tid = frame.arg(usize::from(frame.rax == 141)) as u32;
    if !ENGINE.is_started() || (tid != 0 && tid < raddle_engine::thread::TID_BASE) {
        return Outcome::PASS;
    }
    let thread = if tid == 0 {
        Some(Carrier::current().thread())
    } else {
        ENGINE.find(tid)
    };
    let Some(thread) = thread else {
        return Outcome::of(err(errno::ESRCH));
    };
    // SAFETY: null or a carrier, which lives for ever.
    let Some(own) = (unsafe { thread.bound.load(Ordering::Relaxed).as_ref() }) else {
        return Outcome::of(0);
    };
    let mut args = frame.args();
    args[usize::from(frame.rax == 141)] = own.kernel_tid.load(Ordering::Relaxed) as usize;
    // SAFETY: the program's own call, about the bound thread's kernel thread.
    Outcome::of(unsafe { syscall6(frame.rax as u32, args) })
}

/// `setuid(2)` and its family, `capset(2)`: refused with EAGAIN once the process has threads.
///
/// The kernel changes one kernel thread only, and glibc's broadcast reaches green threads, not
/// carriers: some would keep the old credentials, which is a hole. Until the runtime changes all of
/// its kernel threads in one step, the call fails and changes nothing.
pub extern "C" fn credentials(_: &Frame) -> Outcome {
    if ENGINE.is_started() {
        Outcome::of(err(errno::EAGAIN))
    } else {
        Outcome::PASS
    }
}

/// `prctl(2)`: `PR_SET_NAME` and `PR_GET_NAME` are the green thread's.
pub extern "C" fn prctl(frame: &Frame) -> Outcome {
    const SET_NAME: usize = 15;
    const GET_NAME: usize = 16;
    let thread = Carrier::current().thread();
    match frame.arg(0) {
        SET_NAME => {
            let mut name = [0u8; 15];
            for (i, byte) in name.iter_mut().enumerate() {
                *byte = match user::read(frame.arg(1) + i) {
                    Ok(0) => break, // the string's end
                    Ok(byte) => byte,
                    Err(errno) => return Outcome::of(errno),
                };
            }
            thread.set_name(&name);
            let len = name
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(name.len());
            if exclusion::excludes_name(&name[..len]) && is_multiplexed() {
                switch::bind_current();
            }
            let is_main = thread.tid() == ENGINE.pid.load(Ordering::Relaxed);
            if is_main {
                Outcome::PASS
            } else {
                Outcome::of(0)
            }
        }
        GET_NAME if ENGINE.is_started() => {
            let done = user::write(frame.arg(1), &thread.name());
            Outcome::of(done.map_or_else(|errno| errno, |()| 0))
        }
        _ => Outcome::PASS,
    }
}
