//! The stubs by which a file calls functions of others (its procedure linkage table), which have no
//! symbols. Each jumps by an entry of the global offset table (`jmp *offset(%rip)`), and a
//! relocation of that entry names the function.
//!
//! Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, 5.2.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use object::elf::{FileHeader64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, SHT_RELA};
use object::read::ReadCache;
use object::read::elf::{FileHeader, Rela as _, SectionHeader as _, Sym as _};
use object::{Endianness, ReadRef};

use super::Function;
use super::server::demangled;

/// The most relocations that are read of one file.
const RELOCATIONS_MAX: usize = 1 << 20;
/// The most bytes of a section with stubs.
const BYTES_MAX: u64 = 1 << 24;
/// `jmp *offset(%rip)`, before its offset.
const JUMP: [u8; 2] = [0xff, 0x25];

/// The stubs of a file.
#[derive(Default)]
pub(super) struct Stubs {
    sections: Vec<Section>,
    /// What the entries of the global offset table are for.
    names: HashMap<u64, String>,
}

struct Section {
    range: Range<u64>,
    stub_bytes: u64,
    bytes: Vec<u8>,
}

impl Stubs {
    /// None for what is no such file.
    pub(super) fn of(file: &Path) -> Stubs {
        let image = File::open(file).ok().map(ReadCache::new);
        image
            .and_then(|image| Stubs::parse(&image))
            .unwrap_or_default()
    }

    fn parse<'a>(image: impl ReadRef<'a>) -> Option<Stubs> {
        let header = FileHeader64::<Endianness>::parse(image).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, image).ok()?;
        let mut stubs = Stubs::default();
        for section in sections.iter() {
            let name = sections.section_name(endian, section).unwrap_or_default();
            let size = section.sh_size(endian);
            if name.starts_with(b".plt") && size <= BYTES_MAX {
                let from = section.sh_addr(endian);
                // Linkers leave the size out where they think of it as code.
                let stub_bytes = match (section.sh_entsize(endian), name) {
                    (bytes @ (8 | 16), _) => bytes,
                    (_, b".plt.got") => 8,
                    _ => 16,
                };
                stubs.sections.push(Section {
                    range: from..from.checked_add(size)?,
                    stub_bytes,
                    bytes: section.data(endian, image).ok()?.to_vec(),
                });
            }
            if section.sh_type(endian) != SHT_RELA {
                continue;
            }
            let Ok(Some((relocations, link))) = section.rela(endian, image) else {
                continue;
            };
            let symbols = sections.symbol_table_by_index(endian, image, link).ok();
            let left = RELOCATIONS_MAX.saturating_sub(stubs.names.len());
            for relocation in relocations.iter().take(left) {
                let kind = relocation.r_type(endian, false);
                let symbol = relocation.symbol(endian, false);
                let (true, Some(symbol), Some(symbols)) = (
                    matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT),
                    symbol,
                    &symbols,
                ) else {
                    continue;
                };
                let name = symbols
                    .symbol(symbol)
                    .and_then(|it| it.name(endian, symbols.strings()));
                if let Ok(name) = name {
                    let name = String::from_utf8_lossy(name).into_owned();
                    stubs.names.insert(relocation.r_offset(endian), name);
                }
            }
        }
        Some(stubs)
    }

    /// Returns true for an address of a stub.
    pub(super) fn has(&self, address: u64) -> bool {
        self.section(address).is_some()
    }

    fn section(&self, address: u64) -> Option<&Section> {
        let mut sections = self.sections.iter();
        sections.find(|it| it.range.contains(&address))
    }

    /// Returns the stub at an address, as `name@plt`; `None` if it is not known for which function
    /// it is.
    pub(super) fn function(&self, address: u64) -> Option<Function> {
        let section = self.section(address)?;
        let within = address - section.range.start;
        let begin = within - within % section.stub_bytes;
        let stub = section
            .bytes
            .get(begin as usize..)?
            .get(..section.stub_bytes as usize)?;
        let jump = stub.windows(JUMP.len()).position(|it| it == JUMP)?;
        let offset = stub.get(jump + JUMP.len()..)?.first_chunk::<4>()?;
        let next = section.range.start + begin + (jump + JUMP.len() + 4) as u64;
        let entry = next.wrapping_add_signed(i32::from_le_bytes(*offset).into());
        let name = demangled(self.names.get(&entry)?);
        Some(Function {
            name: format!("{name}@plt"),
            ..Function::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that calls functions of libc, and all its stubs.
    fn names_of(flags: &[&str]) -> Vec<String> {
        let at = format!("raddle-stubs-{}{}", std::process::id(), flags.concat());
        let folder = std::env::temp_dir().join(at.replace(',', "-"));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("a.c"), folder.join("a"));
        let text = "#include <stdio.h>\n#include <stdlib.h>\n\
                    int main(void) { puts(\"\"); return abs(rand()); }\n";
        std::fs::write(&source, text).unwrap();
        let mut compiler = std::process::Command::new("cc");
        compiler.args(flags).arg(&source).arg("-o").arg(&program);
        assert!(compiler.status().unwrap().success());
        let stubs = Stubs::of(&program);
        std::fs::remove_dir_all(&folder).unwrap();
        let addresses = stubs.sections.iter().flat_map(|it| it.range.clone());
        let mut names: Vec<String> = addresses
            .filter_map(|address| Some(stubs.function(address)?.name))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    #[test]
    fn stubs_have_the_names_of_their_functions() {
        for flags in [
            &["-Wl,-z,lazy"][..],
            &["-Wl,-z,now"],
            &["-fcf-protection=full", "-Wl,-z,ibtplt"],
            &["-no-pie"],
        ] {
            let names = names_of(flags);
            assert!(
                names.contains(&"puts@plt".to_owned()),
                "{flags:?}: {names:?}"
            );
            assert!(
                names.contains(&"rand@plt".to_owned()),
                "{flags:?}: {names:?}"
            );
        }
    }

    #[test]
    fn what_is_no_program_has_no_stubs() {
        assert!(Stubs::parse(&b"nonsense"[..]).is_none());
        assert!(!Stubs::of(Path::new("/etc/passwd")).has(0));
    }
}
