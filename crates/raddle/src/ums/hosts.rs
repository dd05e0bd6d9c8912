//! Hosts: the threads that light workers run on ([`super::light`]).
//!
//! An idle host is the worker of its *home* context, and waits, claimable, on a list of idle hosts.
//! A scheduler that takes it from there makes it another worker, and executes that.
//!
//! When a light worker has ended, its host calls the scheduler's procedure on its own stack, as if
//! the worker had yielded; the reason is the end. If the host can't, because the scheduler doesn't
//! wait for the worker or decides itself, the host's thread ends as this worker, and the runtime
//! reports the end.

use super::claimed::Claimed;
use super::context::{Context, Inner, spawn_with};
use super::dispatch::decide_on;
use super::light::host_next;
use super::list::CompletionList;
use super::scheduler::{Cause, Reason};
use crate::runtime;
use crate::thread::Builder;
use raddle_arch::{Context as Stack, call_by_jumps, switch_keep_fs};
use raddle_interface::{Claim, Runtime, WorkerState};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{from_ref, null, null_mut, with_exposed_provenance};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

const STACK: usize = 64 << 10;

/// A thread that runs light workers.
pub(super) struct Host {
    /// Its context while it is idle; the user word is the host's address.
    home: Context,
    /// The host's own stack, while a light worker runs.
    base: Cell<Stack>,
    /// Written by the switch when the host's stack was left; not read.
    base_on_cpu: Cell<u32>,
    /// The light worker that it runs next. Stored by the executor.
    guest: Cell<*const Inner>,
    /// The light worker that has ended on it.
    ended: Cell<*const Inner>,
    /// The signals that its light workers block; an idle host blocks all.
    mask: libc::sigset_t,
}

// SAFETY: the cells are the host thread's own, or its executor's while the host is off its stack.
unsafe impl Sync for Host {}
// SAFETY: as above.
unsafe impl Send for Host {}

thread_local! {
    static HOST: Cell<*const Host> = const { Cell::new(null()) };
}

/// Returns the list of idle hosts and new ones.
fn idle() -> &'static CompletionList {
    static IDLE: OnceLock<CompletionList> = OnceLock::new();
    IDLE.get_or_init(|| CompletionList::new().expect("there are workers"))
}

impl Host {
    /// Sets the light worker that the host runs next. Called by its executor.
    pub(super) fn runs_next(&self, guest: &Inner) {
        self.guest.set(guest);
    }

    fn thread(&self) -> *mut c_void {
        self.home.0.control.thread.load(Ordering::Relaxed)
    }
}

/// Takes an idle host, which the caller may execute. Returns the host and its thread.
pub(super) fn take() -> (&'static Host, *mut c_void) {
    loop {
        let mut locked = Vec::new();
        let mut found = None;
        for home in idle().dequeue(Some(Duration::ZERO)).into_iter().flatten() {
            match home.0.control.state.claim(|| home.0.is_locked()) {
                Claim::Claimed => {
                    found = Some(home);
                    break;
                }
                Claim::Locked => locked.push(home), // the host is about to leave its stack
                _ => {}                             // it has ended, in the child of a fork
            }
        }
        locked
            .iter()
            .for_each(|home| home.list_as(WorkerState::LISTED));
        if let Some(home) = found {
            let host = with_exposed_provenance::<Host>(home.user_context());
            // SAFETY: a home's user word is its host's address, and the host lives as long as its
            // thread.
            let host = unsafe { &*host };
            return (host, host.thread());
        }
        if start().is_err() {
            std::thread::sleep(Duration::from_millis(1)); // until a host is idle
        }
    }
}

/// Starts a host, which is listed as idle.
fn start() -> std::io::Result<()> {
    let home = Context::new(idle());
    let mask = block_signals(); // the new thread begins as an idle one
    let host = Box::new(Host {
        home: home.clone(),
        base: Cell::new(null_mut()),
        base_on_cpu: Cell::new(0),
        guest: Cell::new(null()),
        ended: Cell::new(null()),
        mask,
    });
    home.set_user_context(from_ref(&*host).expose_provenance());
    let made = spawn_with(Builder::new().stack_size(STACK), &home, move || {
        host_main(&host)
    });
    set_mask(&mask);
    made.map(drop)
}

