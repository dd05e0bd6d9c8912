//! What becomes of the events of a trace.

use std::io;
use std::time::Instant;

use raddle_record::perfetto::{Counts, PerfettoWriter};
use raddle_record::rings::Lane;

use raddle_inspect::{Event, EventKind};
use raddle_stacks::Memory;

/// Writes events to a file for Perfetto. An error is kept until the end.
pub(super) struct Tracer<W> {
    writer: PerfettoWriter<W>,
    /// When names were read last.
    pub named: Instant,
    /// A thread has begun since then.
    pub has_new: bool,
    failure: Option<io::Error>,
}

impl<W: io::Write> Tracer<W> {
    /// Begins a trace that starts at `boot_ns`.
    pub(super) fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        Ok(Tracer {
            writer: PerfettoWriter::new(output, pid, command, boot_ns)?,
            named: Instant::now(),
            has_new: false,
            failure: None,
        })
    }

    /// Writes an event; its text is in `memory`.
    pub(super) fn take(&mut self, memory: &dyn Memory, lane: Lane, event: &Event, boot_ns: u64) {
        if let Some(place) = self.writer.wants_text(event) {
            self.writer.text(place, &text(memory, place));
        }
        self.has_new |= event.kind == EventKind::CREATE;
        if self.failure.is_none() {
            let written = self.writer.event(lane, event, boot_ns);
            self.failure = written.err();
        }
    }

    /// Tells the names of threads.
    pub(super) fn name_all(&mut self, names: impl IntoIterator<Item = (u32, String, u32)>) {
        self.named = Instant::now();
        self.has_new = false;
        for (tid, name, group) in names {
            if self.failure.is_none() {
                self.failure = self.writer.name(tid, &name, group).err();
            }
        }
    }

    /// Returns whether an event could not be written.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Ends the trace at `boot_ns`. An error that was met before is that of the trace.
    pub(super) fn finish(self, boot_ns: u64) -> io::Result<Counts> {
        match self.failure {
            Some(error) => Err(error),
            None => self.writer.finish(boot_ns),
        }
    }
}

/// Returns the text at a place, or its address.
fn text(memory: &dyn Memory, (address, length): (u64, u8)) -> String {
    let mut bytes = [0; Event::TEXT_MAX];
    let most = if length == 0 {
        bytes.len()
    } else {
        length.into()
    };
    let got = memory.read(address, &mut bytes[..most]);
    let text = bytes[..got].split(|&byte| byte == 0).next();
    match text {
        Some(text) if !text.is_empty() => String::from_utf8_lossy(text).into_owned(),
        _ => format!("{address:#x}"),
    }
}
