//! What Java threads want, between the looks of a watch.
//!
//! A thread that wants a monitor is *stuck* if it wants the same one as at the look before, however
//! often it has run: HotSpot has one of those that want a monitor wait with a time limit, and look
//! at it again and again. A thread that is parked for an owned synchronizer of
//! `java.util.concurrent` is stuck as other threads are: if it has not run.
//!
//! What a thread wants changes only while the thread runs. So it is read once for each time that
//! the thread was switched to, and threads that rest cost nothing. Owners are looked for among
//! stuck threads only, as no other is part of a cycle.
//!
//! 1. A look reads the table of threads, then what the threads want, then the owners.
//! 2. If that makes a cycle, the slots of its Java threads are read again. If no thread of a cycle
//!    has run since 1, all of it was true at one moment.

use std::collections::HashMap;

use raddle_inspect::{ThreadState, WaitKind};

use super::Looks;
use crate::capture::Target;
use crate::java::{HotSpot, WatchedLock, WatchedMachine};
use crate::modules::Modules;
use crate::table::{Slot, Table};

/// What Java threads want.
pub(super) struct JavaWaits {
    machine: Option<WatchedMachine>,
    /// When a virtual machine is looked for.
    search: Looks,
    /// What each thread wanted.
    seen: HashMap<u32, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    switches: u64,
    /// `None` for no monitor.
    monitor: Option<WatchedLock>,
    /// The same monitor was wanted at the look before.
    is_old: bool,
    /// What the thread is parked for, once it was read.
    parked: Option<Option<WatchedLock>>,
}

/// A stuck Java thread: its lock, and the owner of that.
#[derive(Clone, Copy, Debug)]
pub(super) struct JavaWait {
    pub lock: WatchedLock,
    pub owner: u32,
}

impl JavaWaits {
    pub(super) fn new(search: Looks) -> JavaWaits {
        JavaWaits {
            machine: None,
            search,
            seen: HashMap::new(),
        }
    }

    /// Returns the stuck Java threads of which the owner is known and stuck, too. `stuck` has the
    /// threads that wait without a limit and have not run.
    pub(super) fn look(
        &mut self,
        target: &Target<'_>,
        slots: &[Slot],
        stuck: &HashMap<u32, &Slot>,
    ) -> HashMap<u32, JavaWait> {
        self.find(target);
        let Some(machine) = &mut self.machine else {
            return HashMap::new();
        };
        let memory = target.memory;
        let waits: HashMap<u32, &Slot> = slots
            .iter()
            .filter(|slot| waits_in_machine(slot))
            .map(|slot| (slot.record.tid, slot))
            .collect();
        machine.renew();
        let mut before = std::mem::take(&mut self.seen);
        for (&tid, slot) in &waits {
            let known = before.remove(&tid);
            let mut seen = match known.filter(|it| it.switches == slot.record.switches) {
                Some(seen) => Seen {
                    is_old: true,
                    ..seen
                },
                None => {
                    let Some(monitor) = machine.wanted(memory, tid) else {
                        continue;
                    };
                    Seen {
                        switches: slot.record.switches,
                        monitor,
                        is_old: known.is_some_and(|it| it.monitor == monitor),
                        parked: None,
                    }
                }
            };
            if seen.monitor.is_none() && seen.parked.is_none() && stuck.contains_key(&tid) {
                seen.parked = machine.parked_for(memory, tid);
            }
            self.seen.insert(tid, seen);
        }
        owners(machine, target, &self.seen, stuck)
    }

    /// Looks for a virtual machine, if there is none yet: its library may be loaded by now, and a
    /// library that is loaded may not be ready yet.
    fn find(&mut self, target: &Target<'_>) {
        if self.machine.is_some() || !self.search.is_due() {
            return;
        }
        let find = |modules: &Modules| WatchedMachine::find(target.memory, modules);
        self.machine = if HotSpot::is_mapped(target.modules) {
            find(target.modules)
        } else {
            Modules::of(target.pid).ok().as_ref().and_then(find)
        };
    }
}

/// Returns true if none of some Java threads has run since the table was read.
pub(super) fn have_not_run<'s>(
    table: &mut Table<'_>,
    mut slots: impl Iterator<Item = &'s Slot>,
) -> bool {
    slots.all(|slot| {
        let later = table.again(slot);
        later.is_some_and(|later| slot.is_unmoved(&later) && waits_in_machine(&later))
    })
}

/// Returns the waits of stuck threads for each other.
fn owners(
    machine: &mut WatchedMachine,
    target: &Target<'_>,
    seen: &HashMap<u32, Seen>,
    stuck: &HashMap<u32, &Slot>,
) -> HashMap<u32, JavaWait> {
    let lock = |(&tid, seen): (&u32, &Seen)| {
        let lock = match seen.monitor {
            Some(monitor) => Some(monitor).filter(|_| seen.is_old),
            None => seen.parked.flatten(),
        };
        lock.map(|lock| (tid, lock))
    };
    let wants: Vec<(u32, WatchedLock)> = seen.iter().filter_map(lock).collect();
    let mut among: Vec<u32> = wants.iter().map(|&(tid, _)| tid).collect();
    among.extend(
        stuck
            .iter()
            .filter(|(_, slot)| wants_mutex(slot))
            .map(|(&tid, _)| tid),
    );
    // A monitor isn't wanted by its owner.
    if among.len() < 2 {
        return HashMap::new();
    }
    let mut owners: HashMap<WatchedLock, Option<u32>> = HashMap::new();
    let waits = wants.iter().filter_map(|&(tid, lock)| {
        let owner = owners.entry(lock);
        let owner = owner.or_insert_with(|| machine.owner(target.memory, lock, &among));
        Some((
            tid,
            JavaWait {
                lock,
                owner: (*owner)?,
            },
        ))
    });
    waits.collect()
}

/// Returns true if the thread waits as a virtual machine has all of its threads wait.
fn waits_in_machine(slot: &Slot) -> bool {
    let record = &slot.record;
    record.state == ThreadState::WAITING && record.wait_kind == WaitKind::CONDVAR
}

fn wants_mutex(slot: &Slot) -> bool {
    super::owner_places(slot.record.wait_kind).is_some()
}
