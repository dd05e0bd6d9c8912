//! How many carriers of an engine may be active, and where more of them come from.
//!
//! A carrier is *active* unless it is spare. An engine's *limit* is the sum of three numbers: the
//! carriers that were asked for; the carriers that are blocked in the kernel, since another may run
//! in place of each (`docs/scheduler.md`); and, for the default engine, the *extra* carriers while
//! other processes want the CPUs ([`crate::scheduling::contention`]).
//!
//! Carriers live in *slots* of a table: type-stable memory, like that of threads. A carrier that
//! ends gives its slot back. So a stale reference to a carrier names another carrier or a free
//! slot; waking that one, or sending it a signal, is harmless.
//!
//! A *spare* carrier of the default engine ends if it wasn't needed for [`SPARE_NS`] and
//! [`SPARES_KEPT`] others stay. Its kernel thread, stacks and block event end with it. To end:
//!
//! 1. The carrier's sleep in the set of spare carriers times out. Under the lock of the slots the
//!    carrier sees that there are enough others, and takes itself out of the set. If it isn't in
//!    the set, a waker has taken it out and wants it to run. Only one of the two can take it out:
//!    the carrier either ends or is woken.
//! 2. The carrier leaves the roster, blocks all signals, and routes those that came until then.
//! 3. The carrier stays in the process's list, *ended*, so that a walk through the list without a
//!    lock misses no carrier. It also enters a list of ended carriers, from which the next spare
//!    carrier is made.
//!
//! The order of these steps is that of [`raddle_sched::count::carriers`].
//!
//! No work waits in vain for a carrier that ends, because [`SPARES_KEPT`] carriers stay. A carrier
//! that finds the set empty makes a spare carrier; sysmon leaves that to the next carrier that
//! runs.

use crate::kernel_events::block_events;
use crate::kernel_threads::kthread;
use crate::os::chunks::Zeroed;
use crate::os::cpus;
use crate::scheduling::chaos::{self, Point};
use crate::scheduling::contention;
use crate::scheduling::ums;
use crate::scheduling::{bound, idle, switch};
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::engine::Engine;
use crate::state::events;
use crate::state::process::{MAX_CARRIERS, MAX_WANTED, PROCESS, Process, Slots};
use core::sync::atomic::{Ordering, fence};
use raddle_sys::abi::CloneArgs;
use raddle_sys::{err, errno, mem};

// SAFETY: atomics, cells of integers and pointers, and a run queue that zero bytes begin.
unsafe impl Zeroed for Carrier {}

/// A spare carrier that isn't needed for this long ends.
const SPARE_NS: u64 = 5_000_000_000;
/// The number of spare carriers that don't end.
const SPARES_KEPT: usize = 4;

impl Process {
    /// Returns the carrier with this id.
    ///
    /// # Safety
    /// A carrier with this id must exist, or have existed.
    pub(crate) unsafe fn by_id<'a>(&self, id: usize) -> &'a Carrier {
        // SAFETY: the caller's promise: the slot's chunk is mapped.
        unsafe { self.memory.get(id).unwrap_unchecked() }
    }

    fn slot<'a>(&self, id: usize) -> &'a Carrier {
        // SAFETY: callers name slots that were in use.
        unsafe { self.by_id(id) }
    }

    /// Returns all slots that were ever in use, those of bound threads' carriers and free ones
    /// included.
    pub fn all_carriers(&self) -> impl Iterator<Item = &Carrier> {
        let committed = self.slots.lock().committed;
        (0..committed).map(|id| self.slot(id))
    }

    /// Returns a new carrier of `engine`, without a kernel thread.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM.
    pub(crate) fn new_carrier<'a>(&self, engine: &Engine) -> Result<&'a Carrier, isize> {
        let mut slots = self.slots.lock();
        if slots.free != 0 {
            let id = slots.free - 1;
            let carrier = self.slot(id as usize);
            slots.free = carrier.next_free.get();
            prepare(carrier, id, engine);
            carrier.set_state(CarrierState::Running);
            return Ok(carrier);
        }
        if slots.committed == MAX_CARRIERS {
            return Err(err(errno::EAGAIN));
        }
        let id = slots.committed;
        let carrier = self.memory.make(id)?;
        chaos::stop(Point::Make);
        prepare(carrier, id as u32, engine);
        chaos::stop(Point::Make);
        // Last, because the child of a fork gives all counted slots back. A fork at this moment
        // waits for a thread that touches a page for the first time, as this one has just done.
        slots.committed += 1;
        Ok(carrier)
    }

