//! A core file as memory. What the core doesn't have of a mapped file, its code above all, is read
//! from the file itself, if that is the one that was mapped.
//!
//! Nothing in a core is trusted. A truncated core has less memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::carried::{self, CARRIED};
use super::format::{
    CORE, EM_X86_64, ET_CORE, HEADER_BYTES, INFO_PID, NT_AUXV, NT_FILE, NT_PRPSINFO, NT_PRSTATUS,
    NT_SNAPSHOT, NoteWriter, PAGE, PN_XNUM, PROGRAM_HEADER_BYTES, PT_LOAD, PT_NOTE, RADDLE,
    SECTION_HEADER_BYTES, STATUS_BYTES, STATUS_REGISTERS, STATUS_SIGNAL, STATUS_TID, Segment,
    next_note, put,
};
use crate::kernel::{StoppedThreads, UserRegisters};
use crate::memory::Memory;

/// The most segments that are read.
const SEGMENTS_MAX: u64 = 1 << 22;
/// The most bytes of notes that are read.
const NOTES_MAX: u64 = 1 << 30;
/// The most mapped files that are kept.
const FILES_MAX: u64 = 1 << 20;
/// The most of them that are opened.
const SOURCES_MAX: usize = 1 << 12;

/// Why a file can't be used as a core.
#[derive(Debug)]
pub enum CoreError {
    Unreadable(io::Error),
    Empty,
    NoElf,
    NoCore,
    OtherMachine(u16),
    OtherClass,
    Headers,
    NoThreads,
}

impl fmt::Display for CoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// EM_ARM, EM_AARCH64, EM_386, EM_RISCV, EM_PPC64, EM_S390.
        const MACHINES: [(u16, &str); 6] = [
            (40, "32-bit ARM"),
            (183, "aarch64"),
            (3, "i386"),
            (243, "RISC-V"),
            (21, "ppc64"),
            (22, "s390"),
        ];
        match self {
            CoreError::Unreadable(error) => write!(out, "it can't be read ({error})"),
            CoreError::Empty => out.write_str("it is empty"),
            CoreError::NoElf => out.write_str("it is no core file"),
            CoreError::NoCore => out.write_str("it is a program or a library, and no core file"),
            CoreError::OtherMachine(number) => {
                let known = MACHINES.iter().find(|(machine, _)| machine == number);
                match known {
                    Some((_, name)) => write!(out, "it is a core of another machine ({name})"),
                    None => write!(out, "it is a core of another machine (number {number})"),
                }
            }
            CoreError::OtherClass => out.write_str("it is no core of a 64-bit x86 process"),
            CoreError::Headers => out.write_str("its headers are cut off or make no sense"),
            CoreError::NoThreads => out.write_str("it has no registers of any thread"),
        }
    }
}

impl std::error::Error for CoreError {}

/// A part of a mapped file.
struct Mapped {
    range: Range<u64>,
    offset: u64,
    path: String,
}

/// A file beside the core, and where its first byte that is mapped is in it.
struct Source {
    file: File,
    start: u64,
}

/// A core file.
pub struct CoreFile {
    file: File,
    bytes: u64,
    /// Memory, by its addresses.
    loads: Vec<Segment>,
    notes: Vec<u8>,
    /// By their addresses.
    mapped: Vec<Mapped>,
    threads: Vec<(u32, UserRegisters)>,
    pid: u32,
    signal: u16,
    vdso: Option<u64>,
    snapshot: Option<Vec<u8>>,
    /// How many bytes the file is too short.
    pub missing: u64,
    /// The files beside the core, as far as they were needed; none for one that isn't the right
    /// one.
    sources: RefCell<HashMap<String, Option<Source>>>,
}

impl CoreFile {
    /// Reads headers and notes.
    ///
    /// # Errors
    /// If it is no core, or has no threads.
    pub fn open(path: &Path) -> Result<CoreFile, CoreError> {
        let file = File::open(path).map_err(CoreError::Unreadable)?;
        let facts = file.metadata().map_err(CoreError::Unreadable)?;
        if !facts.is_file() {
            return Err(CoreError::NoElf);
        }
        let bytes = facts.len();
        let segments = read_segments(&file, bytes)?;
        let end = segments
            .iter()
            .map(|it| it.offset.saturating_add(it.file_bytes))
            .max();
        let notes = read_notes(&file, &segments)?;
        let is_load = |it: &Segment| it.kind == PT_LOAD && !it.range.is_empty();
        let mut loads: Vec<Segment> = segments.into_iter().filter(is_load).collect();
        loads.sort_by_key(|it| it.range.start);
        let mut core = CoreFile {
            file,
            bytes,
            loads,
            notes: Vec::new(),
            mapped: Vec::new(),
            threads: Vec::new(),
            pid: 0,
            signal: 0,
            vdso: None,
            snapshot: None,
            missing: end.unwrap_or(0).saturating_sub(bytes),
            sources: RefCell::default(),
        };
        core.parse_notes(&notes);
        core.notes = notes;
        match core.threads.first() {
            Some(&(tid, _)) if core.pid == 0 => core.pid = tid,
            Some(_) => {}
            None => return Err(CoreError::NoThreads),
        }
        Ok(core)
    }

