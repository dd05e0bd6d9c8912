//! What a trace takes from a process while it is recorded: raw events, and what can be read only
//! while the process lives. The trace is made of it afterwards, so that the recording costs the
//! process as little as can be.
//!
//! - Records are put one behind the other into a buffer. Full buffers are kept, up to [`IN_MEMORY`]
//!   bytes, and then written to a file without a name, beside the trace: a short recording needs
//!   none.
//! - A trace needs several times the room of its events, how many is not known before. The spool
//!   ends when there is no room for the smallest trace of what it has ([`LEAST_TRACE`]), and when
//!   it can't be written. The trace ends when the room ends ([`room`]).
//! - The reading of the rings in which the spool ends is taken as a whole: its events can't be told
//!   otherwise. They stay in memory. What comes after is dropped.
//! - Reading gives room back: what was read is cut out of the file.

mod record;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use raddle_record::rings::{Lane, Words};
use rustix::fs::{FallocateFlags, FileType, fallocate, fstat, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::output::Output;
use record::EVENT_BYTES;
pub(super) use record::{Record, words};

/// Bytes of the buffer.
const BUFFER: usize = 1 << 18;
/// Bytes of full buffers that are kept. Memory costs a fifth of a file's pages.
const IN_MEMORY: u64 = 1 << 24;
/// The least bytes of a trace for each two of its spool: measured are three to nine.
const LEAST_TRACE: u64 = 3;
/// What a file system needs for a file beside its bytes: so many bytes, and a part of the room.
const SLACK: u64 = 1 << 16;
const SLACK_PART: u64 = 128;
/// Bytes that are given back at once.
const CUT: u64 = 1 << 22;
/// Other processes are looked for at every so many readings, so that one look does for more
/// objects: what is read of them stands up to so many readings behind the events that need it.
pub(super) const LOOK_EVERY: usize = 5;
/// Bytes that say how many follow in the file.
const HEAD: usize = 8;

/// See the module.
pub(super) struct Spool<'o> {
    /// The trace.
    output: &'o Output,
    buffer: Vec<u8>,
    /// The lane of the events at the end of the buffer, and where their record begins.
    open: Option<(Lane, usize)>,
    /// Full buffers, and how many bytes they have.
    kept: Vec<Vec<u8>>,
    kept_bytes: u64,
    file: Option<File>,
    /// Bytes of the file that are good.
    length: u64,
    /// Full buffers of the reading in which the spool ends.
    rest: Vec<Vec<u8>>,
    /// Why nothing more is taken after this reading.
    end: Option<io::Error>,
    /// The reading is over.
    is_closed: bool,
}

impl<'o> Spool<'o> {
    /// A spool of what becomes a trace.
    pub(super) fn new(output: &'o Output) -> Self {
        Spool {
            output,
            buffer: Vec::with_capacity(BUFFER),
            open: None,
            kept: Vec::new(),
            kept_bytes: 0,
            file: None,
            length: 0,
            rest: Vec::new(),
            end: None,
            is_closed: false,
        }
    }

