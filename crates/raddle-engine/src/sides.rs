//! Side engines: carriers, a queue in the order of a policy, and perhaps a quota, beside the first
//! engine's, in the same process.
//!
//! What belongs to all threads there is once: the table of threads, futexes, timers, the event pump
//! and sysmon. So a thread of one engine waits for one of another as for any. What an engine has to
//! itself is the choice of what runs next and where: a thread goes to its engine's queue whenever
//! it becomes runnable, and that engine's carriers alone take it from there.
//!
//! A side engine's carriers have no queues of their own (`Carrier::is_queueless`), so the first
//! engine's paths know nothing of all this. They sleep and wake by [`raddle_sched::places`]. They
//! look at timers and descriptors while they run, but none of them waits in the pump: that is the
//! first engine's poller's, or sysmon's.
//!
//! Carriers are made when the engine gets its first thread, by the carrier that makes that thread,
//! and are never ended: the next engine in the same slot takes them over.

use crate::carrier::{Carrier, CarrierState};
use crate::chaos::Point;
use crate::engine::{ENGINE, Engine};
use crate::switch::{look_around, pick};
use crate::thread::Thread;
use crate::{accounting, chaos, clock, cpus, idle, kthread, policies};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use raddle_sched::policies::{Kind, Reason};
use raddle_sched::{IdleSet, Injector, Places, SpinLock, TaskRef};

/// Engines, the first one (0) included.
pub const ENGINES: usize = 64;
/// Engines 1 up to this one belong to the rules of `--share`.
pub const RULED: usize = 15;
/// The most carriers of one side engine.
pub const MAX_CARRIERS: u32 = raddle_inspect::settings::SIDE_CARRIERS_MAX;
/// The most carriers of all side engines together.
pub(crate) const MAX_ALL: usize = 256;

/// See the module.
pub struct Side {
    queue: Injector,
    /// A [`Kind`]. Written when the engine is made or its policy is changed.
    kind: AtomicU32,
    places: Places,
    /// 1 while a program has it. Under the lock of [`Sides`].
    is_open: AtomicU32,
    /// The engine's carriers that sleep.
    idle: IdleSet,
    /// Carriers that were made for it, or are being made.
    made: AtomicU32,
    /// Carriers that run or sleep. Its threads run in the first engine while there are none.
    up: AtomicU32,
    /// Percent of one CPU that it may use; 0 for all. Read by sysmon.
    quota: AtomicU32,
    /// 1 while it has used its quota up. Written by sysmon; SeqCst, a part of what there is to do.
    held: AtomicU32,
}

impl Side {
    const fn new() -> Self {
        Self {
            queue: Injector::new(),
            kind: AtomicU32::new(0),
            places: Places::new(),
            is_open: AtomicU32::new(0),
            idle: IdleSet::new(),
            made: AtomicU32::new(0),
            up: AtomicU32::new(0),
            quota: AtomicU32::new(0),
            held: AtomicU32::new(0),
        }
    }

    pub(crate) fn queue(&self) -> &Injector {
        &self.queue
    }

    /// How many of its carriers may run at a time; 0 for an engine that isn't in use.
    pub fn carriers(&self) -> u32 {
        self.places.wanted()
    }

    /// Percent of one CPU that its threads may use together; 0 for as much as there is.
    pub fn quota(&self) -> u32 {
        self.quota.load(Ordering::Relaxed)
    }

    /// Changes the quota. Sysmon goes by it from its next look on.
    pub fn set_quota(&self, percent: u32) {
        self.quota.store(percent, Ordering::Relaxed);
    }

