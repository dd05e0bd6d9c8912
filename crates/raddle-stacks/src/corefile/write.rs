//! A core file that grows: header, table of segments, room for the notes, memory. The notes are
//! written last, and stand first, so that a file that is cut off has them. Pages of zeroes are
//! holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::file::CoreFile;
use super::format::{
    HEADER_BYTES, NoteWriter, PAGE, PROGRAM_HEADER_BYTES, PT_LOAD, PT_NOTE, SECTION_HEADER_BYTES,
    Segment, header,
};
use super::regions::Region;
use crate::memory::Memory;

/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// Bytes that belong into the core and can't be read.
    pub unreadable: u64,
}

/// A core file of a process.
pub struct CoreWriter<'a> {
    file: &'a File,
    memory: &'a dyn Memory,
    /// One for each region, by its addresses.
    segments: Vec<Segment>,
    are_anonymous: Vec<bool>,
    /// The room for the notes, in the file.
    notes: Range<u64>,
    /// Where the memory ends in the file.
    end: u64,
    buffer: Vec<u8>,
    pub copied: Copied,
}

impl<'a> CoreWriter<'a> {
    /// Lays the file out, with room for about so many notes of threads. Nothing is written yet.
    pub fn new(
        file: &'a File,
        memory: &'a dyn Memory,
        regions: &[Region],
        threads: u64,
    ) -> CoreWriter<'a> {
        /// Bytes of a thread's notes, and of those that aren't a thread's. Unused room is a hole.
        const THREAD_BYTES: u64 = 1200;
        const OTHER_BYTES: u64 = 4 << 20;
        let headers = (regions.len() as u64 + 1) * PROGRAM_HEADER_BYTES;
        let from = (HEADER_BYTES + headers + SECTION_HEADER_BYTES).next_multiple_of(PAGE);
        let room = threads.saturating_mul(THREAD_BYTES).next_multiple_of(PAGE);
        let notes = from..from + room + OTHER_BYTES;
        let mut end = notes.end;
        let segments = regions.iter().map(|region| {
            let offset = end;
            end += region.dumped;
            Segment {
                kind: PT_LOAD,
                flags: region.flags,
                offset,
                range: region.range.clone(),
                file_bytes: region.dumped,
            }
        });
        CoreWriter {
            file,
            memory,
            segments: segments.collect(),
            are_anonymous: regions.iter().map(|region| region.is_anonymous).collect(),
            notes,
            end,
            buffer: vec![0; PIECE as usize],
            copied: Copied::default(),
        }
    }

    /// Copies all memory. `present` returns which pages of a range are there, if that is known.
    ///
    /// # Errors
    /// Those of the file.
    pub fn copy_all(
        &mut self,
        present: &mut dyn FnMut(Range<u64>) -> Option<Vec<bool>>,
    ) -> io::Result<()> {
        for number in 0..self.segments.len() {
            let segment = self.segments[number].clone();
            let mut at = segment.range.start;
            let end = at + segment.file_bytes;
            while at < end {
                let to = end.min(at + PIECE);
                let pages = if self.are_anonymous[number] {
                    present(at..to)
                } else {
                    None
                };
                for range in runs(at..to, pages.as_deref()) {
                    let offset = segment.offset + (range.start - segment.range.start);
                    self.copy_piece(range, offset)?;
                }
                at = to;
            }
        }
        Ok(())
    }

    /// Copies a range that is at most a piece long.
    fn copy_piece(&mut self, range: Range<u64>, offset: u64) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let room = &mut self.buffer[..(range.end - at) as usize];
            let got = self.memory.read(at, room);
            write_sparsely(self.file, &room[..got], offset + (at - range.start))?;
            self.copied.bytes += got as u64;
            at += got as u64;
            if at < range.end {
                // The page there can't be read: a guard, or gone meanwhile.
                let next = (at / PAGE + 1) * PAGE;
                self.copied.unreadable += next.min(range.end) - at;
                at = next;
            }
        }
        Ok(())
    }

    /// Copies a range once more, as far as it belongs into the core; with other bytes than those of
    /// memory if some are given.
    ///
    /// # Errors
    /// Those of the file.
    pub fn copy_again(&mut self, range: Range<u64>, bytes: Option<&[u8]>) -> io::Result<()> {
        let after = |segment: &Segment| segment.range.end <= range.start;
        let first = self.segments.partition_point(after);
        // The stack of a thread is in one mapping.
        let Some(segment) = self.segments.get(first) else {
            return Ok(());
        };
        let mut at = range.start.max(segment.range.start);
        let end = range.end.min(segment.range.start + segment.file_bytes);
        while at < end {
            let size = (end - at).min(PIECE);
            let room = &mut self.buffer[..size as usize];
            let got = match bytes {
                Some(bytes) => copy_part(&bytes[(at - range.start) as usize..], room),
                None => self.memory.read(at, room),
            };
            let offset = segment.offset + (at - segment.range.start);
            self.file.write_all_at(&room[..got], offset)?;
            at += got as u64;
            if (got as u64) < size {
                break;
            }
        }
        Ok(())
    }

    /// Writes headers and notes; returns the bytes of the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(self, notes: &NoteWriter) -> io::Result<u64> {
        let size = notes.bytes.len() as u64;
        let fits = size <= self.notes.end - self.notes.start;
        let (at, bytes) = if fits {
            (self.notes.start, self.end)
        } else {
            (self.end, self.end + size)
        };
        let mut segments = vec![note_segment(at, notes)];
        segments.extend(self.segments);
        self.file.write_all_at(&notes.bytes, at)?;
        write_headers(self.file, &segments, HEADER_BYTES)?;
        self.file.set_len(bytes)?;
        Ok(bytes)
    }
}

