//! Samples of wake-ups, which the runtime takes itself: the stacks of the waker and of the thread
//! that it wakes.

use std::collections::HashMap;

use raddle_inspect::{SAMPLE_STACK_BYTES, WakeHeader, Wire};

use crate::capture::Target;
use crate::memory::Memory;
use crate::own_series::registers;
use crate::perf_event::{CopiedStack, Sample};
use crate::sample_rings::{self, State, listed, states};

/// See the module.
#[derive(Default)]
pub struct WakeSeries {
    /// By the rings' places: the next sample.
    next: HashMap<u64, u64>,
    lost: u64,
}

/// A wake-up by a green thread.
pub struct WakeSample {
    /// The stamp of the wake-up's event.
    pub stamp: u64,
    /// The ids of both threads. That of the woken one is 0 if it was in the kernel for `word`.
    pub thread: u32,
    pub waker: u32,
    /// The shared word that the waker has woken, or 0.
    pub word: u64,
    /// How long the thread has waited, and the time waited for which the sample stands, in ticks
    /// of the time-stamp counter.
    pub waited: u64,
    pub stands_for: u64,
    pub(crate) by: Sample,
    pub(crate) woken: Woken,
}

/// The stack of a thread that waits.
pub(crate) struct Woken {
    /// The address of its switch frame.
    pub context: u64,
    pub stack: CopiedStack,
}

impl WakeSeries {
    /// A series that begins now. Rings that come later are read from their beginning.
    pub fn begin(target: &Target<'_>) -> WakeSeries {
        let rings = rings(target).into_iter();
        let next = rings.filter_map(|(ring, state)| Some((ring, state?[2])));
        WakeSeries {
            next: next.collect(),
            lost: 0,
        }
    }

    /// Returns the samples since the last call, in the order of their stamps.
    pub fn take(&mut self, target: &Target<'_>) -> Vec<WakeSample> {
        let mut found = Vec::new();
        for ring in rings(target) {
            let next = self.next.entry(ring.0).or_insert(0);
            let number = |sample: &(WakeHeader, [Vec<u8>; 2])| sample.0.number;
            let bytes = WakeHeader::SLOT_BYTES;
            let (samples, lost) =
                sample_rings::take(target.memory, ring, next, bytes, read, number);
            self.lost = self.lost.saturating_add(lost);
            found.extend(samples.into_iter().map(WakeSample::of));
        }
        found.sort_by_key(|sample| sample.stamp);
        found
    }

    /// Returns how many samples were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl WakeSample {
    fn of((header, [waker, woken]): (WakeHeader, [Vec<u8>; 2])) -> WakeSample {
        let [_, _, pointer, ..] = header.registers;
        WakeSample {
            stamp: header.stamp,
            thread: header.thread,
            waker: header.waker,
            word: if header.thread == 0 {
                header.context
            } else {
                0
            },
            waited: header.waited,
            stands_for: header.stands_for,
            by: Sample {
                boot_ns: 0,
                cpu_ns: 0,
                is_in_kernel: false,
                stack: CopiedStack::of(pointer, &waker),
                registers: registers(header.registers),
            },
            woken: Woken {
                context: header.context,
                stack: CopiedStack::of(header.context, &woken),
            },
        }
    }
}

/// Returns the places of all rings, with their words.
fn rings(target: &Target<'_>) -> Vec<(u64, Option<State>)> {
    let offset = target.layout.carrier_wakes;
    let carriers = listed(target).into_iter().map(|(it, _)| it);
    let carriers: Vec<u64> = carriers.collect();
    let states = states(target.memory, &carriers, offset);
    let places = carriers.iter().map(|it| it.wrapping_add(offset));
    places.zip(states).collect()
}

fn read(memory: &dyn Memory, slot: u64) -> Option<(WakeHeader, [Vec<u8>; 2])> {
    let mut bytes = [0; size_of::<WakeHeader>()];
    memory.read_all(slot, &mut bytes)?;
    let header = WakeHeader::from_prefix(&bytes)?;
    let first = slot.wrapping_add(bytes.len() as u64);
    let stack = |at: u64, length: u32| {
        let length = length as usize;
        let mut stack = vec![0; (length <= SAMPLE_STACK_BYTES).then_some(length)?];
        memory.read_all(at, &mut stack)?;
        Some(stack)
    };
    let waker = stack(first, header.waker_bytes)?;
    let second = first.wrapping_add(SAMPLE_STACK_BYTES as u64);
    Some((header, [waker, stack(second, header.woken_bytes)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot at 0x1000.
    struct Slot(Vec<u8>);

    impl Memory for Slot {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let from = (address - 0x1000) as usize;
            let length = to.len().min(self.0.len() - from);
            to[..length].copy_from_slice(&self.0[from..from + length]);
            length
        }
    }

    fn slot(change: impl FnOnce(&mut WakeHeader)) -> Slot {
        let mut header = WakeHeader {
            number: 1,
            waker_bytes: 16,
            woken_bytes: 8,
            ..WakeHeader::default()
        };
        change(&mut header);
        let mut bytes = vec![0; WakeHeader::SLOT_BYTES];
        let first = size_of::<WakeHeader>();
        bytes[..first].copy_from_slice(header.as_bytes());
        bytes[first..][..SAMPLE_STACK_BYTES].fill(1);
        bytes[first + SAMPLE_STACK_BYTES..].fill(2);
        Slot(bytes)
    }

    #[test]
    fn a_slot_has_two_stacks() {
        let (header, stacks) = read(&slot(|header| header.thread = 7), 0x1000).unwrap();
        assert_eq!(header.thread, 7);
        assert_eq!(stacks, [vec![1; 16], vec![2; 8]]);
    }

    #[test]
    fn stacks_that_are_too_long_are_nonsense() {
        let too_long = SAMPLE_STACK_BYTES as u32 + 1;
        assert!(read(&slot(|header| header.waker_bytes = too_long), 0x1000).is_none());
        assert!(read(&slot(|header| header.woken_bytes = u32::MAX), 0x1000).is_none());
    }
}
