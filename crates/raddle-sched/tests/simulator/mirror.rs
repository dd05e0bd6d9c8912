//! A plain model of every queue, and of each green thread's place.

use raddle_sched::policy::{FAIR_EVERY, INJECTOR_EVERY};
use raddle_sched::run_queue::CAPACITY;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Parked, or not started.
    Waiting,
    Queued,
    /// Taken from a queue by this carrier, and on it up to the next park.
    On(usize),
    Done,
}

/// An entry of a ring or of the injector: the thread, and the pick by which it must be taken.
#[derive(Clone, Copy)]
struct Entry {
    green: usize,
    last_pick: u64,
}

/// One carrier's queue.
#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    slot: Option<usize>,
    picks: u64,
}

pub(crate) struct Mirror {
    rings: Vec<Ring>,
    injector: VecDeque<Entry>,
    places: Vec<Place>,
    /// Queued green threads by the time they were queued.
    queued: BTreeSet<(u64, usize)>,
    since_ns: Vec<u64>,
    picks: u64,
}

impl Mirror {
    pub(crate) fn new(carriers: usize, greens: usize) -> Self {
        Self {
            rings: (0..carriers).map(|_| Ring::default()).collect(),
            injector: VecDeque::new(),
            places: vec![Place::Waiting; greens],
            queued: BTreeSet::new(),
            since_ns: vec![0; greens],
            picks: 0,
        }
    }

    pub(crate) fn place(&self, green: usize) -> Place {
        self.places[green]
    }

    pub(crate) fn park(&mut self, green: usize, place: Place) {
        assert!(
            matches!(self.places[green], Place::On(_)),
            "{green} parks without running"
        );
        self.places[green] = place;
    }

    /// Returns when the green thread that waits longest in any queue was queued.
    pub(crate) fn oldest_queued_ns(&self) -> Option<u64> {
        self.queued.first().map(|&(since_ns, _)| since_ns)
    }

    /// Counts a pick of a carrier.
    pub(crate) fn pick(&mut self, carrier: usize) {
        self.picks += 1;
        self.rings[carrier].picks += 1;
    }

    fn queue(&mut self, green: usize, now_ns: u64) {
        let place = self.places[green];
        assert!(
            !matches!(place, Place::Queued | Place::Done),
            "{green} queued while {place:?}"
        );
        self.places[green] = Place::Queued;
        self.since_ns[green] = now_ns;
        self.queued.insert((now_ns, green));
    }

    /// A fair pick comes every `FAIR_EVERY` picks and takes from the ring, whatever the slot holds:
    /// the entry behind `n` others is taken within `(n + 1) * FAIR_EVERY` picks.
    fn append(ring: &mut Ring, green: usize) {
        let ahead = ring.entries.len() as u64;
        let last_pick = ring.picks + (ahead + 1) * u64::from(FAIR_EVERY);
        ring.entries.push_back(Entry { green, last_pick });
    }

    /// In any `n * INJECTOR_EVERY` picks of all `n` carriers, some carrier makes at least
    /// `INJECTOR_EVERY`, and every `INJECTOR_EVERY`th pick of a carrier takes from the injector.
    fn append_injected(&mut self, green: usize) {
        let ahead = self.injector.len() as u64;
        let window = u64::from(INJECTOR_EVERY) * self.rings.len() as u64;
        let last_pick = self.picks + (ahead + 1) * window;
        self.injector.push_back(Entry { green, last_pick });
    }

    pub(crate) fn push_ring(&mut self, carrier: usize, green: usize, now_ns: u64) {
        self.queue(green, now_ns);
        Self::append(&mut self.rings[carrier], green);
    }

    /// The task that was in the slot goes to the ring, already queued.
    pub(crate) fn displace(&mut self, carrier: usize, green: usize) {
        Self::append(&mut self.rings[carrier], green);
    }

    pub(crate) fn push_slot(&mut self, carrier: usize, green: usize, now_ns: u64) -> Option<usize> {
        self.queue(green, now_ns);
        self.rings[carrier].slot.replace(green)
    }

    pub(crate) fn inject(&mut self, green: usize, now_ns: u64) {
        self.queue(green, now_ns);
        self.append_injected(green);
    }

    /// Moves a full ring's older half and its newest entry to the injector; returns them in order.
    pub(crate) fn overflow(&mut self, carrier: usize) -> Vec<usize> {
        let ring = &mut self.rings[carrier].entries;
        assert_eq!(
            ring.len(),
            CAPACITY + 1,
            "an overflow of a ring that isn't full"
        );
        let newest = ring.pop_back();
        let moved: Vec<_> = ring
            .drain(..CAPACITY / 2)
            .chain(newest)
            .map(|e| e.green)
            .collect();
        moved.iter().for_each(|&green| self.append_injected(green));
        moved
    }

    /// Moves what a theft moved: `count` entries from one ring's head to another's tail.
    pub(crate) fn steal(&mut self, thief: usize, victim: usize, count: usize) {
        for _ in 0..count {
            let entry = self.rings[victim].entries.pop_front();
            let green = entry.expect("more was stolen than was there").green;
            Self::append(&mut self.rings[thief], green);
        }
    }

    /// Returns what the ring's head must be.
    pub(crate) fn pop_ring(&mut self, carrier: usize) -> Option<usize> {
        let ring = &mut self.rings[carrier];
        let entry = ring.entries.pop_front()?;
        assert!(
            ring.picks <= entry.last_pick,
            "{} waited {} picks too long in a ring",
            entry.green,
            ring.picks - entry.last_pick
        );
        Some(entry.green)
    }

    pub(crate) fn take_slot(&mut self, carrier: usize) -> Option<usize> {
        self.rings[carrier].slot.take()
    }

    pub(crate) fn pop_injector(&mut self) -> Option<usize> {
        let entry = self.injector.pop_front()?;
        assert!(
            self.picks <= entry.last_pick,
            "{} waited {} picks too long in the injector",
            entry.green,
            self.picks - entry.last_pick
        );
        Some(entry.green)
    }

    /// A green thread taken from a queue is about to run.
    pub(crate) fn run(&mut self, green: usize, carrier: usize) {
        let place = self.places[green];
        assert_eq!(
            place,
            Place::Queued,
            "{green} runs although it is {place:?}"
        );
        self.places[green] = Place::On(carrier);
        assert!(self.queued.remove(&(self.since_ns[green], green)));
    }

    /// Asserts that nothing waits and everything is done.
    pub(crate) fn assert_finished(&self) {
        let left: Vec<_> = (0..self.places.len())
            .filter(|&green| self.places[green] != Place::Done)
            .map(|green| (green, self.places[green]))
            .take(10)
            .collect();
        assert!(
            left.is_empty(),
            "lost: nothing happens any more, and these aren't done: {left:?}"
        );
        assert!(self.injector.is_empty() && self.queued.is_empty());
        assert!(
            self.rings
                .iter()
                .all(|ring| ring.entries.is_empty() && ring.slot.is_none())
        );
    }
}
