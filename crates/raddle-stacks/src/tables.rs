//! The runtime's tables in memory: where they are, and a snapshot made of them. So a core file is
//! read, and a process that doesn't say where they are.

use std::fmt;
use std::ops::Range;

use raddle_inspect::{CarrierRecord, Header, LAYOUT_MAGIC, Layout, ThreadState, Wire};

use rustix::time::{ClockId, clock_gettime};

use crate::capture::Target;
use crate::carriers::carriers;
use crate::corefile::CoreFile;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::table::Table;

/// A part of the names of files with the runtime: the preloaded library, and a copy in memory.
const NAME: &str = "raddle";
/// The most bytes of data that are searched for the layout.
const DATA_MAX: u64 = 64 << 20;

/// Why there are no tables of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablesError {
    /// No library of the runtime, or no second thread.
    None,
    /// The runtime has another version.
    OtherVersion,
    /// What is there of the tables makes no sense.
    Nonsense,
}

impl fmt::Display for TablesError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            TablesError::None => "its process had no green threads",
            TablesError::OtherVersion => "its process ran under another version of raddle",
            TablesError::Nonsense => "its tables of green threads make no sense",
        })
    }
}

impl std::error::Error for TablesError {}

/// The runtime's tables.
pub struct Tables {
    pub layout: Layout,
    pub header: Header,
    pub carriers: Vec<CarrierRecord>,
}

impl Tables {
    /// Finds the tables of a core, and reads what isn't a thread's.
    ///
    /// # Errors
    /// If there are none.
    pub fn of(core: &CoreFile, modules: &Modules) -> Result<Tables, TablesError> {
        let layout = find(core, core.data_of(NAME))?;
        // The core doesn't say when it was written: not before the last event that it knows of.
        Tables::read(core, core.pid(), modules, layout, 0)
    }

    /// Finds the tables of a process without its help, and reads what isn't a thread's. `own_pid`
    /// is its number in its own namespace.
    ///
    /// # Errors
    /// If there are none.
    pub fn of_process(
        memory: &dyn Memory,
        own_pid: u32,
        modules: &Modules,
    ) -> Result<Tables, TablesError> {
        let layout = find(memory, modules.data_of(NAME))?;
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
        Tables::read(memory, own_pid, modules, layout, now_ns)
    }

    /// The time is `now_ns`, or that of the last event.
    fn read(
        memory: &dyn Memory,
        pid: u32,
        modules: &Modules,
        layout: Layout,
        now_ns: u64,
    ) -> Result<Tables, TablesError> {
        let started_ns = memory.word(layout.started).unwrap_or(0);
        let carriers: Vec<CarrierRecord> = carriers(memory, &layout, &[])
            .carriers
            .iter()
            .map(|carrier| carrier.record)
            .collect();
        let target = Target {
            pid,
            memory,
            layout: &layout,
            carriers: &carriers,
            modules,
            started_ns,
            stopped: None,
        };
        let mut table = Table::new(&target).ok_or(TablesError::Nonsense)?;
        let (mut now_ns, mut live_threads) = (now_ns.max(started_ns), 0);
        table.for_each(|slot| {
            now_ns = now_ns.max(slot.record.since_ns);
            live_threads += u64::from(slot.record.state != ThreadState::EXITING);
        });
        let header = Header {
            pid,
            carriers: carriers.len() as u32,
            now_ns,
            started_ns,
            live_threads,
            wanted: carriers.len() as u64,
            ..Header::new()
        };
        Ok(Tables {
            layout,
            header,
            carriers,
        })
    }

    /// Returns a snapshot without threads.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = self.header.as_bytes().to_vec();
        for carrier in &self.carriers {
            bytes.extend_from_slice(carrier.as_bytes());
        }
        bytes
    }
}

/// Looks for the layout in the data of the runtime's library.
fn find(memory: &dyn Memory, data: Vec<Range<u64>>) -> Result<Layout, TablesError> {
    let mut other = TablesError::None;
    let mut budget = DATA_MAX;
    for range in data {
        let size = range.end.saturating_sub(range.start).min(budget);
        budget -= size;
        let mut bytes = vec![0; size as usize];
        let got = memory.read(range.start, &mut bytes);
        let words = bytes[..got].chunks_exact(8).enumerate();
        for (number, _) in words.filter(|(_, word)| **word == LAYOUT_MAGIC) {
            let found = &bytes[number * 8..got];
            if let Some(layout) = Layout::parse(found) {
                return Ok(layout);
            }
            let version = found.get(8..12).and_then(|it| it.first_chunk()).copied();
            if version.is_some_and(|it| u32::from_le_bytes(it) != 0) {
                other = TablesError::OtherVersion;
            }
        }
    }
    Err(other)
}
