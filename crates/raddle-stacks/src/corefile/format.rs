//! Headers and notes of a core file, as bytes.

use std::ops::Range;

use crate::kernel::UserRegisters;

pub(super) const PAGE: u64 = 4096;
pub(super) const HEADER_BYTES: u64 = 64;
pub(super) const PROGRAM_HEADER_BYTES: u64 = 56;
pub(super) const SECTION_HEADER_BYTES: u64 = 64;
/// In the count of program headers: the count is in the first section header.
pub(super) const PN_XNUM: u16 = 0xffff;
pub(super) const EM_X86_64: u16 = 62;
pub(super) const ET_CORE: u16 = 4;
pub(super) const PT_LOAD: u32 = 1;
pub(super) const PT_NOTE: u32 = 4;

pub(super) const NT_PRSTATUS: u32 = 1;
pub(super) const NT_FPREGSET: u32 = 2;
pub(super) const NT_PRPSINFO: u32 = 3;
pub(super) const NT_AUXV: u32 = 6;
pub(super) const NT_FILE: u32 = 0x4649_4c45;
const NT_X86_XSTATE: u32 = 0x202;
pub(super) const CORE: &[u8] = b"CORE";
const LINUX: &[u8] = b"LINUX";
/// The name of the runtime's own notes.
pub(super) const RADDLE: &[u8] = b"RADDLE";
/// The type of the note with a [`Snapshot`](raddle_inspect::Snapshot).
pub(super) const NT_SNAPSHOT: u32 = 1;

/// Bytes of `elf_prstatus`.
pub(super) const STATUS_BYTES: usize = 336;
/// Where that has the signal, the thread's number, and its registers.
pub(super) const STATUS_SIGNAL: usize = 12;
pub(super) const STATUS_TID: usize = 32;
pub(super) const STATUS_REGISTERS: usize = 112;
/// Bytes of `elf_prpsinfo`.
const INFO_BYTES: usize = 136;
/// Where that has the process's number.
pub(super) const INFO_PID: usize = 24;
/// Bytes of `user_fpregs_struct`.
const FLOATS_BYTES: usize = 512;

/// A program header.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub range: Range<u64>,
    pub file_bytes: u64,
}

impl Segment {
    pub(super) fn bytes(&self) -> [u8; PROGRAM_HEADER_BYTES as usize] {
        let size = self.range.end - self.range.start;
        let align = if self.kind == PT_LOAD { PAGE } else { 4 };
        let words = [
            self.offset,
            self.range.start,
            0,
            self.file_bytes,
            size,
            align,
        ];
        let mut bytes = [0; PROGRAM_HEADER_BYTES as usize];
        put(&mut bytes, 0, &self.kind.to_le_bytes());
        put(&mut bytes, 4, &self.flags.to_le_bytes());
        for (number, word) in words.iter().enumerate() {
            put(&mut bytes, 8 + number * 8, &word.to_le_bytes());
        }
        bytes
    }
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Returns the ELF header of a core, and the section header that has the count if it needs one.
pub(super) fn header(
    segments: usize,
    table_offset: u64,
    section_offset: u64,
) -> (
    [u8; HEADER_BYTES as usize],
    Option<[u8; SECTION_HEADER_BYTES as usize]>,
) {
    let is_large = segments >= usize::from(PN_XNUM);
    let mut header = [0; HEADER_BYTES as usize];
    put(&mut header, 0, b"\x7fELF\x02\x01\x01");
    put(&mut header, 16, &ET_CORE.to_le_bytes());
    put(&mut header, 18, &EM_X86_64.to_le_bytes());
    put(&mut header, 20, &1u32.to_le_bytes());
    put(&mut header, 32, &table_offset.to_le_bytes());
    let halves = [HEADER_BYTES as u16, PROGRAM_HEADER_BYTES as u16];
    put(&mut header, 52, &halves[0].to_le_bytes());
    put(&mut header, 54, &halves[1].to_le_bytes());
    let count = if is_large { PN_XNUM } else { segments as u16 };
    put(&mut header, 56, &count.to_le_bytes());
    if !is_large {
        return (header, None);
    }
    put(&mut header, 40, &section_offset.to_le_bytes());
    put(
        &mut header,
        58,
        &(SECTION_HEADER_BYTES as u16).to_le_bytes(),
    );
    put(&mut header, 60, &1u16.to_le_bytes());
    let mut section = [0; SECTION_HEADER_BYTES as usize];
    put(&mut section, 32, &1u64.to_le_bytes()); // sh_size: sections
    put(&mut section, 44, &(segments as u32).to_le_bytes()); // sh_info: program headers
    (header, Some(section))
}

/// What a core says of its process.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub pid: u32,
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    pub user: u32,
    pub user_group: u32,
    /// As `ps` shows it.
    pub state: u8,
    pub name: Vec<u8>,
    pub arguments: Vec<u8>,
    /// The signal that ended it, or 0. Debuggers take it from any thread.
    pub signal: u16,
}

/// A thread for its notes.
#[derive(Clone, Copy, Debug)]
pub struct ThreadNote {
    pub tid: u32,
    pub registers: UserRegisters,
    /// MXCSR and the x87 control word.
    pub control: Option<(u32, u16)>,
}

/// The notes of a core.
#[derive(Default)]
pub struct NoteWriter {
    pub(super) bytes: Vec<u8>,
}

