//! What each thread has counted, read some slots at a time: a reader that looks again and again
//! needs not read the whole table each time.

use raddle_inspect::{Layout, NAME_BYTES, ThreadState};

use crate::memory::Memory;
use crate::table::{makes_sense, state_of};

/// The counters of one thread, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    pub tid: u32,
    pub state: ThreadState,
    /// As `prctl(PR_SET_NAME)` set it; ends at the first zero byte.
    pub name: [u8; NAME_BYTES],
    pub switches: u64,
    pub steal: u64,
    pub preempt: u64,
    pub park: u64,
}

impl Counters {
    /// Returns the name without its padding.
    pub fn name_bytes(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0);
        &self.name[..end.unwrap_or(NAME_BYTES)]
    }
}

/// The slots of the table.
pub struct Slots<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    /// A piece of a chunk.
    bytes: Vec<u8>,
}

/// Slots that are read at a time.
const PIECE: u64 = 64;

impl<'a> Slots<'a> {
    /// `None` if the layout makes no sense.
    pub fn new(memory: &'a dyn Memory, layout: &'a Layout) -> Option<Slots<'a>> {
        makes_sense(layout).then(|| Slots {
            memory,
            layout,
            bytes: vec![0; (PIECE * layout.slot_bytes) as usize],
        })
    }

    /// Returns the number of slots that were ever used; `None` if the memory can't be read.
    pub fn used(&self) -> Option<u64> {
        let most = self.layout.chunk_count * self.layout.slots_per_chunk;
        Some(self.memory.word(self.layout.used)?.min(most))
    }

    /// Calls `each` with the number and the counters of each slot in `from..to` that can be read;
    /// with `None` for a free slot.
    pub fn read(&mut self, from: u64, to: u64, mut each: impl FnMut(u64, Option<Counters>)) {
        let layout = self.layout;
        let mut index = from;
        while index < to {
            let within = index % layout.slots_per_chunk;
            let count = PIECE.min(layout.slots_per_chunk - within).min(to - index);
            let got = self.read_piece(index, count);
            let slots = self.bytes[..got].chunks_exact(layout.slot_bytes as usize);
            for (number, slot) in (index..index + count).zip(slots) {
                each(number, parse(layout, slot));
            }
            index += count;
        }
    }

    /// Reads slots of one chunk; returns how many bytes could be read.
    fn read_piece(&mut self, index: u64, count: u64) -> usize {
        let layout = self.layout;
        let chunk = index / layout.slots_per_chunk * 8;
        let chunk = self.memory.word(layout.chunks.wrapping_add(chunk));
        let at = index % layout.slots_per_chunk * layout.slot_bytes;
        let piece = &mut self.bytes[..(count * layout.slot_bytes) as usize];
        match chunk {
            None | Some(0) => 0,
            Some(chunk) => self.memory.read(chunk.wrapping_add(at), piece),
        }
    }
}

fn parse(layout: &Layout, slot: &[u8]) -> Option<Counters> {
    let at = &layout.thread;
    let word = |at: u32| Some(u64::from_le_bytes(*slot.get(at as usize..)?.first_chunk()?));
    let half = |at: u32| Some(u32::from_le_bytes(*slot.get(at as usize..)?.first_chunk()?));
    let life = half(at.life)?;
    if life == Layout::LIFE_FREE {
        return None;
    }
    Some(Counters {
        tid: half(at.tid)?,
        state: state_of(life, half(at.on_cpu)? != 0, half(at.claim)?),
        name: *slot.get(at.name as usize..)?.first_chunk()?,
        switches: word(at.switches)?,
        steal: word(at.steal)?,
        preempt: word(at.preempt)?,
        park: word(at.park)?,
    })
}
