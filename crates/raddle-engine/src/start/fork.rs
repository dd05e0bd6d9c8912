//! The child of a fork: one kernel thread, one green thread, and a copy of the parent's memory.

use crate::kernel_threads::descriptor;
use crate::state::carrier::Carrier;
use crate::state::process::{PROCESS, Process};
use crate::state::thread::Thread;
use crate::state::{accounting, events};
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
        PROCESS.slots.break_lock();
        PROCESS.timers.reset();
        PROCESS.engines.reset();
        if !shares_table {
            descriptor::close_all(PROCESS.own_descriptors());
        }
        PROCESS.pump.forget_descriptors();
        PROCESS.signal_gate.reset();
        PROCESS.sysmon.reset();
        PROCESS.filters.reset();
        if PROCESS.is_started() {
            PROCESS.unsettled.store(ALL, Ordering::Relaxed);
            PROCESS.stacks.reset(); // else no other thread can have held a lock
        } else if PROCESS.unsettled.load(Ordering::Relaxed) == 0 {
            PROCESS.unsettled.store(IDS, Ordering::Relaxed);
        }
        thread.in_child(pid);
        PROCESS.threads.break_lock();
        PROCESS.reusable.forget(&PROCESS.threads); // libc takes their stacks
        PROCESS.threads.keep_only(thread);
        PROCESS.pid.store(pid, Ordering::Relaxed);
        PROCESS.main.store(thread.as_ptr(), Ordering::Relaxed);
        carrier.kernel_tid.store(pid, Ordering::Relaxed);
    }
    carrier.reset(PROCESS.first());
    accounting::in_child(carrier, thread);
    events::in_child();
    PROCESS.unstart(carrier);
}

/// Value of [`crate::state::process::Process::unsettled`]: all that [`settle`] resets is the
/// parent's.
const ALL: u32 = 2;
/// Likewise: only the salt of thread ids is the parent's.
const IDS: u32 = 1;

/// Resets the rest of the parent's state: the tables that the engine reads only while a second
/// thread exists. The queues are not among them, because a yield takes from them. Most children end
/// before, or become another program, and each page that they write to is copied. `left` is what
/// [`crate::state::process::Process::unsettled`] was.
///
/// # Safety
/// As [`in_child`], later; at the start of the child's own engine.
pub(crate) unsafe fn settle(left: u32) {
    PROCESS.threads.draw_salt();
    if left == IDS {
        return;
    }
    // SAFETY: the caller's promise covers every reset here.
    unsafe {
        PROCESS.keep_only_carrier(Carrier::current());
        PROCESS.futexes.reset();
        PROCESS.helpers.reset();
        PROCESS.ring.reset();
        PROCESS.direct.reset();
        PROCESS.pages.reset();
        PROCESS.pump.reset();
    }
    for carrier in PROCESS.all_carriers() {
        carrier.delays.reset();
    }
}

impl Process {
    /// In the child of a fork: as before [`Process::start`]. Names what the
    /// other functions here reset, too: a new field has to be named.
    fn unstart(&self, carrier: &Carrier) {
        #[rustfmt::skip]
        let Self {
            started, list, listed, poller, engines,
            // `fork::in_child`:
            threads: _, reusable: _, pid: _, main: _, slots: _, timers: _, signal_gate: _,
            sysmon: _, filters: _, stacks: _, unsettled: _,
            // `fork::settle`, and the pump's descriptors before:
            pump: _, pump_rows: _, futexes: _, helpers: _, ring: _, direct: _, pages: _, memory: _,
            // The start of the child's engine:
            roster: _, block_events: _, started_ns: _, capacity_thousandths: _,
            // Settings, which the child has as well:
            explicit: _, max_runnable: _, follows_cpus: _, most_extra: _, quantum_ns: _, hooks: _,
            // The child is of the same family:
            family: _,
            // A log, which names the parent's threads until they are overwritten:
            blocking: _,
            // `events::in_child`:
            recorder: _,
            // Meaningful while there is a poller:
            poller_deadline_ns: _,
        } = self;
        started.store(0, Ordering::Relaxed);
        let carrier = core::ptr::from_ref(carrier).cast_mut();
        if list[0].load(Ordering::Relaxed) != carrier {
            list[0].store(carrier, Ordering::Relaxed);
        }
        // The engines have no carriers since `in_child`.
        engines.first.count.reset(1);
        for count in [listed, &engines.first.made] {
            count.store(1, Ordering::Relaxed);
        }
        poller.store(0, Ordering::Relaxed);
    }
}
