//! The child of a fork: one kernel thread, one green thread, and a copy of the parent's memory.

use crate::accounting;
use crate::carrier::Carrier;
use crate::descriptor;
use crate::engine::{ENGINE, Engine};
use crate::thread::Thread;
use core::sync::atomic::Ordering;
use raddle_sys::{nr, sys};

/// Makes the engine that of a process with one thread again; the running thread becomes the main
/// one. `shares_table` says that the child has the parent's table of descriptors, not a copy.
///
/// # Safety
/// Only in the child of a fork, on its only thread, before anything else of the engine is used.
pub unsafe fn in_child(shares_table: bool) {
    let carrier = Carrier::current();
    let thread: &Thread = carrier.thread();
    // SAFETY: the caller's promise covers every reset here.
    unsafe {
        let pid = sys!(nr::__NR_getpid) as u32;
        ENGINE.slots.break_lock();
        ENGINE.timers.reset();
        ENGINE.injector.reset();
        ENGINE.ahead.reset();
        ENGINE.staged.reset();
        if !shares_table {
            descriptor::close_all(ENGINE.own_descriptors());
        }
        ENGINE.pump.forget_descriptors();
        ENGINE.signal_gate.reset();
        ENGINE.sysmon.reset();
        ENGINE.filters.reset();
        if ENGINE.is_started() {
            ENGINE.unsettled.store(ALL, Ordering::Relaxed);
            ENGINE.stacks.reset(); // else no other thread can have held a lock
        } else if ENGINE.unsettled.load(Ordering::Relaxed) == 0 {
            ENGINE.unsettled.store(IDS, Ordering::Relaxed);
        }
        thread.in_child(pid);
        ENGINE.threads.break_lock();
        ENGINE.kept.forget(&ENGINE.threads); // libc takes their stacks
        ENGINE.threads.keep_only(thread);
        ENGINE.pid.store(pid, Ordering::Relaxed);
        ENGINE.main.store(thread.as_ptr(), Ordering::Relaxed);
        carrier.kernel_tid.store(pid, Ordering::Relaxed);
    }
    carrier.reset();
    accounting::in_child(carrier, thread);
    ENGINE.unstart(carrier);
}

/// Value of [`crate::engine::Engine::unsettled`]: all that [`settle`] resets is the parent's.
const ALL: u32 = 2;
/// Likewise: only the salt of thread ids is the parent's.
const IDS: u32 = 1;

/// Resets the rest of the parent's state: the tables that the engine reads only while a second
/// thread exists. The queues are not among them, because a yield takes from them. Most children end
/// before, or become another program, and each page that they write to is copied. `left` is what
/// [`crate::engine::Engine::unsettled`] was.
///
/// # Safety
/// As [`in_child`], later; at the start of the child's own engine.
pub(crate) unsafe fn settle(left: u32) {
    ENGINE.threads.draw_salt();
    if left == IDS {
        return;
    }
    // SAFETY: the caller's promise covers every reset here.
    unsafe {
        ENGINE.keep_only_carrier(Carrier::current());
        ENGINE.futexes.reset();
        ENGINE.sides.reset();
        ENGINE.helpers.reset();
        ENGINE.ring.reset();
        ENGINE.direct.reset();
        ENGINE.pages.reset();
        ENGINE.pump.reset();
    }
    for carrier in ENGINE.all_carriers() {
        carrier.delays.reset();
    }
}

impl Engine {
    /// In the child of a fork: as before [`Engine::start`]. Names what the
    /// other functions here reset, too: a new field has to be named.
    fn unstart(&self, carrier: &Carrier) {
        #[rustfmt::skip]
        let Self {
            started, list, up, poller, idle, spares, ended, breeding, blocked, extra,
            // `fork::in_child`:
            threads: _, kept: _, pid: _, main: _, slots: _, timers: _, injector: _, ahead: _,
            staged: _, signal_gate: _, sysmon: _, filters: _, stacks: _, unsettled: _,
            // `fork::settle`, and the pump's descriptors before:
            pump: _, futexes: _, sides: _, helpers: _, ring: _, direct: _, pages: _, memory: _,
            // The start of the child's engine:
            roster: _, alarms: _, started_ns: _, capacity_thousandths: _,
            // Settings, which the child has as well:
            explicit: _, kind: _, max_runnable: _, follows_cpus: _, wanted: _, most_extra: _,
            quantum_ns: _, hooks: _,
            // The same clock; a log, which names the parent's threads until they are overwritten:
            fair_clock: _, pins: _,
            // Meaningful while there is a poller:
            poller_deadline_ns: _,
        } = self;
        started.store(0, Ordering::Relaxed);
        let carrier = core::ptr::from_ref(carrier).cast_mut();
        if list[0].load(Ordering::Relaxed) != carrier {
            list[0].store(carrier, Ordering::Relaxed);
        }
        up.store(1, Ordering::Relaxed);
        for count in [poller, ended, breeding, blocked, extra] {
            count.store(0, Ordering::Relaxed);
        }
        idle.reset();
        spares.reset();
    }
}
