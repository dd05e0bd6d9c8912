//! The runtime's tables in a core: where they are, and a snapshot made of them.

use std::fmt;

use raddle_inspect::{CarrierRecord, Header, LAYOUT_MAGIC, Layout, ThreadState, Wire};

use super::file::CoreFile;
use crate::capture::Target;
use crate::carriers::carriers;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::table::Table;

/// A part of the names of files with the runtime: the preloaded library, and a copy in memory.
const NAME: &str = "raddle";
/// The most bytes of data that are searched for the layout.
const DATA_MAX: u64 = 64 << 20;

/// Why a core has no tables of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TablesError {
    /// No library of the runtime, or no second thread.
    None,
    /// The runtime has another version.
    OtherVersion,
    /// What the core has of the tables makes no sense.
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
    /// Finds the tables, and reads what isn't a thread's.
    ///
    /// # Errors
    /// If there are none.
    pub fn of(core: &CoreFile, modules: &Modules) -> Result<Tables, TablesError> {
        let layout = find(core)?;
        let started_ns = core.word(layout.started).unwrap_or(0);
        let carriers: Vec<CarrierRecord> = carriers(core, &layout, &[])
            .carriers
            .iter()
            .map(|carrier| carrier.record)
            .collect();
        let target = Target {
            pid: core.pid(),
            memory: core,
            layout: &layout,
            carriers: &carriers,
            modules,
            started_ns,
            stopped: None,
        };
        let mut table = Table::new(&target).ok_or(TablesError::Nonsense)?;
        // The core doesn't say when it was written: not before the last event that it knows of.
        let (mut now_ns, mut live_threads) = (started_ns, 0);
        table.for_each(|slot| {
            now_ns = now_ns.max(slot.record.since_ns);
            live_threads += u64::from(slot.record.state != ThreadState::EXITING);
        });
        let header = Header {
            pid: core.pid(),
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
fn find(core: &CoreFile) -> Result<Layout, TablesError> {
    let mut other = TablesError::None;
    for range in core.data_of(NAME) {
        let mut bytes = vec![0; (range.end - range.start).min(DATA_MAX) as usize];
        let got = core.read(range.start, &mut bytes);
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
