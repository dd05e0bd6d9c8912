//! What the files of `raddle trace` say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::protobuf::Message;

/// What a trace says of one thread.
#[derive(Default)]
pub(crate) struct Traced {
    pub turns: u64,
    pub wakes: u64,
    pub waits: BTreeMap<String, u64>,
}

/// Reads a trace: threads by their names.
pub(crate) fn read(file: &Path) -> Result<BTreeMap<String, Traced>> {
    let bytes = std::fs::read(file)?;
    let mut names = BTreeMap::new();
    let mut strings = BTreeMap::new();
    let mut threads: BTreeMap<u64, Traced> = BTreeMap::new();
    for packet in Message(&bytes).messages(1) {
        for thread in packet.messages(2).flat_map(|tree| tree.messages(2)) {
            let name = thread.text(2).context("a thread's name")?;
            names.insert(thread.number(1).context("a thread's id")?, name);
        }
        for name in packet.messages(12).flat_map(|data| data.messages(2)) {
            let text = name.text(2).context("a name")?;
            strings.insert(name.number(1).context("its number")?, text);
        }
        for events in packet.messages(1).flat_map(|bundle| bundle.messages(4)) {
            for tid in events.numbers(3) {
                threads.entry(tid).or_default().turns += 1;
            }
            for tid in events.numbers(8) {
                threads.entry(tid).or_default().wakes += 1;
            }
        }
        for slice in packet.messages(11) {
            // A track's number is twice that of its thread, and one.
            let tid = slice.number(11).context("a track")? >> 1;
            if let Some(name) = slice.number(10) {
                let name = strings.get(&name).context("a known name")?.clone();
                *threads
                    .entry(tid)
                    .or_default()
                    .waits
                    .entry(name)
                    .or_default() += 1;
            }
        }
    }
    let named = threads
        .into_iter()
        .filter_map(|(tid, traced)| Some((names.get(&tid)?.clone(), traced)));
    Ok(named.collect())
}
