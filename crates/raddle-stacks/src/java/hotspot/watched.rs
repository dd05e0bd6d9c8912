//! What Java threads want, looked at again and again without their stacks.
//!
//! A thread that isn't in the virtual machine's list of threads has it read again, once at most in
//! a look, and for each thread after twice as many looks: the virtual machine's own threads are
//! never in it, and one that has just begun may not be yet.

use std::collections::HashMap;

use super::HotSpot;
use super::monitors::{Fields, Monitors, Reader};
use super::offsets::Offsets;
use super::synchronizers::Synchronizers;
use crate::memory::Memory;
use crate::modules::Modules;

/// The most looks between two of which each reads the list for the same thread.
const GAP_MAX: u32 = 64;

/// What is known of a virtual machine between looks.
pub(crate) struct WatchedMachine {
    offsets: Offsets,
    fields: Fields,
    monitors: Monitors,
    synchronizers: Option<Synchronizers>,
    /// Threads that were not in the list.
    unlisted: HashMap<u32, Unlisted>,
    look: u32,
    /// The list was read in this look.
    is_listed: bool,
}

struct Unlisted {
    /// The look in which the list is read for it again.
    next: u32,
    gap: u32,
}

/// The lock that a thread waits for, until it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchedLock {
    /// The monitor's address.
    Monitor(u64),
    /// An owned synchronizer of `java.util.concurrent`: the address of the waiter's record.
    Synchronizer(u64),
}

impl WatchedMachine {
    /// `None` if the process has no virtual machine that is understood, or none yet.
    pub(crate) fn find(memory: &dyn Memory, modules: &Modules) -> Option<WatchedMachine> {
        let HotSpot {
            offsets,
            fields,
            monitors,
            synchronizers,
            ..
        } = HotSpot::find(memory, modules)?;
        Some(WatchedMachine {
            offsets,
            fields: fields?,
            monitors,
            synchronizers,
            unlisted: HashMap::new(),
            look: 0,
            is_listed: false,
        })
    }

    /// Begins a look at some threads.
    pub(crate) fn renew(&mut self) {
        self.monitors.renew();
        self.look = self.look.wrapping_add(1);
        self.is_listed = false;
        // Threads that are asked about no more have ended.
        let look = self.look;
        self.unlisted
            .retain(|_, it| look.wrapping_sub(it.next).cast_signed() < GAP_MAX.cast_signed());
    }

    /// Returns the monitor that a thread wants to enter, if any; the outer `None` is that of a
    /// thread that isn't in the list of Java threads, or not yet.
    pub(crate) fn wanted(&mut self, memory: &dyn Memory, tid: u32) -> Option<Option<WatchedLock>> {
        if !self.is_java(memory, tid) {
            return None;
        }
        let (monitors, reader) = self.parts(memory);
        let wanted = monitors.wanted(&reader, tid).filter(|it| !it.is_noticed);
        Some(wanted.map(|it| WatchedLock::Monitor(it.address)))
    }

    /// Returns the owned synchronizer for which a thread is parked, with `None` for another object
    /// or none. The outer `None` is that of memory that can't be understood now.
    pub(crate) fn parked_for(
        &mut self,
        memory: &dyn Memory,
        tid: u32,
    ) -> Option<Option<WatchedLock>> {
        if !self.is_java(memory, tid) {
            return Some(None);
        }
        let thread = self.monitors.record(tid)?;
        let (synchronizers, reader) = self.synchronizers(memory)?;
        let object = synchronizers.parked_for(&reader, thread)?;
        Some(object.map(|_| WatchedLock::Synchronizer(thread)))
    }

    /// Returns which one of some threads owns a lock.
    pub(crate) fn owner(
        &mut self,
        memory: &dyn Memory,
        lock: WatchedLock,
        among: &[u32],
    ) -> Option<u32> {
        let record = |&tid: &u32| Some((tid, self.monitors.record(tid)?));
        let mut among: HashMap<u32, u64> = among.iter().filter_map(record).collect();
        loop {
            let owner = match lock {
                WatchedLock::Monitor(monitor) => self.parts(memory).1.owner(monitor, &among)?,
                WatchedLock::Synchronizer(thread) => {
                    let (synchronizers, reader) = self.synchronizers(memory)?;
                    synchronizers.owner(&reader, thread, &among)?
                }
            };
            // A record may be another thread's by now.
            if self.parts(memory).1.id(*among.get(&owner)?) == Some(owner) {
                return Some(owner);
            }
            among.remove(&owner);
        }
    }

    /// Returns true if a thread is in the list of Java threads.
    fn is_java(&mut self, memory: &dyn Memory, tid: u32) -> bool {
        if self.monitors.record(tid).is_some() {
            return true;
        }
        let (look, is_listed) = (self.look, self.is_listed);
        let unlisted = self
            .unlisted
            .entry(tid)
            .or_insert(Unlisted { next: look, gap: 1 });
        if unlisted.next.wrapping_sub(look).cast_signed() > 0 {
            return false;
        }
        unlisted.next = look.wrapping_add(unlisted.gap);
        unlisted.gap = (unlisted.gap * 2).min(GAP_MAX);
        // The list of this look is newer than the thread's wait, or the next look reads it.
        if is_listed {
            return false;
        }
        self.is_listed = true;
        let (monitors, reader) = self.parts(memory);
        monitors.list(&reader);
        self.monitors.record(tid).is_some()
    }

    fn parts<'r>(&'r mut self, memory: &'r dyn Memory) -> (&'r mut Monitors, Reader<'r>) {
        let reader = Reader {
            memory,
            fields: &self.fields,
            offsets: &self.offsets,
        };
        (&mut self.monitors, reader)
    }

    fn synchronizers<'r>(
        &'r mut self,
        memory: &'r dyn Memory,
    ) -> Option<(&'r mut Synchronizers, Reader<'r>)> {
        let reader = Reader {
            memory,
            fields: &self.fields,
            offsets: &self.offsets,
        };
        Some((self.synchronizers.as_mut()?, reader))
    }
}
