//! Quantum timers: a carrier of threads that compute ends their turns by a timer of its own.
//!
//! To preempt a thread sysmon wakes up and sends a signal to another CPU: once a quantum, and once
//! more to see which thread runs then. A *quantum timer* is a timer of the kernel's that sends the
//! signal to the carrier itself, on the carrier's CPU, once a quantum: an *expiry*.
//!
//! 1. Sysmon has preempted so many threads on a carrier at the end of their quanta, one after the
//!    other, that the carrier's [`Rhythm`] says it goes on like this: it starts a quantum timer,
//!    and says which switch of the carrier the first expiry should find.
//! 2. An expiry finds that switch: the thread has had its quantum. If others wait, it gives way,
//!    and the next expiry should find the next switch.
//! 3. An expiry finds anything else (the thread left by itself, or no other waits): the quantum
//!    timer is *off*. Later expiries do nothing; the handler wakes sysmon, which stops the timer,
//!    and preempts until there is a rhythm again.
//! 4. Sysmon, meanwhile, looks for other reasons only. It stops a quantum timer of another quantum
//!    than today's, and one that sends no expiries.
//!
//! Beats are at whole multiples of the quantum since the kernel's start, because the kernel's own
//! tick is, too (at multiples of 1, 4 or 10 ms): an interrupt that serves both costs one. The first
//! turn is half a quantum to one and a half for it.
//!
//! An expiry ends most calls that wait in the kernel as any signal does, and they begin again when
//! their thread has its next turn. For those that go on, sysmon looks every second quantum while a
//! carrier's block event is silent; each quantum, as without a quantum timer, once a carrier has
//! waited in others' way.
//!
//! With a policy, in further engines, on bound carriers and under user-mode schedulers sysmon
//! decides about each turn: there are no quantum timers. There are none either where the process
//! has a seccomp filter, which may kill the caller; the installer of one deletes them first
//! ([`crate::kernel_threads::filters`]).
//!
//! The child of a fork has no timers, and forgets that there were; an exec takes them and what they
//! have sent.

use crate::kernel_events::block_events;
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::parts::quantum_timer::QuantumTimer;
use crate::state::process::PROCESS;
use core::ops::RangeInclusive;
use core::ptr::from_ref;
use core::sync::atomic::Ordering;
use raddle_sched::rhythm::Rhythm;
use raddle_sys::abi::{SigEvent, SigInfo, Timespec};
use raddle_sys::{is_err, nr, sys};

impl QuantumTimer {
    /// In a fresh carrier, and in the child of a fork.
    pub(crate) fn reset(&self) {
        let Self {
            expects,
            expiries: _,
            timer: _, // see `forget`
        } = self;
        expects.store(0, Ordering::Relaxed);
    }

    /// In the child of a fork, which has no timers.
    pub(crate) fn forget(&self) {
        let Self {
            timer,
            expects: _,
            expiries: _,
        } = self;
        if timer.load(Ordering::Relaxed) != 0 {
            timer.store(0, Ordering::Relaxed);
        }
    }

    /// Ends it. Under the lock of [`crate::kernel_threads::filters`].
    pub(crate) fn delete(&self) {
        self.expects.store(0, Ordering::Relaxed);
        if let Some(id) = self.timer.swap(0, Ordering::Relaxed).checked_sub(1) {
            // SAFETY: a timer of the runtime.
            unsafe { sys!(nr::__NR_timer_delete, id) };
        }
    }

    fn is_off(&self) -> bool {
        self.expects.load(Ordering::Relaxed) == 0
    }
}

/// Returns true for a signal that a quantum timer of this carrier has sent.
///
/// # Signal safety
/// For the carrier's handler.
pub fn is_expiry(carrier: &Carrier, info: &SigInfo) -> bool {
    const TIMER: i32 = nr::SI_TIMER;
    info.signo as usize == PREEMPT && info.code == TIMER && info.value == name_of(carrier)
}

