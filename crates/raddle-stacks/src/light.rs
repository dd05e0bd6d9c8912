//! Light threads of the explicit API, as they are in the process's memory.
//!
//! The slot of each host leads to the places of its group ([`LightPlaces`]), and these to the
//! regions of stacks. A light thread that is on a host has the state and the stack of that host's
//! thread. One that is on none is read from its switch frame, as a green thread is.
//!
//! Light threads count no switches, so a sequence check like that of slots is not possible. The
//! stack is read twice instead: if the light thread is off its stack with the same context before
//! and after, and all bytes that were used are the same at both times, then the stack is one that
//! it had.

use std::collections::{HashMap, HashSet};

use raddle_inspect::{
    LIGHT_TID_BASE, LIGHTS_MAX, Layout, LightPlaces, LightRegion, NAME_BYTES, NO_CARRIER,
    ThreadFlags, ThreadRecord, ThreadState, WaitKind, Wire,
};

use crate::capture::Target;
use crate::memory::Memory;
use crate::table::Slot;

/// The most bytes of a light thread's structure.
const LIGHT_BYTES_MAX: u64 = 1 << 12;
/// The most groups of hosts, and the most regions of a group.
const GROUPS_MAX: usize = 16;
const REGIONS_MAX: usize = 1 << 16;
/// The most stacks that are looked at.
const STACKS_MAX: u64 = 1 << 21;
/// Light threads that are read by one call.
const PIECE: usize = 256;
/// The name that a dump gives to all light threads, which have none of their own.
const NAME: [u8; NAME_BYTES] = *b"light\0\0\0\0\0\0\0\0\0\0\0";

/// A light thread, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LightSlot {
    pub address: u64,
    /// The end of its structure, and of its stack.
    pub end: u64,
    pub record: ThreadRecord,
    pub is_on_cpu: bool,
    pub context: u64,
    /// Which of the light threads that its stack has had.
    pub life: u64,
    /// The address of its host's control, or 0.
    pub host: u64,
}

impl LightSlot {
    /// Returns true if both looks show the same light thread off its stack, where it was.
    pub(crate) fn is_unmoved(&self, later: &LightSlot) -> bool {
        let state = |slot: &LightSlot| (slot.life, slot.is_on_cpu, slot.context);
        !self.is_on_cpu && state(self) == state(later)
    }
}

/// The groups of hosts of a process.
pub(crate) struct Lights<'a> {
    memory: &'a dyn Memory,
    groups: Vec<Group>,
    /// The threads that host, by the addresses of their controls.
    hosts: HashMap<u64, u32>,
}

struct Group {
    places: LightPlaces,
    epoch: u64,
}

