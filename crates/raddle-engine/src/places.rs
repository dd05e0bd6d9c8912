//! How many carriers may be active, and where more of them come from.
//!
//! A carrier is *active* unless it is spare. The *limit* is what was asked for, plus the carriers
//! that are blocked in the kernel: another may run in their place (`docs/scheduler.md`).
//!
//! Carriers live in *slots* of one reserved array: type-stable memory, like that of threads. One
//! that ends gives its slot back, so a stale reference to a carrier names a live one or none, and
//! may wake or poke it in vain.

use crate::carrier::Carrier;
use crate::engine::{Engine, MAX_CARRIERS, MAX_WANTED};
use crate::{cpus, idle, kthread, switch, ums};
use core::sync::atomic::Ordering;
use raddle_sys::{err, errno, mem};

/// The slots of carriers.
pub struct Slots {
    /// How many were ever in use.
    committed: usize,
    /// Slots that were given back, linked through [`Carrier::next_free`]; 0 ends the list, else
    /// slot + 1.
    free: u32,
}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self {
            committed: 0,
            free: 0,
        }
    }
}

impl Engine {
    pub(crate) fn by_id(&self, id: usize) -> *const Carrier {
        let base = self.memory.load(Ordering::Relaxed);
        core::ptr::with_exposed_provenance::<Carrier>(base).wrapping_add(id)
    }

    fn slot<'a>(&self, id: usize) -> &'a Carrier {
        // SAFETY: callers name slots that are committed; zeroed memory is a valid Carrier, and no
        // slot is ever taken away.
        unsafe { &*self.by_id(id) }
    }

    /// All slots that were ever in use, those of bound threads' carriers and free ones included.
    pub fn all_carriers(&self) -> impl Iterator<Item = &Carrier> {
        let committed = self.slots.lock().committed;
        (0..committed).map(|id| self.slot(id))
    }

    /// A carrier without a kernel thread.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM.
    pub(crate) fn new_carrier<'a>(&self) -> Result<&'a Carrier, isize> {
        let mut slots = self.slots.lock();
        if slots.free != 0 {
            let id = slots.free - 1;
            let carrier = self.slot(id as usize);
            slots.free = carrier.next_free.get();
            carrier.init(id);
            return Ok(carrier);
        }
        if slots.committed == MAX_CARRIERS {
            return Err(err(errno::EAGAIN));
        }
        let at = self.by_id(slots.committed).cast_mut();
        let page = mem::PAGE_SIZE;
        let from = at.addr() & !(page - 1);
        let to = (at.addr() + size_of::<Carrier>()).next_multiple_of(page);
        // SAFETY: the pages lie in the carriers' reservation.
        unsafe { mem::commit(at.wrapping_byte_sub(at.addr() - from).cast(), to - from)? };
        let id = slots.committed;
        slots.committed += 1;
        let carrier = self.slot(id);
        carrier.init(id as u32);
        Ok(carrier)
    }

    /// Gives a carrier's slot back; its kernel thread, if there is one, uses it no more.
    pub(crate) fn give_back(&self, carrier: &Carrier) {
        let mut slots = self.slots.lock();
        carrier.next_free.set(slots.free);
        slots.free = carrier.id.get() + 1;
    }

    /// Frees every carrier but `survivor`, whose kernel thread alone exists.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn keep_only_carrier(&self, survivor: &Carrier) {
        // SAFETY: the holder of the lock, if any, doesn't exist here.
        unsafe { self.slots.break_lock() };
        let committed = self.slots.lock().committed;
        self.slots.lock().free = 0; // all but one are free: the list is made anew
        for id in (0..committed).filter(|&id| id != survivor.id.get() as usize) {
            let carrier = self.slot(id);
            // SAFETY: nobody runs on these stacks in this process.
            unsafe {
                for (stack, size) in carrier.take_stacks() {
                    if !stack.is_null() {
                        mem::unmap(stack, size);
                    }
                }
            }
            self.give_back(carrier);
        }
    }
}

impl Engine {
    /// Carriers that may be used.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Changes how many carriers may be active; 0 for as many as CPUs may be used, now and later.
    /// More are added when there is work for them; sysmon sees to it that too many become spare.
    pub fn set_wanted(&self, carriers: u32) {
        self.follows_cpus
            .store(u32::from(carriers == 0), Ordering::Relaxed);
        match carriers {
            0 => self.follow_cpus(),
            _ => self.wanted.store(carriers, Ordering::Relaxed),
        }
    }

    /// Allows so many threads to be runnable at a time, running ones included; 0 for any number.
    pub fn set_max_runnable(&self, threads: u32) {
        self.max_runnable.store(threads, Ordering::Relaxed);
    }

    /// True if one more runnable thread may not be made. Who is woken runs all the same: a wake-up
    /// can't be refused.
    pub fn is_crowded(&self) -> bool {
        let most = self.max_runnable.load(Ordering::Relaxed);
        most != 0 && self.runnable() >= most as usize
    }

