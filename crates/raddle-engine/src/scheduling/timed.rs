//! Timed carriers: those with threads of long turns keep accounts of CPU time, and share it fairly
//! ([`raddle_sched::share`]).
//!
//! The carrier reads the clock at each switch and at each wake-up, which a carrier with short turns
//! doesn't. [`Source::Timed`](crate::state::carrier) leads both here.
//!
//! A carrier becomes timed by itself when it preempts a thread or finds that one waits in the
//! engine's queue of threads that are ahead, and by sysmon, which sees a thread hold it. It stops
//! when no turn has been long for [`raddle_sched::share::LINGER_NS`].

use crate::kernel_events::block_events;
use crate::scheduling::idle;
use crate::scheduling::switch::{has_looked_for_work, look_around_at, take_injected};
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::parts::timing::Timing;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::{clock, delays};
use core::sync::atomic::Ordering;
use raddle_sched::TaskRef;
use raddle_sched::policy::QUANTUM_NS;
use raddle_sched::share::{self, COUNT_NS, GRANULARITY_NS, LONG_TURN_NS, Load, Sources, gives_way};

/// A turn of this length is worth a system call, which tells how much of it the carrier had a CPU.
const MEASURED_NS: u64 = 250_000;

impl Timing {
    pub(crate) fn reset(&self) {
        let Self {
            slices,
            chooser: _, // begun with the next timing
            picks: _,
            noted_ns: _,
        } = self;
        slices.reset();
    }

    pub(crate) fn end(&self) {
        self.slices.end();
    }

    /// See [`raddle_sched::share::Chooser::looks`].
    pub(crate) fn looks(&self, now_ns: u64, every_ns: u64) -> bool {
        self.chooser.looks(now_ns, every_ns)
    }
}

impl Carrier {
    /// Makes the carrier timed. The running thread's turn has lasted since `since_ns`. By the
    /// carrier or by sysmon.
    #[cold]
    pub(crate) fn begin_timing(&self, since_ns: u64) {
        if !self.is_timed() && self.set_timed() {
            self.timing.slices.begin(since_ns);
            self.timing.chooser.begin();
        }
    }

    /// Charges the running thread for its turn so far, and ends the timing if turns are short
    /// again. Returns the time of the fair clock.
    fn settle(&self, now_ns: u64) -> u64 {
        let timing = &self.timing;
        let turn_ns = timing.slices.take(now_ns, MEASURED_NS);
        let engine = self.engine();
        let fair_ns = match self.thread_or_none() {
            Some(_) => engine.fair_clock.advance(turn_ns),
            None => engine.fair_clock.read_ns(),
        };
        if let Some(thread) = self.thread_or_none()
            && turn_ns != 0
        {
            thread.charge(now_ns, fair_ns, turn_ns, PROCESS.quantum_ns());
            if thread.lender.load(Ordering::Relaxed) != 0 {
                charge_lender(thread, fair_ns, turn_ns);
            }
        }
        let ahead_waits = !engine.ahead.is_empty();
        if timing.chooser.turn_ended(now_ns, turn_ns, ahead_waits) {
            self.end_timing();
        }
        fair_ns
    }
}

/// How many threads run on the engine's carriers or want to, once `carrier` runs what it has
/// picked.
fn load_after(carrier: &Carrier, picked: bool) -> Load {
    let engine = carrier.engine();
    let queued = engine.queue.len() + engine.ahead.len() + usize::from(picked);
    let mut load = Load {
        carriers: 1,
        runnable: queued as u32,
    };
    for other in engine.carriers() {
        load.runnable += other.queue.len() as u32;
        let runs = other.state() == CarrierState::Running
            && other.thread_or_none().is_some()
            && other.handed_off.load(Ordering::Relaxed) == 0;
        if runs && !core::ptr::eq(other, carrier) {
            load.carriers += 1;
            load.runnable += 1;
        }
    }
    load
}

/// How long the thread on `carrier`, which has held it for `held_ns`, may run while others wait,
/// `quantum_ns` at most. For sysmon.
pub(crate) fn slice_ns(carrier: &Carrier, held_ns: u64, quantum_ns: u64) -> u64 {
    let engine = carrier.engine();
    let due_waits = !carrier.queue.is_empty() || !engine.queue.is_empty();
    let Some(thread) = carrier.thread_or_none() else {
        return quantum_ns;
    };
    if !due_waits || quantum_ns == u64::MAX || !carrier.has_queue() {
        return quantum_ns;
    }
    if let Some(task) = carrier.queue.peek_lifo() {
        let now_ns = clock::now_ns();
        let recent_ns = |thread: &Thread| thread.account.recent_ns(now_ns);
        if gives_way(recent_ns(thread) + held_ns, recent_ns(Thread::of(task))) {
            return GRANULARITY_NS.min(quantum_ns);
        }
    }
    let fair_ns = engine.fair_clock.read_ns();
    if thread.is_ahead_after(held_ns, fair_ns) {
        share::slice_ns(engine.fair_clock.load(), quantum_ns)
    } else {
        quantum_ns
    }
}

