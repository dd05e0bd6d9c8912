//! Pending signals and masks of threads and of the process: the protocols of
//! [`raddle_sched::signals`] with the kernel's details. The user-mode kernel decides what signals
//! mean.

mod inbox;
mod list;

pub use inbox::Inbox;
pub use list::SignalList;
pub use raddle_sched::queues::{CommonSignals, PendingSignals};
pub use raddle_sched::records::{Addressee, Details, Form, RECORDS as RECORDS_MAX};

use core::cell::Cell;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use raddle_arch::CallFrame;
use raddle_sched::SpinLock;
use raddle_sched::records::Pool;
use raddle_sys::abi::{SigInfo, StackT};

/// `si_code` of a timer's signal.
pub const SI_TIMER: i32 = raddle_sys::nr::SI_TIMER;

/// The records of all pending signals.
pub type Records = raddle_sched::queues::Records<Siginfo>;

/// See [`Records`].
pub static RECORDS: Records = SpinLock::new(Pool::new());

/// The kernel's details of a signal. In a timer's record the timer's id stands in the place of the
/// sender's id, and the overrun in the place of the sender's user.
pub struct Siginfo;

impl Details for Siginfo {
    type Info = SigInfo;

    const UNUSED: SigInfo = SigInfo::EMPTY;

    #[inline(always)]
    fn signal(info: &SigInfo) -> u32 {
        info.signo as u32
    }

    fn form(info: &SigInfo) -> Form {
        const FIRST_REAL_TIME: i32 = 32;
        match info.code {
            SI_TIMER => Form::Expiry,
            _ if info.signo >= FIRST_REAL_TIME => Form::Each,
            _ => Form::Once,
        }
    }

    fn add_expiry(last: &mut SigInfo, info: &SigInfo) -> bool {
        let is_same = (last.signo, last.code, last.pid) == (info.signo, info.code, info.pid);
        if is_same {
            last.uid = last.uid.saturating_add(info.uid).saturating_add(1);
        }
        is_same
    }

    fn without_record(signal: u32) -> SigInfo {
        SigInfo {
            signo: signal as i32,
            ..SigInfo::EMPTY
        }
    }
}

/// Masks, pending signals and the alternate stack of one green thread.
#[repr(C)]
pub struct ThreadSignals {
    /// Masks and pending signals. The first field, because each switch reads it.
    pub(crate) state: PendingSignals,
    /// The mask that a `sigsuspend`-like call replaced, to be restored after the handler.
    pub suspended_mask: Cell<Option<u64>>,
    /// True if the last delivery ran a handler.
    pub handled: Cell<bool>,
    /// True if the last delivery ran a handler without SA_RESTART.
    pub interrupting: Cell<bool>,
    /// The address behind the system call that the thread is in, if libc takes the call's number at
    /// run time; else 0. Such calls can be cancelled. Written by the boundary's entry.
    pub call_site: Cell<usize>,
    /// The frame of the call that the thread is in; of no meaning outside of calls.
    /// Written by the boundary's entry before it calls a handler.
    pub call_frame: Cell<*const CallFrame>,
    /// What that call does when signal handlers have run.
    pub progress: Cell<Progress>,
    /// The alternate stack, as `sigaltstack(2)` set it.
    pub alternate: Cell<StackT>,
}

impl Deref for ThreadSignals {
    type Target = PendingSignals;

    #[inline(always)]
    fn deref(&self) -> &PendingSignals {
        &self.state
    }
}

/// How far a call has come when its thread runs signal handlers. Memory of zeros is [`Begins`].
///
/// [`Begins`]: Progress::Begins
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Progress {
    /// It begins when they have run, or goes on whatever they are.
    Begins,
    /// It waits; handlers end it with EINTR, unless all of them have SA_RESTART and it restarts.
    Waits { restarts: bool },
    /// It has ended with this result.
    Ended(isize),
}

impl ThreadSignals {
    /// Offset of [`PendingSignals::pending`].
    pub const PENDING: usize = core::mem::offset_of!(Self, state) + PendingSignals::PENDING;

    /// Prepares the signals of a new thread. The creator sets the mask. Nothing is pending, because
    /// the last thread in the slot has dropped its pending signals after it was marked as exiting.
    pub fn reset(&self) {
        self.suspended_mask.set(None);
        self.call_site.set(0);
        self.call_frame.set(core::ptr::null());
        self.awaited.store(0, Ordering::Relaxed);
        self.alternate.set(StackT::DISABLED);
    }

    /// Forgets what is pending.
    pub fn drop_pending(&self) {
        self.state.drop_pending(&RECORDS);
    }

    /// Frees the locks.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists. What is pending must be dropped.
    pub unsafe fn break_locks(&self) {
        // SAFETY: the caller's promise. A record being linked when the parent forked is lost to the
        // pool, nothing worse.
        unsafe {
            self.state.break_lock();
            RECORDS.break_lock();
        }
    }
}
