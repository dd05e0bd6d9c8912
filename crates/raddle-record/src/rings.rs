//! The rings of events, in the memory of the process that writes them meanwhile.
//!
//! The protocol is that of [`CarrierOffsets::events`](raddle_inspect::CarrierOffsets): a copy is
//! good if the number of events written, read after it, leaves the copied slots alone.

use std::collections::HashMap;

use raddle_inspect::{EVENT_WORDS, Event, Layout};
use raddle_stacks::Memory;

/// The most carriers of a process.
const CARRIERS_MAX: u32 = 1 << 12;
/// The most slots of a ring.
const SLOTS_MAX: u64 = 1 << 22;
/// Slots that are read at a time.
const PIECE: u64 = 1 << 14;
/// The most events of a ring that are read by one call, so that a reader that falls behind needs no
/// more memory.
const AT_ONCE: u64 = 1 << 17;
const SLOT_BYTES: usize = EVENT_WORDS * 8;

/// The writer of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// The carrier with this id.
    Carrier(u32),
    /// The carrier with this id, which runs one bound thread and nothing else.
    Bound(u32),
    /// A kernel thread that is no carrier.
    Other,
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the events that the rings still have.
    Oldest,
    /// With the next event; rings that are new later are read from their beginning.
    Now,
}

/// The rings of one process, and how far each was read.
pub struct Rings {
    layout: Layout,
    from: From,
    /// Carriers of bound threads: no list of the process's has them.
    bound: Vec<u64>,
    /// Those of the time before the last call of [`Rings::follow_bound`].
    bound_before: Vec<u64>,
    /// By the ring's address: its lane, and the next event.
    next: HashMap<u64, (Lane, u64)>,
    lost: u64,
    /// The last call found a ring with an eighth of its slots used, or more.
    is_behind: bool,
    /// See [`Rings::read_to`].
    read_to: Option<u64>,
    /// What the process counted as lost when reading began.
    lost_before: Option<u64>,
    bytes: Vec<u8>,
}

impl Rings {
    /// The rings that a layout tells.
    pub fn new(layout: Layout, from: From) -> Rings {
        Rings {
            layout,
            from,
            bound: Vec::new(),
            bound_before: Vec::new(),
            next: HashMap::new(),
            lost: 0,
            is_behind: false,
            read_to: None,
            lost_before: None,
            bytes: Vec::new(),
        }
    }

    /// Reads the rings of these carriers, too, which bound threads have. One that is not among them
    /// any more is read once more: its thread may have ended since the last call.
    pub fn follow_bound(&mut self, carriers: impl IntoIterator<Item = u64>) {
        self.bound_before = std::mem::take(&mut self.bound);
        let most = CARRIERS_MAX as usize;
        self.bound = carriers.into_iter().take(most).collect();
    }

    /// Calls `each` with every event that came since the last call, ring by ring, each in the order
    /// of its writer. Returns false if the process's memory can't be read any more.
    pub fn poll(&mut self, memory: &dyn Memory, mut each: impl FnMut(Lane, Event)) -> bool {
        let Some(count) = memory.half(self.layout.carrier_count) else {
            return false;
        };
        self.is_behind = false;
        self.read_to = None;
        self.read(memory, Lane::Other, self.layout.common_events, &mut each);
        let mut listed = Vec::new();
        for index in 0..count.min(CARRIERS_MAX) {
            let at = self.layout.carriers.wrapping_add(u64::from(index) * 8);
            let Some(carrier) = memory.word(at).filter(|&carrier| carrier != 0) else {
                continue;
            };
            let id = memory.half(carrier.wrapping_add(self.layout.carrier_id));
            let ring = carrier.wrapping_add(self.layout.carrier.events.into());
            self.read(memory, Lane::Carrier(id.unwrap_or(index)), ring, &mut each);
            listed.push(carrier);
        }
        let mut bound = std::mem::take(&mut self.bound);
        let count = bound.len();
        let mut before = std::mem::take(&mut self.bound_before);
        before.retain(|it| !bound.contains(it));
        bound.append(&mut before);
        // A carrier may be listed that was a bound thread's before.
        for &carrier in bound.iter().filter(|it| !listed.contains(it)) {
            let id = memory.half(carrier.wrapping_add(self.layout.carrier_id));
            let ring = carrier.wrapping_add(self.layout.carrier.events.into());
            self.read(memory, Lane::Bound(id.unwrap_or(0)), ring, &mut each);
        }
        bound.truncate(count);
        self.bound = bound;
        // A ring that is new from now on is read from its beginning.
        self.from = From::Oldest;
        true
    }

