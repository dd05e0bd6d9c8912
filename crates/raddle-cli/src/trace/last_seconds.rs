//! A trace of what a process has kept: of its last seconds (`--last`, conditions).
//!
//! All events that are there are copied first, as fast as can be: the process overwrites the oldest
//! ones meanwhile. Rings reach back to different times. The trace begins at the time from which on
//! no ring lacks an event: earlier ones would show threads that wait for ever, and others that run
//! without a begin. Perfetto does the same with buffers of the kernel's CPUs.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use raddle_inspect::Event;
use raddle_record::clock::Moment;
use raddle_record::rings::{Lane, Words};
use raddle_stacks::Memory;

use super::replay::replay;
use super::spool::{Record, Spool};
use super::texts::Texts;
use super::tracer::Tracer;
use super::wakers::Wakers;
use super::{nothing_recorded, say_full, say_what_is_there};
use crate::output::Output;
use crate::recording::{Copies, Reading, Recording, Sequence, command};

/// Copies events that were kept to a spool.
struct Keeper<'o> {
    spool: Spool<'o>,
    texts: Texts,
}

impl Copies for Keeper<'_> {
    #[inline]
    fn event(&mut self, lane: Lane, words: Words) {
        self.spool.event(lane, words);
        if let Some(event) = Event::from_words(words) {
            self.texts.note(&event);
        }
    }

    fn read(&mut self, reading: &Reading, memory: &dyn Memory) {
        self.texts.read(memory, &mut self.spool);
        self.spool.record(&Record::Read(*reading));
        self.texts.forget_many(&mut self.spool);
    }
}

/// Writes the last seconds that were recorded.
pub(super) fn write_last(
    pid: u32,
    seconds: f64,
    mut recording: Recording,
    output: Output,
) -> Result<ExitCode> {
    let mut keeper = Keeper {
        spool: Spool::new(&output),
        texts: Texts::default(),
    };
    let mut end_ns = Moment::now().boot_ns;
    let from_ns = end_ns.saturating_sub((seconds * 1e9) as u64);
    recording.copy(true, &mut keeper);
    let clock = recording.clock_of_the_past();
    let whole_ns = recording.whole_from_ns(clock);
    let names: Vec<_> = recording.names().collect();
    let running = recording.running();
    let (pieces, full) = keeper.spool.into_pieces();
    let process = (pid, command(pid));
    let failed = |error| output.failed(&error);
    let mut tracer =
        Tracer::of_the_past(output.file(), process, from_ns, whole_ns).map_err(failed)?;
    tracer.name_all(names.iter().cloned());
    tracer.looks_for_processes(Wakers::of_the_past(pid));
    let mut sequence = Sequence::of_the_past(clock);
    let written = (&mut tracer, output.file());
    let full_file = replay(pieces, &mut sequence, written, &Arc::default())?;
    // An earlier thread may have had the same id.
    tracer.name_all(names);
    for (lane, tid) in running {
        tracer.runs_at_end(lane, tid);
    }
    let full = full_file.or(full);
    if full.is_some() {
        end_ns = tracer.full_ns().unwrap_or(sequence.told_ns());
    }
    let first_ns = tracer.first_ns();
    let counts = tracer.finish(end_ns).map_err(failed)?;
    recording.close();
    let Some(first_ns) = first_ns else {
        return Err(nothing_recorded(pid).into());
    };
    say_what_is_there(pid, &counts, end_ns.saturating_sub(first_ns), output)?;
    Ok(say_full(full.as_ref()))
}
