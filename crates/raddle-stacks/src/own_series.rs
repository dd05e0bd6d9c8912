//! Samples of carriers that the runtime takes itself, where the kernel permits no perf events. The
//! process writes them to a ring of each carrier's, which is read here.
//!
//! `sample_rings` says when a sample is good.

use std::collections::HashMap;

use raddle_inspect::{SAMPLE_STACK_BYTES, SampleHeader, Wire};

use crate::bound::{BoundThread, KernelTimes};
use crate::capture::Target;
use crate::kernel::KernelThreads;
use crate::memory::Memory;
use crate::perf_event::{CopiedStack, Sample};
use crate::rules::{RBP, RBX, RIP, RSP, Registers};
use crate::sample_rings::{self, State, carriers, states, words};
use crate::series::RunningSample;

/// The registers of a sample, in its order.
const SAMPLE_REGISTERS: [usize; 8] = [RBX, RBP, RSP, RIP, 12, 13, 14, 15];

/// See the module.
pub struct OwnSeries {
    /// By the rings' places: the next sample.
    next: HashMap<u64, u64>,
    /// The CPU time of kernel threads at their last samples, by their numbers in the process's own
    /// namespace. `None` where the kernel doesn't say what they had used before: their first
    /// samples stand for nothing.
    cpu_ns: HashMap<u32, Option<u64>>,
    lost: u64,
}

impl OwnSeries {
    /// A series that begins now. Kernel threads that come later are sampled from their beginning.
    pub fn begin(target: &Target<'_>, bound: &[BoundThread]) -> OwnSeries {
        let mut series = OwnSeries {
            next: HashMap::new(),
            cpu_ns: HashMap::new(),
            lost: 0,
        };
        let kernel_threads = KernelThreads::of(target.pid, None);
        for (carrier, _) in carriers(target, bound) {
            let own_tid = target.layout.carrier_kernel_tid;
            let own_tid = target.memory.half(carrier.wrapping_add(own_tid));
            if let Some(own_tid) = own_tid.filter(|&tid| tid != 0) {
                let tid = kernel_threads.here(own_tid);
                let cpu_ns = KernelTimes::of(target.pid, tid).map(|it| it.cpu_ns);
                let cpu_ns = cpu_ns.filter(|&ns| ns != 0);
                series.cpu_ns.insert(own_tid, cpu_ns);
            }
            if let Some([_, _, written]) = words(target.memory, ring(target, carrier)) {
                series.next.insert(ring(target, carrier), written);
            }
        }
        series
    }

    /// Calls `each` with the samples since the last call, carrier by carrier. `boot_ns` is the time
    /// of a stamp; samples of kernel threads that are `known` otherwise are left out.
    pub fn take(
        &mut self,
        target: &Target<'_>,
        bound: &[BoundThread],
        boot_ns: &dyn Fn(u64) -> u64,
        known: &dyn Fn(u32) -> bool,
        mut each: impl FnMut(RunningSample),
    ) {
        let mut found = Vec::new();
        let carriers = carriers(target, bound);
        let addresses: Vec<u64> = carriers.iter().map(|(carrier, _)| *carrier).collect();
        let states = states(target.memory, &addresses, target.layout.carrier_samples);
        for ((carrier, id), state) in carriers.into_iter().zip(states) {
            let ring = ring(target, carrier);
            let next = self.next.entry(ring).or_insert(0);
            let (samples, lost) = take(target.memory, (ring, state), next);
            self.lost = self.lost.saturating_add(lost);
            found.extend(samples.into_iter().map(|it| (id, it)));
        }
        for (carrier, (header, stack)) in found {
            let cpu_ns = self.cpu_ns.entry(header.kernel_tid).or_insert(Some(0));
            let before_ns = cpu_ns.unwrap_or(header.cpu_ns);
            let ns = header.cpu_ns.saturating_sub(before_ns);
            *cpu_ns = Some(header.cpu_ns.max(before_ns));
            if known(header.kernel_tid) {
                continue;
            }
            let registers = registers(header.registers);
            let boot_ns = boot_ns(header.stamp);
            each(RunningSample {
                carrier,
                thread: Some(header.thread),
                boot_ns,
                ns,
                sample: Sample {
                    boot_ns,
                    cpu_ns: header.cpu_ns,
                    is_in_kernel: false,
                    stack: CopiedStack::of(header.registers[2], &stack),
                    registers,
                },
            });
        }
    }