impl NoteWriter {
    /// Adds a note.
    pub(super) fn add(&mut self, name: &[u8], kind: u32, content: &[u8]) {
        let sizes = [name.len() as u32 + 1, content.len() as u32, kind];
        for size in sizes {
            self.bytes.extend_from_slice(&size.to_le_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds what the process is.
    pub fn identity(&mut self, identity: &Identity) {
        let mut info = [0; INFO_BYTES];
        info[1] = identity.state;
        let ids = [
            identity.user,
            identity.user_group,
            identity.pid,
            identity.parent,
            identity.group,
            identity.session,
        ];
        for (number, id) in ids.iter().enumerate() {
            put(&mut info, 16 + number * 4, &id.to_le_bytes());
        }
        let name = &identity.name[..identity.name.len().min(15)];
        put(&mut info, 40, name);
        let arguments = &identity.arguments[..identity.arguments.len().min(79)];
        put(&mut info, 56, arguments);
        self.add(CORE, NT_PRPSINFO, &info);
    }

    /// Adds the vector that the kernel has passed to the program.
    pub fn auxiliary(&mut self, vector: &[u8]) {
        self.add(CORE, NT_AUXV, vector);
    }

    /// Adds the files that are mapped: ranges, offsets in bytes, paths.
    pub fn files<'a>(&mut self, files: impl Iterator<Item = (Range<u64>, u64, &'a [u8])>) {
        let (mut words, mut names) = (vec![0, PAGE], Vec::new());
        for (range, offset, path) in files {
            words[0] += 1;
            words.extend([range.start, range.end, offset / PAGE]);
            names.extend_from_slice(path);
            names.push(0);
        }
        let mut content: Vec<u8> = words.iter().flat_map(|it| it.to_le_bytes()).collect();
        content.extend(names);
        self.add(CORE, NT_FILE, &content);
    }

    /// Adds a thread: its registers, and its floating-point control words. Its vector registers
    /// are dead at the call that it waits in, and zero here.
    pub fn thread(&mut self, identity: &Identity, thread: &ThreadNote) {
        let mut status = [0; STATUS_BYTES];
        put(&mut status, 0, &u32::from(identity.signal).to_le_bytes());
        put(&mut status, STATUS_SIGNAL, &identity.signal.to_le_bytes());
        let ids = [
            thread.tid,
            identity.parent,
            identity.group,
            identity.session,
        ];
        for (number, id) in ids.iter().enumerate() {
            put(&mut status, STATUS_TID + number * 4, &id.to_le_bytes());
        }
        for (number, register) in thread.registers.iter().enumerate() {
            put(
                &mut status,
                STATUS_REGISTERS + number * 8,
                &register.to_le_bytes(),
            );
        }
        status[STATUS_REGISTERS + 27 * 8] = u8::from(thread.control.is_some());
        self.add(CORE, NT_PRSTATUS, &status);
        if let Some((mxcsr, x87)) = thread.control {
            let mut floats = [0; FLOATS_BYTES];
            put(&mut floats, 0, &x87.to_le_bytes());
            put(&mut floats, 24, &mxcsr.to_le_bytes());
            put(&mut floats, 28, &0xffffu32.to_le_bytes()); // all bits of MXCSR exist
            self.add(CORE, NT_FPREGSET, &floats);
        }
    }

    /// Adds all floating-point registers of the thread before: as FXSAVE and XSAVE store them.
    pub fn floats(&mut self, legacy: &[u8], extended: &[u8]) {
        if !legacy.is_empty() {
            self.add(CORE, NT_FPREGSET, legacy);
        }
        if !extended.is_empty() {
            self.add(LINUX, NT_X86_XSTATE, extended);
        }
    }

    /// Adds names, states, waits and carriers, as the process reports them.
    pub fn snapshot(&mut self, snapshot: &[u8]) {
        self.add(RADDLE, NT_SNAPSHOT, snapshot);
    }

    /// Adds notes of another core as they are.
    pub(super) fn raw(&mut self, notes: &[u8]) {
        self.bytes.extend_from_slice(notes);
        self.pad();
    }
}

/// A note.
pub(super) struct Note<'a> {
    pub name: &'a [u8],
    pub kind: u32,
    pub content: &'a [u8],
    /// All of its bytes, with the padding.
    pub bytes: &'a [u8],
    /// Where the content is in them.
    pub content_at: usize,
}

/// Takes the first note off `rest`; `None` at the end, or where the rest is no note.
pub(super) fn next_note<'a>(rest: &mut &'a [u8]) -> Option<Note<'a>> {
    let bytes = *rest;
    let word =
        |at: usize| -> Option<u32> { Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)) };
    let (name_bytes, size, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
    let name = bytes.get(12..12usize.checked_add(name_bytes)?)?;
    let content_at = 12 + name_bytes.next_multiple_of(4);
    let end = content_at.checked_add(size)?;
    let content = bytes.get(content_at..end)?;
    let padded = end.next_multiple_of(4).min(bytes.len());
    *rest = &bytes[padded..];
    Some(Note {
        name: name.strip_suffix(b"\0").unwrap_or(name),
        kind,
        content,
        bytes: &bytes[..padded],
        content_at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_are_written() {
        let mut notes = NoteWriter::default();
        notes.add(CORE, 7, b"abc");
        notes.snapshot(b"");
        let mut rest = &notes.bytes[..];
        let first = next_note(&mut rest).unwrap();
        assert_eq!(
            (first.name, first.kind, first.content),
            (CORE, 7, &b"abc"[..])
        );
        let second = next_note(&mut rest).unwrap();
        assert_eq!((second.name, second.kind), (RADDLE, NT_SNAPSHOT));
        assert!(next_note(&mut rest).is_none() && rest.is_empty());
    }

    #[test]
    fn broken_notes_end_the_list() {
        for bytes in [
            &[0xff; 12][..],
            &[0, 0, 0],
            &[4, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0],
        ] {
            assert!(next_note(&mut &bytes[..]).is_none());
        }
    }
}
