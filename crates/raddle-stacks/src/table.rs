//! The table of green threads, as it is in the process's memory.
//!
//! Everything here is the other process's word: counts and offsets are checked before use, and a
//! slot may change while it is read.

use raddle_inspect::{
    CarrierRecord, Layout, NAME_BYTES, NO_CARRIER, ThreadFlags, ThreadRecord, ThreadState, WaitKind,
};
use rustc_hash::FxHashMap;

use crate::capture::Target;
use crate::memory::Memory;

/// The most bytes of a slot.
const SLOT_BYTES_MAX: u64 = 1 << 16;
/// The most slots of a table.
const SLOTS_MAX: u64 = 1 << 22;

/// Reads all threads again and again, without a list of them.
pub struct Threads<'a>(Table<'a>);

/// A thread in its slot, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSlot {
    /// The slot's number: another thread has it once this one has ended.
    pub number: u32,
    /// With the CPU time that was charged, if it was ever counted.
    pub record: ThreadRecord,
    /// The address of the carrier that it is on or was on last, or 0.
    pub carrier: u64,
    /// The address of the carrier that runs it alone, or 0.
    pub bound: u64,
}

impl<'a> Threads<'a> {
    /// `None` if the layout makes no sense.
    pub fn of(target: &Target<'a>) -> Option<Threads<'a>> {
        Table::new(target).map(Threads)
    }

    /// Calls `each` with every thread that there is, by the numbers of their slots. Returns false
    /// if the process's memory can't be read.
    pub fn for_each(&mut self, mut each: impl FnMut(&ThreadSlot)) -> bool {
        self.0.walk(|table, number, address, bytes| {
            if let Some(slot) = table.parse(address, bytes) {
                each(&ThreadSlot {
                    number,
                    record: slot.record,
                    carrier: slot.carrier,
                    bound: slot.bound,
                });
            }
        })
    }
}

/// Returns true if every field is inside of a slot, and the table has a size that can be.
pub(crate) fn makes_sense(layout: &Layout) -> bool {
    let slots = layout.chunk_count.saturating_mul(layout.slots_per_chunk);
    let offsets = &layout.thread;
    let ends = [
        offsets.tid,
        offsets.life,
        offsets.on_cpu,
        offsets.claim,
        offsets.wait_kind,
        offsets.wait_arg,
        offsets.wait_lock,
        offsets.since_ns,
        offsets.deadline_ns,
        offsets.ready_ns,
        offsets.context,
        offsets.switches,
        offsets.steal,
        offsets.preempt,
        offsets.park,
        offsets.carrier,
        offsets.bound,
        offsets.save_area,
        offsets.engine,
        offsets.group,
        offsets.name,
        offsets.host,
        offsets.charged_ns,
    ];
    let are_inside = ends
        .iter()
        .all(|&at| u64::from(at) + NAME_BYTES as u64 <= layout.slot_bytes);
    layout.slot_bytes <= SLOT_BYTES_MAX
        && layout.slots_per_chunk != 0
        && slots <= SLOTS_MAX
        && layout.thread_fs <= layout.slot_bytes.saturating_sub(8)
        && are_inside
}

/// Returns the state that a slot's words tell.
pub(crate) fn state_of(life: u32, is_on_cpu: bool, claim: u32) -> ThreadState {
    let is_waiting = matches!(claim, Layout::CLAIM_WAITING | Layout::CLAIM_QUEUED);
    match () {
        () if life == Layout::LIFE_EXITING => ThreadState::EXITING,
        () if is_on_cpu => ThreadState::RUNNING,
        () if is_waiting => ThreadState::WAITING,
        () => ThreadState::RUNNABLE,
    }
}

/// The table.
pub(crate) struct Table<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    started_ns: u64,
    /// The address of the main thread's slot.
    main: u64,
    /// Carriers by their addresses, once they were asked for.
    carriers: FxHashMap<u64, u32>,
    /// By the threads that run there: since when these have their turns.
    turns: FxHashMap<u32, u64>,
}

/// A slot that isn't free, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub address: u64,
    pub record: ThreadRecord,
    /// A carrier is on the thread's stack.
    pub is_on_cpu: bool,
    pub context: u64,
    pub save_area: u64,
    /// The FS base.
    pub fs: u64,
    /// The address of the carrier that it is on or was on last, or 0.
    pub carrier: u64,
    /// The address of the carrier that runs it alone, or 0.
    pub bound: u64,
    /// The mutex that goes with the condition variable for which it waits, or 0.
    pub wait_lock: u64,
    /// The address of its control, if it hosts light threads, or 0.
    pub host: u64,
}

impl Slot {
    /// Returns true if the thread has not run between the two looks at its slot.
    pub(crate) fn is_unmoved(&self, later: &Slot) -> bool {
        let state = |slot: &Slot| (slot.is_on_cpu, slot.context, slot.record.switches);
        self.record.tid == later.record.tid && state(self) == state(later)
    }
}

