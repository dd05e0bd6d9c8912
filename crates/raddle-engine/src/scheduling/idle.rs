//! What a carrier does without work: search, then poll or sleep.
//!
//! One idle carrier is the *poller*: it waits in the pump's epoll with the earliest deadline as its
//! timeout. The others sleep on their wake words, listed in their engine's idle set.
//!
//! Both sleep by the protocol of [`raddle_sched::wake`]; what they look at again is the injector,
//! the poller's place, and signals, or for the poller the deadlines. Work that a running carrier
//! keeps in its own queue is that carrier's, and sysmon's, concern.
//!
//! Searching is bounded: a few microseconds while another carrier runs and may post work, none on a
//! machine with one CPU.

use crate::kernel_events::block_events;
use crate::kernel_threads::kthread;
use crate::os::kernel_calls;
use crate::scheduling::chaos::Point;
use crate::scheduling::page_rings;
use crate::scheduling::switch::{has_looked_for_work, look_around, pick};
use crate::scheduling::{bound, chaos};
use crate::state::carrier::{Carrier, CarrierState, Source};
use crate::state::clock;
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::wakers::Cause;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use raddle_arch::{pause, timestamp};
use raddle_sched::policy::SOON_NS;
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, TaskRef, wake};
use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

/// Time stamp ticks that a search lasts (some 8 us).
const SEARCH_TICKS: u64 = 20_000;
/// A yield that lasts longer met a thread that computes.
const LONG_YIELD_NS: u64 = 1_000_000;

/// Returns a thread to run; sleeps until there is one.
pub(crate) fn find_work<'a>(carrier: &Carrier) -> &'a Thread {
    if carrier.is_bound() {
        return bound::wait_for_mail(carrier);
    }
    let engine = carrier.engine();
    loop {
        if carrier.handed_off.load(Ordering::Relaxed) != 0 {
            came_back(carrier);
        }
        carrier.follow_policy();
        if engine.has_surplus() {
            rest(carrier);
        }
        if carrier.attention.load(Ordering::Relaxed) != 0 {
            carrier.attention.store(0, Ordering::Relaxed);
            (PROCESS.hooks().route_signals)();
        }
        see_to_files(carrier);
        let found = pick(carrier)
            .or_else(|| pick_ready(carrier))
            .or_else(|| search(carrier));
        if let Some(thread) = found {
            return thread;
        }
        if !PROCESS.is_started() {
            wait_alone(carrier);
            continue;
        }
        carrier.run_length.end(carrier);
        if page_rings::adopt(carrier)
            && let Some(thread) = pick(carrier)
        {
            return thread;
        }
        Carrier::count(&carrier.park);
        block_events::silence(carrier);
        if engine.lacks_poller() && become_poller(carrier) {
            poll(carrier);
        } else {
            sleep(carrier);
        }
        carrier.run_length.begin(carrier);
        block_events::arm(carrier);
        carrier.set_state(CarrierState::Running);
        PROCESS.sysmon.carrier_awoke(carrier);
    }
}

/// Sleeps until a signal or a deadline, in a process that has one thread, as the child of a fork
/// has at first, and that leaves its signals to the runtime. No pump, sysmon or other thread could
/// wake it. A signal after the last look finds signals blocked, and ends the sleep as it begins.
fn wait_alone(carrier: &Carrier) {
    let (all, mut open) = (u64::MAX, 0u64);
    let change = |to: *const u64, old: *mut u64| {
        const SETMASK: usize = nr::SIG_SETMASK as usize;
        // SAFETY: the kernel reads and fills live words.
        unsafe { sys!(nr::__NR_rt_sigprocmask, SETMASK, to, old, size_of::<u64>()) };
    };
    change(&raw const all, &raw mut open);
    if carrier.attention.load(Ordering::Relaxed) == 0 {
        let deadline_ns = PROCESS.timers.earliest_ns();
        let left = Timespec::from_ns(deadline_ns.saturating_sub(clock::now_ns()));
        let timeout = match deadline_ns {
            NEVER => 0,
            _ => (&raw const left).expose_provenance(),
        };
        let (open, size) = (&raw const open, size_of::<u64>());
        // SAFETY: no descriptors; the kernel reads a live mask and a live timespec, if any.
        unsafe { sys!(nr::__NR_ppoll, 0usize, 0usize, timeout, open, size) };
    }
    change(&raw const open, null_mut());
    look_around(carrier);
}

