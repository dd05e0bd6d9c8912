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
/// The words that tell of a ring.
const STATE_BYTES: usize = 24;

/// An event as it stands in a ring: [`Event::from_words`] gives it. Its stamp is the first word.
pub type Words = [u64; EVENT_WORDS];

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

/// How far a ring was read.
#[derive(Clone, Copy)]
struct Next {
    /// The number of the next event.
    at: u64,
    /// Events before it are missing.
    has_gap: bool,
}

/// The rings of one process, and how far each was read.
pub struct Rings {
    layout: Layout,
    from: From,
    /// Carriers of bound threads: no list of the process's has them.
    bound: Vec<u64>,
    /// Those of the time before the last call of [`Rings::follow_bound`].
    bound_before: Vec<u64>,
    /// By the ring's address: what is read next.
    next: HashMap<u64, Next>,
    /// The rings that the last call has found.
    known: Vec<(Lane, u64)>,
    lost: u64,
    /// See [`Rings::whole_from`].
    whole_from: u64,
    /// See [`Rings::fullness`].
    fullness: f64,
    /// See [`Rings::read_to`].
    read_to: Option<u64>,
    /// What the process counted as lost when reading began.
    lost_before: Option<u64>,
    bytes: Vec<u8>,
    slots: Vec<u8>,
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
            known: Vec::new(),
            lost: 0,
            whole_from: 0,
            fullness: 0.0,
            read_to: None,
            lost_before: None,
            bytes: Vec::new(),
            slots: Vec::new(),
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
    pub fn poll(&mut self, memory: &dyn Memory, mut each: impl FnMut(Lane, Words)) -> bool {
        let Some(count) = memory.half(self.layout.carrier_count) else {
            return false;
        };
        (self.fullness, self.read_to) = (0.0, None);
        self.look(memory, count.min(CARRIERS_MAX) as usize);
        let known = std::mem::take(&mut self.known);
        let mut states = std::mem::take(&mut self.bytes);
        let places: Vec<u64> = known.iter().map(|&(_, ring)| ring).collect();
        states.resize(places.len() * STATE_BYTES, 0);
        let are_read = memory.read_pieces(&places, STATE_BYTES, &mut states);
        let rings = known.iter().zip(states.chunks_exact(STATE_BYTES));
        for ((&(lane, ring), state), is_read) in rings.zip(are_read) {
            if is_read {
                self.read(memory, (lane, ring), state_of(state), &mut each);
            }
        }
        (self.known, self.bytes) = (known, states);
        // A ring that is new from now on is read from its beginning.
        self.from = From::Oldest;
        true
    }

    /// Finds the rings: the common one, and those of so many carriers.
    fn look(&mut self, memory: &dyn Memory, count: usize) {
        self.known.clear();
        self.known.push((Lane::Other, self.layout.common_events));
        let bytes = &mut self.bytes;
        bytes.resize(count * 8, 0);
        let got = memory.read(self.layout.carriers, bytes) / 8;
        let carriers = bytes.chunks_exact(8).take(got).zip(0..);
        let mut carriers: Vec<(u64, u32)> = carriers
            .map(|(bytes, index)| (word(bytes, 0), index))
            .filter(|&(carrier, _)| carrier != 0)
            .collect();
        let mut before = std::mem::take(&mut self.bound_before);
        before.retain(|it| !self.bound.contains(it));
        let bound: Vec<u64> = self.bound.iter().chain(&before).copied().collect();
        // A carrier may be listed that was a bound thread's before.
        let bound = bound
            .into_iter()
            .filter(|it| !carriers.iter().any(|(listed, _)| listed == it));
        let bound: Vec<u64> = bound.collect();
        let listed = carriers.len();
        carriers.extend(bound.into_iter().map(|carrier| (carrier, 0)));
        let ids = carriers.iter();
        let ids = ids.map(|&(carrier, _)| carrier.wrapping_add(self.layout.carrier_id));
        let ids: Vec<u64> = ids.collect();
        bytes.resize(ids.len() * 4, 0);
        let are_read = memory.read_pieces(&ids, 4, bytes);
        let ids = bytes.chunks_exact(4).zip(are_read);
        for (place, ((carrier, index), (id, is_read))) in carriers.into_iter().zip(ids).enumerate()
        {
            let id = id.first_chunk().filter(|_| is_read);
            let id = id.map_or(index, |id| u32::from_le_bytes(*id));
            let ring = carrier.wrapping_add(self.layout.carrier.events.into());
            let lane = if place < listed {
                Lane::Carrier(id)
            } else {
                Lane::Bound(id)
            };
            self.known.push((lane, ring));
        }
    }

    /// Returns the stamp up to which the last call has read all rings, if it left events for the
    /// next one.
    pub fn read_to(&self) -> Option<u64> {
        self.read_to
    }

    /// Returns which part of a ring's slots was used by events that the last call found, at most.
    pub fn fullness(&self) -> f64 {
        self.fullness
    }

