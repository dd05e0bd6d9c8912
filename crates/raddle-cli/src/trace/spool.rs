//! What a trace takes from a process while it is recorded: raw events, and what can be read only
//! while the process lives. The trace is made of it afterwards, so that the recording costs the
//! process as little as can be.
//!
//! - Records are put one behind the other into a buffer. A full buffer is written to a file without
//!   a name, beside the trace; a recording that fits into the buffer needs no file.
//! - A trace needs several times the room of its events. The spool ends while there is still room
//!   for the trace of what it has ([`TRACE_PARTS`]), and when it can't be written. What came before
//!   is good; what comes after is dropped.
//! - Reading gives room back: what was read is cut out of the file.

mod record;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use raddle_record::rings::{Lane, Words};
use rustix::fs::{FallocateFlags, FileType, fallocate, fstat, fstatvfs};

use crate::output::Output;
use record::EVENT_BYTES;
pub(super) use record::{Record, words};

/// Bytes of the buffer.
const BUFFER: usize = 1 << 18;
/// The room that a trace is expected to need, in parts of its spool, with that of the rest of the
/// spool meanwhile. Measured are four and a half.
const TRACE_PARTS: u64 = 5;
/// Bytes that are given back at once.
const CUT: u64 = 1 << 25;
/// Bytes that say how many follow in the file.
const HEAD: usize = 8;

/// See the module.
pub(super) struct Spool<'o> {
    /// The trace.
    output: &'o Output,
    buffer: Vec<u8>,
    /// The lane of the events at the end of the buffer, and where their record begins.
    open: Option<(Lane, usize)>,
    file: Option<File>,
    /// Bytes of the file that are good.
    length: u64,
    /// Why nothing more is taken.
    end: Option<io::Error>,
}

impl<'o> Spool<'o> {
    /// A spool of what becomes a trace.
    pub(super) fn new(output: &'o Output) -> Self {
        Spool {
            output,
            buffer: Vec::with_capacity(BUFFER),
            open: None,
            file: None,
            length: 0,
            end: None,
        }
    }

    /// Takes an event.
    #[inline]
    pub(super) fn event(&mut self, lane: Lane, words: Words) {
        if self.is_due() && !self.write() {
            return;
        }
        if self.open.is_none_or(|(open, _)| open != lane) {
            self.close();
            self.open = Some((lane, self.buffer.len()));
            Record::Events(lane, &[]).put(&mut self.buffer);
        }
        let mut bytes = [0; EVENT_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(&bytes);
    }

    /// Takes another record.
    pub(super) fn record(&mut self, record: &Record<'_>) {
        if self.is_due() && !self.write() {
            return;
        }
        self.close();
        record.put(&mut self.buffer);
    }

    /// Ends the record of events.
    fn close(&mut self) {
        if let Some((_, at)) = self.open.take() {
            record::end_events(&mut self.buffer, at);
        }
    }

    /// Returns true if the buffer has to be written before more is taken.
    #[inline]
    fn is_due(&self) -> bool {
        self.buffer.len() >= BUFFER - BUFFER / 8
    }

    /// Writes the buffer. Returns false if nothing more can be taken.
    #[cold]
    fn write(&mut self) -> bool {
        self.close();
        if self.end.is_none() {
            self.end = self.try_write().err();
        }
        self.end.is_none() // else the buffer stays full
    }

    fn try_write(&mut self) -> io::Result<()> {
        let length = (HEAD + self.buffer.len()) as u64;
        has_room(
            self.output.file(),
            (self.length + length).saturating_mul(TRACE_PARTS),
        )?;
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(self.output.beside()?),
        };
        let head = (self.buffer.len() as u64).to_le_bytes();
        file.write_all_at(&head, self.length)?;
        file.write_all_at(&self.buffer, self.length + HEAD as u64)?;
        self.length += length;
        self.buffer.clear();
        Ok(())
    }

    /// Returns true if nothing more is taken.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Ends the spool. Returns what reads it, and why it has ended before the recording.
    pub(super) fn into_pieces(mut self) -> (Pieces, Option<io::Error>) {
        self.close();
        let pieces = Pieces {
            rest: Some(self.buffer),
            file: self.file,
            length: self.length,
            at: 0,
            cut: 0,
        };
        (pieces, self.end)
    }
}

/// Fails if the output is a file and has no room for so many bytes more.
fn has_room(output: &File, bytes: u64) -> io::Result<()> {
    let is_file = FileType::from_raw_mode(fstat(output)?.st_mode) == FileType::RegularFile;
    if is_file && let Ok(system) = fstatvfs(output) {
        let free = system.f_bavail.saturating_mul(system.f_frsize);
        if free < bytes {
            return Err(rustix::io::Errno::NOSPC.into());
        }
    }
    Ok(())
}

/// The pieces of a spool, each of whole records.
pub(super) struct Pieces {
    file: Option<File>,
    length: u64,
    /// The bytes that were read, and those that were given back.
    at: u64,
    cut: u64,
    /// What was not written to the file.
    rest: Option<Vec<u8>>,
}

impl Pieces {
    /// Reads the next piece into `to`. Returns false after the last one.
    pub(super) fn next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let Some(file) = self.file.as_ref().filter(|_| self.at < self.length) else {
            let rest = self.rest.take();
            let is_there = rest.is_some();
            *to = rest.unwrap_or_default();
            return Ok(is_there);
        };
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, self.at)?;
        let bytes = u64::from_le_bytes(head);
        let begin = self.at + HEAD as u64;
        to.resize(bytes.min(self.length.saturating_sub(begin)) as usize, 0);
        file.read_exact_at(to, begin)?;
        self.at = begin + bytes;
        if self.at - self.cut >= CUT {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where the file system can't do that, the room is given back at the end.
            let _ = fallocate(file, flags, self.cut, self.at - self.cut);
            self.cut = self.at;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
