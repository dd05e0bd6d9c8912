//! Which function of a file an offset in it lies in. The process itself knows nothing of names:
//! they are looked up here, in the file that it has mapped.

use std::fs::File;
use std::path::Path;

use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache};

/// `read+0x10`: the function and the offset in it; `None` if no symbol says.
pub fn name(file: &Path, offset: u64) -> Option<String> {
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
    // The whole table is often stripped; the dynamic one has what others may call.
    [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| {
        let symbols = sections.symbols(endian, image, kind).ok()?;
        let around = symbols.iter().filter(|symbol| {
            let from = symbol.st_value(endian);
            // What is called last in a function returns behind it.
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
    use crate::dump::pins::Places;

    #[test]
    fn a_function_of_libc_is_found_by_its_address() {
        let places = Places::of(std::process::id());
        // SAFETY: a name that libc has.
        let read = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"read".as_ptr()) };
        let place = places.find(read as u64 + 4).unwrap();
        assert!(place.starts_with("libc.so.6+0x"), "{place}");
        assert!(place.ends_with("read+0x4)"), "{place}");
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert_eq!(name(Path::new("/etc/passwd"), 4), None);
        assert_eq!(name(Path::new("/nowhere"), 4), None);
    }
}