impl<'a> Lights<'a> {
    /// Finds the groups to which the slots lead.
    pub(crate) fn find(target: &Target<'a>, slots: &[Slot]) -> Lights<'a> {
        let (memory, layout) = (target.memory, target.layout);
        let word = |at: u64, offset: u64| memory.word(at.checked_add(offset)?);
        let mut groups = Vec::new();
        let mut seen = HashSet::new();
        for slot in slots.iter().filter(|slot| slot.host != 0) {
            let Some(group) = word(slot.host, layout.host_group) else {
                continue;
            };
            if groups.len() < GROUPS_MAX && seen.insert(group) {
                let places = word(group, layout.group_lights);
                groups.extend(places.and_then(|at| Group::read(memory, at)));
            }
        }
        let hosts = slots.iter().filter(|slot| slot.host != 0);
        Lights {
            memory,
            groups,
            hosts: hosts.map(|slot| (slot.host, slot.record.tid)).collect(),
        }
    }

    /// Calls `each` with every light thread.
    pub(crate) fn for_each(&self, mut each: impl FnMut(LightSlot)) {
        for group in &self.groups {
            for region in group.regions(self.memory) {
                self.walk(group, &region, &mut each);
            }
        }
    }

    fn walk(&self, group: &Group, region: &LightRegion, each: &mut impl FnMut(LightSlot)) {
        let size = group.places.light_bytes as usize;
        let mut bytes = vec![0; PIECE * size];
        for from in (0..region.used).step_by(PIECE) {
            let numbers = from..region.used.min(from + PIECE as u64);
            let end = |number: u64| (number + 1).wrapping_mul(region.stack_bytes);
            let at: Vec<u64> = numbers
                .map(|number| region.low.wrapping_add(end(number)))
                .map(|end| end.wrapping_sub(size as u64))
                .collect();
            let room = &mut bytes[..at.len() * size];
            let is_there = self.memory.read_pieces(&at, size, room);
            for (index, light) in room.chunks_exact(size).enumerate() {
                if !is_there[index] {
                    continue;
                }
                let number = region.first.wrapping_add(from + index as u64);
                if let Some(slot) = self.parse(group, at[index], number, light) {
                    each(slot);
                }
            }
        }
    }

    /// Reads a light thread again; `None` if it has ended.
    pub(crate) fn again(&self, slot: &LightSlot) -> Option<LightSlot> {
        self.groups.iter().find_map(|group| {
            let size = group.places.light_bytes;
            if slot.end - slot.address != size {
                return None;
            }
            let mut bytes = vec![0; size as usize];
            self.memory.read_all(slot.address, &mut bytes)?;
            let number = u64::from(slot.record.tid - LIGHT_TID_BASE);
            self.parse(group, slot.address, number, &bytes)
        })
    }

    /// `None` if the stack has no light thread.
    fn parse(&self, group: &Group, address: u64, number: u64, light: &[u8]) -> Option<LightSlot> {
        let at = &group.places.light;
        let word = |at: u32| {
            let bytes = light.get(at as usize..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let half = |at: u32| {
            let bytes = light.get(at as usize..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let life = word(at.life)?;
        let number = u32::try_from(number).ok().filter(|it| *it < LIGHTS_MAX)?;
        if life % 2 == 0 || word(at.epoch)? != group.epoch {
            return None;
        }
        let is_on_cpu = half(at.on_cpu)? != 0;
        let host = word(at.host)?;
        // A wait for a completion leaves the claim word as it is, and so does a yield: the stack
        // tells them apart.
        let is_certain = half(at.claim)? == Layout::CLAIM_WAITING && host != 0;
        let state = match (is_on_cpu, host) {
            (true, _) => ThreadState::RUNNING,
            (false, 0) => ThreadState::RUNNABLE,
            (false, _) => ThreadState::WAITING,
        };
        let is_timed = is_certain && light.get(at.has_deadline as usize) != Some(&0);
        let record = ThreadRecord {
            tid: LIGHT_TID_BASE + number,
            carrier: NO_CARRIER,
            state,
            wait_kind: match state {
                ThreadState::WAITING => WaitKind::API,
                _ => WaitKind::NONE,
            },
            deadline_ns: if is_timed { word(at.deadline_ns)? } else { 0 },
            name: NAME,
            flags: if is_certain {
                ThreadFlags::LIGHT.union(ThreadFlags::CERTAIN)
            } else {
                ThreadFlags::LIGHT
            },
            host_tid: self.hosts.get(&host).copied().unwrap_or(0).into(),
            ..ThreadRecord::default()
        };
        Some(LightSlot {
            address,
            end: address.checked_add(group.places.light_bytes)?,
            record,
            is_on_cpu,
            context: word(at.context)?,
            life,
            host,
        })
    }
}

impl Group {
    fn read(memory: &dyn Memory, at: u64) -> Option<Group> {
        let mut bytes = [0; size_of::<LightPlaces>()];
        if at == 0 {
            return None;
        }
        memory.read_all(at, &mut bytes)?;
        let places = LightPlaces::parse(&bytes)?;
        let makes_sense = (8..=LIGHT_BYTES_MAX).contains(&places.light_bytes);
        makes_sense.then_some(())?;
        Some(Group {
            epoch: memory.word(places.epoch)?,
            places,
        })
    }

    /// Returns the regions that make sense, the oldest first.
    fn regions(&self, memory: &dyn Memory) -> Vec<LightRegion> {
        let mut regions = Vec::new();
        let mut seen = HashSet::new();
        let mut left = STACKS_MAX;
        let mut next = memory.word(self.places.regions).unwrap_or(0);
        while next != 0 && regions.len() < REGIONS_MAX && seen.insert(next) {
            let mut bytes = [0; size_of::<LightRegion>()];
            let read = memory.read_all(next, &mut bytes);
            let Some(region) = read.and_then(|()| LightRegion::from_prefix(&bytes)) else {
                break;
            };
            next = region.next;
            if region.stack_bytes > self.places.light_bytes && region.used <= left {
                left -= region.used;
                regions.push(region);
            }
        }
        regions.reverse();
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{LIGHT_MAGIC, LightOffsets};

    /// Bytes from address 0 on.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn put(&mut self, at: u64, words: &[u64]) {
            for (number, word) in words.iter().enumerate() {
                let at = at as usize + number * 8;
                self.0[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    impl Memory for Bytes {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let from = usize::try_from(address).map_or(self.0.len(), |it| it.min(self.0.len()));
            let length = to.len().min(self.0.len() - from);
            to[..length].copy_from_slice(&self.0[from..from + length]);
            length
        }
    }

    const REGION: u64 = 0x100;
    const LOW: u64 = 0x1000;
    const STACK: u64 = 0x400;
    const LIGHT: u64 = 64;
    const PLACES: LightPlaces = LightPlaces {
        magic: LIGHT_MAGIC,
        size: size_of::<LightPlaces>() as u64,
        regions: 0x80,
        epoch: 0x88,
        light_bytes: LIGHT,
        light: LightOffsets {
            on_cpu: 0,
            claim: 4,
            context: 8,
            host: 16,
            life: 24,
            epoch: 32,
            deadline_ns: 40,
            has_deadline: 48,
        },
    };

    /// Stacks of which each has a light thread with these words: claim, host, life, epoch.
    fn memory(lights: &[[u64; 4]], region: [u64; 5]) -> Bytes {
        let mut memory = Bytes(vec![0; 0x4000]);
        memory.0[8..8 + size_of::<LightPlaces>()].copy_from_slice(PLACES.as_bytes());
        memory.put(PLACES.regions, &[REGION, 7]);
        memory.put(REGION, &region);
        for (number, [claim, host, life, epoch]) in lights.iter().enumerate() {
            let at = LOW + (number as u64 + 1) * STACK - LIGHT;
            memory.put(at, &[claim << 32, at - 0x100, *host, *life, *epoch, 99, 1]);
        }
        memory
    }

    fn read(memory: &Bytes) -> Vec<LightSlot> {
        let lights = Lights {
            memory,
            groups: vec![Group::read(memory, 8).unwrap()],
            hosts: HashMap::from([(0x50, 42)]),
        };
        let mut slots = Vec::new();
        lights.for_each(|slot| slots.push(slot));
        for slot in &slots {
            assert_eq!(lights.again(slot), Some(*slot));
        }
        slots
    }

    #[test]
    fn only_light_threads_of_now_are_found() {
        let waiting = u64::from(Layout::CLAIM_WAITING);
        let lights = [
            [waiting, 0x50, 3, 7],
            [waiting, 0x50, 4, 7], // ended
            [waiting, 0x50, 3, 6], // the parent's
            [0, 0x50, 1, 7],
            [0, 0, 1, 7],
        ];
        // The region leads to itself.
        let slots = read(&memory(&lights, [REGION, LOW, STACK, 5, 10]));
        let state = |slot: &LightSlot| {
            let record = &slot.record;
            (
                record.tid - LIGHT_TID_BASE,
                record.state,
                record.deadline_ns,
            )
        };
        let wanted = [
            (10, ThreadState::WAITING, 99),
            (13, ThreadState::WAITING, 0),
            (14, ThreadState::RUNNABLE, 0),
        ];
        assert_eq!(slots.iter().map(state).collect::<Vec<_>>(), wanted);
        assert_eq!(slots.iter().map(|it| it.record.host_tid).sum::<u64>(), 84);
    }

    #[test]
    fn regions_that_make_no_sense_have_an_end() {
        for region in [
            [1, 2, 3, u64::MAX, 5],
            [0, u64::MAX - 5, STACK, 1000, u64::MAX],
            [REGION, LOW, u64::MAX, 1000, u64::MAX - 3],
            [0, LOW, 8, 1000, 0],
            [0, LOW, STACK, STACKS_MAX + 1, 0],
        ] {
            assert!(read(&memory(&[], region)).is_empty());
        }
    }
}
