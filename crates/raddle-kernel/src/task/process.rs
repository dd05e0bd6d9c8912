//! Processes: fork, vfork, exec, waiting for children.
//!
//! `fork` is the raw instruction in the stub; in the child the engine becomes that of a process
//! with one thread ([`raddle_engine::fork`]). All signals are blocked from before the instruction
//! until the child has forgotten its parent's signals: an earlier signal to the child would be
//! forgotten with them, or routed to threads that are not there.
//!
//! The code that the child of a fork executes before it goes on is in one place of the text, beside
//! the boundary's entries: the kernel maps the child's text at its execution, 64 KiB at a time.
//!
//! `vfork` and `posix_spawn` share memory with the child until it execs: the child's GS base then
//! points at [`raw`], a carrier on which every call passes, so that it can't touch the parent's
//! engine; the parent's carrier sleeps in the kernel meanwhile.

use crate::frame::{Frame, Outcome};
use crate::kernel_threads::{self, is_raw, raw};
use crate::memory::{self, loading};
use crate::mode::is_multiplexed;
use crate::mode::is_virtual;
use crate::scheduling;
use crate::signal::{self, children};
use crate::task::clones::{CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD, CLONE_VM, Request};
use crate::task::{credentials, ids, threads};
use crate::words;
use core::sync::atomic::{AtomicUsize, Ordering};
use raddle_arch::{CallFrame, CloneFrame};
use raddle_engine::carrier::{LEFT, SHARES, SHARES_HANDLERS};
use raddle_engine::chaos::{self, Point};
use raddle_engine::{Carrier, PROCESS, fork, kthread, own_signals, ums};
use raddle_sys::abi::{CloneArgs, SigInfo};
use raddle_sys::{err, errno, is_err, nr, sys};

/// 1 if a degradation is to be reported.
static SAYS: AtomicUsize = AtomicUsize::new(0);

/// 1 if the program may trace its children: the kernel takes the kernel thread that made a child
/// for its tracer.
static TRACES: AtomicUsize = AtomicUsize::new(0);

/// Binds every thread that forks from now on: the program may trace its children.
pub fn expect_tracer() {
    TRACES.store(1, Ordering::Relaxed);
}

/// `ptrace(2)`: the kernel knows a tracer by its kernel thread, so the tracing thread keeps one.
pub extern "C" fn ptrace(_: &Frame) -> Outcome {
    if is_multiplexed()
        && let Err(errno) = scheduling::bind(Carrier::current().thread())
    {
        return Outcome::of(errno);
    }
    Outcome::PASS
}

/// Prepares the carrier of vfork children; `verbose` to report degradation.
///
/// # Errors
/// ENOMEM.
pub fn init(verbose: bool) -> Result<(), isize> {
    SAYS.store(usize::from(verbose), Ordering::Relaxed);
    kernel_threads::init()
}

/// Before a clone-like call: makes a thread, or lets the stub execute it.
#[unsafe(link_section = ".text.raddle_boundary")] // beside the entries: see `process`
pub extern "C" fn clone_before(frame: &mut CloneFrame) -> Outcome {
    let call = Frame::of(frame.call());
    let request = match call.number() {
        nr::__NR_clone => Request::from_clone(call),
        nr::__NR_clone3 => match Request::from_clone3(call) {
            Ok(request) => request,
            Err(errno) => return refused(call, errno),
        },
        nr::__NR_fork => Request::of_flags(0),
        _ => Request::of_flags(CLONE_VM),
    };
    if request.has(CLONE_THREAD) {
        if let Err(errno) = request.check_thread() {
            return refused(call, errno);
        }
        if threads::start().is_err() && !is_virtual() {
            return fall_back();
        }
        return Outcome::of(threads::create(frame, &request));
    }
    debug_assert!(call.number() != nr::__NR_vfork || request.has(CLONE_VM));
    if PROCESS.is_started() {
        let thread = Carrier::current().thread();
        if TRACES.load(Ordering::Relaxed) != 0 {
            let _ = scheduling::bind(thread); // a child rather than none
        }
        if request.has(CLONE_VM) {
            scheduling::bind_if_special(thread);
        }
    }
    let carrier = Carrier::current();
    carrier.clone_flags.set(request.args.flags);
    if call.number() == nr::__NR_clone3 {
        lend_args(carrier, frame.call_mut(), &request);
    }
    if !request.has(CLONE_VM) {
        carrier.take_stacks_along();
        signal::block_all();
        ums::fork_begins();
    } else {
        let shares = if request.has(CLONE_SIGHAND) {
            SHARES_HANDLERS
        } else {
            SHARES
        };
        carrier.child_shares.store(shares, Ordering::Relaxed);
        signal::expose_mask();
    }
    Outcome::PASS
}