    fn parse_notes(&mut self, notes: &[u8]) {
        let mut rest = notes;
        while let Some(note) = next_note(&mut rest) {
            match (note.name, note.kind) {
                (CORE, NT_PRSTATUS) => {
                    self.threads.extend(parse_status(note.content));
                    self.signal = short(note.content, STATUS_SIGNAL).unwrap_or(0);
                }
                (CORE, NT_PRPSINFO) => self.pid = half(note.content, INFO_PID).unwrap_or(0),
                (CORE, NT_FILE) => self.mapped = parse_files(note.content).unwrap_or_default(),
                (CORE, NT_AUXV) => self.vdso = parse_vdso(note.content),
                (RADDLE, NT_SNAPSHOT) => self.snapshot = Some(note.content.to_vec()),
                _ => {}
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the process's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the signal that ended the process, or 0.
    pub fn signal(&self) -> u16 {
        self.signal
    }

    /// Returns the numbers of the threads that have registers, the first one first.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.threads.iter().map(|(tid, _)| *tid)
    }

    /// Returns the snapshot that a core with all green threads has.
    pub fn snapshot(&self) -> Option<&[u8]> {
        self.snapshot.as_deref()
    }

    /// Returns the registers of all threads: of green threads if the core has all of these, else of
    /// kernel threads.
    pub fn stopped(&self) -> StoppedThreads {
        StoppedThreads {
            registers: self.threads.iter().copied().collect(),
            are_green: self.snapshot.is_some(),
        }
    }

    /// Returns the notes with other numbers of threads, and other registers of some.
    pub fn renumbered(&self, change: &dyn Fn(u32) -> (u32, Option<UserRegisters>)) -> NoteWriter {
        let mut notes = NoteWriter::default();
        let mut rest = &self.notes[..];
        while let Some(note) = next_note(&mut rest) {
            let mut bytes = note.bytes.to_vec();
            if note.name == CORE
                && note.kind == NT_PRSTATUS
                && let Some(tid) = half(note.content, STATUS_TID)
            {
                let (number, registers) = change(tid);
                let at = note.content_at + STATUS_TID;
                put(&mut bytes, at, &number.to_le_bytes());
                let at = note.content_at + STATUS_REGISTERS;
                let words = registers.iter().flatten().enumerate();
                for (place, word) in words.filter(|_| note.content.len() >= STATUS_BYTES) {
                    put(&mut bytes, at + place * 8, &word.to_le_bytes());
                }
            }
            notes.raw(&bytes);
        }
        notes
    }

    /// Returns the segments with memory, with as many bytes as the file has of each.
    pub(super) fn present_segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.loads.iter().map(|segment| Segment {
            file_bytes: segment
                .file_bytes
                .min(self.bytes.saturating_sub(segment.offset)),
            ..segment.clone()
        })
    }

    /// Returns the ranges of memory that may be written, of files with such a name and right behind
    /// these.
    pub(crate) fn data_of(&self, name: &str) -> Vec<Range<u64>> {
        /// How far `.bss` may reach behind its file.
        const BEHIND: u64 = 4 << 20;
        const WRITABLE: u32 = 2;
        /// The most files, or parts that are far from each other.
        const RANGES_MAX: usize = 64;
        let is_it = |it: &&Mapped| it.path.rsplit('/').next().unwrap_or("").contains(name);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for mapped in self.mapped.iter().filter(is_it) {
            let is_full = ranges.len() == RANGES_MAX;
            let end = mapped.range.end.saturating_add(BEHIND);
            match ranges.last_mut() {
                Some(last) if mapped.range.start <= last.end => last.end = end,
                _ if is_full => break,
                _ => ranges.push(mapped.range.start..end),
            }
        }
        let parts = ranges.iter().flat_map(|wide| {
            let writable = self.loads.iter().filter(|it| it.flags & WRITABLE != 0);
            writable.map(|it| it.range.start.max(wide.start)..it.range.end.min(wide.end))
        });
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Returns the mappings as `/proc/PID/maps` would show them.
    pub fn maps(&self) -> String {
        let mut text = String::new();
        for segment in &self.loads {
            let range = &segment.range;
            let right = |flag, letter| {
                if segment.flags & flag != 0 {
                    letter
                } else {
                    '-'
                }
            };
            let mapped = self.mapped_at(range.start);
            let (offset, path) = match mapped {
                Some(it) => {
                    let within = range.start - it.range.start;
                    (it.offset.saturating_add(within), it.path.as_str())
                }
                None if self.vdso == Some(range.start) => (0, "[vdso]"),
                None => (0, ""),
            };
            let _ = writeln!(
                text,
                "{:x}-{:x} {}{}{}p {offset:08x} 00:00 0 {}",
                range.start,
                range.end,
                right(4, 'r'),
                right(2, 'w'),
                right(1, 'x'),
                path.replace('\n', "\\012")
            );
        }
        text
    }

    fn mapped_at(&self, address: u64) -> Option<&Mapped> {
        let after = self.mapped.partition_point(|it| it.range.start <= address);
        let mapped = self.mapped.get(after.checked_sub(1)?)?;
        mapped.range.contains(&address).then_some(mapped)
    }

    fn load_at(&self, address: u64) -> Option<&Segment> {
        let after = self.loads.partition_point(|it| it.range.start <= address);
        let segment = self.loads.get(after.checked_sub(1)?)?;
        segment.range.contains(&address).then_some(segment)
    }

    /// Reads what the core itself has.
    fn read_own(&self, address: u64, to: &mut [u8]) -> usize {
        let Some(segment) = self.load_at(address) else {
            return 0;
        };
        let within = address - segment.range.start;
        let there = segment.file_bytes.saturating_sub(within);
        let size = (to.len() as u64).min(there) as usize;
        let offset = segment.offset.saturating_add(within);
        self.file.read_at(&mut to[..size], offset).unwrap_or(0)
    }

    /// Reads what a mapped file has.
    fn read_source(&self, address: u64, to: &mut [u8]) -> usize {
        const WRITABLE: u32 = 2;
        let Some(mapped) = self.mapped_at(address) else {
            return 0;
        };
        if self
            .load_at(address)
            .is_some_and(|it| it.flags & WRITABLE != 0)
        {
            return 0; // the program may have changed it
        }
        let mut sources = self.sources.borrow_mut();
        if sources.len() == SOURCES_MAX && !sources.contains_key(&mapped.path) {
            return 0;
        }
        let source = sources
            .entry(mapped.path.clone())
            .or_insert_with(|| self.open_source(&mapped.path));
        let Some(source) = source else {
            return 0;
        };
        let size = (to.len() as u64).min(mapped.range.end - address) as usize;
        let within = mapped.offset.saturating_add(address - mapped.range.start);
        let offset = source.start.saturating_add(within);
        source.file.read_at(&mut to[..size], offset).unwrap_or(0)
    }

    /// Opens a file, if its first page is the one in the core.
    fn open_source(&self, path: &str) -> Option<Source> {
        let first = self
            .mapped
            .iter()
            .find(|it| it.path == path && it.offset == 0);
        let mut own = [0; PAGE as usize];
        let got = first.map_or(0, |it| self.read_own(it.range.start, &mut own));
        if path == CARRIED {
            return self.carrying(&own[..got]);
        }
        let file = open_file(path)?;
        let mut found = [0; PAGE as usize];
        let there = file.read_at(&mut found, 0).ok()?;
        let is_it = own[..got.min(there)] == found[..got.min(there)];
        is_it.then_some(Source { file, start: 0 })
    }

    /// Finds the file that carries the runtime which begins with these bytes.
    fn carrying(&self, first: &[u8]) -> Option<Source> {
        /// The most files that are searched.
        const FILES_MAX: usize = 64;
        let mut paths: Vec<&str> = self.mapped.iter().map(|it| it.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = paths.iter().filter_map(|path| open_file(path));
        files.by_ref().take(FILES_MAX).find_map(|file| {
            let start = carried::place(&file, first)?;
            Some(Source { file, start })
        })
    }
}

/// Opens a file that a core names, in which bytes may come and go.
fn open_file(path: &str) -> Option<File> {
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let facts = std::fs::metadata(path).ok()?;
    facts.is_file().then(|| options.open(path).ok()).flatten()
}

impl Memory for CoreFile {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done as u64) else {
                break;
            };
            let got = match self.read_own(at, &mut to[done..]) {
                0 => self.read_source(at, &mut to[done..]),
                got => got,
            };
            if got == 0 {
                break;
            }
            done += got;
        }
        done
    }
}

