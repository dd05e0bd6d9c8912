//! What becomes of the events of a trace.

use std::io;
use std::time::Instant;

use raddle_record::perfetto::{Counts, PerfettoWriter};
use raddle_record::rings::Lane;

use raddle_inspect::Event;

/// Writes events to a file for Perfetto. An error is kept until the end.
pub(super) struct Tracer<W> {
    writer: PerfettoWriter<W>,
    /// When names were read last.
    pub named: Instant,
    failure: Option<io::Error>,
}

impl<W: io::Write> Tracer<W> {
    /// Begins a trace that starts at `boot_ns`.
    pub(super) fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        Ok(Tracer {
            writer: PerfettoWriter::new(output, pid, command, boot_ns)?,
            named: Instant::now(),
            failure: None,
        })
    }

    /// Writes an event.
    pub(super) fn take(&mut self, lane: Lane, event: &Event, boot_ns: u64) {
        if self.failure.is_none() {
            let written = self.writer.event(lane, event, boot_ns);
            self.failure = written.err();
        }
    }

    /// Tells the names of threads.
    pub(super) fn name_all(&mut self, names: impl IntoIterator<Item = (u32, String)>) {
        self.named = Instant::now();
        for (tid, name) in names {
            if self.failure.is_none() {
                self.failure = self.writer.name(tid, &name).err();
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
