//! Objects of monitors, numbered while a process is read again and again.
//!
//! An object moves when the garbage collector runs, and its monitor doesn't. So an object is
//! followed by its monitor, from what is [`Observed`] of it once to the next time:
//!
//! 1. The same monitor with the same object is the same object.
//! 2. The same monitor with an object of the same class elsewhere has been moved, if a collection
//!    may have been since.
//! 3. Without a collection, the monitor was given up and serves another object.
//! 4. A new monitor of an object that has had another one is of the same object, if no collection
//!    was since: while no thread waits, a monitor is given up, and the object gets another.
//! 5. A monitor of which the object can't be read is of the object that it had. One that is not
//!    known has no number.
//!
//! A monitor refers to its object by a handle, which stays in its place, too. Another handle is
//! another use of the monitor's room.
//!
//! Rule 2 is wrong for a monitor that was given up if an object of the same class has got the room
//! of both the monitor and the handle, and a collection was between the looks. HotSpot gives idle
//! monitors up once a minute, or if there are a thousand for each thread. Rule 4 misses an object
//! of which the monitor was given up and that has moved: it gets another number.
//!
//! Rejected: the address of the object as its name, which is another one after a collection; the
//! address of the monitor, which serves one object after another; the counter of monitors that
//! were given up, which JDK 25 no longer has.

use std::collections::HashMap;
use std::rc::Rc;

/// The most objects. Others have no number.
const OBJECTS_MAX: usize = 1 << 16;

/// What is read of a monitor at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub monitor: u64,
    pub handle: u64,
    /// The address of its object and the number of its class, if the object names this monitor.
    pub object: Option<(u64, u32)>,
    /// How many collections have begun; `None` while one runs, or if objects may move at any time.
    pub collections: Option<u32>,
}

/// The objects of which monitors were seen.
#[derive(Default)]
pub struct MonitorObjects {
    /// What was observed last of each monitor with an object, and the number of that.
    monitors: HashMap<u64, (Observed, u32)>,
    /// What was observed last of each object, by its address.
    objects: HashMap<u64, (Observed, u32)>,
    /// The class of each object, and which one of that class it is.
    names: Vec<(Rc<str>, u32)>,
    /// How many objects of each class have a number.
    classes: HashMap<Rc<str>, u32>,
}

impl MonitorObjects {
    /// Returns the name of the object with a number: its class, and which one of that class it is.
    pub fn name(&self, number: u32) -> Option<String> {
        let index = number.checked_sub(1)?;
        let (class, count) = self.names.get(index as usize)?;
        Some(format!("{class} no. {count}"))
    }

    /// Returns the number of the object of a monitor, from 1 on; 0 if it can't be told from
    /// others. `class` returns the name of its class.
    pub(crate) fn number(
        &mut self,
        observed: Observed,
        class: impl FnOnce() -> Option<Rc<str>>,
    ) -> u32 {
        let known = self.known(&observed);
        let Some((address, _)) = observed.object else {
            return known.unwrap_or(0);
        };
        let number = known.or_else(|| {
            let is_room = self.names.len() < OBJECTS_MAX;
            is_room.then(class).flatten().map(|class| self.add(class))
        });
        let Some(number) = number else {
            return 0;
        };
        for (all, key) in [
            (&mut self.monitors, observed.monitor),
            (&mut self.objects, address),
        ] {
            if all.len() >= OBJECTS_MAX {
                all.clear();
            }
            all.insert(key, (observed, number));
        }
        number
    }

    fn known(&self, observed: &Observed) -> Option<u32> {
        let by_monitor = self.monitors.get(&observed.monitor);
        let by_monitor = by_monitor.filter(|(last, _)| last.handle == observed.handle);
        let Some((address, class)) = observed.object else {
            return by_monitor.map(|&(_, number)| number);
        };
        let is_unmoved = |last: &Observed| {
            observed.collections.is_some() && last.collections == observed.collections
        };
        let is_same = |last: &Observed| {
            let has_moved = || last.object.is_some_and(|it| it.1 == class) && !is_unmoved(last);
            last.object == observed.object || has_moved()
        };
        let by_monitor = by_monitor.filter(|(last, _)| is_same(last));
        let by_object = || {
            let known = self.objects.get(&address);
            known.filter(|(last, _)| last.object == observed.object && is_unmoved(last))
        };
        by_monitor.or_else(by_object).map(|&(_, number)| number)
    }