    /// Gives a carrier's slot back; its kernel thread, if there is one, uses it no more.
    pub(crate) fn give_back(&self, carrier: &Carrier) {
        let mut slots = self.slots.lock();
        let head = if carrier.is_listed.get() {
            &mut slots.ended
        } else {
            &mut slots.free
        };
        carrier.next_free.set(*head);
        *head = carrier.id.get() + 1;
    }

    /// Returns a carrier for the list: an ended one of the default engine's, or a new one.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM.
    fn new_spare<'a>(&self, engine: &Engine) -> Result<&'a Carrier, isize> {
        let mut slots = self.slots.lock();
        if slots.ended == 0 || !engine.is_first() {
            drop(slots);
            return self.new_carrier(engine);
        }
        let id = slots.ended - 1;
        let carrier = self.slot(id as usize);
        slots.ended = carrier.next_free.get();
        prepare(carrier, id, engine); // it is in the list, and stays ended there until it runs
        Ok(carrier)
    }

    /// Frees every carrier but `survivor`, the only one with a kernel thread.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn keep_only_carrier(&self, survivor: &Carrier) {
        // SAFETY: the holder of the lock, if any, doesn't exist here.
        unsafe { self.slots.break_lock() };
        let mut slots = self.slots.lock();
        let Slots {
            committed,
            free,
            ended,
        } = &mut *slots;
        let committed = *committed;
        (*free, *ended) = (0, 0); // all but one are free: the lists are made anew
        drop(slots);
        survivor.is_listed.set(true);
        for id in (0..committed).filter(|&id| id != survivor.id.get() as usize) {
            let carrier = self.slot(id);
            // SAFETY: no thread of this process runs on these stacks.
            unsafe {
                for (stack, size) in carrier.take_forked_stacks() {
                    if !stack.is_null() {
                        mem::unmap(stack, size);
                    }
                }
            }
            carrier.is_listed.set(false);
            self.give_back(carrier);
        }
    }
}

impl Process {
    /// Changes how many carriers of the default engine may be active; 0 for as many as CPUs may be
    /// used, now and later. More are added when there is work for them; sysmon sees to it that too
    /// many become spare.
    pub fn set_wanted(&self, carriers: u32) {
        self.follows_cpus
            .store(u32::from(carriers == 0), Ordering::Relaxed);
        match carriers {
            0 => self.follow_cpus(),
            _ => self.first().wanted.store(carriers, Ordering::Relaxed),
        }
    }

    /// Allows so many threads to be runnable at a time, running ones included; 0 for any number.
    pub fn set_max_runnable(&self, threads: u32) {
        self.max_runnable.store(threads, Ordering::Relaxed);
    }

    /// Returns true if one more runnable thread may not be made. A woken thread runs all the same:
    /// a wake-up can't be refused.
    pub fn is_crowded(&self) -> bool {
        let most = self.max_runnable.load(Ordering::Relaxed);
        let runnable = || self.engines.each().map(Engine::runnable).sum::<usize>();
        most != 0 && runnable() >= most as usize
    }

    /// Counts again how many CPUs the process may use, unless no setting depends on the number.
    pub(crate) fn follow_cpus(&self) {
        let follows = self.follows_cpus.load(Ordering::Relaxed) != 0;
        if !follows && self.most_extra() == 0 {
            return;
        }
        let thousandths = cpus::allowed_thousandths();
        self.capacity_thousandths
            .store(thousandths, Ordering::Relaxed);
        if follows {
            let carriers = thousandths.div_ceil(1000).min(MAX_WANTED);
            self.first().wanted.store(carriers, Ordering::Relaxed);
        }
    }

    /// Returns the CPUs that the process may use, in thousandths, when they were counted last.
    pub(crate) fn capacity_thousandths(&self) -> u64 {
        u64::from(self.capacity_thousandths.load(Ordering::Relaxed))
    }

    /// Allows the default engine so many extra carriers, whatever the number of carriers that was
    /// asked for. Before [`Process::start`].
    pub fn set_most_extra(&self, most: u32) {
        self.most_extra.store(most + 1, Ordering::Relaxed);
    }

    /// Returns the most carriers beside the wanted ones, while other processes want the CPUs.
    pub(crate) fn most_extra(&self) -> u32 {
        match self.most_extra.load(Ordering::Relaxed) {
            0 => contention::most_by_default(self.follows_cpus.load(Ordering::Relaxed) != 0),
            most => most - 1,
        }
    }

    /// Gives a new carrier its kernel thread; gives the slot back if there can be none.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM.
    pub(crate) fn start_carrier(&self, carrier: &Carrier) -> Result<(), isize> {
        self.start_carrier_as(carrier, None)
    }