fn host_main(host: &Host) {
    let Some(runtime) = runtime::table() else {
        return; // there is a runtime: this is a worker
    };
    HOST.set(host);
    set_mask(&host.mask);
    loop {
        // SAFETY: null, or the light worker that this thread is to run, which the runtime holds.
        let Some(guest) = (unsafe { host.guest.replace(null()).as_ref() }) else {
            return;
        };
        // SAFETY: as said; the host goes on here when a light worker has ended.
        unsafe {
            guest.continue_from(host.base.as_ptr(), host.base_on_cpu.as_ptr());
        };
        if !goes_on(runtime, host) {
            break;
        }
    }
    // The thread ends as the light worker that has ended, so its home is listed nowhere.
    // SAFETY: the runtime's reference to the home, which the runtime will not pass on.
    drop(unsafe { std::sync::Arc::from_raw(std::sync::Arc::as_ptr(&host.home.0)) });
}

/// Goes on after a light worker's end. Returns false if the host's thread must end with it; else
/// another worker was executed, and the host now runs its guest.
fn goes_on(runtime: &Runtime, host: &Host) -> bool {
    // SAFETY: null, or a light worker that has ended here, which the runtime holds until it was
    // taken as ended.
    let Some(ended) = (unsafe { host.ended.replace(null()).as_ref() }) else {
        return false;
    };
    ended.release_stack();
    let token = (runtime.take_token)();
    // SAFETY: null, or a token that the caller has taken.
    let Some(taken) = (unsafe { token.as_ref() }) else {
        return false;
    };
    ended.is_over();
    // SAFETY: as above.
    let next = unsafe { decide_on(token, 0).as_ref() };
    // From here on the ended worker is not used any more.
    match next {
        Some(next) if next.control.thread.load(Ordering::Relaxed).is_null() => {
            host_next(next, host.thread(), taken);
            host.guest.set(next);
            let (own, token) = (host.thread().expose_provenance(), token.expose_provenance());
            // SAFETY: the calling thread, which becomes the claimed worker.
            unsafe { call_by_jumps(runtime.pass_token, own, token) };
        }
        next => {
            block_signals(); // a signal would wait as long as the idle host
            taken.worker.set(from_ref(&*host.home.0).cast_mut().cast());
            host.home.list_as(WorkerState::LISTED); // locked for now to the thread that takes it
            match next {
                Some(next) => {
                    let thread = next.control.thread.load(Ordering::Relaxed);
                    let (to, token) = (thread.expose_provenance(), token.expose_provenance());
                    // SAFETY: a claimed worker's thread.
                    unsafe { call_by_jumps(runtime.pass_token, to, token) };
                }
                None => (runtime.return_token)(taken),
            }
            set_mask(&host.mask);
        }
    }
    true
}

/// Ends the running light worker: its host goes on.
///
/// # Safety
/// The light worker must never be continued; `save` and `left` are the switch's outputs.
pub(super) unsafe fn end(own: &Inner, save: *mut Stack, left: *mut u32) {
    let host = current();
    // SAFETY: light workers run on hosts only, which live as long as their threads.
    let host = unsafe { &*host };
    host.ended.set(own);
    // SAFETY: the host's loop is suspended there.
    unsafe { switch_keep_fs(save, host.base.get(), left) };
}

/// Never inlined: compilers keep addresses of thread-locals, and the caller may have changed its
/// thread.
#[inline(never)]
fn current() -> *const Host {
    HOST.get()
}

/// Returns true on a light worker.
pub(crate) fn is_host() -> bool {
    !current().is_null()
}

/// Returns a scheduler's reason after a light worker's end.
#[cold]
pub(super) fn ended(worker: Claimed) -> Reason {
    let context = worker.into_context();
    context.list_as(WorkerState::ENDED);
    Reason::Blocked {
        context,
        cause: Cause::End,
    }
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both are written before they are read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        old.assume_init()
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: a mask that was in force.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, null_mut()) };
}
