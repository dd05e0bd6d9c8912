//! The rings of samples that each carrier of a process writes to, read from outside.
//!
//! A sample is good if the number of samples written, read after the copy, leaves its slot alone,
//! and if the slot has its number.

use crate::bound::BoundThread;
use crate::capture::Target;
use crate::memory::Memory;

/// The most carriers that are read.
const CARRIERS_MAX: u32 = 1 << 12;
/// The most slots of a ring.
const SLOTS_MAX: u64 = 1 << 10;

/// The words of a ring of samples: the place of its slots, their number less one, and the number of
/// samples written.
pub(crate) type State = [u64; 3];

/// Returns the addresses and the ids of carriers, those of bound threads included. A process keeps
/// dozens of spare carriers, so that all are read by one call to the kernel for each thousand.
pub(crate) fn carriers(target: &Target<'_>, bound: &[BoundThread]) -> Vec<(u64, u32)> {
    let (addresses, indices): (Vec<u64>, Vec<u32>) = listed(target).into_iter().unzip();
    let ids = halves(target.memory, &addresses, target.layout.carrier_id);
    let ids = ids.into_iter().zip(indices);
    let ids = ids.map(|(id, index)| id.unwrap_or(index));
    let bound = bound.iter().map(|it| (it.carrier, it.id));
    addresses.iter().copied().zip(ids).chain(bound).collect()
}

/// Returns the addresses of the carriers that are listed, with their places in the list.
pub(crate) fn listed(target: &Target<'_>) -> Vec<(u64, u32)> {
    let (memory, layout) = (target.memory, target.layout);
    let count = memory.half(layout.carrier_count).unwrap_or(0);
    let mut list = vec![0; count.min(CARRIERS_MAX) as usize * 8];
    let got = memory.read(layout.carriers, &mut list) / 8 * 8;
    let listed = list[..got].as_chunks().0.iter().zip(0..);
    let listed = listed.map(|(bytes, index)| (u64::from_le_bytes(*bytes), index));
    listed.filter(|&(carrier, _)| carrier != 0).collect()
}

/// Returns the four bytes that are so far behind each address, where they can be read.
pub(crate) fn halves(memory: &dyn Memory, addresses: &[u64], offset: u64) -> Vec<Option<u32>> {
    let read = read_each(memory, addresses, offset);
    let half = |bytes: Option<[u8; 4]>| bytes.map(u32::from_le_bytes);
    read.into_iter().map(half).collect()
}

/// Returns the words of the rings that are so far behind each address, where they can be read.
pub(crate) fn states(memory: &dyn Memory, addresses: &[u64], offset: u64) -> Vec<Option<State>> {
    let read = read_each(memory, addresses, offset);
    let state = |bytes: Option<[u8; 24]>| bytes.map(state_of);
    read.into_iter().map(state).collect()
}

fn read_each<const BYTES: usize>(
    memory: &dyn Memory,
    addresses: &[u64],
    offset: u64,
) -> Vec<Option<[u8; BYTES]>> {
    let places = addresses.iter().map(|it| it.wrapping_add(offset));
    let places: Vec<u64> = places.collect();
    let mut bytes = vec![0; places.len() * BYTES];
    let are_read = memory.read_pieces(&places, BYTES, &mut bytes);
    let pieces = bytes.as_chunks().0.iter().zip(are_read);
    pieces
        .map(|(bytes, is_read)| is_read.then_some(*bytes))
        .collect()
}

/// Takes the good samples of a ring from `next` on, and counts those that were overwritten. `read`
/// reads a slot, and `number` says its number, from 1 on. The ring's words were `state` before.
pub(crate) fn take<S>(
    memory: &dyn Memory,
    (ring, state): (u64, Option<State>),
    next: &mut u64,
    slot_bytes: usize,
    read: impl Fn(&dyn Memory, u64) -> Option<S>,
    number: impl Fn(&S) -> u64,
) -> (Vec<S>, u64) {
    let (mut good, mut lost) = (Vec::new(), 0);
    let Some([slots, mask, written]) = state else {
        return (good, lost);
    };
    let capacity = mask.wrapping_add(1);
    if slots == 0 || !capacity.is_power_of_two() || capacity > SLOTS_MAX {
        return (good, lost);
    }
    if *next > written {
        *next = written; // another ring than before, or nonsense
    }
    let oldest = written.saturating_sub(mask);
    lost += oldest.saturating_sub(*next);
    for at in (*next).max(oldest)..written {
        let slot = slots.wrapping_add((at & mask) * slot_bytes as u64);
        let sample = read(memory, slot).filter(|sample| number(sample) == at + 1);
        let after = words(memory, ring).map_or(u64::MAX, |[.., after]| after);
        match sample.filter(|_| after <= at.saturating_add(mask)) {
            Some(sample) => good.push(sample),
            None => lost += 1,
        }
    }
    *next = written;
    (good, lost)
}

/// Reads the words of a ring.
pub(crate) fn words(memory: &dyn Memory, at: u64) -> Option<State> {
    let mut bytes = [0; 24];
    memory.read_all(at, &mut bytes)?;
    Some(state_of(bytes))
}

fn state_of(bytes: [u8; 24]) -> State {
    std::array::from_fn(|number| {
        let word = bytes[number * 8..].first_chunk().copied();
        u64::from_le_bytes(word.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ProcessMemory;
    use std::cell::Cell;

    /// Counts the calls to the kernel.
    struct Counted(ProcessMemory, Cell<usize>);

    impl Memory for Counted {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            self.1.set(self.1.get() + 1);
            self.0.read(address, to)
        }

        fn read_pieces(&self, addresses: &[u64], bytes: usize, to: &mut [u8]) -> Vec<bool> {
            self.1.set(self.1.get() + 1);
            self.0.read_pieces(addresses, bytes, to)
        }
    }

    #[test]
    fn the_words_of_all_rings_are_read_at_once() {
        let memory = Counted(ProcessMemory::of(std::process::id()), Cell::new(0));
        let carriers: Vec<[u64; 4]> = (0..100).map(|it| [it, it + 1, it + 2, it + 3]).collect();
        let mut addresses: Vec<u64> = carriers.iter().map(|it| it.as_ptr() as u64).collect();
        addresses[7] = 8; // not mapped
        let states = states(&memory, &addresses, 8);
        let ids = halves(&memory, &addresses, 0);
        for (at, (state, id)) in (0u64..).zip(states.into_iter().zip(ids)) {
            let is_there = at != 7;
            assert_eq!(state, is_there.then_some([at + 1, at + 2, at + 3]));
            assert_eq!(id, is_there.then_some(at as u32));
        }
        assert_eq!(memory.1.get(), 2);
    }
}