/// Copies as much as there is and fits; returns how much that is.
fn copy_part(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    to[..length].copy_from_slice(&from[..length]);
    length
}

fn note_segment(offset: u64, notes: &NoteWriter) -> Segment {
    Segment {
        kind: PT_NOTE,
        flags: 0,
        offset,
        range: 0..0,
        file_bytes: notes.bytes.len() as u64,
    }
}

/// Writes the header, and the table of segments at an offset.
fn write_headers(file: &File, segments: &[Segment], offset: u64) -> io::Result<()> {
    let table: Vec<u8> = segments.iter().flat_map(Segment::bytes).collect();
    let behind = offset + table.len() as u64;
    let (header, section) = header(segments.len(), offset, behind);
    file.write_all_at(&table, offset)?;
    if let Some(section) = section {
        file.write_all_at(&section, behind)?;
    }
    file.write_all_at(&header, 0)
}

/// Returns the parts of a range of which the pages are there.
fn runs(range: Range<u64>, present: Option<&[bool]>) -> Vec<Range<u64>> {
    let Some(present) = present else {
        return vec![range];
    };
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (number, _) in present
        .iter()
        .enumerate()
        .filter(|(_, is_there)| **is_there)
    {
        let page = range.start + number as u64 * PAGE;
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += PAGE,
            _ => runs.push(page..page + PAGE),
        }
    }
    runs
}

/// Writes all pages but those of zeroes.
fn write_sparsely(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
        let pages = bytes[at..].chunks(PAGE as usize);
        let zeroes: usize = pages
            .take_while(|page| is_zero(page))
            .map(<[u8]>::len)
            .sum();
        at += zeroes;
        let pages = bytes[at..].chunks(PAGE as usize);
        let data: usize = pages
            .take_while(|page| !is_zero(page))
            .map(<[u8]>::len)
            .sum();
        file.write_all_at(&bytes[at..at + data], offset + at as u64)?;
        at += data;
    }
    Ok(())
}

/// Writes a core with other notes: a copy of the file, and behind it the notes and a new table of
/// segments. Returns the bytes of the new file.
///
/// # Errors
/// Those of both files.
pub fn complete(core: &CoreFile, to: &File, notes: &NoteWriter) -> io::Result<u64> {
    copy_file(core.file(), to, core.bytes())?;
    let at = core.bytes().next_multiple_of(PAGE);
    to.write_all_at(&notes.bytes, at)?;
    let mut segments = vec![note_segment(at, notes)];
    segments.extend(core.present_segments());
    let table = (at + notes.bytes.len() as u64).next_multiple_of(8);
    write_headers(to, &segments, table)?;
    let section = SECTION_HEADER_BYTES;
    let bytes = table + segments.len() as u64 * PROGRAM_HEADER_BYTES + section;
    to.set_len(bytes)?;
    Ok(bytes)
}

/// Copies a file without its holes.
fn copy_file(from: &File, to: &File, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; PIECE as usize];
    let mut at = 0;
    while at < bytes {
        at = next_data(from, at).unwrap_or(at);
        let size = bytes.saturating_sub(at).min(PIECE);
        let room = &mut buffer[..size as usize];
        let got = from.read_at(room, at)?;
        if got == 0 {
            break;
        }
        write_sparsely(to, &room[..got], at)?;
        at += got as u64;
    }
    Ok(())
}

/// Returns where the next data begins; the end of the file if there is none, and `None` if the
/// file system doesn't say.
fn next_data(file: &File, at: u64) -> Option<u64> {
    // SAFETY: a plain call with a descriptor that lives.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, libc::SEEK_DATA) };
    if found >= 0 {
        return Some(found as u64);
    }
    let is_end = io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO);
    is_end.then_some(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_there_are_copied_in_runs() {
        assert_eq!(runs(0..8192, None).first(), Some(&(0..8192)));
        let present = [true, true, false, true];
        assert_eq!(
            runs(4096..20480, Some(&present)),
            [4096..12288, 16384..20480]
        );
        assert_eq!(runs(0..4096, Some(&[false])), []);
    }
}