/// Handles an expiry. Returns true if the running thread is to give way: `preempt_at` says so then.
///
/// # Signal safety
/// For the carrier's handler.
pub fn expire(carrier: &Carrier) -> bool {
    let quantum_timer = &carrier.quantum_timer;
    let expects = quantum_timer.expects.load(Ordering::Relaxed);
    if expects == 0 {
        return false;
    }
    let switches = carrier.switches.load(Ordering::Relaxed);
    let is_regular = switches + 1 == expects
        && carrier.thread_or_none().is_some()
        && carrier.handed_off.load(Ordering::Relaxed) == 0
        && !carrier.is_bound()
        && (!carrier.queue.is_empty() || carrier.engine().has_posted());
    if !is_regular {
        quantum_timer.expects.store(0, Ordering::Relaxed);
        PROCESS.sysmon.write_wake();
        return false;
    }
    quantum_timer.expects.store(expects + 1, Ordering::Relaxed);
    Carrier::count(&quantum_timer.expiries);
    carrier.preempt_at.store(switches + 1, Ordering::Relaxed);
    true
}

/// What the timer's signals carry.
fn name_of(carrier: &Carrier) -> u64 {
    from_ref(&carrier.quantum_timer).expose_provenance() as u64
}

/// The most quantum timers; more carriers have none.
const MOST: usize = block_events::MOST;

/// Sysmon's part: all quantum timers.
pub(crate) struct QuantumTimers {
    /// Indexed by the carriers' places in sysmon's memory.
    each: [Watch; MOST],
    /// How many have a timer.
    running: usize,
}

#[derive(Clone, Copy)]
struct Watch {
    rhythm: Rhythm,
    timer: Option<Timer>,
}

#[derive(Clone, Copy)]
struct Timer {
    carrier: &'static Carrier,
    tid: u32,
    quantum_ns: u64,
    /// The carrier's count when it was started.
    expiries: u64,
}

impl QuantumTimers {
    pub(crate) const fn new() -> Self {
        const NEW: Watch = Watch {
            rhythm: Rhythm::new(),
            timer: None,
        };
        Self {
            each: [NEW; MOST],
            running: 0,
        }
    }

    /// Stops those that are off, and those with a changed carrier or quantum.
    pub(crate) fn tend(&mut self) {
        if self.running == 0 {
            return;
        }
        let quantum_ns = PROCESS.quantum_ns();
        for at in 0..MOST {
            let stale = |timer: Timer| {
                timer.carrier.quantum_timer.is_off()
                    || timer.carrier.kernel_tid.load(Ordering::Relaxed) != timer.tid
                    || timer.quantum_ns != quantum_ns
                    || !is_ruled_by_quanta(timer.carrier)
            };
            if self.each[at].timer.is_some_and(stale) {
                self.stop(at);
            }
        }
    }

    /// Stops all: the thread that does sysmon's work from now on doesn't know them.
    pub(crate) fn stop_all(&mut self) {
        (0..MOST).for_each(|at| self.stop(at));
    }

    /// Returns true if the carrier at this place has a quantum timer.
    pub(crate) fn runs(&self, at: usize) -> bool {
        self.each.get(at).is_some_and(|watch| watch.timer.is_some())
    }

    /// Returns true if any carrier has a quantum timer.
    pub(crate) fn any_runs(&self) -> bool {
        self.running != 0
    }

    /// Sysmon has just told a carrier to preempt the thread that it runs since its switch number
    /// `switches`, at its quantum's end.
    pub(crate) fn preempted(
        &mut self,
        at: usize,
        carrier: &'static Carrier,
        switches: u64,
        now_ns: u64,
    ) {
        if self.runs(at) {
            return self.stop(at); // its expiry didn't come
        }
        let Some(watch) = self.each.get_mut(at) else {
            return;
        };
        if is_ruled_by_quanta(carrier) && watch.rhythm.turned(switches) {
            watch.timer = start(carrier, switches, now_ns);
            match watch.timer {
                Some(_) => self.running += 1,
                None => watch.rhythm.broke(0),
            }
        }
    }