    /// As [`Process::start_carrier`], with a kernel thread of the kind that a program asked for.
    ///
    /// # Errors
    /// The kernel's error, or EAGAIN or ENOMEM.
    pub(crate) fn start_carrier_as(
        &self,
        carrier: &Carrier,
        asked: Option<&CloneArgs>,
    ) -> Result<(), isize> {
        let address = core::ptr::from_ref(carrier).expose_provenance();
        let (main, size) = (switch::carrier_main, kthread::STACK_SIZE);
        let made = match asked {
            None => kthread::spawn(main, address, size),
            Some(asked) => kthread::spawn_asked(main, address, size, asked),
        };
        match made {
            Ok(kernel_tid) => {
                // Unless the kernel thread has stored its id itself, and perhaps ended since.
                let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
                let _ = carrier
                    .kernel_tid
                    .compare_exchange(0, kernel_tid, release, relaxed);
                Ok(())
            }
            Err(errno) => {
                self.give_back(carrier);
                Err(errno)
            }
        }
    }
}

impl Engine {
    /// Returns the number of carriers that were asked for.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that run or wait for a carrier of the engine, at about this
    /// moment. A thread that waits in the kernel, on a carrier that was replaced, doesn't count.
    #[cold]
    pub(crate) fn runnable(&self) -> usize {
        let on = |carrier: &Carrier| {
            let is_blocked = carrier.handed_off.load(Ordering::Relaxed) != 0;
            let runs = carrier.thread_or_none().is_some() && !is_blocked;
            let has_mail = !carrier.mailbox.load(Ordering::Relaxed).is_null();
            carrier.queue.len() + usize::from(runs) + usize::from(has_mail)
        };
        let is_own = |carrier: &&Carrier| core::ptr::eq(carrier.engine(), self);
        let on_carriers: usize = PROCESS.all_carriers().filter(is_own).map(on).sum();
        on_carriers + self.posted()
    }

    /// Returns the number of carriers beside the wanted ones now.
    pub(crate) fn extra(&self) -> u32 {
        self.extra.load(Ordering::Relaxed)
    }

    /// Changes the number of extra carriers. In sysmon, which afterwards wakes carriers for posted
    /// work, or makes carriers spare.
    pub(crate) fn set_extra(&self, extra: u32) {
        if self.extra() != extra {
            self.extra.store(extra, Ordering::SeqCst);
        }
    }

    /// Returns the number of carriers that exist and aren't spare, at least 1.
    pub(crate) fn active(&self) -> u32 {
        self.not_spare().max(1)
    }

    fn not_spare(&self) -> u32 {
        self.count.active(&self.spares)
    }

    /// Returns the number of carriers that may be active: another may run in place of each blocked
    /// one.
    fn limit(&self) -> u32 {
        self.wanted() + self.extra() + self.count.blocked()
    }

    /// Returns true if all carriers wait in the kernel and no other can take their place: the
    /// kernel allows no more kernel threads.
    pub(crate) fn is_stranded(&self) -> bool {
        self.spares.is_empty() && self.not_spare() <= self.count.blocked()
    }

    /// Returns true if a carrier should become spare.
    pub(crate) fn has_surplus(&self) -> bool {
        self.active() > self.limit()
    }

    /// Returns true if a carrier may be added. Several carriers that see the same surplus can all
    /// become spare. Then none is active, and the last of them must see that there is room for one.
    pub(crate) fn may_grow(&self) -> bool {
        self.not_spare() < self.limit()
    }

    /// Lets another carrier take the place of `carrier`, which waits in the kernel while others
    /// want to run, until it comes back ([`switch::come_back`]). The threads in its queue are
    /// posted: other carriers steal only when they have nothing else to run, which may be never if
    /// threads compute. In sysmon.
    pub(crate) fn hand_off(&self, carrier: &Carrier) {
        events::blocked(carrier);
        self.mark(carrier);
        idle::give_queue_away(carrier);
        ums::replace(carrier);
        self.wake_one();
    }