/// The next thread that a timed carrier runs; `None` for none.
#[cold]
pub(crate) fn pick<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    let now_ns = clock::now_ns();
    carrier.now_ns.set(now_ns);
    let (timing, engine) = (&carrier.timing, carrier.engine());
    timing.picks.set(true);
    let fair_ns = carrier.settle(now_ns);
    let mut queues = Queues { carrier, now_ns };
    let task = timing
        .chooser
        .choose(now_ns, fair_ns, &engine.ahead, &mut queues);
    timing.picks.set(false);
    if now_ns.saturating_sub(timing.noted_ns.get()) >= COUNT_NS * u64::from(engine.up()) {
        timing.noted_ns.set(now_ns);
        engine.fair_clock.note(load_after(carrier, task.is_some()));
    }
    let thread = Thread::of(task?);
    thread.begin_turn(fair_ns);
    Some(thread)
}

/// Where a carrier finds threads.
struct Queues<'a> {
    carrier: &'a Carrier,
    now_ns: u64,
}

impl Sources for Queues<'_> {
    fn look_around(&mut self) {
        if has_looked_for_work(self.carrier) {
            return;
        }
        look_around_at(self.carrier, self.now_ns);
        block_events::arm(self.carrier);
    }

    fn take_slot(&mut self) -> Option<TaskRef> {
        self.carrier.queue.take_lifo()
    }

    fn take_ring(&mut self) -> Option<TaskRef> {
        self.carrier.queue.pop_ring()
    }

    fn take_injected(&mut self) -> Option<TaskRef> {
        take_injected(self.carrier)
    }

    fn queued(&self) -> usize {
        self.carrier.queue.len()
    }

    fn steal(&mut self) -> Option<TaskRef> {
        idle::steal_backlog(self.carrier)
    }
}

/// As [`Process::unpark_on`](crate::state::process::Process::unpark_on), on a timed carrier.
#[cold]
pub(crate) fn unpark(carrier: &Carrier, task: TaskRef) {
    let now_ns = clock::now_ns();
    delays::ready_by_wake_up(carrier, task, now_ns);
    place(carrier, task, |task| {
        if let Some(displaced) = carrier.queue.push_lifo(task) {
            carrier.engine().push_ring(carrier, displaced);
        }
    });
    woke(carrier, task, now_ns);
}

/// Queues a woken task: by `queue` if it is due.
pub(crate) fn place(carrier: &Carrier, task: TaskRef, queue: impl FnOnce(TaskRef)) {
    let engine = carrier.engine();
    let fair_ns = engine.fair_clock.read_ns();
    let thread = Thread::of(task);
    if thread.is_ahead(fair_ns) {
        engine.ahead.push(task, thread.due_ns(fair_ns));
        engine.backlog(carrier);
    } else {
        queue(task)
    }
}

/// The running thread has woken `task`, among others perhaps, and gives way to it at the end of its
/// call if it has used more CPU time of late.
pub(crate) fn woke(carrier: &Carrier, task: TaskRef, now_ns: u64) {
    let Some(thread) = carrier
        .thread_or_none()
        .filter(|_| !carrier.timing.picks.get())
    else {
        return;
    };
    let turn_ns = carrier.timing.slices.running_ns(now_ns);
    let own_ns = thread.account.recent_ns(now_ns) + turn_ns;
    if gives_way(own_ns, Thread::of(task).account.recent_ns(now_ns)) {
        carrier.preempt_here();
    }
}

/// The running thread of `carrier` waits for a lock that the thread with this id holds. If the
/// holder waits because it has used more than its share, it runs next instead. The waiter pays for
/// that turn too, and lends no other one while it has used more than its own share: so waiters that
/// give up soon, and try again, lend their shares and no more.
#[cold]
pub fn lend(carrier: &Carrier, holder_tid: u32) {
    let Some(holder) = PROCESS.find(holder_tid) else {
        return;
    };
    let (task, engine) = (holder.task_ref(), holder.engine());
    let lender = carrier.thread();
    if lender.is_ahead(engine.fair_clock.read_ns()) || !engine.ahead.take(task) {
        return;
    }
    holder.lender.store(lender.tid(), Ordering::Relaxed);
    if !(carrier.has_queue() && core::ptr::eq(engine, carrier.engine())) {
        PROCESS.post(task)
    } else {
        if let Some(displaced) = carrier.queue.push_lifo(task) {
            carrier.engine().push_ring(carrier, displaced);
        }
    }
}