    /// Threads that run or wait for a carrier, at about this moment. One that sits in the kernel,
    /// and whose carrier was replaced for it, doesn't want to run.
    #[cold]
    fn runnable(&self) -> usize {
        let on = |carrier: &Carrier| {
            let is_blocked = carrier.handed_off.load(Ordering::Relaxed) != 0;
            let runs = carrier.thread_or_none().is_some() && !is_blocked;
            let has_mail = !carrier.mailbox.load(Ordering::Relaxed).is_null();
            carrier.queue.len() + usize::from(runs) + usize::from(has_mail)
        };
        let queued: usize = self.all_carriers().map(on).sum();
        queued + self.injector.len() + self.spent.len()
    }

    /// Looks again how many CPUs may be used, unless a number of carriers was asked for.
    pub(crate) fn follow_cpus(&self) {
        if self.follows_cpus.load(Ordering::Relaxed) != 0 {
            self.wanted
                .store(cpus::allowed().min(MAX_WANTED), Ordering::Relaxed);
        }
    }

    /// Carriers that exist and aren't spare.
    pub(crate) fn active(&self) -> u32 {
        self.up().saturating_sub(self.spares.len() as u32).max(1)
    }

    /// Carriers that may be active: a blocked one's place is another's.
    fn limit(&self) -> u32 {
        self.wanted() + self.blocked.load(Ordering::SeqCst)
    }

    /// True if a carrier should become spare.
    pub(crate) fn has_surplus(&self) -> bool {
        self.active() > self.limit()
    }

    /// True if a carrier may be added. Carriers that see the same surplus can all become spare:
    /// none is active then, and the last of them must see that there is room.
    pub(crate) fn may_grow(&self) -> bool {
        let spares = self.spares.len() as u32;
        self.up().saturating_sub(spares) < self.limit()
    }

    /// `carrier` sits in the kernel while others want to run: another takes its place until it
    /// comes back ([`switch::come_back`]). Its threads are posted: carriers steal only when they
    /// have nothing else to run, and threads that compute are something else. In sysmon.
    pub(crate) fn hand_off(&self, carrier: &Carrier) {
        self.mark(carrier);
        idle::give_queue_away(carrier);
        ums::replace(carrier);
        match self.sides.of(carrier) {
            Some(side) => side.wake_one(),
            None => self.wake_one(),
        };
    }

    /// Makes `carrier` look at the end of its call, or of its quantum, whether it is one too many.
    pub(crate) fn mark(&self, carrier: &Carrier) {
        if carrier.handed_off.swap(1, Ordering::SeqCst) == 0 {
            match self.sides.of(carrier) {
                Some(side) => side.block(),
                None => {
                    self.blocked.fetch_add(1, Ordering::SeqCst);
                }
            }
            carrier.attention.store(1, Ordering::SeqCst);
        }
    }

    /// Makes a spare carrier active. False if there is none: it is being made, or can't be.
    #[cold]
    pub(crate) fn grow(&self) -> bool {
        match self.spares.take_one() {
            Some(id) => {
                // SAFETY: ids in the set are positions of live carriers.
                self.wake_carrier(unsafe { &*self.by_id(id) });
                true
            }
            None => {
                self.breed();
                false
            }
        }
    }

    /// Makes a spare carrier if there is none, so that sysmon always finds one: a kernel thread
    /// that sysmon made would share sysmon's descriptors, one that a carrier apart made would be as
    /// different as that. Without the memory or the right to, the
    /// next call tries again.
    pub fn breed(&self) {
        // SAFETY: null or a carrier, which lives for ever.
        let maker = unsafe { Carrier::current_or_null().as_ref() };
        let is_fit = maker.is_some_and(|maker| !maker.is_apart());
        if !is_fit || !self.spares.is_empty() || self.breeding.swap(1, Ordering::Acquire) != 0 {
            return;
        }
        let made = self
            .new_carrier()
            .and_then(|carrier| self.start_carrier(carrier));
        if made.is_err() {
            self.breeding.store(0, Ordering::Release);
        }
    }

    /// Gives a new carrier its kernel thread, or its slot back.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM.
    pub(crate) fn start_carrier(&self, carrier: &Carrier) -> Result<(), isize> {
        let address = core::ptr::from_ref(carrier).expose_provenance();
        match kthread::spawn(switch::carrier_main, address, kthread::STACK_SIZE) {
            Ok(kernel_tid) => {
                carrier.kernel_tid.store(kernel_tid, Ordering::Release);
                Ok(())
            }
            Err(errno) => {
                self.give_back(carrier);
                Err(errno)
            }
        }
    }

    /// A new carrier's first act: it is listed as a spare one.
    pub(crate) fn enlist(&self, carrier: &Carrier) {
        let _slots = self.slots.lock();
        let up = self.up();
        // In this order the carrier never counts as active.
        self.spares.insert(carrier.id.get() as usize);
        self.list[up as usize].store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Release);
        self.up.store(up + 1, Ordering::Release);
        self.breeding.store(0, Ordering::Release);
    }
}