/// Takes finished reads of files, and announces transfers to the ring.
fn see_to_files(carrier: &Carrier) {
    if PROCESS.direct.has_events() {
        let woken = TaskList::new();
        PROCESS.direct.reap(&woken);
        PROCESS.unpark_due(woken, Cause::Kernel);
    }
    page_rings::look(carrier);
    PROCESS.ring.announce();
}

/// The carrier runs again: it no longer counts as blocked.
pub(crate) fn came_back(carrier: &Carrier) {
    carrier.engine().count.unblock(&carrier.handed_off);
}

/// Becomes spare: sleeps until another carrier blocks. Posts its threads before.
fn rest(carrier: &Carrier) {
    give_queue_away(carrier);
    let engine = carrier.engine();
    let id = carrier.id.get() as usize;
    carrier.set_state(CarrierState::Idle);
    carrier.wake_word.clear();
    engine.spares.insert(id);
    chaos::stop(Point::Sleep);
    // This may have been the poller, or the one that was woken for posted threads: another one sees
    // to them.
    if engine.lacks_poller() || engine.has_work() {
        engine.wake_one();
    }
    // A rise of the limit before the insertion didn't wake this carrier.
    if engine.may_grow() || carrier.attention.load(Ordering::Relaxed) != 0 {
        carrier.wake_word.prevent_wait();
    }
    came_back(carrier); // sysmon may have marked it before it saw the new state
    sleep_as_spare(carrier);
}

/// Posts the threads that wait on `carrier`, and those that wait for pages by its ring.
pub(crate) fn give_queue_away(carrier: &Carrier) {
    let queued = TaskList::new();
    while let Some(task) = carrier
        .queue
        .take_lifo()
        .or_else(|| carrier.queue.pop_ring())
    {
        queued.push(task);
    }
    page_rings::relieve(carrier, &queued);
    PROCESS.post_all(queued);
}

/// Sleeps in the set of spare carriers until taken out of it, and then has another spare made; or
/// ends the carrier, if it isn't taken for long. A signal that comes here is routed, and the
/// carrier stays spare: if several left the set at once, each would see a surplus and rest, an
/// active one among them.
pub(crate) fn sleep_as_spare(carrier: &Carrier) {
    let engine = carrier.engine();
    let id = carrier.id.get() as usize;
    block_events::silence(carrier);
    loop {
        let word = carrier.wake_word.futex().as_ptr();
        match engine.spare_ns(carrier) {
            _ if page_rings::sleep(carrier) => {} // files stay open for what its ring still does
            Some(ns) if kthread::futex_wait_for(word, 0, ns) => {
                if page_rings::retire(carrier) {
                    engine.end_spare(carrier);
                }
            }
            Some(_) => {}
            None => kthread::futex_wait(word, 0),
        }
        // In this order: a thread that takes the carrier out of the set after the look sets the
        // word.
        carrier.wake_word.clear();
        chaos::stop(Point::Sleep);
        if !engine.spares.contains(id) || engine.may_grow() {
            engine.spares.take(id);
            break;
        }
        if carrier.attention.swap(0, Ordering::Relaxed) != 0 {
            (PROCESS.hooks().route_signals)();
            give_queue_away(carrier); // threads that a signal woke
            if engine.has_work() {
                engine.wake_one();
            }
        }
    }
    block_events::arm(carrier);
    carrier.set_state(CarrierState::Running);
    PROCESS.sysmon.carrier_awoke(carrier);
    engine.make_spare();
}

/// Looks at timers and descriptors before the search for threads elsewhere, which takes longer.
fn pick_ready<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    if !PROCESS.is_started() || !PROCESS.pump.has_waiters() || has_looked_for_work(carrier) {
        return None;
    }
    let vain = carrier.vain_looks.get().wrapping_add(1);
    carrier.vain_looks.set(vain);
    if vain > VAIN_LOOKS && !vain.is_multiple_of(VAIN_LOOKS_TRIED) && sleeps_next(carrier) {
        return None;
    }
    look_around(carrier);
    let found = pick(carrier);
    if found.is_some() {
        carrier.vain_looks.set(0);
    }
    found
}

/// After so many looks in a row that found nothing, an idle carrier goes to sleep in the pump
/// without a look before. The sleep itself finds what is there.
const VAIN_LOOKS: u32 = 4;
/// Every so many times it looks all the same.
const VAIN_LOOKS_TRIED: u32 = 32;

/// Returns true if an idle carrier becomes the poller at once: the engine's others are idle, and
/// have nothing that it could search for.
fn sleeps_next(carrier: &Carrier) -> bool {
    let engine = carrier.engine();
    engine.lacks_poller() && others_sleep(engine)
}