    #[cold]
    fn stop(&mut self, at: usize) {
        let watch = &mut self.each[at];
        let Some(timer) = watch.timer.take() else {
            return;
        };
        self.running -= 1;
        let quantum_timer = &timer.carrier.quantum_timer;
        quantum_timer.expects.store(0, Ordering::Relaxed);
        let expiries = quantum_timer.expiries.load(Ordering::Relaxed);
        watch.rhythm.broke(expiries.saturating_sub(timer.expiries));
        // If a filter is coming, its installer deletes the timer.
        PROCESS.filters.unless_any(|| quantum_timer.delete());
    }
}

/// For how long sysmon may not look at a carrier with a quantum timer: it may begin to wait in the
/// kernel, where an expiry can't always reach it. `is_prompt` is true once any carrier has.
pub(crate) fn rest_ns(carrier: &Carrier, quantum_ns: u64, is_prompt: bool) -> u64 {
    match (block_events::is_armed(carrier), is_prompt) {
        (true, _) => u64::MAX,
        (false, true) => quantum_ns,
        (false, false) => 2 * quantum_ns.min(*QUANTA_NS.end()),
    }
}

/// Returns true if all that decides about turns on this carrier is the quantum.
fn is_ruled_by_quanta(carrier: &Carrier) -> bool {
    !carrier.engine().has_one_queue() && !carrier.runs_for_scheduler() && !carrier.is_bound()
}

/// The quanta that quantum timers serve: shorter ones are so costly by any means that sysmon, which
/// comes late then, is the cheaper way; and there is none at all.
const QUANTA_NS: RangeInclusive<u64> = 1_000_000..=1_000_000_000;

/// Starts a quantum timer. The first expiry should find the carrier's next switch.
#[cold]
fn start(carrier: &'static Carrier, switches: u64, now_ns: u64) -> Option<Timer> {
    let quantum_ns = PROCESS.quantum_ns();
    if !QUANTA_NS.contains(&quantum_ns) {
        return None;
    }
    let timer = Timer {
        carrier,
        tid: carrier.kernel_tid.load(Ordering::Relaxed),
        quantum_ns,
        expiries: carrier.quantum_timer.expiries.load(Ordering::Relaxed),
    };
    let start = || start_timer(timer, switches, now_ns);
    PROCESS.filters.unless_any(start)?.then_some(timer)
}

/// Returns false without the means.
fn start_timer(timer: Timer, switches: u64, now_ns: u64) -> bool {
    const MONOTONIC: usize = nr::CLOCK_MONOTONIC as usize;
    const THREAD_ID: u32 = nr::SIGEV_THREAD_ID;
    const AT_A_TIME: usize = 1;
    let event = SigEvent {
        value: name_of(timer.carrier),
        signal: PREEMPT as u32,
        notify: THREAD_ID,
        tid: timer.tid,
        rest: [0; 11],
    };
    let period_ns = timer.quantum_ns;
    let first_ns = (now_ns + period_ns / 2).next_multiple_of(period_ns);
    let times = [Timespec::from_ns(period_ns), Timespec::from_ns(first_ns)];
    let quantum_timer = &timer.carrier.quantum_timer;
    let mut id = 0i32;
    // SAFETY: the kernel reads and fills live structures; the signal and the receiver are the
    // runtime's.
    unsafe {
        let made = sys!(
            nr::__NR_timer_create,
            MONOTONIC,
            &raw const event,
            &raw mut id
        );
        if is_err(made) {
            return false;
        }
        quantum_timer.timer.store(id as u32 + 1, Ordering::Relaxed);
        quantum_timer.expects.store(switches + 2, Ordering::Relaxed);
        sys!(
            nr::__NR_timer_settime,
            id,
            AT_A_TIME,
            times.as_ptr(),
            0usize
        );
    }
    true
}
