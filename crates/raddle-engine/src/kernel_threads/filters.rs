//! Filters of system calls, which may kill a thread for a call that they don't know.
//!
//! The runtime makes some calls for speed alone: timers, perf events, a look at a stack. In a
//! process with a seccomp filter the runtime does without them. A filter can also come later, for
//! all kernel threads at once (`seccomp(2)` with TSYNC):
//!
//! 1. The maker of such a call takes the lock, sees that no filter is on its way and that the
//!    calling kernel thread has none, and makes the call ([`Filters::unless_any`]).
//! 2. A thread of the program's that is about to install a filter says so, under the lock, and
//!    deletes the timers that go on by themselves: no thread could delete them afterwards. Then it
//!    installs the filter, which every kernel thread has from that moment on, and says that it
//!    isn't on its way any more ([`Filters::install`]).
//!
//! So none of these calls meets a filter. If the kernel refuses the filter, sysmon soon finds that
//! it may make them again.
//!
//! Carriers submit reads to an AIO context and to rings of their own, and wait in those, too often
//! for a lock and a question to the kernel. These calls go through a
//! [gate](raddle_sched::call_gate) ([`Filters::unless_coming`]). The installer closes it, and waits
//! until no carrier asks; those that sleep in their rings are woken. The ring's thread is told to
//! leave its ring as well.
//!
//! The lock is held over system calls, as the roster's is: by kernel threads that run no green
//! thread, by a thread that gives a signal back to the kernel, by one that ends the process, and by
//! the installer. The installer doesn't take it after the filter: to wait for a lock is a call.

use crate::kernel_threads::kthread;
use crate::state::carrier::Carrier;
use crate::state::clock;
pub use crate::state::parts::filters::Filters;
use crate::state::process::PROCESS;
use raddle_sched::call_gate;
use raddle_sys::syscall6;

/// SECCOMP_FILTER_FLAG_NEW_LISTENER.
const NEW_LISTENER: usize = 8;
/// How long the installer of a filter waits at most for carriers and for the ring's thread.
const PATIENCE_NS: u64 = 200_000_000;
/// How often it looks.
const LOOK_NS: u64 = 200_000;

impl Filters {
    /// In the child of a fork, which has no other thread; before it forgets the parent's carriers.
    pub(crate) fn reset(&self) {
        let Self { lock, gate } = self;
        // SAFETY: the only thread of the child, so no other holds the lock.
        unsafe { lock.break_lock() };
        if gate.is_closed() {
            gate.reset(kthread::is_filtered());
        }
        PROCESS.carriers().for_each(|it| it.quantum_timer.forget());
    }

    /// Makes calls that a filter may kill for, unless there is a filter.
    pub fn unless_any<T>(&self, make: impl FnOnce() -> T) -> Option<T> {
        let _lock = self.lock.lock();
        let free = !self.gate.is_closed() && !kthread::is_filtered();
        free.then(make)
    }

    /// From here on no carrier makes a call that a filter may kill for: the process was started
    /// with one that does.
    pub fn leave_out(&self) {
        let _lock = self.lock.lock();
        self.gate.close();
    }

    /// Returns true if a filter is on its way, has come since the start, or kills from the start.
    pub(crate) fn is_any_coming(&self) -> bool {
        self.gate.is_closed()
    }

    /// Makes a call on this carrier that a filter may kill for, unless one has come since the start
    /// or is on its way.
    #[inline(always)]
    pub(crate) fn unless_coming<T>(
        &self,
        carrier: &Carrier,
        make: impl FnOnce() -> T,
    ) -> Option<T> {
        self.gate.pass(&carrier.asks, make)
    }

    /// Makes a call that may give every kernel thread of the process a filter.
    ///
    /// # Safety
    /// As for the call itself.
    pub unsafe fn install(&self, nr: u32, arguments: [usize; 6]) -> isize {
        if arguments[2] == 0 {
            // Without a program, the call only asks whether the kernel knows such filters. SAFETY:
            // the caller's promise.
            return unsafe { syscall6(nr, arguments) };
        }
        let was_closed = self.gate.is_closed();
        {
            let _lock = self.lock.lock();
            self.gate.close();
            for carrier in PROCESS.carriers() {
                carrier.quantum_timer.delete();
            }
        }
        let until_ns = clock::now_ns() + PATIENCE_NS;
        PROCESS.ring.stop();
        while (asked() || PROCESS.ring.is_served()) && clock::now_ns() < until_ns {
            kthread::nap(LOOK_NS);
        }
        // SAFETY: the caller's promise.
        let result = unsafe { syscall6(nr, arguments) };
        // Else a thread that can't have it, or a descriptor that is asked for what it says.
        let is_listener = arguments[1] & NEW_LISTENER != 0 && result > 0;
        if result != 0 && !is_listener && !was_closed {
            self.gate.open();
            PROCESS.ring.resume();
        }
        result
    }
}

/// Returns true if carriers ask the kernel; those that sleep meanwhile are woken.
fn asked() -> bool {
    let all = PROCESS.all_carriers();
    let asking = all.filter(|carrier| call_gate::asks(&carrier.asks));
    let count = asking
        .inspect(|carrier| PROCESS.wake_carrier(carrier))
        .count();
    if count != 0 {
        PROCESS.pump.kick();
    }
    count != 0
}
