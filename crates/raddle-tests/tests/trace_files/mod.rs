//! What the files of `raddle trace` say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::protobuf::Message;

/// What a trace says of one thread.
#[derive(Default)]
pub(crate) struct Traced {
    pub turns: u64,
    pub wakes: u64,
    pub waits: BTreeMap<String, u64>,
}

/// Types of track events.
const BEGIN: u64 = 1;
const END: u64 = 2;

/// Reads a trace: threads by their names. On each track, times do not fall, and each slice that
/// begins ends. Each thread that has run has a name.
pub(crate) fn read(file: &Path) -> Result<BTreeMap<String, Traced>> {
    let bytes = std::fs::read(file)?;
    let mut names = BTreeMap::new();
    let mut strings = BTreeMap::new();
    let mut threads: BTreeMap<u64, Traced> = BTreeMap::new();
    let mut tracks: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
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
            let track = slice.number(11).context("a track")?;
            let at_ns = packet.number(8).context("a time")?;
            let (last_ns, open) = tracks.entry(track).or_default();
            ensure!(*last_ns <= at_ns, "track {track}: {at_ns} after {last_ns}");
            *last_ns = at_ns;
            match slice.number(9) {
                Some(BEGIN) => *open += 1,
                Some(END) => {
                    let left = open.checked_sub(1);
                    *open = left.with_context(|| format!("track {track}: an end at {at_ns}"))?;
                }
                _ => {}
            }
            let tid = track >> 1;
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
    let open = tracks.iter().find(|(_, (_, open))| *open != 0);
    ensure!(open.is_none(), "a slice is open: {open:?}");
    for (tid, traced) in &threads {
        let is_named = *tid == 0 || names.get(tid).is_some_and(|name| !name.is_empty());
        ensure!(is_named || traced.turns == 0, "thread {tid} has no name");
    }
    let named = threads
        .into_iter()
        .filter_map(|(tid, traced)| Some((names.get(&tid)?.clone(), traced)));
    Ok(named.collect())
}