    /// The policy.
    pub fn kind(&self) -> u32 {
        self.kind.load(Ordering::Relaxed)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst) != 0
    }

    /// Returns true if its carriers have something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty() && !self.is_held()
    }

    /// Wakes a sleeping carrier if one more may run. Returns false otherwise.
    pub(crate) fn wake_one(&self) -> bool {
        if !self.places.has_free() {
            return false;
        }
        let Some(id) = self.idle.take_one() else {
            return false;
        };
        // SAFETY: ids in the idle set are positions of live carriers.
        ENGINE.wake_carrier(unsafe { ENGINE.by_id(id) });
        true
    }

    /// Sysmon's: holds the engine, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) {
        if self.held.swap(u32::from(is_held), Ordering::SeqCst) != 0 && !is_held {
            for _ in 0..self.queue.len() {
                if !self.wake_one() {
                    break;
                }
            }
        }
    }

    /// The thread that runs next.
    pub(crate) fn pick<'a>(&self) -> Option<&'a Thread> {
        if !self.has_work() {
            return None;
        }
        let task = self.queue.pick(self.now_ns());
        policies::report(self.queue.take_fault());
        task.map(Thread::of)
    }

    /// The time, for policies that go by it.
    fn now_ns(&self) -> u64 {
        match self.kind() == Kind::Fifo as u32 {
            true => 0,
            false => clock::now_ns(),
        }
    }

    /// Queues one of its threads, which isn't bound.
    fn submit(&self, number: u32, task: TaskRef, reason: Reason) {
        // SAFETY: non-null carriers live for ever, and this one runs here.
        let carrier = unsafe { Carrier::current_or_null().as_ref() };
        let carrier = carrier.filter(|own| own.bound.load(Ordering::Relaxed).is_null());
        let stops = matches!(reason, Reason::Yielded | Reason::Preempted);
        let reason = policies::prepare(carrier, task, reason);
        let here = carrier.filter(|own| own.side() == number);
        let running = here.and_then(|own| own.thread_or_none().filter(|_| !stops));
        let running = running.map(Thread::task_ref);
        if self.queue.enqueue(task, reason, self.now_ns(), running)
            && let Some(here) = here
        {
            here.preempt_here();
        }
        policies::report(self.queue.take_fault());
        match here {
            None if self.is_held() => ENGINE.sysmon.wake_up(), // it says when to go on
            None if self.wake_one() => {}
            None => ENGINE.sysmon.urge(),
            // The carrier that runs reaches one thread by itself, or sysmon sees to it.
            Some(here) if self.queue.len() > 1 && !self.idle.is_empty() => self.backlog(here),
            Some(_) => {}
        }
    }

    /// As [`Engine::backlog`].
    #[cold]
    fn backlog(&self, carrier: &Carrier) {
        if !self.places.has_free() {
            return;
        }
        let mut backlog = carrier.backlog.get();
        if backlog.spend(clock::now_ns()) {
            carrier.backlog.set(backlog);
            self.wake_one();
        }
    }
}

/// All side engines.
pub struct Sides {
    all: [Side; ENGINES],
    /// The carriers of all side engines, the first `up`.
    list: [AtomicPtr<Carrier>; MAX_ALL],
    up: AtomicU32,
    /// Carriers that were made or are being made.
    made: AtomicU32,
    /// The engines in use have numbers below this one.
    below: AtomicU32,
    /// Guards the list's growth.
    growth: SpinLock<()>,
    /// Guards which are in use ([`Side::carriers`]).
    choice: SpinLock<()>,
}

/// What a new side engine is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    /// 0 for as many as its quota is worth, or as CPUs may be used.
    pub carriers: u32,
    /// Percent of one CPU; 0 for all.
    pub quota: u32,
}

impl Plan {
    fn carriers(&self) -> u32 {
        let carriers = match (self.carriers, self.quota) {
            (0, 0) => cpus::allowed(),
            (0, percent) => percent.div_ceil(100).min(cpus::allowed()),
            (carriers, _) => carriers,
        };
        carriers.clamp(1, MAX_CARRIERS)
    }
}

impl Sides {
    pub(crate) const fn new() -> Self {
        Self {
            all: [const { Side::new() }; ENGINES],
            list: [const { AtomicPtr::new(null_mut()) }; MAX_ALL],
            up: AtomicU32::new(0),
            made: AtomicU32::new(0),
            below: AtomicU32::new(0),
            growth: SpinLock::new(()),
            choice: SpinLock::new(()),
        }
    }

    /// A side engine that is in use.
    pub fn get(&self, number: u32) -> Option<&Side> {
        let side = self.all.get(number as usize).filter(|_| number != 0)?;
        (side.carriers() != 0).then_some(side)
    }

    /// The side engines in use, with their numbers.
    pub fn each(&self) -> impl Iterator<Item = (u32, &Side)> {
        (0..self.below.load(Ordering::Relaxed))
            .filter_map(|number| Some((number, self.get(number)?)))
    }

    /// The engine that queues a thread of this one; `None` for the first.
    #[inline(always)]
    pub(crate) fn home(&self, number: u32) -> Option<&Side> {
        if number == 0 {
            return None;
        }
        let side = &self.all[number as usize];
        (side.up.load(Ordering::Relaxed) != 0).then_some(side)
    }

