//! What threads wait for: each object has a number, by which its wakers and holds are found.

use raddle_inspect::WaitKind;
use rustc_hash::FxHashMap;

use super::{Hold, Position};

/// The most objects that are told apart.
const OBJECTS_MAX: usize = 1 << 20;
/// The most objects that are told to the caller, for their names.
const TOLD_MAX: usize = 1 << 16;
/// The most threads that are kept as wakers of an object.
const WAKERS_MAX: usize = 1 << 10;

/// The number of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u32);

impl Number {
    /// Of objects that are too many.
    pub(super) const NONE: Number = Number(u32::MAX);
}

/// An object: a kind of wait, and an address, a descriptor or a number.
pub(super) type Key = (WaitKind, u64);

/// See the module.
#[derive(Default)]
pub(super) struct Objects {
    numbers: FxHashMap<Key, Number>,
    all: Vec<Object>,
    /// Those that are new since the last call, and how many were.
    new: Vec<Key>,
    told: usize,
}

struct Object {
    key: Key,
    /// How long threads had it, until they woke another one from it.
    hold: Option<Hold>,
    wakers: Wakers,
}

/// How often each thread has woken others from an object. A thread of thousands wakes one once and
/// is not met again for long: wake-ups are noted one after another, and sorted in when there are as
/// many as a fraction of the sums.
#[derive(Default)]
struct Wakers {
    /// By positions.
    sums: Vec<(Position, u64)>,
    notes: Vec<(Position, u64)>,
}

/// The least number of notes that are sorted in.
const NOTES: usize = 64;

impl Wakers {
    #[inline]
    fn add(&mut self, waker: Position, times: u64) {
        self.notes.push((waker, times));
        if self.notes.len() >= NOTES.max(self.sums.len() / 2) {
            self.sort_in();
        }
    }

    fn sort_in(&mut self) {
        self.notes.sort_unstable();
        let mut room = WAKERS_MAX.saturating_sub(self.sums.len());
        let mut sums = Vec::with_capacity(self.sums.len() + self.notes.len());
        let mut before = self.sums.drain(..).peekable();
        let mut notes = self.notes.drain(..).peekable();
        while let Some((waker, mut times)) = notes.next() {
            while let Some((_, more)) = notes.next_if(|it| it.0 == waker) {
                times += more;
            }
            sums.extend(std::iter::from_fn(|| before.next_if(|it| it.0 < waker)));
            if let Some((_, earlier)) = before.next_if(|it| it.0 == waker) {
                sums.push((waker, earlier + times));
            } else if room != 0 {
                room -= 1;
                sums.push((waker, times));
            }
        }
        sums.extend(before);
        drop(notes);
        self.sums = sums;
    }
}

impl Objects {
    /// Returns the number of an object.
    pub(super) fn number(&mut self, kind: WaitKind, object: u64) -> Number {
        let key = (kind, object);
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        if self.all.len() == OBJECTS_MAX {
            return Number::NONE;
        }
        let number = Number(self.all.len() as u32);
        self.numbers.insert(key, number);
        self.all.push(Object {
            key,
            hold: None,
            wakers: Wakers::default(),
        });
        if object != 0 && self.told < TOLD_MAX {
            self.told += 1;
            self.new.push(key);
        }
        number
    }

    /// Returns the objects that are new since the last call.
    pub(super) fn take_new(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.new)
    }

    /// Counts wake-ups from an object by one thread.
    pub(super) fn count_wakes(&mut self, number: Number, waker: Position, times: u64) {
        let Some(object) = self.all.get_mut(number.0 as usize) else {
            return;
        };
        object.wakers.add(waker, times);
    }

    /// Counts how long a thread had an object that it gives on, if that is known.
    pub(super) fn release(&mut self, number: Number, since_ns: Option<u64>, at_ns: u64) {
        let Some(object) = self.all.get_mut(number.0 as usize) else {
            return;
        };
        let hold = object.hold.get_or_insert_default();
        if let Some(since_ns) = since_ns {
            let ns = at_ns.saturating_sub(since_ns.max(hold.released_ns));
            hold.ns += ns;
            hold.count += 1;
            hold.longest_ns = hold.longest_ns.max(ns);
        }
        hold.released_ns = at_ns;
    }

    /// Returns the wakers and the holds of all objects that have some.
    pub(super) fn finish(
        self,
    ) -> (
        FxHashMap<Key, FxHashMap<Position, u64>>,
        FxHashMap<Key, Hold>,
    ) {
        let holds = self.all.iter();
        let holds = holds.filter_map(|it| Some((it.key, it.hold?))).collect();
        let wakers = self.all.into_iter().filter_map(|mut it| {
            it.wakers.sort_in();
            let sums: FxHashMap<_, _> = it.wakers.sums.into_iter().collect();
            (!sums.is_empty()).then_some((it.key, sums))
        });
        (wakers.collect(), holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_summed_by_wakers_up_to_a_limit() {
        let mut objects = Objects::default();
        let number = objects.number(WaitKind::MUTEX, 7);
        for round in 0..5000u32 {
            objects.count_wakes(number, round * 7 % 300, 1 + u64::from(round % 2));
        }
        let other = objects.number(WaitKind::MUTEX, 8);
        (0..5000).for_each(|waker| objects.count_wakes(other, waker, 1));
        let (wakers, holds) = objects.finish();
        let sums = &wakers[&(WaitKind::MUTEX, 7)];
        assert_eq!((sums.len(), sums.values().sum::<u64>()), (300, 7500));
        // Every round that is a multiple of 300, of which half are odd.
        let of_first: u64 = (0..5000).step_by(300).map(|it| 1 + it % 2).sum();
        assert_eq!(sums[&0], of_first);
        assert_eq!(wakers[&(WaitKind::MUTEX, 8)].len(), WAKERS_MAX);
        assert!(holds.is_empty());
    }
}