    /// Returns how many samples were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Returns the registers of a sample by their DWARF numbers.
pub(crate) fn registers(values: [u64; 8]) -> Registers {
    let mut registers: Registers = Default::default();
    for (value, register) in values.into_iter().zip(SAMPLE_REGISTERS) {
        registers[register] = Some(value);
    }
    registers
}

fn ring(target: &Target<'_>, carrier: u64) -> u64 {
    carrier.wrapping_add(target.layout.carrier_samples)
}

/// See [`sample_rings::take`](crate::sample_rings::take).
fn take(
    memory: &dyn Memory,
    ring: (u64, Option<State>),
    next: &mut u64,
) -> (Vec<(SampleHeader, Vec<u8>)>, u64) {
    let number = |(header, _): &(SampleHeader, Vec<u8>)| header.number;
    sample_rings::take(memory, ring, next, SampleHeader::SLOT_BYTES, read, number)
}

fn read(memory: &dyn Memory, slot: u64) -> Option<(SampleHeader, Vec<u8>)> {
    let mut bytes = [0; size_of::<SampleHeader>()];
    memory.read_all(slot, &mut bytes)?;
    let header = SampleHeader::from_prefix(&bytes)?;
    let length = usize::try_from(header.stack_bytes).ok()?;
    let mut stack = vec![0; (length <= SAMPLE_STACK_BYTES).then_some(length)?];
    memory.read_all(slot.wrapping_add(bytes.len() as u64), &mut stack)?;
    Some((header, stack))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    const RING: u64 = 0x1000;
    const SLOTS: u64 = 0x10_0000;
    const CAPACITY: u64 = 4;

    /// A ring at [`RING`], which grows by `rush` samples at each read of a stack.
    struct Fake {
        mask: u64,
        written: Cell<u64>,
        rush: u64,
        slots: RefCell<Vec<u8>>,
    }

    impl Fake {
        fn new(rush: u64) -> Fake {
            Fake {
                mask: CAPACITY - 1,
                written: Cell::new(0),
                rush,
                slots: RefCell::new(vec![0; CAPACITY as usize * SampleHeader::SLOT_BYTES]),
            }
        }

        fn write(&self, change: impl FnOnce(&mut SampleHeader)) {
            let at = self.written.get();
            let mut header = SampleHeader {
                number: at + 1,
                cpu_ns: at * 10,
                stack_bytes: 64,
                ..SampleHeader::default()
            };
            change(&mut header);
            let place = (at % CAPACITY) as usize * SampleHeader::SLOT_BYTES;
            let slot = &mut self.slots.borrow_mut()[place..][..SampleHeader::SLOT_BYTES];
            slot[..128].copy_from_slice(header.as_bytes());
            slot[128..].fill(at as u8 + 1);
            self.written.set(at + 1);
        }
    }

    impl Memory for Fake {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let bytes = match address {
                RING => [SLOTS, self.mask, self.written.get()]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect(),
                SLOTS.. => {
                    let slots = self.slots.borrow();
                    let from = (address - SLOTS) as usize;
                    slots.get(from..).unwrap_or_default().to_vec()
                }
                _ => Vec::new(),
            };
            if to.len() == 64 {
                (0..self.rush).for_each(|_| self.write(|_| {}));
            }
            let length = bytes.len().min(to.len());
            to[..length].copy_from_slice(&bytes[..length]);
            length
        }
    }

    fn taken(fake: &Fake, next: &mut u64) -> (Vec<u64>, u64) {
        let (samples, lost) = take(fake, (RING, words(fake, RING)), next);
        let numbers = samples.iter().map(|(header, stack)| {
            assert!(stack.iter().all(|&byte| u64::from(byte) == header.number));
            header.number
        });
        (numbers.collect(), lost)
    }

    #[test]
    fn each_sample_is_taken_once_and_those_overwritten_are_counted() {
        let (fake, mut next) = (Fake::new(0), 0);
        assert_eq!(taken(&fake, &mut next), (vec![], 0));
        (0..2).for_each(|_| fake.write(|_| {}));
        assert_eq!(taken(&fake, &mut next), (vec![1, 2], 0));
        (0..6).for_each(|_| fake.write(|_| {}));
        assert_eq!(taken(&fake, &mut next), (vec![6, 7, 8], 3));
        assert_eq!(taken(&fake, &mut next), (vec![], 0));
    }

    #[test]
    fn a_slot_that_is_written_meanwhile_is_not_believed() {
        let (fake, mut next) = (Fake::new(2), 0);
        (0..3).for_each(|_| fake.write(|_| {}));
        // Two more come after each header: the first sample's slot is perhaps being written then.
        let (numbers, lost) = taken(&fake, &mut next);
        assert_eq!((numbers.len(), lost), (0, 3));
    }

    #[test]
    fn nonsense_is_no_sample() {
        let (fake, mut next) = (Fake::new(0), 0);
        fake.write(|header| header.number = 7);
        fake.write(|header| header.stack_bytes = u64::MAX);
        fake.write(|header| header.stack_bytes = SAMPLE_STACK_BYTES as u64 + 1);
        assert_eq!(taken(&fake, &mut next), (vec![], 3));
        fake.written.set(u64::MAX);
        assert_eq!(taken(&fake, &mut 0), (vec![], u64::MAX));
        let mut huge = Fake::new(0);
        huge.mask = u64::MAX >> 1;
        huge.written.set(u64::MAX);
        assert_eq!(taken(&huge, &mut 0), (vec![], 0));
        let mut later = 9;
        assert_eq!(taken(&Fake::new(0), &mut later), (vec![], 0));
        assert_eq!(later, 0);
    }
}
