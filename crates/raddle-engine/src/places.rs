//! How many carriers may be active, and where more of them come from.
//!
//! A carrier is *active* unless it is spare. The *limit* is what was asked for, plus the carriers
//! that are blocked in the kernel: another may run in their place (`docs/scheduler.md`).

use crate::carrier::Carrier;
use crate::engine::{Engine, MAX_WANTED};
use crate::{cpus, idle, kthread, switch};
use core::sync::atomic::Ordering;

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
        self.wake_one();
    }

    /// Makes `carrier` look at the end of its call, or of its quantum, whether it is one too many.
    pub(crate) fn mark(&self, carrier: &Carrier) {
        if carrier.handed_off.swap(1, Ordering::SeqCst) == 0 {
            self.blocked.fetch_add(1, Ordering::SeqCst);
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
        let made = self.new_carrier().and_then(|carrier| {
            let address = core::ptr::from_ref(carrier).expose_provenance();
            kthread::spawn(switch::carrier_main, address, kthread::STACK_SIZE)
        });
        if made.is_err() {
            self.breeding.store(0, Ordering::Release);
        }
    }

    /// A new carrier's first act: it is listed as a spare one.
    pub(crate) fn enlist(&self, carrier: &Carrier) {
        let _growth = self.growth.lock();
        let up = self.up();
        // In this order the carrier never counts as active.
        self.spares.insert(carrier.id.get() as usize);
        self.list[up as usize].store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Release);
        self.up.store(up + 1, Ordering::Release);
        self.breeding.store(0, Ordering::Release);
    }
}
