//! The roster: all kernel threads of the process, and what they must all do.
//!
//! Linux keeps credentials and much else for each kernel thread. What a program changes for its
//! whole process must change on carriers, sysmon and helpers alike: one that keeps the old
//! credentials would be a hole. [`Roster::everywhere`] does it:
//!
//! 1. It holds the members ([`raddle_sched::members`]): none is made or ends meanwhile, so none is
//!    missed; later ones inherit from their makers.
//! 2. It makes the call itself. If that fails, nothing has changed.
//! 3. It publishes the call as an *order* ([`raddle_sched::orders`]), sends every other kernel
//!    thread the signal PREEMPT, and sleeps until all have executed the order in their handlers
//!    ([`Roster::answer`]).
//! 4. If one of them had another result, the caller hears of it: libc aborts then.
//!
//! A kernel thread answers wherever it is: in the program, in the runtime (holding whatever lock:
//! the handler takes none), or blocked in a call, which the kernel restarts. Only a moment with all
//! signals blocked delays it (a kernel thread's birth, a vfork), and no kernel thread waits for the
//! lock with signals blocked.
//!
//! A kernel thread that was changed alone, for the bound thread that has it, is *apart*
//! ([`crate::state::carrier::Carrier::apart`]): it makes no kernel threads but those of threads
//! that its own makes.

use crate::kernel_threads::own_signals::POKE;
use crate::kernel_threads::{kthread, own_signals};
use crate::state::carrier::PREEMPT;
pub(crate) use crate::state::parts::roster::MAX_HELPERS;
use crate::state::parts::roster::MOST;
pub use crate::state::parts::roster::Roster;
use core::sync::atomic::Ordering;
use raddle_sched::members::Held;
use raddle_sys::{err, errno, is_err, nr, sys, syscall6};

/// A call changed some kernel threads and not others: one of them had been changed alone before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Differs;

impl Roster {
    /// Begins anew with the calling kernel thread alone, which is the only one there is.
    pub(crate) fn begin(&self) {
        let Self {
            members,
            orders,
            first_fs,
            call: _,
            arguments: _,
            expected: _,
            differs: _, // an order's
        } = self;
        // SAFETY: the only kernel thread.
        unsafe { members.begin(own_tid()) };
        orders.reset();
        first_fs.store(raddle_arch::fs_base(), Ordering::Relaxed);
    }

    /// Makes a kernel thread by `make`, which returns its id, and enters it.
    ///
    /// # Errors
    /// What `make` says; EAGAIN if there are too many, or the process is about to end.
    pub(crate) fn enter(&self, make: impl FnOnce() -> isize) -> Result<u32, isize> {
        let make = || match make() {
            tid if is_err(tid) => Err(tid),
            tid => Ok(tid as u32),
        };
        let made = self.members.enter(make);
        made.unwrap_or(Err(err(errno::EAGAIN)))
    }

    /// The FS base with which kernel threads are made: that of libc's first thread, which lives as
    /// long as the process. Debuggers find libc's thread by it when one is made; gdb dies later if
    /// there is none.
    pub(crate) fn first_fs(&self) -> u64 {
        self.first_fs.load(Ordering::Relaxed)
    }

    /// The calling kernel thread is about to end, and executes nothing of the program any more.
    pub(crate) fn leave(&self) {
        self.members.leave(own_tid());
    }

    /// From here on no kernel thread is made: the process is about to end.
    pub(crate) fn close(&self) {
        self.members.close();
    }

    /// Returns true from [`Roster::close`] on.
    pub(crate) fn is_closed(&self) -> bool {
        self.members.is_closed()
    }

    /// Returns true if no kernel thread is being made, and none has an order.
    pub(crate) fn is_quiet(&self) -> bool {
        self.members.is_quiet()
    }

    /// Returns true if `is_so` is, for the id of any kernel thread.
    pub(crate) fn any(&self, is_so: impl Fn(u32) -> bool) -> bool {
        self.members.any(is_so)
    }

