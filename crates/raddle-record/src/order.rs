//! Events of all rings in the order of time.
//!
//! Each ring is in the order of its writer. An event that was stamped before the rings were read is
//! in its ring by then, unless the kernel took the CPU away between the stamp and the ring; so
//! events up to the time of the last reading can be told in order once the rings have been read.
//!
//! The streams of the rings are merged: the ring with the earliest event tells its events until
//! another ring has an earlier one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use raddle_inspect::Event;

use crate::rings::{Lane, Words};

/// The most lanes of which the memory is kept for their next events: a process may say more and
/// more ids of carriers.
const STREAMS_MAX: usize = 1 << 13;

/// Events that wait for those of other rings.
#[derive(Default)]
pub struct Order {
    /// In the order of their lanes.
    streams: Vec<Stream>,
    /// The position of the stream that got the last event.
    last: usize,
}

/// Events of one ring, in order.
struct Stream {
    lane: Lane,
    events: Vec<Words>,
    /// The number of events that were told.
    told: usize,
}

/// The stamp of a stream's next event, and the position of the stream.
type Head = (u64, usize);

impl Order {
    /// Takes an event of a ring.
    #[inline]
    pub fn add(&mut self, lane: Lane, event: Words) {
        if self.streams.get(self.last).is_none_or(|it| it.lane != lane) {
            self.last = self.position(lane);
        }
        self.streams[self.last].add(event);
    }

    /// Returns the position of a lane's stream.
    fn position(&mut self, lane: Lane) -> usize {
        let found = self.streams.binary_search_by_key(&lane, |it| it.lane);
        found.unwrap_or_else(|at| {
            let stream = Stream {
                lane,
                events: Vec::new(),
                told: 0,
            };
            self.streams.insert(at, stream);
            at
        })
    }

    /// Calls `each` with the events up to a stamp, in order; of equal stamps that of the first lane
    /// comes first.
    pub fn tell(&mut self, up_to: u64, mut each: impl FnMut(Lane, Event)) {
        let end: Head = (up_to, usize::MAX);
        let streams = &mut self.streams;
        let heads = streams.iter().enumerate();
        let heads = heads.filter_map(|(at, stream)| stream.head(at));
        // The earliest is the greatest.
        let mut others: BinaryHeap<Reverse<Head>> = heads.map(Reverse).collect();
        let mut earliest = others.pop();
        while let Some(Reverse(head)) = earliest.filter(|Reverse(head)| *head <= end) {
            let (_, at) = head;
            let until = others.peek().map_or(end, |Reverse(other)| end.min(*other));
            earliest = match streams[at].tell(at, until, &mut each).map(Reverse) {
                Some(next) => Some(match others.peek_mut() {
                    Some(mut other) if next < *other => std::mem::replace(&mut *other, next),
                    _ => next,
                }),
                None => others.pop(),
            };
        }
        for stream in &mut *streams {
            stream.events.drain(..std::mem::take(&mut stream.told));
        }
        if streams.len() > STREAMS_MAX {
            streams.retain(|stream| !stream.events.is_empty());
        }
    }
}

impl Stream {
    #[inline]
    fn add(&mut self, event: Words) {
        match self.events.last() {
            Some(last) if last[0] > event[0] => {
                let at = self.events.partition_point(|it| it[0] <= event[0]);
                self.events.insert(at, event);
            }
            _ => self.events.push(event),
        }
    }

    fn head(&self, at: usize) -> Option<Head> {
        Some((self.events.get(self.told)?[0], at))
    }

    /// Tells the events up to a head. Returns the next one's.
    #[inline]
    fn tell(&mut self, at: usize, until: Head, each: &mut impl FnMut(Lane, Event)) -> Option<Head> {
        while let Some(&words) = self.events.get(self.told) {
            let head = (words[0], at);
            if head > until {
                return Some(head);
            }
            self.told += 1;
            if let Some(event) = Event::from_words(words) {
                each(self.lane, event);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{EventKind, WaitKind};

    fn order(events: &[(u64, u32)]) -> Order {
        let mut order = Order::default();
        for &(stamp, id) in events {
            let event = Event {
                stamp,
                kind: EventKind::WAKE,
                thread: 1,
                other: id,
                wait: WaitKind::NONE,
                arg: 0,
            };
            order.add(Lane::Carrier(id), event.words());
        }
        order
    }

    fn told(order: &mut Order, up_to: u64) -> Vec<(u64, u32)> {
        let mut told = Vec::new();
        order.tell(up_to, |lane, event| {
            assert_eq!(lane, Lane::Carrier(event.other));
            told.push((event.stamp, event.other));
        });
        told
    }

    #[test]
    fn what_came_after_the_stamp_waits() {
        let mut order = order(&[(3, 0), (5, 0), (9, 0), (1, 1), (6, 1)]);
        assert_eq!(told(&mut order, 5), [(1, 1), (3, 0), (5, 0)]);
        assert_eq!(told(&mut order, u64::MAX), [(6, 1), (9, 0)]);
        assert_eq!(told(&mut order, u64::MAX), []);
    }

    #[test]
    fn many_rings_are_one_sequence() {
        let mut events: Vec<_> = (0..9000u64).map(|it| (1 + it * it % 997 / 2, 0)).collect();
        for (number, event) in events.iter_mut().enumerate() {
            event.1 = (number * 7 % 30) as u32;
        }
        let mut order = order(&events);
        let mut all = Vec::new();
        for up_to in [100, 101, 300, u64::MAX] {
            all.extend(told(&mut order, up_to));
        }
        // Of equal stamps the first lane's.
        events.sort();
        assert_eq!(all, events);
    }
}