/// `thread` has had a turn of `turn_ns` that another one has lent.
#[cold]
fn charge_lender(thread: &Thread, fair_ns: u64, turn_ns: u64) {
    let lender = PROCESS.find(thread.lender.swap(0, Ordering::Relaxed));
    if let Some(lender) = lender {
        lender.begin_turn(fair_ns);
        lender.pay(fair_ns, turn_ns, PROCESS.quantum_ns());
    }
}

/// `maker` has made `thread`, which hasn't run yet.
pub fn made(thread: &Thread, maker: &Thread) {
    thread.maker.store(maker.tid(), Ordering::Relaxed);
    thread.account.inherit(&maker.account);
}

/// The running thread leaves without a successor. Its turn counts, and so does the last one of a
/// thread that ends.
#[cold]
pub(crate) fn leaves(carrier: &Carrier) {
    carrier.settle(clock::now_ns());
}

/// The running thread ends.
#[cold]
pub(crate) fn ends(carrier: &Carrier, thread: &Thread) {
    let now_ns = clock::now_ns();
    carrier.settle(now_ns);
    if let Some(maker) = PROCESS.find(thread.maker.load(Ordering::Relaxed)) {
        maker.account.inherit_back(&thread.account, now_ns);
    }
}

/// Queues the running thread, which has been preempted, by its account: behind others in a ring a
/// thread with long turns would get less than its share.
pub(crate) fn preempted(carrier: &Carrier, thread: &Thread, now_ns: u64) {
    carrier.begin_timing(now_ns.saturating_sub(LONG_TURN_NS));
    let fair_ns = carrier.settle(now_ns);
    // Without this the next pick could take the thread itself: it is due if its lead is small.
    carrier.timing.chooser.made_room();
    delays::ready(thread.task_ref(), now_ns);
    let due_ns = thread.due_ns(fair_ns) + jitter_ns(carrier);
    let engine = carrier.engine();
    engine.ahead.push(thread.task_ref(), due_ns);
    engine.backlog(carrier);
}

/// By how much later a thread that was preempted is queued, by lot, than its account says: up to
/// three eighths of a quantum, of the default one if it is longer. Threads that all compute would
/// else run in one order for ever, so that the same one always finds what another one has left. The
/// account has no part of it.
///
/// One thread follows another one for ever if three distances in a rotation are longer than this:
/// before the two, between them and behind them. A rotation is a quantum of the fair clock, so more
/// than a third of it leaves no room for that.
fn jitter_ns(carrier: &Carrier) -> u64 {
    let most_ns = PROCESS.quantum_ns().min(QUANTUM_NS) * 3 / 8;
    (most_ns * u64::from(carrier.draw())) >> 16
}

/// The running thread is about to be queued. If it is ahead, or has woken the thread in the slot,
/// the next pick prefers threads that are not ahead. Otherwise that pick could take the running
/// thread itself again, from the ring, however long threads wait that are ahead. A thread of
/// negative niceness is hardly ever ahead.
fn make_room(carrier: &Carrier, thread: &Thread, fair_ns: u64) {
    if thread.is_ahead(fair_ns) || carrier.queue.peek_lifo().is_some() {
        carrier.timing.chooser.made_room();
    }
}

/// Queues the running thread, which yields.
#[cold]
pub(crate) fn yielded(carrier: &Carrier, thread: &Thread) {
    let now_ns = clock::now_ns();
    let engine = carrier.engine();
    let turn_ns = carrier.timing.slices.running_ns(now_ns);
    let fair_ns = carrier.settle(now_ns);
    let task = thread.task_ref();
    carrier.timing.chooser.yielded(turn_ns);
    make_room(carrier, thread, fair_ns);
    delays::ready(task, now_ns);
    if thread.is_ahead(fair_ns) {
        let due_ns = thread.due_ns(fair_ns);
        engine.ahead.push_yielded(task, due_ns);
    } else {
        engine.push_ring(carrier, task)
    }
}

/// Since when `thread`, which runs, has its turn; 0 if its carrier isn't timed.
pub(crate) fn turn_since_ns(thread: &Thread) -> u64 {
    // SAFETY: null or a carrier, which lives for ever.
    let carrier = unsafe { thread.carrier.load(Ordering::Relaxed).as_ref() };
    let is_on_it = |on: &Thread| core::ptr::eq(on, thread);
    match carrier.filter(|on| on.is_timed() && on.thread_or_none().is_some_and(is_on_it)) {
        Some(carrier) => carrier.timing.slices.started_ns(),
        None => 0,
    }
}

/// Returns true if the carrier has looked at timers and descriptors a moment ago.
pub(crate) fn has_looked(carrier: &Carrier, now_ns: u64) -> bool {
    carrier.is_timed() && carrier.timing.chooser.has_looked(now_ns)
}
