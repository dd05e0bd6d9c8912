//! The functions and variables of a file by its own symbol tables.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT};
use object::read::ReadCache;
use object::read::elf::{FileHeader, Sym as _};
use object::{Endianness, ReadRef};

use super::Function;
use super::server::demangled;

/// What processes call the code that the kernel gives to all of them.
pub(super) const VDSO: &str = "[vdso]";

/// The most symbols that are read of one file.
const SYMBOLS_MAX: usize = 1 << 22;

/// Functions, sorted by their addresses: address, size, name.
#[derive(Default)]
pub(super) struct Table {
    functions: Vec<(u64, u64, String)>,
}

impl Table {
    /// `None` if that is no such file.
    pub(super) fn of(file: &Path) -> Option<Table> {
        let image = ReadCache::new(File::open(file).ok()?);
        Some(Table::parse(&image))
    }

    /// That of this process, which is the same in all that the kernel runs.
    pub(super) fn of_vdso() -> Table {
        vdso().map_or_else(Table::default, |image| Table::parse(&*image))
    }

    pub(super) fn build_id_of_vdso() -> Option<Vec<u8>> {
        build_id_in(&*vdso()?)?
    }

    fn parse<'a>(image: impl ReadRef<'a>) -> Table {
        let mut functions = Vec::new();
        // The whole table is often stripped; the dynamic one has the exported functions.
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            add(image, kind, &FUNCTIONS, &mut functions);
            if !functions.is_empty() {
                break;
            }
        }
        functions.sort_unstable();
        Table { functions }
    }

    /// Returns the function at an address: of those that begin nearest before it, the largest.
    pub(super) fn function(&self, address: u64) -> Option<Function> {
        let after = self.functions.partition_point(|it| it.0 <= address);
        let (from, size, name) = self.functions.get(after.checked_sub(1)?)?;
        (address - from < (*size).max(1)).then(|| Function {
            name: demangled(name),
            ..Function::default()
        })
    }
}

/// Returns a copy of this process's vDSO.
fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let from = u64::from_str_radix(from, 16).ok()?;
    let to = u64::from_str_radix(to, 16).ok()?;
    let mut image = vec![0; usize::try_from(to.checked_sub(from)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut image, from).ok()?;
    Some(image)
}

/// Types of symbols.
const FUNCTIONS: [u8; 2] = [STT_FUNC, STT_GNU_IFUNC];

/// Returns the variables of a file, sorted by their addresses: address, size, name as it is in the
/// file. `None` if that is no such file.
pub(crate) fn variables(file: &Path) -> Option<Vec<(u64, u64, String)>> {
    let image = ReadCache::new(File::open(file).ok()?);
    let mut variables = Vec::new();
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        add(&image, kind, &[STT_OBJECT], &mut variables);
    }
    variables.sort_unstable();
    variables.dedup();
    Some(variables)
}

/// Adds the symbols of these types.
fn add<'a>(
    image: impl ReadRef<'a>,
    kind: u32,
    types: &[u8],
    symbols_found: &mut Vec<(u64, u64, String)>,
) -> Option<()> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, image).ok()?;
    let symbols = sections.symbols(endian, image, kind).ok()?;
    for symbol in symbols.iter().take(SYMBOLS_MAX) {
        if !types.contains(&symbol.st_type()) || symbol.st_shndx(endian) == 0 {
            continue;
        }
        let Ok(name) = symbol.name(endian, symbols.strings()) else {
            continue;
        };
        symbols_found.push((
            symbol.st_value(endian),
            symbol.st_size(endian),
            String::from_utf8_lossy(name).into_owned(),
        ));
    }
    Some(())
}

/// Returns the build-id of a file, if it has one; `None` if that is no such file.
pub(crate) fn build_id(file: &Path) -> Option<Option<Vec<u8>>> {
    build_id_in(&ReadCache::new(File::open(file).ok()?))
}

fn build_id_in<'a>(image: impl ReadRef<'a>) -> Option<Option<Vec<u8>>> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, image).ok()?;
    let mut id = None;
    for section in sections.iter() {
        use object::read::elf::SectionHeader;
        let Ok(Some(mut notes)) = section.notes(endian, image) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == object::elf::ELF_NOTE_GNU
                && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID
            {
                id = id.or(Some(note.desc().to_vec()));
            }
        }
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test itself has a symbol only if the compiler doesn't put it into its caller.
    #[inline(never)]
    fn function_with_a_symbol(number: u64) -> u64 {
        std::hint::black_box(number).rotate_left(7) ^ 0x5eed
    }

    #[test]
    fn this_program_has_functions_and_a_build_id() {
        assert_ne!(function_with_a_symbol(1), 1);
        let file = std::env::current_exe().unwrap();
        let table = Table::of(&file).unwrap();
        let (from, size, _) = table
            .functions
            .iter()
            .find(|(_, size, name)| *size > 8 && name.contains("function_with_a_symbol"))
            .unwrap();
        let found = table.function(from + size - 1).unwrap();
        assert!(found.name.contains("function_with_a_symbol"));
        let known = blazesym::helper::read_elf_build_id(&file).unwrap();
        assert_eq!(build_id(&file).unwrap(), known.map(|it| it.to_vec()));
    }

    #[test]
    fn the_vdso_has_functions() {
        let table = Table::of_vdso();
        let names: Vec<&str> = table.functions.iter().map(|it| it.2.as_str()).collect();
        assert!(names.contains(&"__vdso_clock_gettime"), "{names:?}");
        assert!(Table::build_id_of_vdso().is_some());
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert!(Table::parse(&b"nonsense"[..]).functions.is_empty());
        assert!(build_id(Path::new("/etc/passwd")).is_none());
        assert!(Table::of(Path::new("/nowhere")).is_none());
    }
}