    /// Returns the stamp up to which the last call has read all rings, if it left events for the
    /// next one.
    pub fn read_to(&self) -> Option<u64> {
        self.read_to
    }

    /// Returns true if the rings should be read again at once.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns how many events were overwritten before they were read, or had no room.
    pub fn lost(&mut self, memory: &dyn Memory) -> u64 {
        let counted = memory.word(self.layout.lost_events).unwrap_or(0);
        let before = *self.lost_before.get_or_insert(counted);
        self.lost + counted.saturating_sub(before)
    }

    fn read(
        &mut self,
        memory: &dyn Memory,
        lane: Lane,
        ring: u64,
        each: &mut dyn FnMut(Lane, Event),
    ) {
        let Some([place, start, written]) = words(memory, ring) else {
            return;
        };
        let slots = place & !Layout::RING_CAPACITY;
        let capacity = 1u64 << (place & Layout::RING_CAPACITY);
        if slots == 0 || capacity > SLOTS_MAX {
            return;
        }
        let mask = capacity - 1;
        let oldest = written.saturating_sub(mask).max(start);
        let first = match self.from {
            From::Oldest => oldest,
            From::Now => written,
        };
        let (_, mut at) = *self.next.entry(ring).or_insert((lane, first));
        self.is_behind |= written.saturating_sub(at) > capacity / 8;
        if at < oldest {
            // The writer would overwrite the next ones, too: one long gap instead of many.
            let from = oldest + (written - oldest) / 2;
            self.lost += from - at;
            at = from;
        }
        let end = written.min(at + AT_ONCE);
        let mut last = 0;
        while at < end {
            let within = at & mask;
            let count = PIECE.min(capacity - within).min(end - at);
            self.bytes.resize(count as usize * SLOT_BYTES, 0);
            let from = slots.wrapping_add(within * SLOT_BYTES as u64);
            let got = memory.read(from, &mut self.bytes) / SLOT_BYTES;
            let Some([.., after]) = words(memory, ring).filter(|_| got != 0) else {
                break;
            };
            let good = after.saturating_sub(mask);
            for (slot, number) in self.bytes.chunks_exact(SLOT_BYTES).take(got).zip(at..) {
                let word = |n: usize| {
                    let bytes = slot[n * 8..].first_chunk().copied();
                    u64::from_le_bytes(bytes.unwrap_or_default())
                };
                let event = Event::from_words(std::array::from_fn(word));
                match event.filter(|_| number >= good) {
                    Some(event) => {
                        last = event.stamp;
                        each(lane, event);
                    }
                    None => self.lost += 1,
                }
            }
            at += got as u64;
        }
        // Events that can't be read are left, and don't count.
        if at >= end && at < written {
            self.read_to = Some(self.read_to.map_or(last, |read_to| read_to.min(last)));
        }
        self.next.insert(ring, (lane, at.max(first)));
    }
}