    /// Marks `carrier` as blocked. At the end of its call, or of its quantum, it looks whether
    /// there is one carrier too many.
    pub(crate) fn mark(&self, carrier: &Carrier) {
        if self.count.block(&carrier.handed_off) {
            carrier.attention.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst); // a carrier that rests or ends sees the mark, or is seen
            if carrier.state() != CarrierState::Running {
                idle::came_back(carrier);
            }
        }
    }

    /// Makes a spare carrier active. Returns false if there is none: it is being made, or can't be.
    #[cold]
    pub(crate) fn grow(&self) -> bool {
        match self.spares.take_one() {
            Some(id) => {
                // SAFETY: ids in the set are positions of live carriers.
                PROCESS.wake_carrier(unsafe { PROCESS.by_id(id) });
                true
            }
            None => {
                self.make_spare();
                false
            }
        }
    }

    /// Makes a spare carrier if there is none, so that sysmon always finds one. Sysmon can't make
    /// it, since the kernel thread would share sysmon's descriptors; nor can a carrier that is
    /// apart, because the kernel thread would have its differences. Without memory or permission,
    /// the next call tries again. A process with one thread needs none.
    pub fn make_spare(&self) {
        let has_spare = !self.spares.is_empty() || self.made.load(Ordering::Relaxed) > self.limit();
        let is_fit = !has_spare && is_fit_to_make();
        if is_fit && self.making_spare.swap(1, Ordering::Acquire) == 0 && !self.make_carrier() {
            self.making_spare.store(0, Ordering::Release);
        }
    }

    /// Makes the carriers that a further engine lacks, and a spare one. Returns true if the engine
    /// has a carrier.
    pub(crate) fn is_manned(&self) -> bool {
        let made = || self.made.load(Ordering::Relaxed);
        while made() <= self.wanted() && is_fit_to_make() && self.make_carrier() {}
        made() != 0
    }

    /// Makes a carrier. On a carrier that is fit to make others.
    fn make_carrier(&self) -> bool {
        if !self.is_first() && !PROCESS.engines.may_make() {
            return false;
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let made = PROCESS
            .new_spare(self)
            .and_then(|carrier| PROCESS.start_carrier(carrier));
        if made.is_err() {
            self.made.fetch_sub(1, Ordering::Relaxed);
        }
        made.is_ok()
    }

    /// Lists a new carrier, as its first act. Returns true if the carrier is spare. A carrier of a
    /// further engine isn't while the engine has fewer than it wants, because the engine has a
    /// thread that waits.
    pub(crate) fn enlist(&self, carrier: &Carrier) -> bool {
        let _slots = PROCESS.slots.lock();
        let is_spare = self.is_first() || !self.may_grow();
        // Before it counts as listed.
        if is_spare {
            self.spares.insert(carrier.id.get() as usize);
        }
        if carrier.is_listed.replace(true) {
            self.count.begin_again();
        } else {
            let listed = PROCESS.listed.load(Ordering::Relaxed);
            let entry = &PROCESS.list[listed as usize];
            entry.store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Release);
            PROCESS.listed.store(listed + 1, Ordering::Release);
            self.count.list();
        }
        self.making_spare.store(0, Ordering::Release);
        is_spare
    }

    /// Returns how long a spare carrier sleeps before it ends; `None` if it stays. The first kernel
    /// thread stays, because other processes see the process by it. The carriers of a further
    /// engine stay, because its CPU time is the sum of theirs.
    pub(crate) fn spare_ns(&self, carrier: &Carrier) -> Option<u64> {
        const CHAOS_NS: u64 = 3_000_000;
        let tid = carrier.kernel_tid.load(Ordering::Relaxed);
        let is_seen = tid == PROCESS.pid.load(Ordering::Relaxed);
        let stays = is_seen || !self.is_first() || self.spares.len() <= SPARES_KEPT;
        let ns = if chaos::is_on() { CHAOS_NS } else { SPARE_NS };
        (!stays).then_some(ns)
    }

    /// Ends the calling spare carrier; returns if the carrier is wanted.
    pub(crate) fn end_spare(&self, carrier: &Carrier) {
        let slots = PROCESS.slots.lock();
        let id = carrier.id.get() as usize;
        if !self.count.end(&self.spares, id, SPARES_KEPT) {
            return;
        }
        self.made.fetch_sub(1, Ordering::Relaxed);
        carrier.set_state(CarrierState::Ended);
        block_events::forget(carrier);
        drop(slots);
        fence(Ordering::SeqCst); // see `mark`
        idle::came_back(carrier);
        chaos::stop(Point::Sleep);
        bound::end(carrier)
    }
}

/// Prepares zeroed memory, or the slot of a carrier that has ended.
fn prepare(carrier: &Carrier, id: u32, engine: &Engine) {
    carrier.init(id, engine);
    carrier.dice.set(chaos::first_dice(id));
}

/// Returns true if the calling thread is a carrier that may make others.
fn is_fit_to_make() -> bool {
    // SAFETY: null or a carrier, which lives for ever.
    let maker = unsafe { Carrier::current_or_null().as_ref() };
    maker.is_some_and(|maker| !maker.is_apart()) && PROCESS.is_started()
}