fn read_segments(file: &File, bytes: u64) -> Result<Vec<Segment>, CoreError> {
    let mut header = [0; HEADER_BYTES as usize];
    let got = file
        .read_at(&mut header, 0)
        .map_err(CoreError::Unreadable)?;
    match got {
        0 => return Err(CoreError::Empty),
        got if !header[..got].starts_with(&b"\x7fELF"[..got.min(4)]) => {
            return Err(CoreError::NoElf);
        }
        got if got < header.len() => return Err(CoreError::Headers),
        _ => {}
    }
    let little = |at: usize| short(&header, at).unwrap_or(0);
    match (&header[4..6], little(16), little(18)) {
        ([2, 1], ET_CORE, EM_X86_64) => {}
        ([2, 1], ET_CORE, machine) => return Err(CoreError::OtherMachine(machine)),
        ([1, 1], ET_CORE, machine) if machine != EM_X86_64 => {
            return Err(CoreError::OtherMachine(machine));
        }
        ([2, 1], _, _) => return Err(CoreError::NoCore),
        _ => return Err(CoreError::OtherClass),
    }
    let offset = word(&header, 32).unwrap_or(0);
    if u64::from(little(54)) != PROGRAM_HEADER_BYTES {
        return Err(CoreError::Headers);
    }
    let count = match little(56) {
        PN_XNUM => {
            let mut section = [0; SECTION_HEADER_BYTES as usize];
            let at = word(&header, 40).unwrap_or(0);
            let read = file.read_exact_at(&mut section, at);
            read.map_err(|_| CoreError::Headers)?;
            u64::from(half(&section, 44).unwrap_or(0))
        }
        count => u64::from(count),
    };
    let size = count * PROGRAM_HEADER_BYTES;
    let is_inside = offset.checked_add(size).is_some_and(|end| end <= bytes);
    if count == 0 || count > SEGMENTS_MAX || !is_inside {
        return Err(CoreError::Headers);
    }
    let mut table = vec![0; size as usize];
    let read = file.read_exact_at(&mut table, offset);
    read.map_err(|_| CoreError::Headers)?;
    let segments = table.chunks_exact(PROGRAM_HEADER_BYTES as usize);
    Ok(segments.filter_map(parse_segment).collect())
}