    /// Sends every other kernel thread both of the runtime's signals: the kernel may have dropped
    /// some. Each makes its receiver look, and can come too often.
    pub fn signal_all(&self) {
        let own = own_tid();
        self.any(|tid| {
            if tid != own {
                signal(tid);
                own_signals::send(tid, POKE);
            }
            false
        });
    }

    /// Executes a call on every kernel thread of the process, or on none. Returns its result.
    ///
    /// # Errors
    /// [`Differs`] if the caller's kernel thread accepted it and another one did not.
    ///
    /// # Safety
    /// As for the call itself, whichever kernel thread makes it; its result doesn't depend on that.
    ///
    /// # Blocking
    /// The carrier, until all have executed it.
    pub unsafe fn everywhere(&self, nr: u32, arguments: [usize; 6]) -> Result<isize, Differs> {
        let held = self.members.hold();
        // SAFETY: the caller's promise.
        let result = unsafe { syscall6(nr, arguments) };
        if is_err(result) {
            return Ok(result);
        }
        let own = own_tid();
        self.give(&held, nr, arguments, result, |tid| tid != own);
        if self.differs.load(Ordering::Acquire) == result {
            Ok(result)
        } else {
            Err(Differs)
        }
    }

    /// Executes a call on the first kernel thread: what the kernel keeps for one thread, and the
    /// runtime for the process.
    ///
    /// # Safety
    /// As for the call itself.
    ///
    /// # Blocking
    /// As [`Roster::everywhere`].
    pub unsafe fn on_first(&self, nr: u32, arguments: [usize; 6]) -> isize {
        let held = self.members.hold();
        let first = held.first().filter(|&first| first != own_tid());
        let Some(first) = first else {
            // SAFETY: the caller's promise.
            return unsafe { syscall6(nr, arguments) };
        };
        self.give(&held, nr, arguments, 0, |tid| tid == first);
        self.differs.load(Ordering::Acquire)
    }

    /// Gives an order to those that `is_meant` names and waits until it is executed.
    fn give(
        &self,
        held: &Held<'_, MOST>,
        nr: u32,
        arguments: [usize; 6],
        expected: isize,
        is_meant: impl Fn(u32) -> bool,
    ) {
        self.call.store(nr, Ordering::Relaxed);
        for (to, from) in self.arguments.iter().zip(arguments) {
            to.store(from, Ordering::Relaxed);
        }
        self.expected.store(expected, Ordering::Relaxed);
        self.differs.store(expected, Ordering::Relaxed);
        let meant = held.each().filter(|&(_, tid)| is_meant(tid));
        self.orders.give(meant.clone().map(|(place, _)| place));
        for (_, tid) in meant {
            signal(tid);
        }
        loop {
            let missing = self.orders.missing();
            if missing == 0 {
                break;
            }
            kthread::futex_wait(self.orders.address(), missing);
        }
        self.orders.end();
    }

    /// Executes the order that stands, if the calling kernel thread hasn't. Returns true if it did.
    ///
    /// # Signal safety
    /// For the handler of PREEMPT; takes no lock.
    pub fn answer(&self) -> bool {
        if !self.orders.stands() {
            return false;
        }
        let Some(place) = self.members.place_of(own_tid()) else {
            return false;
        };
        if !self.orders.take(place) {
            return false;
        }
        let arguments = core::array::from_fn(|i| self.arguments[i].load(Ordering::Relaxed));
        // SAFETY: the giver of the order promised it, and waits.
        let result = unsafe { syscall6(self.call.load(Ordering::Relaxed), arguments) };
        if result != self.expected.load(Ordering::Relaxed) {
            self.differs.store(result, Ordering::Relaxed);
        }
        if self.orders.done() {
            kthread::futex_wake(self.orders.address(), 1);
        }
        true
    }
}

pub(crate) fn own_tid() -> u32 {
    // SAFETY: a plain query.
    unsafe { sys!(nr::__NR_gettid) as u32 }
}

/// Sends PREEMPT; again while the user has as many signals queued as the limit allows.
fn signal(tid: u32) {
    let mut times = 0;
    while own_signals::send(tid, PREEMPT) == Some(err(errno::EAGAIN)) {
        kthread::give_cpu_away(times);
        times += 1;
    }
}
