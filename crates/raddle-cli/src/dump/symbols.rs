//! The function at an offset in a file, and a file's unwind tables. The process itself has no
//! names: they are looked up here, in the file that it has mapped.

use std::fs::File;
use std::path::Path;

use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache};

/// A file's `.eh_frame`, and where its segments are.
pub(super) struct Tables {
    pub bytes: Vec<u8>,
    /// The address of the tables in memory, as in the file's headers.
    pub address: u64,
    /// For each loaded segment: offset in the file, bytes there, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Tables {
    pub(super) fn of(file: &Path) -> Option<Tables> {
        let image = ReadCache::new(File::open(file).ok()?);
        let image = &image;
        let header = FileHeader64::<Endianness>::parse(image).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, image).ok()?.iter();
        let loaded = segments.filter(|segment| segment.p_type(endian) == PT_LOAD);
        let sections = header.sections(endian, image).ok()?;
        let (_, section) = sections.section_by_name(endian, b".eh_frame")?;
        Some(Tables {
            bytes: section.data(endian, image).ok()?.to_vec(),
            address: section.sh_addr(endian),
            segments: loaded
                .map(|it| (it.p_offset(endian), it.p_filesz(endian), it.p_vaddr(endian)))
                .collect(),
        })
    }

    /// Returns the address of an offset in the file.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |&&(from, bytes, _): &&(u64, u64, u64)| (from..from + bytes).contains(&offset);
        let (from, _, address) = self.segments.iter().find(holds)?;
        Some(offset - from + address)
    }
}

/// Returns `read+0x10`: the function and the offset in it; `None` without a symbol.
pub(super) fn name(file: &Path, offset: u64) -> Option<String> {
    let image = ReadCache::new(File::open(file).ok()?);
    let image = &image;
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, image).ok()?;
    let address = segments.iter().find_map(|segment| {
        let (from, bytes) = (segment.p_offset(endian), segment.p_filesz(endian));
        let holds = segment.p_type(endian) == PT_LOAD && (from..from + bytes).contains(&offset);
        holds.then(|| offset - from + segment.p_vaddr(endian))
    })?;
    let sections = header.sections(endian, image).ok()?;
    // The whole table is often stripped; the dynamic one has the exported functions.
    [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| {
        let symbols = sections.symbols(endian, image, kind).ok()?;
        let around = symbols.iter().filter(|symbol| {
            let from = symbol.st_value(endian);
            // A call at a function's end returns to the address behind the function.
            let to = from + symbol.st_size(endian).max(1);
            matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC)
                && symbol.st_shndx(endian) != 0
                && (from..=to).contains(&address)
        });
        let symbol = around.max_by_key(|symbol| symbol.st_value(endian))?;
        let name = symbol.name(endian, symbols.strings()).ok()?;
        let name = String::from_utf8_lossy(name);
        Some(format!("{name}+{:#x}", address - symbol.st_value(endian)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::mappings::Mappings;

    #[test]
    fn a_function_of_libc_is_found_by_its_address() {
        let mappings = Mappings::of(std::process::id());
        // SAFETY: a name that libc has.
        let read = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"read".as_ptr()) };
        let place = mappings.find(read as u64 + 4).unwrap();
        assert!(place.starts_with("libc.so.6+0x"), "{place}");
        assert!(place.ends_with("read+0x4)"), "{place}");
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert_eq!(name(Path::new("/etc/passwd"), 4), None);
        assert_eq!(name(Path::new("/nowhere"), 4), None);
    }
}
