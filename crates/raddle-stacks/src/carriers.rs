//! The carriers and engines, as they are in the process's memory.
//!
//! As with the table of threads, nothing here is trusted: counts and offsets are checked before
//! use, and a carrier may change while it is read.

use std::collections::HashSet;

use raddle_inspect::{CarrierRecord, CarrierState, Histogram, Layout, PolicyKind, Wire};

use crate::memory::Memory;

/// The most carriers that are read.
const CARRIERS_MAX: u32 = 1 << 12;
/// The most engines.
const ENGINES_MAX: usize = 1 << 8;
/// The most bytes of a carrier.
const CARRIER_BYTES_MAX: usize = 1 << 16;
/// Bytes with a bit for each spare carrier.
const SPARES_BYTES: usize = 2048 / 8;
/// Entries of a run queue: more are no length but two words of different moments.
const QUEUE_MAX: u32 = 1 << 16;

/// A carrier, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierSlot {
    pub address: u64,
    /// Without the time of its turn.
    pub record: CarrierRecord,
    /// It runs one thread and nothing else.
    pub is_bound: bool,
    pub slice: CarrierSlice,
}

/// What the CPU time of the running thread is told by, while CPU time is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierSlice {
    /// When the slice began, or 0.
    pub started_ns: u64,
    /// The CPU time of the kernel thread at its last reading.
    pub read_ns: u64,
    /// What threads were charged since.
    pub charged_ns: u64,
}

impl CarrierSlice {
    /// Returns what the running thread has used of its slice at `now_ns`, when its kernel thread
    /// has used `cpu_ns`, if that is known.
    pub fn used_ns(&self, now_ns: u64, cpu_ns: Option<u64>) -> u64 {
        if self.started_ns == 0 {
            return 0;
        }
        let slice_ns = now_ns.saturating_sub(self.started_ns);
        let counted_ns = self.read_ns.saturating_add(self.charged_ns);
        cpu_ns.map_or(slice_ns, |it| it.saturating_sub(counted_ns).min(slice_ns))
    }
}

/// An engine, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSlot {
    pub number: u32,
    /// Carriers that may be active.
    pub wanted: u32,
    /// Carriers beside these, while other processes want the CPUs.
    pub extra: u32,
    pub policy: PolicyKind,
    /// Percent of one CPU; 0 for all.
    pub quota: u32,
    /// Threads that any of its carriers may take.
    pub queue_len: u64,
    /// Runnable threads that have used more than their share.
    pub ahead_len: u64,
}

/// What [`carriers`] reads.
#[derive(Clone, Debug)]
pub struct Carriers {
    pub carriers: Vec<CarrierSlot>,
    /// The engines that have carriers, by their numbers.
    pub engines: Vec<EngineSlot>,
    /// The time from a wake-up to running: a sample.
    pub wake_ups: Histogram,
    /// The time from runnable to running, as far as it is measured.
    pub delays: Histogram,
    /// How often a carrier was replaced because it waited in the kernel.
    pub blocked: u64,
}

/// Reads the carriers that are listed, and those at the addresses `more`, which are bound threads'.
pub fn carriers(memory: &dyn Memory, layout: &Layout, more: &[u64]) -> Carriers {
    let count = memory.half(layout.carrier_count).unwrap_or(0);
    let mut list = vec![0; count.min(CARRIERS_MAX) as usize * 8];
    let got = memory.read(layout.carriers, &mut list);
    let listed = list[..got].as_chunks().0.iter();
    let listed = listed.map(|bytes| u64::from_le_bytes(*bytes));
    let mut reader = Reader {
        memory,
        layout,
        engines: Vec::new(),
    };
    let mut found = Carriers {
        carriers: Vec::new(),
        engines: Vec::new(),
        wake_ups: Histogram::EMPTY,
        delays: Histogram::EMPTY,
        blocked: memory.word(layout.blocked).unwrap_or(0),
    };
    let mut seen = HashSet::new();
    let mut bytes = vec![0; carrier_bytes(layout)];
    for address in listed.chain(more.iter().copied()) {
        if seen.len() == CARRIERS_MAX as usize {
            break;
        }
        if address == 0 || !seen.insert(address) {
            continue;
        }
        let got = memory.read(address, &mut bytes);
        let carrier = &bytes[..got];
        found.add_times(layout, carrier);
        found.carriers.extend(reader.carrier(address, carrier));
    }
    let engines = reader.engines.into_iter();
    found.engines = engines.filter_map(|(_, it)| Some(it?.slot)).collect();
    found.engines.sort_by_key(|engine| engine.number);
    found.engines.dedup_by_key(|engine| engine.number);
    found
}

impl Carriers {
    /// Adds the histograms of a carrier, which may have ended.
    fn add_times(&mut self, layout: &Layout, carrier: &[u8]) {
        let places = &layout.carrier;
        let histogram = |at: u32| Histogram::from_prefix(carrier.get(at as usize..)?);
        let pairs = [
            (&mut self.wake_ups, histogram(places.wake_ups)),
            (&mut self.delays, histogram(places.delays)),
        ];
        for (sum, own) in pairs {
            let own = own.unwrap_or(Histogram::EMPTY);
            for (sum, count) in sum.counts.iter_mut().zip(own.counts) {
                *sum = sum.wrapping_add(count);
            }
        }
    }
}