fn words(memory: &dyn Memory, at: u64) -> Option<[u64; 3]> {
    let mut bytes = [0; 24];
    memory.read_all(at, &mut bytes)?;
    let word = |n: usize| {
        let word = bytes[n * 8..].first_chunk().copied();
        u64::from_le_bytes(word.unwrap_or_default())
    };
    Some(std::array::from_fn(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::{EventKind, WaitKind};
    use std::cell::RefCell;

    /// A process with one carrier at 0x1000, which has its ring at 0x1100 and slots at 0x10000.
    struct Fake {
        slots: RefCell<Vec<u8>>,
        written: RefCell<u64>,
        /// Written by each read of slots.
        rush: u64,
    }

    const CAPACITY: u64 = 8;

    impl Memory for Fake {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let bytes: Vec<u8> = match address {
                0x500 => 1u32.to_le_bytes().to_vec(),
                0x600 => 0x1000u64.to_le_bytes().to_vec(),
                0x1010 => 5u32.to_le_bytes().to_vec(),
                0x1100 => [0x10000 | 3, 0, *self.written.borrow()]
                    .iter()
                    .flat_map(|word| word.to_le_bytes())
                    .collect(),
                0x10000.. => {
                    let from = (address - 0x10000) as usize;
                    let slots = self.slots.borrow();
                    let Some(rest) = slots.get(from..) else {
                        return 0;
                    };
                    let copied = rest.to_vec();
                    drop(slots);
                    (0..self.rush).for_each(|_| self.push());
                    copied
                }
                _ => vec![0; to.len()],
            };
            let len = to.len().min(bytes.len());
            to[..len].copy_from_slice(&bytes[..len]);
            len
        }
    }

    impl Fake {
        fn new(rush: u64) -> Fake {
            Fake {
                slots: RefCell::new(vec![0; CAPACITY as usize * SLOT_BYTES]),
                written: RefCell::new(0),
                rush,
            }
        }

        fn push(&self) {
            let mut written = self.written.borrow_mut();
            let event = Event {
                stamp: *written + 1,
                kind: EventKind::SWITCH,
                thread: 1,
                other: 2,
                wait: WaitKind::NONE,
                arg: 0,
            };
            let at = (*written % CAPACITY) as usize * SLOT_BYTES;
            for (word, at) in event.words().into_iter().zip((at..).step_by(8)) {
                self.slots.borrow_mut()[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            *written += 1;
        }
    }

    fn layout() -> Layout {
        let mut bytes = vec![0; size_of::<Layout>()];
        bytes[..8].copy_from_slice(&raddle_inspect::LAYOUT_MAGIC);
        bytes[8..12].copy_from_slice(&raddle_inspect::LAYOUT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(size_of::<Layout>() as u32).to_le_bytes());
        let mut layout = Layout::parse(&bytes).unwrap();
        layout.carrier_count = 0x500;
        layout.carriers = 0x600;
        layout.carrier_id = 0x10;
        layout.carrier.events = 0x100;
        layout
    }

    fn stamps(rings: &mut Rings, process: &Fake) -> Vec<u64> {
        let mut stamps = Vec::new();
        let goes_on = rings.poll(process, |lane, event| {
            assert_eq!(lane, Lane::Carrier(5));
            stamps.push(event.stamp);
        });
        assert!(goes_on);
        stamps
    }

    #[test]
    fn each_event_is_read_once_and_those_that_were_overwritten_count_as_lost() {
        let process = Fake::new(0);
        let mut rings = Rings::new(layout(), From::Oldest);
        assert!(stamps(&mut rings, &process).is_empty());
        (0..3).for_each(|_| process.push());
        assert_eq!(stamps(&mut rings, &process), [1, 2, 3]);
        (0..10).for_each(|_| process.push());
        assert_eq!(stamps(&mut rings, &process), [10, 11, 12, 13]);
        assert_eq!(rings.lost(&process), 6);
        let mut later = Rings::new(layout(), From::Now);
        assert!(stamps(&mut later, &process).is_empty());
        process.push();
        assert_eq!(stamps(&mut later, &process), [14]);
    }

    #[test]
    fn a_bound_threads_ring_is_read_once_more_after_its_end() {
        let process = Fake::new(0);
        let mut unlisted = layout();
        unlisted.carrier_count = 0x700; // zero
        let mut rings = Rings::new(unlisted, From::Oldest);
        let mut read = |bound: Option<u64>| {
            rings.follow_bound(bound);
            let mut stamps = Vec::new();
            rings.poll(&process, |lane, event| {
                assert_eq!(lane, Lane::Bound(5));
                stamps.push(event.stamp);
            });
            stamps
        };
        process.push();
        assert!(read(None).is_empty());
        assert_eq!(read(Some(0x1000)), [1]);
        process.push();
        assert_eq!(read(None), [2], "the thread's end");
        process.push();
        assert!(read(None).is_empty(), "another thread's");
        // One that is listed is no bound thread's.
        let mut rings = Rings::new(layout(), From::Oldest);
        rings.follow_bound([0x1000]);
        assert_eq!(stamps(&mut rings, &process), [1, 2, 3]);
    }

    #[test]
    fn a_slot_that_is_written_meanwhile_is_not_believed() {
        let process = Fake::new(3);
        let mut rings = Rings::new(layout(), From::Oldest);
        (0..7).for_each(|_| process.push());
        // After the read 10 events are written: 3 to 9 are intact.
        assert_eq!(stamps(&mut rings, &process), [4, 5, 6, 7]);
        assert_eq!(rings.lost(&process), 3);
    }
}