/// Returns true if all active carriers of the engine but one, the asker or the poller, sleep.
fn others_sleep(engine: &Engine) -> bool {
    engine.idle.len() as u32 + 1 >= engine.active()
}

/// Looks into other carriers' queues for a bounded time.
fn search<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    let engine = carrier.engine();
    if engine.active() == 1 {
        return None;
    }
    if let Some(thread) = steal_rings(carrier) {
        return Some(thread);
    }
    let mut seen = [u64::MAX; WATCHED];
    if !watch_busy(carrier, &mut seen) {
        return None;
    }
    let start = timestamp();
    while timestamp() - start < SEARCH_TICKS {
        if engine.has_work()
            && let Some(thread) = pick(carrier)
        {
            return Some(thread);
        }
        if let Some(thread) = steal_rings(carrier) {
            return Some(thread);
        }
        for _ in 0..16 {
            pause();
        }
    }
    let found = steal_slots(carrier, &seen);
    if found.is_none() {
        Carrier::count(&carrier.steal_fail);
    }
    found
}

/// The most carriers that a search watches for switches.
const WATCHED: usize = 64;

/// Notes how many switches each busy carrier has made; false if none may need help.
fn watch_busy(carrier: &Carrier, seen: &mut [u64; WATCHED]) -> bool {
    let mut any = false;
    for (other, seen) in carrier.engine().carriers().zip(seen) {
        if other.id.get() != carrier.id.get() && other.state() == CarrierState::Running {
            *seen = other.switches.load(Ordering::Relaxed);
            any |= !page_rings::is_exempt_from_stealing(other);
        }
    }
    any
}

/// Takes from the slot of a carrier that made no switch all this time: its next thread waits in
/// vain.
fn steal_slots<'a>(carrier: &Carrier, seen: &[u64; WATCHED]) -> Option<&'a Thread> {
    let mut others = carrier.engine().carriers().zip(seen);
    others.find_map(|(other, &seen)| {
        if other.switches.load(Ordering::Relaxed) != seen {
            return None;
        }
        let task = other.queue.take_lifo()?;
        note_theft(carrier, other);
        Some(Thread::of(task))
    })
}

/// Steals half of another carrier's ring: one thread to run, the rest into the own ring.
fn steal_rings<'a>(carrier: &Carrier) -> Option<&'a Thread> {
    carrier.engine().carriers().find_map(|other| {
        let is_other = other.id.get() != carrier.id.get();
        if !is_other || other.queue.ring_len() == 0 || page_rings::is_exempt_from_stealing(other) {
            return None;
        }
        let task = carrier.queue.steal(&other.queue)?;
        note_theft(carrier, other);
        Some(Thread::of(task))
    })
}

/// Steals from the first ring in which several wait, since the threads of `carrier` are ahead.
pub(crate) fn steal_backlog(carrier: &Carrier) -> Option<TaskRef> {
    let engine = carrier.engine();
    if engine.active() == 1 {
        return None;
    }
    engine.carriers().find_map(|other| {
        let is_other = other.id.get() != carrier.id.get();
        if !is_other || other.queue.ring_len() < 2 || page_rings::is_exempt_from_stealing(other) {
            return None;
        }
        let task = other.queue.pop_ring()?;
        note_theft(carrier, other);
        Some(task)
    })
}

/// Counts a theft. To the victim this means that its wake-ups are useful.
pub(crate) fn note_theft(carrier: &Carrier, victim: &Carrier) {
    Carrier::count(&carrier.steal);
    victim.robbed.fetch_add(1, Ordering::Relaxed);
}