    /// Returns true if a ring that the last call of [`Rings::poll`] has found is used up to this
    /// part of its slots by new events. It reads a few words of each.
    pub fn are_filled(&self, memory: &dyn Memory, part: f64) -> bool {
        let places: Vec<u64> = self.known.iter().map(|&(_, ring)| ring).collect();
        let mut states = vec![0; places.len() * STATE_BYTES];
        let are_read = memory.read_pieces(&places, STATE_BYTES, &mut states);
        let mut rings = places
            .iter()
            .zip(states.chunks_exact(STATE_BYTES))
            .zip(are_read);
        rings.any(|((ring, state), is_read)| {
            let [place, _, written] = state_of(state);
            let capacity = 1u64 << (place & Layout::RING_CAPACITY);
            let next = self.next.get(ring).map_or(0, |next| next.at);
            is_read && written.saturating_sub(next) as f64 >= part * capacity as f64
        })
    }

    /// Returns the stamp from which on no ring lacks an event, of those read so far: in each ring,
    /// the first event after the last one that was overwritten.
    pub fn whole_from(&self) -> u64 {
        self.whole_from
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
        (lane, ring): (Lane, u64),
        [place, start, written]: [u64; 3],
        each: &mut impl FnMut(Lane, Words),
    ) {
        let slots = place & !Layout::RING_CAPACITY;
        let capacity = 1u64 << (place & Layout::RING_CAPACITY);
        if slots == 0 || capacity > SLOTS_MAX {
            return;
        }
        let mask = capacity - 1;
        let oldest = written.saturating_sub(mask).max(start);
        // Events before `start` are missing in all rings at once: those had room at one time.
        let first = match self.from {
            From::Oldest => Next {
                at: oldest,
                has_gap: oldest > start,
            },
            From::Now => Next {
                at: written,
                has_gap: false,
            },
        };
        let Next {
            mut at,
            mut has_gap,
        } = *self.next.entry(ring).or_insert(first);
        let new = written.saturating_sub(at);
        self.fullness = self.fullness.max(new as f64 / capacity as f64);
        if at < oldest {
            // The writer would overwrite the next ones, too: one long gap instead of many.
            let from = oldest + (written - oldest) / 2;
            self.lost += from - at;
            (at, has_gap) = (from, true);
        }
        let end = written.min(at + AT_ONCE);
        let mut last = 0;
        while at < end {
            let within = at & mask;
            let count = PIECE.min(capacity - within).min(end - at);
            self.slots.resize(count as usize * SLOT_BYTES, 0);
            let from = slots.wrapping_add(within * SLOT_BYTES as u64);
            let mut state = [0; STATE_BYTES];
            let all = self.slots.len() + STATE_BYTES;
            let got = memory.read_parts(&mut [(from, &mut self.slots), (ring, &mut state)]);
            // Some slots can't be read, and so nothing behind them was.
            if got < all && (got < SLOT_BYTES || memory.read_all(ring, &mut state).is_none()) {
                break;
            }
            let got = got.min(self.slots.len()) / SLOT_BYTES;
            let [.., after] = state_of(&state);
            let good = after.saturating_sub(mask);
            for (slot, number) in self.slots.chunks_exact(SLOT_BYTES).take(got).zip(at..) {
                let words: Words = std::array::from_fn(|n| word(slot, n));
                if number < good || Event::from_words(words).is_none() {
                    self.lost += 1;
                    has_gap = true;
                    continue;
                }
                last = words[0];
                if std::mem::take(&mut has_gap) {
                    self.whole_from = self.whole_from.max(last);
                }
                each(lane, words);
            }
            at += got as u64;
        }
        // Events that can't be read are left, and don't count.
        if at >= end && at < written {
            self.read_to = Some(self.read_to.map_or(last, |read_to| read_to.min(last)));
        }
        let at = at.max(first.at);
        self.next.insert(ring, Next { at, has_gap });
    }
}

/// Returns the words of a ring: its place, its first event, and the number of those written.
fn state_of(bytes: &[u8]) -> [u64; 3] {
    std::array::from_fn(|number| word(bytes, number))
}

#[inline]
fn word(bytes: &[u8], number: usize) -> u64 {
    let word = bytes.get(number * 8..).and_then(<[u8]>::first_chunk);
    u64::from_le_bytes(word.copied().unwrap_or_default())
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
        let goes_on = rings.poll(process, |lane, words| {
            assert_eq!(lane, Lane::Carrier(5));
            stamps.push(words[0]);
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
        assert_eq!(rings.fullness(), 3.0 / CAPACITY as f64);
        assert!(!rings.are_filled(&process, 0.1));
        (0..2).for_each(|_| process.push());
        assert!(rings.are_filled(&process, 0.25) && !rings.are_filled(&process, 0.3));
        assert_eq!(stamps(&mut rings, &process), [4, 5]);
        (0..10).for_each(|_| process.push());
        assert_eq!(rings.whole_from(), 0);
        assert_eq!(stamps(&mut rings, &process), [12, 13, 14, 15]);
        assert_eq!(rings.lost(&process), 6);
        assert_eq!(rings.whole_from(), 12);
        let mut anew = Rings::new(layout(), From::Oldest);
        assert_eq!(stamps(&mut anew, &process).first(), Some(&9));
        assert_eq!(anew.whole_from(), 9, "the oldest that is there");
        let mut later = Rings::new(layout(), From::Now);
        assert!(stamps(&mut later, &process).is_empty());
        process.push();
        assert_eq!(stamps(&mut later, &process), [16]);
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
                stamps.push(event[0]);
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
