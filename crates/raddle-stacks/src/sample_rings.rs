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

/// Calls `each` with the addresses and the ids of carriers, those of bound threads included.
pub(crate) fn each_carrier(
    target: &Target<'_>,
    bound: &[BoundThread],
    mut each: impl FnMut(u64, u32),
) {
    let (memory, layout) = (target.memory, target.layout);
    let count = memory.half(layout.carrier_count).unwrap_or(0);
    for index in 0..count.min(CARRIERS_MAX) {
        let at = layout.carriers.wrapping_add(u64::from(index) * 8);
        if let Some(carrier) = memory.word(at).filter(|&carrier| carrier != 0) {
            let id = memory.half(carrier.wrapping_add(layout.carrier_id));
            each(carrier, id.unwrap_or(index));
        }
    }
    bound.iter().for_each(|it| each(it.carrier, it.id));
}

/// Takes the good samples of a ring from `next` on, and counts those that were overwritten. `read`
/// reads a slot, and `number` says its number, from 1 on.
pub(crate) fn take<S>(
    memory: &dyn Memory,
    ring: u64,
    next: &mut u64,
    slot_bytes: usize,
    read: impl Fn(&dyn Memory, u64) -> Option<S>,
    number: impl Fn(&S) -> u64,
) -> (Vec<S>, u64) {
    let (mut good, mut lost) = (Vec::new(), 0);
    let Some([slots, mask, written]) = words(memory, ring) else {
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

/// Reads three words.
pub(crate) fn words(memory: &dyn Memory, at: u64) -> Option<[u64; 3]> {
    let mut bytes = [0; 24];
    memory.read_all(at, &mut bytes)?;
    let word = |n: usize| {
        let word = bytes[n * 8..].first_chunk().copied();
        u64::from_le_bytes(word.unwrap_or_default())
    };
    Some(std::array::from_fn(word))
}