    /// The engine that a carrier belongs to; `None` for the first.
    pub(crate) fn of(&self, carrier: &Carrier) -> Option<&Side> {
        let number = carrier.side() as usize;
        (number != 0).then(|| &self.all[number])
    }

    /// The carriers of all side engines.
    pub fn carriers(&self) -> impl Iterator<Item = &Carrier> {
        (0..self.up.load(Ordering::Acquire) as usize)
            // SAFETY: the first `up` entries are carriers, which are never freed.
            .map(|i| unsafe { &*self.list[i].load(Ordering::Acquire) })
    }

    /// CPU time that the carriers of engine `number` have used so far.
    pub fn cpu_ns(&self, number: u32) -> u64 {
        let own = self.carriers().filter(|carrier| carrier.side() == number);
        own.map(|carrier| kthread::cpu_ns(carrier.kernel_tid.load(Ordering::Relaxed)))
            .sum()
    }

    /// Makes engine `number` what `plan` says; at start-up.
    pub fn set(&self, number: u32, plan: Plan) {
        let side = &self.all[number as usize];
        let now_ns = if ENGINE.is_started() {
            clock::now_ns()
        } else {
            0
        };
        while !side.queue.choose(plan.kind, now_ns) {
            raddle_arch::pause();
        }
        side.kind.store(plan.kind as u32, Ordering::Relaxed);
        side.set_quota(plan.quota);
        side.places.set_wanted(plan.carriers());
        self.below.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// A new side engine; `None` if there are too many.
    pub fn open(&self, plan: Plan) -> Option<u32> {
        let _choice = self.choice.lock();
        let is_free = |number: &usize| self.all[*number].is_open.load(Ordering::Relaxed) == 0;
        let number = (RULED + 1..ENGINES).find(is_free)?;
        self.set(number as u32, plan);
        self.all[number].is_open.store(1, Ordering::Relaxed);
        Some(number as u32)
    }

    /// The engine that was opened gets no more threads. Those that are about to end do so on its
    /// carriers, even if another engine has them by then.
    pub fn close(&self, number: u32) {
        let _choice = self.choice.lock();
        if let Some(side) = self.get(number).filter(|_| number as usize > RULED) {
            side.set_quota(0);
            side.is_open.store(0, Ordering::Relaxed);
        }
    }

    /// Gives `thread` to engine `number`, if that has carriers or gets some, or to the first (0).
    /// In a call, on a carrier.
    pub fn assign(&self, thread: &Thread, number: u32) {
        if thread.side() == number {
            return;
        }
        if number != 0 && !self.get(number).is_some_and(|side| side.is_ready(number)) {
            return;
        }
        if number != 0 && ENGINE.sides.all[number as usize].kind() == Kind::Fair as u32 {
            accounting::switch_on();
        }
        thread.set_side(number);
        let carrier = Carrier::current();
        if core::ptr::eq(carrier.thread(), thread) {
            carrier.preempt_here();
        }
    }

    /// In the child of a fork: no carrier exists.
    ///
    /// # Safety
    /// Before a second thread exists.
    pub(crate) unsafe fn reset(&self) {
        let Self {
            up,
            made,
            growth,
            choice,
            all: _,  // `each`
            list: _, // the first `up`
            below: _,
        } = self;
        for (_, side) in self.each() {
            let Side {
                queue,
                places,
                idle,
                made,
                up,
                held,
                kind: _,
                is_open: _,
                quota: _,
            } = side;
            // SAFETY: the caller's promise.
            unsafe { queue.reset() };
            places.reset();
            idle.reset();
            for count in [made, up, held] {
                count.store(0, Ordering::Relaxed);
            }
        }
        up.store(0, Ordering::Relaxed);
        made.store(0, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe {
            growth.break_lock();
            choice.break_lock();
        }
    }

    /// A new carrier's first act.
    pub(crate) fn enlist(&self, carrier: &Carrier) {
        let _growth = self.growth.lock();
        let up = self.up.load(Ordering::Relaxed);
        self.list[up as usize].store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Release);
        self.up.store(up + 1, Ordering::Release);
        ENGINE.sysmon.wake_up(); // from its first moment on it counts as running
    }

    /// Returns true if `carrier` should let go of `thread`, which it runs.
    pub(crate) fn wants_carrier(&self, carrier: &Carrier, thread: &Thread) -> bool {
        let own = self.of(carrier);
        if self.is_misplaced(carrier, thread) {
            return true;
        }
        match own {
            Some(side) => side.is_held() || !side.queue.is_empty(),
            None => !carrier.queue.is_empty() || ENGINE.has_posted(),
        }
    }

    /// Returns true if another engine queues the thread that `carrier` runs.
    pub(crate) fn is_misplaced(&self, carrier: &Carrier, thread: &Thread) -> bool {
        let (number, here) = (thread.side(), carrier.side());
        number != here
            && carrier.bound.load(Ordering::Relaxed).is_null()
            && (self.home(number).is_some() || here != 0)
    }
}

impl Side {
    /// Makes the carriers that the engine lacks, and one to take the place of one that blocks.
    /// Returns true if the engine has any.
    fn is_ready(&self, number: u32) -> bool {
        while self.made.load(Ordering::Relaxed) <= self.carriers() && self.breed(number) {}
        self.up.load(Ordering::Relaxed) != 0
    }