fn become_poller(carrier: &Carrier) -> bool {
    let id = carrier.id.get() + 1;
    PROCESS
        .poller
        .compare_exchange(0, id, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

/// Waits in the pump until a descriptor, a deadline or a kick.
fn poll(carrier: &Carrier) {
    carrier.set_state(CarrierState::Polling);
    give_way(carrier);
    let mut deadline_ns = earliest_ns();
    PROCESS
        .poller_deadline_ns
        .store(deadline_ns, Ordering::SeqCst);
    PROCESS.pump.announce_sleep();
    chaos::stop(Point::Sleep);
    if carrier.engine().has_work()
        || earliest_ns() < deadline_ns
        || carrier.attention.load(Ordering::Relaxed) != 0
    {
        deadline_ns = 0;
    }
    let woken = match page_rings::sleep_with_pump(carrier, deadline_ns) {
        Some(false) => PROCESS.pump.awake(),
        Some(true) => PROCESS.pump.wait_until(carrier, 0),
        None => PROCESS.pump.wait_until(carrier, deadline_ns),
    };
    chaos::stop(Point::Sleep);
    PROCESS.poller.store(0, Ordering::SeqCst);
    chaos::stop(Point::Sleep);
    let now_ns = clock::now_ns();
    carrier.now_ns.set(now_ns);
    PROCESS.unpark_due(woken, Cause::Kernel);
    PROCESS.unpark_due(PROCESS.timers.expire(now_ns), Cause::Timer);
    PROCESS.unpark_due(PROCESS.pump.sweep_at(now_ns), Cause::Kernel);
}

/// When the poller has something to do by itself.
fn earliest_ns() -> u64 {
    let sweep_ns = PROCESS.pump.sweep_deadline_ns();
    PROCESS.timers.earliest_ns().min(sweep_ns)
}

/// When a poller may have something to do: at once if threads wait for descriptors.
pub(crate) fn polling_matters_ns() -> u64 {
    if PROCESS.pump.has_waiters() || PROCESS.direct.is_used() {
        0
    } else {
        earliest_ns()
    }
}

/// Returns true if the poller may as well run what was posted: no other carrier of the engine is
/// awake, and the poller isn't needed for an event soon. So threads that are posted now and then,
/// or woken by timers, stay on one carrier. A poller that was kicked already has something to run.
pub(crate) fn suffices_poller(engine: &Engine) -> bool {
    engine.has_poller() && others_sleep(engine) && polling_matters_ns() > clock::now_ns() + SOON_NS
}

/// Lets other kernel threads on this CPU run before the pump is asked: peers of this process may
/// make more events, and many events for one look are cheaper, for both sides, than many looks.
/// With several carriers the others are asleep meanwhile, and nothing is gained. Where a kernel
/// thread computes instead, a yield costs a time slice; the next one then waits for 64 times as
/// long.
fn give_way(carrier: &Carrier) {
    if carrier.engine().active() > 1 || !PROCESS.pump.has_waiters() {
        return;
    }
    let before_ns = clock::now_ns();
    if before_ns < carrier.yields_from_ns.get() {
        return;
    }
    // SAFETY: no memory is involved.
    unsafe { sys!(nr::__NR_sched_yield) };
    let took_ns = clock::now_ns() - before_ns;
    if took_ns > LONG_YIELD_NS {
        carrier.yields_from_ns.set(before_ns + 64 * took_ns);
    }
}

fn sleep(carrier: &Carrier) {
    let engine = carrier.engine();
    let id = carrier.id.get() as usize;
    carrier.set_state(CarrierState::Idle);
    let finds_work = || {
        chaos::stop(Point::Sleep);
        let finds = engine.has_work()
            || engine.lacks_poller()
            || carrier.attention.load(Ordering::Relaxed) != 0;
        chaos::stop(Point::Sleep);
        finds
    };
    let wait = |ticket| {
        if !page_rings::sleep(carrier) {
            kthread::futex_wait(carrier.wake_word.futex().as_ptr(), ticket);
        }
        chaos::stop(Point::Sleep);
    };
    let mut entry = engine.idle.entry(id);
    wake::sleep(&carrier.wake_word, &mut entry, finds_work, wait);
    look_around(carrier);
}

/// A deadline became the earliest: a poller that sleeps past it must learn of it.
pub(crate) fn deadline_moved(deadline_ns: u64) {
    if PROCESS.poller.load(Ordering::SeqCst) != 0
        && deadline_ns < PROCESS.poller_deadline_ns.load(Ordering::SeqCst)
    {
        PROCESS.pump.kick();
    }
}

impl Carrier {
    /// Follows a change of the policy: uses its own queue, or not any more. On this carrier.
    #[inline(always)]
    pub(crate) fn follow_policy(&self) {
        if self.has_queue() == self.engine().has_one_queue() {
            self.change_queues();
        }
    }

    #[cold]
    fn change_queues(&self) {
        if self.is_bound() {
            return;
        }
        let source = self.engine().source();
        self.set_source(source);
        if source == Source::Engine {
            give_queue_away(self);
        }
    }

    /// Ends or prevents the carrier's sleep on its wake word: from its own signal handler.
    pub fn wake_up_from_handler(&self) {
        let _ = self.wake_word.set();
        if !self.pages.load(Ordering::Relaxed).is_null() {
            // A request of its ring's waits, too.
            kernel_calls::futex_wake(self.wake_word.futex().as_ptr(), u32::MAX >> 1);
        }
    }
}
