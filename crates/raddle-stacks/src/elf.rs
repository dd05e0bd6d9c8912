//! Headers and unwind tables of a file, read from the memory of the process that has mapped it: so
//! they are those of the code that runs, even if the file has been replaced or deleted.

use std::cell::Cell;

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Pointer, UnwindSection,
};

use crate::memory::Memory;

pub(crate) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const NT_GNU_BUILD_ID: u32 = 3;
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// The most program headers that are read.
const HEADERS_MAX: usize = 256;
/// The most bytes of unwind tables that are read of one file.
const TABLES_MAX: u64 = 64 << 20;
const NOTES_MAX: usize = 1 << 16;
const PAGE: u64 = 4096;

/// A mapped file.
pub struct Image {
    /// What is added to an address in the file's headers.
    pub bias: u64,
    pub build_id: Option<Vec<u8>>,
    pub tables: Option<Tables>,
}

/// The search table and the unwind tables.
pub struct Tables {
    bytes: Vec<u8>,
    /// The address of the first byte.
    start: u64,
    /// The address of the search table.
    header: u64,
    /// The address of `.eh_frame`.
    frames: u64,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The search table, the unwind tables, and where they are.
pub struct Sections<'a> {
    header: gimli::ParsedEhFrameHdr<Slice<'a>>,
    /// The bytes of the search table, at most.
    header_bytes: usize,
    pub frames: EhFrame<Slice<'a>>,
    /// The address of `frames`.
    frames_start: u64,
    pub bases: BaseAddresses,
}

impl<'a> Sections<'a> {
    /// Returns the entry of the unwind tables that covers an address. gimli trusts two values of
    /// the search table, and a debug build panics where these lie: it multiplies the number of rows
    /// by their size, and subtracts the tables' start from an entry's address. So both are checked
    /// here.
    pub fn entry(&self, address: u64) -> Option<FrameDescriptionEntry<Slice<'a>>> {
        /// Two numbers of two bytes each.
        const ROW_BYTES_MIN: usize = 4;
        let table = self.header.table()?;
        let (rows, _) = table.iter(&self.bases).size_hint();
        if rows > self.header_bytes / ROW_BYTES_MIN {
            return None;
        }
        let Pointer::Direct(entry) = table.lookup(address, &self.bases).ok()? else {
            return None;
        };
        let offset = usize::try_from(entry.checked_sub(self.frames_start)?).ok()?;
        let cie = EhFrame::cie_from_offset;
        let entry = self
            .frames
            .fde_from_offset(&self.bases, EhFrameOffset(offset), cie)
            .ok()?;
        entry.contains(address).then_some(entry)
    }
}

pub(crate) struct ProgramHeader {
    pub kind: u32,
    /// Where in the file it begins.
    pub offset: u64,
    pub address: u64,
    /// Bytes of the file, and of memory.
    pub file_size: u64,
    size: u64,
}

impl Image {
    /// Reads what begins at `start`; `None` if that is no ELF file of this machine. `budget` is how
    /// many bytes of tables may be read, and becomes what is left.
    pub fn read(memory: &dyn Memory, start: u64, budget: &Cell<u64>) -> Option<Image> {
        let (headers, bias) = headers(memory, start)?;
        let notes = headers.iter().filter(|header| header.kind == PT_NOTE);
        let build_id = notes
            .filter_map(|note| build_id(memory, bias.wrapping_add(note.address), note.size))
            .next();
        Some(Image {
            bias,
            build_id,
            tables: Tables::read(memory, bias, &headers, budget),
        })
    }
}

/// Returns the program headers, and what is added to their addresses.
fn headers(memory: &dyn Memory, start: u64) -> Option<(Vec<ProgramHeader>, u64)> {
    let mut header = [0; HEADER_BYTES];
    memory.read_all(start, &mut header)?;
    const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1]; // 64 bits, little-endian
    if header[..6] != MAGIC {
        return None;
    }
    let headers = program_headers(memory, start, &header)?;
    let first = headers.iter().find(|header| header.kind == PT_LOAD)?;
    let bias = start.wrapping_sub(first.address & !(PAGE - 1));
    Some((headers, bias))
}

/// Returns what is added to addresses in the file's headers, and where its dynamic section is and
/// how long.
pub(crate) fn dynamic(memory: &dyn Memory, start: u64) -> Option<(u64, u64, u64)> {
    let (headers, bias) = headers(memory, start)?;
    let section = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    Some((bias, bias.wrapping_add(section.address), section.size))
}

pub(crate) fn program_headers(
    memory: &dyn Memory,
    start: u64,
    header: &[u8; HEADER_BYTES],
) -> Option<Vec<ProgramHeader>> {
    let offset = u64_at(header, 32)?;
    let [bytes, count] = [u16_at(header, 54)?, u16_at(header, 56)?];
    if usize::from(bytes) != PROGRAM_HEADER_BYTES || usize::from(count) > HEADERS_MAX {
        return None;
    }
    let mut table = vec![0; usize::from(count) * PROGRAM_HEADER_BYTES];
    memory.read_all(start.checked_add(offset)?, &mut table)?;
    let parse = |bytes: &[u8]| {
        Some(ProgramHeader {
            kind: u32::from_le_bytes(*bytes.first_chunk()?),
            offset: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            file_size: u64_at(bytes, 32)?,
            size: u64_at(bytes, 40)?,
        })
    };
    table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .map(parse)
        .collect()
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .copied()
        .map(u32::from_le_bytes)
}