    /// Makes a carrier, if the calling one is fit for it ([`Engine::breed`]) and there is room.
    fn breed(&self, number: u32) -> bool {
        // SAFETY: null or a carrier, which lives for ever.
        let maker = unsafe { Carrier::current_or_null().as_ref() };
        if maker.is_none_or(Carrier::is_apart) || !ENGINE.is_started() {
            return false;
        }
        if ENGINE.sides.made.fetch_add(1, Ordering::Relaxed) as usize >= MAX_ALL {
            ENGINE.sides.made.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let made = ENGINE.new_carrier().and_then(|carrier| {
            carrier.set_queueless(true);
            carrier.set_side(number);
            ENGINE.start_carrier(carrier)
        });
        match made {
            Ok(()) => self.up.fetch_add(1, Ordering::Relaxed),
            Err(_) => {
                ENGINE.sides.made.fetch_sub(1, Ordering::Relaxed);
                self.made.fetch_sub(1, Ordering::Relaxed)
            }
        };
        made.is_ok()
    }

    /// On the carrier's own stack: returns a thread to run; sleeps until there is one.
    pub(crate) fn find_work<'a>(&self, carrier: &Carrier) -> &'a Thread {
        loop {
            if carrier.handed_off.load(Ordering::Relaxed) != 0 {
                idle::came_back(carrier);
            }
            if carrier.has_place.get() && self.places.has_surplus() {
                self.leave_place(carrier);
            }
            if carrier.attention.swap(0, Ordering::Relaxed) != 0 {
                (ENGINE.hooks().route_signals)();
            }
            let has_place = carrier.has_place.get() || self.places.take();
            carrier.has_place.set(has_place);
            if has_place {
                if let Some(thread) = pick(carrier) {
                    return thread;
                }
                self.leave_place(carrier);
            }
            Carrier::count(&carrier.park);
            self.sleep(carrier);
            if self.idle.is_empty() && self.has_work() {
                self.breed(carrier.side()); // so that sysmon finds one if this one blocks
            }
        }
    }

    fn leave_place(&self, carrier: &Carrier) {
        carrier.has_place.set(false);
        self.places.leave();
    }

    fn sleep(&self, carrier: &Carrier) {
        let id = carrier.id.get() as usize;
        carrier.set_state(CarrierState::Idle);
        carrier.wake_word.store(0, Ordering::SeqCst);
        self.idle.insert(id);
        chaos::stop(Point::Sleep);
        let stays = self.has_work() && self.places.has_free();
        if !stays && carrier.attention.load(Ordering::Relaxed) == 0 {
            kthread::futex_wait(carrier.wake_word.as_ptr(), 0);
        }
        chaos::stop(Point::Sleep);
        self.idle.take(id);
        carrier.set_state(CarrierState::Running);
        ENGINE.sysmon.wake_up();
        look_around(carrier);
    }

    /// A carrier of this engine sits in the kernel while others want to run.
    pub(crate) fn block(&self) {
        self.places.block();
    }

    /// The blocked carrier runs again.
    pub(crate) fn unblock(&self) {
        self.places.unblock();
    }

    pub(crate) fn has_surplus(&self) -> bool {
        self.places.has_surplus()
    }
}

impl Engine {
    /// Queues a thread that isn't bound and belongs to a side engine. Returns false if that is the
    /// first engine's to do.
    #[inline(always)]
    pub(crate) fn submit_beside(&self, task: TaskRef, reason: Reason) -> bool {
        let number = Thread::of(task).side();
        let Some(side) = self.sides.home(number) else {
            return false;
        };
        side.submit(number, task, reason);
        true
    }
}