    fn add(&mut self, class: Rc<str>) -> u32 {
        let count = self.classes.entry(Rc::clone(&class)).or_default();
        *count += 1;
        self.names.push((class, *count));
        self.names.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBSERVED: Observed = Observed {
        monitor: 0x10,
        handle: 0x100,
        object: Some((0x1000, 7)),
        collections: Some(1),
    };

    fn number(objects: &mut MonitorObjects, observed: Observed) -> u32 {
        let class = observed
            .object
            .map(|(_, class)| format!("Class{class}").into());
        objects.number(observed, || class)
    }

    #[test]
    fn an_object_that_moves_is_the_same_by_its_monitor() {
        let mut objects = MonitorObjects::default();
        let first = number(&mut objects, OBSERVED);
        let moved = Observed {
            object: Some((0x2000, 7)),
            collections: Some(2),
            ..OBSERVED
        };
        assert_eq!(number(&mut objects, moved), first);
        // What lies where it lay is another one.
        let other = Observed {
            monitor: 0x20,
            handle: 0x108,
            object: Some((0x1000, 7)),
            ..moved
        };
        let second = number(&mut objects, other);
        assert_ne!(second, first);
        assert_eq!(objects.name(first).as_deref(), Some("Class7 no. 1"));
        assert_eq!(objects.name(second).as_deref(), Some("Class7 no. 2"));
        assert_eq!(objects.name(0), None);
    }

    #[test]
    fn an_object_that_may_move_at_any_time_is_known_by_its_monitor_alone() {
        let mut objects = MonitorObjects::default();
        let at_any_time = Observed {
            collections: None,
            ..OBSERVED
        };
        let first = number(&mut objects, at_any_time);
        let moved = Observed {
            object: Some((0x2000, 7)),
            ..at_any_time
        };
        assert_eq!(number(&mut objects, moved), first);
        let new_monitor = Observed {
            monitor: 0x20,
            ..moved
        };
        assert_ne!(number(&mut objects, new_monitor), first);
    }

    #[test]
    fn a_monitor_without_a_readable_object_is_of_the_last_one_or_none() {
        let mut objects = MonitorObjects::default();
        let unreadable = Observed {
            object: None,
            ..OBSERVED
        };
        assert_eq!(number(&mut objects, unreadable), 0);
        let first = number(&mut objects, OBSERVED);
        assert_eq!(number(&mut objects, unreadable), first);
        let other_use = Observed {
            handle: 0x108,
            ..unreadable
        };
        assert_eq!(number(&mut objects, other_use), 0);
        // A class without a name is that of no object.
        let unnamed = Observed {
            monitor: 0x20,
            object: Some((0x2000, 7)),
            ..OBSERVED
        };
        assert_eq!(objects.number(unnamed, || None), 0);
    }

    #[test]
    fn a_monitor_that_is_given_up_is_followed_by_its_object_and_serves_others() {
        let mut objects = MonitorObjects::default();
        let first = number(&mut objects, OBSERVED);
        let new_monitor = Observed {
            monitor: 0x30,
            handle: 0x110,
            ..OBSERVED
        };
        assert_eq!(number(&mut objects, new_monitor), first);
        let other = Observed {
            object: Some((0x2000, 7)),
            ..OBSERVED
        };
        let second = number(&mut objects, other);
        assert_ne!(second, first, "another object, and no collection");
        let other_handle = Observed {
            handle: 0x118,
            object: Some((0x3000, 7)),
            collections: Some(2),
            ..OBSERVED
        };
        let third = number(&mut objects, other_handle);
        assert_eq!(objects.name(third).as_deref(), Some("Class7 no. 3"));
        let other_class = Observed {
            object: Some((0x4000, 8)),
            ..other_handle
        };
        let fourth = number(&mut objects, other_class);
        assert_eq!(objects.name(fourth).as_deref(), Some("Class8 no. 1"));
    }
}