/// Returns how many bytes of a carrier are read.
fn carrier_bytes(layout: &Layout) -> usize {
    let places = &layout.carrier;
    let times = [places.wake_ups, places.delays].map(|at| at as usize + size_of::<Histogram>());
    let words = [
        places.current,
        places.state,
        places.handed_off,
        places.switches,
        places.steal,
        places.steal_fail,
        places.preempt,
        places.park,
        places.engine,
        places.bound,
        places.queue_head,
        places.queue_tail,
        places.queue_slot,
        places.slice_started_ns,
        places.slice_read_ns,
        places.slice_charged_ns,
    ];
    let ids = [layout.carrier_id, layout.carrier_kernel_tid];
    let ids = ids.map(|at| usize::try_from(at).unwrap_or(usize::MAX));
    let ends = words.map(|at| at as usize).into_iter().chain(ids);
    let ends = ends.map(|at| at.saturating_add(8)).chain(times);
    ends.max().unwrap_or(0).min(CARRIER_BYTES_MAX)
}

/// An engine, and the carriers of it that are spare.
#[derive(Clone, Copy)]
struct Engine {
    slot: EngineSlot,
    spares: [u8; SPARES_BYTES],
}

struct Reader<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    /// By their addresses.
    engines: Vec<(u64, Option<Engine>)>,
}

impl Reader<'_> {
    /// `None` for a carrier that has ended.
    fn carrier(&mut self, address: u64, bytes: &[u8]) -> Option<CarrierSlot> {
        let places = &self.layout.carrier;
        let word = |at: u32| {
            let bytes = bytes.get(at as usize..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let half = |at: u64| {
            let bytes = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let state = half(places.state.into())?;
        if state == Layout::CARRIER_ENDED {
            return None;
        }
        let id = half(self.layout.carrier_id)?;
        let engine = self.engine(word(places.engine)?);
        let is_spare = engine.is_some_and(|engine| {
            let byte = engine.spares.get(id as usize / 8);
            byte.is_some_and(|byte| byte & 1 << (id % 8) != 0)
        });
        let queued = half(places.queue_tail.into())?.wrapping_sub(half(places.queue_head.into())?);
        let queued = if queued <= QUEUE_MAX { queued } else { 0 };
        let current = word(places.current)?;
        let tid = current.checked_add(self.layout.thread.tid.into());
        let state = match half(places.handed_off.into())? {
            _ if is_spare => CarrierState::SPARE,
            0 => CarrierState(state),
            _ => CarrierState::BLOCKED,
        };
        let record = CarrierRecord {
            id,
            kernel_tid: half(self.layout.carrier_kernel_tid)?,
            state,
            current_tid: match current {
                0 => 0,
                _ => self.memory.half(tid?).unwrap_or(0),
            },
            switches: word(places.switches)?,
            steal: word(places.steal)?,
            steal_fail: word(places.steal_fail)?,
            preempt: word(places.preempt)?,
            park: word(places.park)?,
            wakeups: CarrierRecord::wakeups_of(word(places.park)?, state),
            queue_len: u64::from(queued) + u64::from(word(places.queue_slot)? != 0),
            engine: engine.map_or(0, |it| it.slot.number.into()),
            quota: engine.map_or(0, |it| it.slot.quota.into()),
            ..CarrierRecord::default()
        };
        Some(CarrierSlot {
            address,
            record,
            is_bound: word(places.bound)? != 0,
            slice: CarrierSlice {
                started_ns: word(places.slice_started_ns)?,
                read_ns: word(places.slice_read_ns)?,
                charged_ns: word(places.slice_charged_ns)?,
            },
        })
    }

    fn engine(&mut self, address: u64) -> Option<Engine> {
        if let Some((_, engine)) = self.engines.iter().find(|(at, _)| *at == address) {
            return *engine;
        }
        if self.engines.len() == ENGINES_MAX {
            return None;
        }
        let engine = self.read_engine(address);
        self.engines.push((address, engine));
        engine
    }

    fn read_engine(&self, address: u64) -> Option<Engine> {
        let places = &self.layout.engine;
        let half = |at: u32| self.memory.half(address.checked_add(at.into())?);
        let word = |at: u32| self.memory.word(address.checked_add(at.into())?);
        let mut spares = [0; SPARES_BYTES];
        let at = address.checked_add(places.spares.into())?;
        self.memory.read_all(at, &mut spares)?;
        Some(Engine {
            slot: EngineSlot {
                number: half(places.number)?,
                wanted: half(places.wanted)?,
                extra: half(places.extra)?,
                policy: PolicyKind(half(places.policy)?),
                quota: half(places.quota)?,
                queue_len: word(places.queue_len)?,
                ahead_len: word(places.ahead_len)?,
            },
            spares,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_at_most_as_long_as_it_has_lasted() {
        let slice = CarrierSlice {
            started_ns: 1000,
            read_ns: 50,
            charged_ns: 20,
        };
        assert_eq!(slice.used_ns(1500, Some(100)), 30);
        assert_eq!(slice.used_ns(1500, Some(10_000)), 500);
        assert_eq!(slice.used_ns(1500, None), 500);
        assert_eq!(slice.used_ns(900, Some(u64::MAX)), 0);
        assert_eq!(CarrierSlice::default().used_ns(1500, Some(100)), 0);
    }
}