fn parse_segment(bytes: &[u8]) -> Option<Segment> {
    let start = word(bytes, 16)?;
    let memory_bytes = word(bytes, 40)?;
    Some(Segment {
        kind: half(bytes, 0)?,
        flags: half(bytes, 4)?,
        offset: word(bytes, 8)?,
        range: start..start.checked_add(memory_bytes)?,
        file_bytes: match half(bytes, 0)? {
            PT_LOAD => word(bytes, 32)?.min(memory_bytes),
            _ => word(bytes, 32)?,
        },
    })
}

fn read_notes(file: &File, segments: &[Segment]) -> Result<Vec<u8>, CoreError> {
    let mut notes = Vec::new();
    for segment in segments.iter().filter(|it| it.kind == PT_NOTE) {
        let room = NOTES_MAX.saturating_sub(notes.len() as u64);
        let mut left = segment.file_bytes.min(room);
        let mut at = segment.offset;
        let mut piece = vec![0; 1 << 16];
        while left != 0 {
            let size = left.min(piece.len() as u64) as usize;
            let got = file.read_at(&mut piece[..size], at);
            let got = got.map_err(CoreError::Unreadable)?;
            if got == 0 {
                break;
            }
            notes.extend_from_slice(&piece[..got]);
            at = at.saturating_add(got as u64);
            left -= got as u64;
        }
    }
    Ok(notes)
}

fn parse_status(content: &[u8]) -> Option<(u32, UserRegisters)> {
    if content.len() != STATUS_BYTES {
        return None;
    }
    let mut registers = [0; 27];
    for (number, register) in registers.iter_mut().enumerate() {
        *register = word(content, STATUS_REGISTERS + number * 8)?;
    }
    Some((half(content, STATUS_TID)?, registers))
}

fn parse_files(content: &[u8]) -> Option<Vec<Mapped>> {
    let (count, page) = (word(content, 0)?, word(content, 8)?);
    let is_inside = count.checked_mul(24)? <= content.len() as u64;
    if !is_inside || count > FILES_MAX {
        return None;
    }
    let count = count as usize;
    let mut names = content.get(16 + count * 24..)?.split(|&byte| byte == 0);
    let mut mapped = Vec::with_capacity(count);
    for number in 0..count {
        let at = 16 + number * 24;
        let path = names.next()?;
        mapped.push(Mapped {
            range: word(content, at)?..word(content, at + 8)?,
            offset: word(content, at + 16)?.saturating_mul(page),
            path: String::from_utf8_lossy(path).into_owned(),
        });
    }
    mapped.sort_by_key(|it| it.range.start);
    Some(mapped)
}

fn parse_vdso(content: &[u8]) -> Option<u64> {
    const AT_SYSINFO_EHDR: u64 = 33;
    let pairs = content.chunks_exact(16);
    let found = pairs.filter(|pair| word(pair, 0) == Some(AT_SYSINFO_EHDR));
    found.filter_map(|pair| word(pair, 8)).next()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
