//! Events of all rings in the order of time.
//!
//! Each ring is in the order of its writer. An event that was stamped before the rings were read is
//! in its ring by then, unless the kernel took the CPU away between the stamp and the ring; so
//! events up to the time of the last reading can be told in order once the rings have been read.

use raddle_inspect::Event;

use crate::rings::Lane;

/// Events that wait for those of other rings.
#[derive(Default)]
pub struct Order {
    waiting: Vec<(u64, Lane, Event)>,
}

impl Order {
    /// Takes an event of a ring.
    pub fn add(&mut self, lane: Lane, event: Event) {
        self.waiting.push((event.stamp, lane, event));
    }

    /// Calls `each` with the events up to a stamp, in order.
    pub fn tell(&mut self, up_to: u64, mut each: impl FnMut(Lane, Event)) {
        self.waiting.sort_by_key(|&(stamp, lane, _)| (stamp, lane));
        let ready = self.waiting.partition_point(|&(stamp, ..)| stamp <= up_to);
        for (_, lane, event) in self.waiting.drain(..ready) {
            each(lane, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{EventKind, WaitKind};

    #[test]
    fn what_came_after_the_stamp_waits() {
        let mut order = Order::default();
        for (stamp, id) in [(3, 0), (5, 0), (9, 0), (1, 1), (6, 1)] {
            let event = Event {
                stamp,
                kind: EventKind::WAKE,
                thread: 1,
                other: 0,
                wait: WaitKind::NONE,
                arg: 0,
            };
            order.add(Lane::Carrier(id), event);
        }
        let mut told = Vec::new();
        order.tell(5, |_, event| told.push(event.stamp));
        assert_eq!(told, [1, 3, 5]);
        order.tell(u64::MAX, |_, event| told.push(event.stamp));
        assert_eq!(told, [1, 3, 5, 6, 9]);
    }
}