    /// Takes an event.
    #[inline]
    pub(super) fn event(&mut self, lane: Lane, words: Words) {
        if self.is_due() {
            self.write();
        }
        if self.is_closed {
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

    /// Takes another record. After the end it must not tell a time: events are missing.
    pub(super) fn record(&mut self, record: &Record<'_>) {
        if self.is_due() {
            self.write();
        }
        let tells = matches!(record, Record::Read(_) | Record::Looked);
        if self.is_closed && tells {
            return;
        }
        self.close();
        record.put(&mut self.buffer);
        if let Record::Read(_) = record {
            self.is_closed = self.end.is_some();
        }
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

    /// Empties the buffer.
    #[cold]
    fn write(&mut self) {
        self.close();
        if self.end.is_none() {
            self.end = self.try_write().err();
        }
        if self.end.is_some() {
            let empty = Vec::with_capacity(BUFFER);
            self.rest.push(std::mem::replace(&mut self.buffer, empty));
        }
    }

    fn try_write(&mut self) -> io::Result<()> {
        let length = (HEAD + self.buffer.len()) as u64;
        // There must be room for the next buffer, too: it is full when more is asked for.
        let all = self.kept_bytes + self.length + length + BUFFER as u64;
        self.has_room(all.saturating_mul(LEAST_TRACE) / 2)?;
        if self.kept_bytes < IN_MEMORY {
            self.kept_bytes += length;
            let empty = Vec::with_capacity(BUFFER);
            self.kept.push(std::mem::replace(&mut self.buffer, empty));
            return Ok(());
        }
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

    /// Fails if the output is a file and has no room for a trace of so many bytes. What is in the
    /// spool's file gives room back.
    fn has_room(&self, bytes: u64) -> io::Result<()> {
        match room(self.output.file())? {
            Some((room, why)) if room.saturating_add(self.length) < bytes => Err(why.into()),
            _ => Ok(()),
        }
    }

    /// Returns true if nothing more is taken after this reading.
    pub(super) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Ends the spool. Returns what reads it, and why it has ended before the recording.
    pub(super) fn into_pieces(mut self) -> (Pieces, Option<io::Error>) {
        self.close();
        self.rest.push(self.buffer);
        let pieces = Pieces {
            content: Rc::new(Content {
                kept: self.kept,
                file: self.file,
                length: self.length,
                rest: self.rest,
            }),
            next: 0,
            at: 0,
            cut: 0,
        };
        (pieces, self.end)
    }
}

/// Returns how many bytes a file can have, and what it means that it has no more; `None` if it is
/// no regular file.
pub(super) fn room(file: &File) -> io::Result<Option<(u64, Errno)>> {
    let state = fstat(file)?;
    if FileType::from_raw_mode(state.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let free = fstatvfs(file).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
    let free = free.unwrap_or(u64::MAX);
    let slack = SLACK.saturating_add(free / SLACK_PART);
    let on_disk = (state.st_size as u64).saturating_add(free.saturating_sub(slack));
    Ok(Some(if most < on_disk {
        (most, Errno::FBIG)
    } else {
        (on_disk, Errno::NOSPC)
    }))
}

/// What a spool has: full buffers, the file, and the last buffers.
struct Content {
    kept: Vec<Vec<u8>>,
    file: Option<File>,
    length: u64,
    rest: Vec<Vec<u8>>,
}

/// The pieces of a spool, each of whole records.
#[derive(Clone)]
pub(super) struct Pieces {
    content: Rc<Content>,
    /// The next piece that is in memory, and the next one of the file.
    next: usize,
    at: u64,
    /// Up to here the file's room was given back.
    cut: u64,
}

impl Pieces {
    /// Gives the room of what both have read back.
    pub(super) fn give_back(&mut self, other: &Pieces) {
        let at = self.at.min(other.at);
        if at.saturating_sub(self.cut) < CUT {
            return;
        }
        if let Some(file) = &self.content.file {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Where the file system can't do that, the room is given back at the end.
            let _ = fallocate(file, flags, self.cut, at - self.cut);
        }
        self.cut = at;
    }

    /// Reads the next piece into `to`. Returns false after the last one.
    pub(super) fn next(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let content = Rc::clone(&self.content);
        let kept = content.kept.len();
        to.clear();
        if self.next >= kept && self.at < content.length {
            let file = content.file.as_ref().ok_or(ErrorKind::UnexpectedEof)?;
            self.read(file, content.length, to)?;
            return Ok(true);
        }
        let mut pieces = content.kept.iter().chain(&content.rest);
        let Some(piece) = pieces.nth(self.next) else {
            return Ok(false);
        };
        to.extend_from_slice(piece);
        self.next += 1;
        Ok(true)
    }

    fn read(&mut self, file: &File, length: u64, to: &mut Vec<u8>) -> io::Result<()> {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, self.at)?;
        let bytes = u64::from_le_bytes(head);
        let begin = self.at + HEAD as u64;
        to.resize(bytes.min(length.saturating_sub(begin)) as usize, 0);
        file.read_exact_at(to, begin)?;
        self.at = begin + bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