fn build_id(memory: &dyn Memory, address: u64, size: u64) -> Option<Vec<u8>> {
    let mut notes = vec![0; usize::try_from(size).ok()?.min(NOTES_MAX)];
    memory.read_all(address, &mut notes)?;
    let mut rest = &notes[..];
    while let (Some(name), Some(content), Some(kind)) =
        (u32_at(rest, 0), u32_at(rest, 4), u32_at(rest, 8))
    {
        let begin = 12 + (name as usize).checked_next_multiple_of(4)?;
        let end = begin.checked_add(content as usize)?;
        if kind == NT_GNU_BUILD_ID && rest.get(12..16)? == b"GNU\0" {
            return rest.get(begin..end).map(<[u8]>::to_vec);
        }
        rest = rest.get(end.checked_next_multiple_of(4)?..)?;
    }
    None
}

impl Tables {
    fn read(
        memory: &dyn Memory,
        bias: u64,
        headers: &[ProgramHeader],
        budget: &Cell<u64>,
    ) -> Option<Tables> {
        let search = headers
            .iter()
            .find(|header| header.kind == PT_GNU_EH_FRAME)?;
        let header = bias.wrapping_add(search.address);
        // The tables are in the segment of the search table, before or behind it.
        let segment = headers.iter().find(|segment| {
            let begins = segment.address..segment.address.saturating_add(segment.size);
            segment.kind == PT_LOAD && begins.contains(&search.address)
        })?;
        let from = bias.wrapping_add(segment.address);
        let to = from.checked_add(segment.size)?;
        let mut bytes = vec![0; usize::try_from(search.size).ok()?.min(TABLES_MAX as usize)];
        memory.read_all(header, &mut bytes)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header);
        let parsed = EhFrameHdr::new(&bytes, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let Pointer::Direct(frames) = parsed.eh_frame_ptr() else {
            return None;
        };
        if !(from..to).contains(&frames) {
            return None;
        }
        let start = frames.min(header);
        let size = (to - start).min(TABLES_MAX);
        budget.set(budget.get().checked_sub(size)?);
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        let got = memory.read(start, &mut bytes);
        bytes.truncate(got);
        Some(Tables {
            bytes,
            start,
            header,
            frames,
        })
    }

    /// Returns the tables for gimli; `None` if they make no sense.
    pub fn sections(&self) -> Option<Sections<'_>> {
        let from = |address: u64| self.bytes.get((address - self.start) as usize..);
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(self.header)
            .set_eh_frame(self.frames);
        let header = from(self.header)?;
        let header_bytes = header.len();
        let header = EhFrameHdr::new(header, LittleEndian);
        let mut frames = EhFrame::new(from(self.frames)?, LittleEndian);
        frames.set_address_size(8);
        Some(Sections {
            header: header.parse(&bases, 8).ok()?,
            header_bytes,
            frames,
            frames_start: self.frames,
            bases,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ProcessMemory;
    use crate::modules::Modules;

    #[test]
    fn this_program_has_tables_and_a_build_id() {
        let memory = ProcessMemory::of(std::process::id());
        let modules = Modules::of(std::process::id()).unwrap();
        let here = this_program_has_tables_and_a_build_id as *const () as u64;
        let image = modules.image(modules.at(here).unwrap(), &memory).unwrap();
        let sections = image.tables.as_ref().unwrap().sections().unwrap();
        assert!(sections.entry(here).is_some());
        assert!(sections.entry(0).is_none());
        let vdso = modules
            .modules
            .iter()
            .find(|it| it.path == "[vdso]")
            .unwrap();
        assert!(modules.image(vdso, &memory).unwrap().tables.is_some());
        assert!(modules.image(vdso, &memory).unwrap().build_id.is_some());
    }

    #[test]
    fn what_is_no_program_has_no_image() {
        let memory = ProcessMemory::of(std::process::id());
        let zeroes = [0u8; 4096];
        let budget = Cell::new(u64::MAX);
        assert!(Image::read(&memory, zeroes.as_ptr() as u64, &budget).is_none());
        assert!(Image::read(&memory, 0, &budget).is_none());
    }

    /// A search table of eight-byte numbers, with the unwind tables `FRAMES` behind its row.
    fn entry_of(rows: u64, entry: u64) -> bool {
        const HEADER: u64 = 0x1000;
        const FRAMES: u64 = HEADER + 64;
        let mut bytes = vec![1, 4, 4, 4]; // version, and absolute eight-byte numbers
        for word in [FRAMES, rows, 0x5000, entry] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(256, 0);
        let tables = Tables {
            bytes,
            start: HEADER,
            header: HEADER,
            frames: FRAMES,
        };
        tables.sections().unwrap().entry(0x5000).is_some()
    }

    #[test]
    fn search_tables_that_lie_have_no_entries() {
        for rows in [1, 2, 63, 64, 1 << 60, u64::MAX] {
            for entry in [0, 0x1000, 0x103f, 0x1040, 0x1041, u64::MAX] {
                assert!(!entry_of(rows, entry), "{rows} {entry}");
            }
        }
    }
}