/// Returns the answer to a request that Linux refuses: `errno`, unless there is no such call here
/// (a container's filter is asked first). The question makes no child: it has no arguments.
#[cold]
fn refused(call: &Frame, errno: isize) -> Outcome {
    const ENOSYS: isize = err(errno::ENOSYS);
    // SAFETY: no kernel takes a structure of no bytes.
    let is_absent = call.number() == nr::__NR_clone3
        && unsafe { sys!(nr::__NR_clone3, 0usize, 0usize) } == ENOSYS;
    Outcome::of(if is_absent { ENOSYS } else { errno })
}

/// Gives the kernel the copy that was checked, not what the program's memory holds by then. The
/// carrier keeps the copy: no other thread gets the carrier before the call.
fn lend_args(carrier: &Carrier, call: &mut CallFrame, request: &Request) {
    let [at, size, ..] = call.args();
    carrier.clone_at.set([at as u64, size as u64]);
    carrier.clone_args.set(request.args);
    let copy = carrier.clone_args.as_ptr().expose_provenance();
    call.set_first_args([copy, size.min(size_of::<CloneArgs>())]);
}

/// Restores the registers after the call, in the parent and in the child.
fn return_args(carrier: &Carrier, call: &mut CallFrame) {
    let [at, size] = carrier.clone_at.get();
    if at != 0 {
        call.set_first_args([at as usize, size as usize]);
    }
}

/// The engine lacks the memory, the descriptors or the kernel thread that it needs: from here on
/// the program has kernel threads, on a carrier where every call passes.
#[cold]
fn fall_back() -> Outcome {
    if SAYS.load(Ordering::Relaxed) != 0 {
        raddle_sys::write_stderr(
            b"raddle: runs on kernel threads: the engine found no memory, descriptors or threads \
              within the limits; raise them\n",
        );
    }
    // SAFETY: only this register changes; nothing of the engine runs yet, and nothing will.
    unsafe { raddle_arch::set_gs_base(raw() as u64) };
    Outcome::PASS
}

/// After a raw clone-like call, in the parent (`result` > 0 or an error) and in the child (0).
#[unsafe(link_section = ".text.raddle_boundary")] // beside the entries: see `process`
pub extern "C" fn clone_after(result: isize, call: &mut CallFrame) {
    if is_raw(Carrier::current_or_null()) {
        return;
    }
    chaos::stop(Point::Fork);
    let carrier = Carrier::current();
    return_args(carrier, call);
    if result > 0 {
        children::note_maker(result as u32);
    }
    let shared = carrier.child_shares.load(Ordering::Relaxed);
    let shares = shared != 0;
    if !shares {
        ums::fork_ends(result == 0);
    }
    if result == 0 && shares {
        // SAFETY: only this register of the child changes; memory is the parent's.
        unsafe { raddle_arch::set_gs_base(raw() as u64) };
        if shared == SHARES {
            signal::actions::expose_ignored();
        }
        carrier.child_shares.store(LEFT, Ordering::Release);
        return;
    }
    if result == 0 {
        // SAFETY: the child of a fork has this one thread.
        unsafe { in_child(carrier.clone_flags.get() & CLONE_FILES != 0) };
    }
    if shares {
        let made = !is_err(result);
        let mut times = 0;
        while made && carrier.child_shares.load(Ordering::Acquire) != LEFT && lives(result) {
            kthread::give_cpu_away(times);
            times += 1;
        }
        scheduling::program_started(carrier.thread());
    }
    signal::hide_mask();
    carrier.clone_at.set([0; 2]);
    carrier.child_shares.store(0, Ordering::Relaxed);
    if carrier.attention.load(Ordering::Relaxed) != 0 {
        signal::on_attention(result, call);
    }
}

