//! Events in the order of time, with their times, of one reading of the rings after the other. It
//! needs no process: readings that were kept lead to the same events.

use raddle_inspect::Event;
use raddle_record::clock::{Clock, Moment};
use raddle_record::order::Order;
use raddle_record::rings::{Lane, Words};

/// An event at a time.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    pub boot_ns: u64,
    pub lane: Lane,
    pub event: Event,
}

/// One reading of all rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The moments before and after it.
    pub begun: Moment,
    pub done: Moment,
    /// The stamp up to which all rings were read, if events were left in one.
    pub read_to: Option<u64>,
    /// Its events are all told, also those that came during the reading.
    pub is_last: bool,
}

/// See the module.
pub(crate) struct Sequence {
    order: Order,
    clock: Clock,
    /// The clock goes on from reading to reading.
    goes_on: bool,
    told_ns: u64,
    /// The time of the last event that was told. The clock has another rate in each reading, and an
    /// event that is told late would get a time before that one's.
    last_ns: u64,
}

impl Sequence {
    /// `told_ns` is the time of CLOCK_BOOTTIME at which the first reading begins.
    pub(crate) fn new(clock: Clock, told_ns: u64) -> Sequence {
        Sequence {
            order: Order::default(),
            clock,
            goes_on: true,
            told_ns,
            last_ns: 0,
        }
    }

    /// Of events that were kept, up to now. One clock gives all of them their times: another one
    /// after each reading would give earlier events later times than the last one has.
    pub(crate) fn of_the_past(clock: Clock) -> Sequence {
        Sequence {
            goes_on: false,
            ..Sequence::new(clock, 0)
        }
    }

    /// Takes an event of the next reading.
    #[inline]
    pub(crate) fn add(&mut self, lane: Lane, words: Words) {
        self.order.add(lane, words);
    }

    /// Gives the events that were not told away.
    pub(super) fn take_order(&mut self) -> Order {
        std::mem::take(&mut self.order)
    }

    pub(super) fn put_order(&mut self, order: Order) {
        self.order = order;
    }

    /// Ends a reading: calls `each` with the events of which none comes late any more.
    pub(crate) fn tell(&mut self, reading: &Reading, mut each: impl FnMut(&Timed)) {
        if self.goes_on {
            self.clock.go_on_to(reading.done);
        }
        let now = reading.begun.stamp;
        let up_to = match reading.read_to {
            Some(read_to) => read_to.min(now),
            None if reading.is_last => u64::MAX,
            None => now,
        };
        let (clock, last_ns) = (self.clock, &mut self.last_ns);
        self.order.tell(up_to, |lane, event| {
            *last_ns = clock.boot_ns(event.stamp).max(*last_ns);
            each(&Timed {
                boot_ns: *last_ns,
                lane,
                event,
            });
        });
        self.told_ns = clock.boot_ns(up_to.min(now)).max(*last_ns);
    }

    /// Returns the time up to which all events were told, by CLOCK_BOOTTIME.
    pub(crate) fn told_ns(&self) -> u64 {
        self.told_ns
    }

    /// Returns what gives a stamp its time.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{EventKind, WaitKind};

    fn moment(stamp: u64, boot_ns: u64) -> Moment {
        Moment { stamp, boot_ns }
    }

    fn words(stamp: u64) -> Words {
        let event = Event {
            stamp,
            kind: EventKind::SWITCH,
            thread: 1,
            other: 2,
            wait: WaitKind::NONE,
            arg: 0,
        };
        event.words()
    }

    #[test]
    fn times_of_what_is_told_late_do_not_fall_from_reading_to_reading() {
        const MS: u64 = 1_000_000;
        let clock = Clock::between(moment(0, 0), moment(10 * MS, 10 * MS));
        let mut sequence = Sequence::new(clock, 0);
        let mut told = Vec::new();
        // The second reading has seen the clock late, and tells what is older than it.
        for (stamp, done) in [
            (15 * MS, moment(20 * MS, 20 * MS)),
            (15 * MS + 10, moment(30 * MS, 31 * MS)),
        ] {
            let reading = Reading {
                begun: done,
                done,
                read_to: Some(stamp),
                is_last: false,
            };
            sequence.add(Lane::Carrier(0), words(stamp));
            sequence.tell(&reading, |timed| told.push(timed.boot_ns));
        }
        assert!(told.len() == 2 && told[0] <= told[1], "{told:?}");
    }

    /// The rate of the counter is known with an error, which grows with the distance.
    #[test]
    fn times_of_what_was_kept_do_not_fall_from_reading_to_reading() {
        const S: u64 = 1_000_000_000;
        let clock = Clock::between(moment(100 * S, 100 * S), moment(100 * S + S / 100, 101 * S));
        let mut sequence = Sequence::of_the_past(clock);
        let mut told = Vec::new();
        for (number, stamp) in [(0, 95 * S), (1, 95 * S + 1000)] {
            // This reading took a little longer than the counter says.
            let done = moment(
                100 * S + (2 + number) * S / 100,
                (102 + number) * S + number * 500,
            );
            let reading = Reading {
                begun: done,
                done,
                read_to: Some(stamp),
                is_last: true,
            };
            sequence.add(Lane::Carrier(0), words(stamp));
            sequence.tell(&reading, |timed| told.push(timed.boot_ns));
        }
        assert!(told.len() == 2 && told[0] <= told[1], "{told:?}");
    }
}