impl<'a> Table<'a> {
    /// `None` if the layout makes no sense.
    pub(crate) fn new(target: &Target<'a>) -> Option<Table<'a>> {
        let layout = target.layout;
        let turn = |carrier: &CarrierRecord| (carrier.current_tid, carrier.turn_since_ns);
        makes_sense(layout).then(|| Table {
            memory: target.memory,
            layout,
            started_ns: target.started_ns,
            main: target.memory.word(layout.main).unwrap_or(0),
            carriers: FxHashMap::default(),
            turns: target.carriers.iter().map(turn).collect(),
        })
    }

    /// Calls `each` with every slot that isn't free.
    pub(crate) fn for_each(&mut self, mut each: impl FnMut(Slot)) {
        self.walk(|table, _, address, slot| {
            if let Some(slot) = table.parse(address, slot) {
                each(slot);
            }
        });
    }

    /// Calls `each` with the id in every slot, and whether the slot is free: then the id is that of
    /// its last thread.
    pub(crate) fn for_each_id(&mut self, mut each: impl FnMut(u32, bool)) {
        let at = &self.layout.thread;
        let (tid, life) = (at.tid as usize, at.life as usize);
        self.walk(|_, _, _, slot| {
            let half = |at: usize| Some(u32::from_le_bytes(*slot.get(at..)?.first_chunk()?));
            if let (Some(tid), Some(life)) = (half(tid), half(life)) {
                each(tid, life == Layout::LIFE_FREE);
            }
        });
    }

    /// Calls `each` with the number, the address and the bytes of every slot that was ever used.
    /// Returns false if the memory can't be read.
    fn walk(&mut self, mut each: impl FnMut(&mut Self, u32, u64, &[u8])) -> bool {
        let layout = self.layout;
        // Slots of a core may lie one upon the other.
        let room = self.memory.size() / layout.slot_bytes;
        let most = room.min(layout.chunk_count * layout.slots_per_chunk);
        let Some(used) = self.memory.word(layout.used) else {
            return false;
        };
        let used = used.min(most);
        let slot_bytes = layout.slot_bytes as usize;
        // A piece of a chunk at a time.
        const PIECE: u64 = 64;
        let mut bytes = vec![0; PIECE as usize * slot_bytes];
        let mut index = 0;
        while index < used {
            let within = index % layout.slots_per_chunk;
            let count = PIECE.min(layout.slots_per_chunk - within).min(used - index);
            let chunk = layout
                .chunks
                .wrapping_add(index / layout.slots_per_chunk * 8);
            let chunk = self.memory.word(chunk).unwrap_or(0);
            let from = chunk.wrapping_add(within * layout.slot_bytes);
            let piece = &mut bytes[..count as usize * slot_bytes];
            let got = match chunk {
                0 => 0,
                _ => self.memory.read(from, piece),
            };
            for (number, slot) in piece[..got].chunks_exact(slot_bytes).enumerate() {
                let address = from.wrapping_add(number as u64 * layout.slot_bytes);
                each(self, index as u32 + number as u32, address, slot);
            }
            index += count;
        }
        true
    }

    /// Reads a slot again; `None` if it is free by now.
    pub(crate) fn again(&mut self, slot: &Slot) -> Option<Slot> {
        let mut bytes = vec![0; self.layout.slot_bytes as usize];
        self.memory.read_all(slot.address, &mut bytes)?;
        self.parse(slot.address, &bytes)
    }

    /// Returns the length of a slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.layout.slot_bytes as usize
    }

    /// Returns what the bytes of a slot say; `None` if it is free.
    pub(crate) fn parse(&mut self, address: u64, slot: &[u8]) -> Option<Slot> {
        let at = &self.layout.thread;
        let word = |at: u32| {
            let bytes = slot.get(at as usize..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let half = |at: u32| {
            let bytes = slot.get(at as usize..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let life = half(at.life)?;
        if life == Layout::LIFE_FREE {
            return None;
        }
        let is_on_cpu = half(at.on_cpu)? != 0;
        let claim = half(at.claim)?;
        let state = state_of(life, is_on_cpu, claim);
        let if_waiting = |value: u64| match state {
            ThreadState::WAITING => value,
            _ => 0,
        };
        let tid = half(at.tid)?;
        let mut flags = ThreadFlags::default();
        let bound = word(at.bound)?;
        if bound != 0 {
            flags = flags.union(ThreadFlags::BOUND);
        }
        if address == self.main {
            flags = flags.union(ThreadFlags::MAIN);
        }
        let engine = half(at.engine)?;
        let carrier = word(at.carrier)?;
        let record = ThreadRecord {
            tid,
            carrier: self.carrier(carrier),
            state,
            wait_kind: WaitKind(if_waiting(half(at.wait_kind)?.into()) as u32),
            wait_arg: if_waiting(word(at.wait_arg)?),
            since_ns: match state {
                ThreadState::WAITING => word(at.since_ns)?.max(self.started_ns),
                ThreadState::RUNNABLE => word(at.ready_ns)? & !self.layout.ready_flags,
                ThreadState::RUNNING => self.turns.get(&tid).copied().unwrap_or(0),
                _ => 0,
            },
            deadline_ns: if_waiting(word(at.deadline_ns)?),
            switches: word(at.switches)?,
            steal: word(at.steal)?,
            preempt: word(at.preempt)?,
            park: word(at.park)?,
            name: *slot.get(at.name as usize..)?.first_chunk()?,
            cpu_ns: word(at.charged_ns)?,
            flags,
            group: match engine {
                0 => half(at.group)?,
                engine => engine,
            },
            ..ThreadRecord::default()
        };
        Some(Slot {
            address,
            record,
            is_on_cpu,
            context: word(at.context)?,
            save_area: word(at.save_area)?,
            fs: word(self.layout.thread_fs as u32)?,
            carrier,
            bound,
            wait_lock: if_waiting(word(at.wait_lock)?),
            host: word(at.host)?,
        })
    }

    fn carrier(&mut self, address: u64) -> u32 {
        /// The most carriers that are remembered.
        const CARRIERS_MAX: usize = 1 << 16;
        if address == 0 {
            return NO_CARRIER;
        }
        if let Some(&id) = self.carriers.get(&address) {
            return id;
        }
        let id = self
            .memory
            .half(address.wrapping_add(self.layout.carrier_id));
        let id = id.unwrap_or(NO_CARRIER);
        if self.carriers.len() < CARRIERS_MAX {
            self.carriers.insert(address, id);
        }
        id
    }
}