/// Makes the child of a fork forget its parent's threads, and what they waited for.
///
/// # Safety
/// Only there, on its only thread, with all signals blocked.
unsafe fn in_child(shares_table: bool) {
    let had_threads = PROCESS.is_started();
    let has_name = ids::has_name_of_first();
    // SAFETY: the caller's promise.
    unsafe { fork::in_child(shares_table) };
    signal::in_child();
    words::in_child();
    children::in_child();
    credentials::in_child();
    loading::in_child();
    memory::in_child();
    if had_threads {
        scheduling::in_child();
        if !has_name {
            ids::in_child();
        }
    }
}

/// Returns true unless the child died before it could leave the carrier. If the kernel hasn't told
/// its id, no thread can wait for the child either.
fn lives(child: isize) -> bool {
    const NOWAIT: usize = 0x0100_0000;
    const EXITED: usize = 4;
    const NOHANG: usize = 1;
    const ALL: usize = 0x4000_0000; // __WALL: whatever signal it sends at its end
    const P_PID: usize = nr::P_PID as usize;
    let mut info = SigInfo::EMPTY;
    let options = NOWAIT | EXITED | NOHANG | ALL;
    // SAFETY: the kernel fills a live structure, and leaves the child to be waited for.
    let result = unsafe {
        sys!(
            nr::__NR_waitid,
            P_PID,
            child,
            &raw mut info,
            options,
            0usize
        )
    };
    match result {
        result if result == err(errno::ECHILD) => runs(child as u32),
        result => !is_err(result) && info.signo == 0,
    }
}

/// Returns true unless `process`, a child of the parent (CLONE_PARENT), is gone or dead. Without
/// `/proc`, a process that was not waited for counts as running.
#[cold]
fn runs(process: u32) -> bool {
    // SAFETY: no signal is sent.
    let is_there = || !is_err(unsafe { sys!(nr::__NR_kill, process, 0usize) });
    match kthread::is_dead(process) {
        Some(dead) => !dead,
        None => is_there(),
    }
}

/// `execve(2)`, `execveat(2)`: the new program inherits the caller's signal mask, and the blocked
/// signals that it hasn't taken; none of the runtime's own signals.
pub extern "C" fn exec(frame: &Frame) -> Outcome {
    if PROCESS.is_started() {
        scheduling::bind_if_special(Carrier::current().thread());
    }
    let carrier = Carrier::current();
    carrier.child_shares.store(SHARES, Ordering::Relaxed); // no handler changes the mask
    signal::expose_mask();
    signal::routing::lend_pending();
    // No other thread, no other sender.
    let has_senders = is_virtual() && PROCESS.is_started();
    let closed = has_senders.then(own_signals::close);
    signal::actions::expose_ignored();
    // SAFETY: the program's own call; it returns only if it failed.
    let result = unsafe { frame.raw() };
    let has_dropped = signal::actions::hide_ignored();
    if let Some(closed) = closed {
        own_signals::open(closed);
    }
    if has_dropped {
        PROCESS.roster.signal_all();
    }
    signal::routing::take_pending_back();
    scheduling::program_started(carrier.thread());
    carrier.child_shares.store(0, Ordering::Relaxed);
    signal::hide_mask();
    Outcome::of(result)
}
