//! The symbols that a mapped file exports, looked up in the process's memory by the file's own hash
//! table, as the dynamic linker does: so a deleted or replaced file makes no difference.
//!
//! Format: System V ABI, chapter 5, with its `DT_HASH`; `DT_GNU_HASH` as binutils and glibc have
//! it.

use crate::elf::{dynamic, u32_at, u64_at};
use crate::memory::Memory;

const DT_NULL: u64 = 0;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL_BYTES: usize = 24;
/// The most entries of a dynamic section that are read.
const ENTRIES_MAX: usize = 512;
/// The most symbols of one bucket that are compared.
const CHAIN_MAX: u32 = 1024;

/// The exported symbols of one file.
pub(crate) struct Exports<'a> {
    memory: &'a dyn Memory,
    bias: u64,
    strings: u64,
    symbols: u64,
    buckets: u64,
    bucket_count: u32,
    chains: u64,
    /// The number of the first symbol that has a chain word; `None` for a `DT_HASH`, of which a
    /// chain word is the number of the next symbol.
    first: Option<u32>,
}

/// An exported symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub address: u64,
    pub size: u64,
}

impl<'a> Exports<'a> {
    /// Reads the tables of the file that is mapped from `start` on.
    pub(crate) fn of(memory: &'a dyn Memory, start: u64) -> Option<Exports<'a>> {
        let (bias, address, size) = dynamic(memory, start)?;
        let mut section = vec![0; usize::try_from(size).ok()?.min(ENTRIES_MAX * 16)];
        let got = memory.read(address, &mut section);
        let [mut strings, mut symbols, mut hash, mut old_hash] = [None; 4];
        for entry in section[..got].chunks_exact(16) {
            let (tag, value) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
            // glibc adds the bias to these in place, if the section can be written.
            let address = match value {
                value if value < bias => bias.checked_add(value)?,
                value => value,
            };
            match tag {
                DT_NULL => break,
                DT_HASH => old_hash = Some(address),
                DT_STRTAB => strings = Some(address),
                DT_SYMTAB => symbols = Some(address),
                DT_GNU_HASH => hash = Some(address),
                _ => {}
            }
        }
        let mut header = [0; 16];
        let (buckets, first) = match hash {
            Some(hash) => {
                memory.read_all(hash, &mut header)?;
                let bloom_words = u64::from(u32_at(&header, 8)?);
                let first = u32_at(&header, 4)?;
                (hash.checked_add(16 + bloom_words * 8)?, Some(first))
            }
            None => {
                let hash = old_hash?;
                memory.read_all(hash, &mut header[..8])?;
                (hash.checked_add(8)?, None)
            }
        };
        let bucket_count = u32_at(&header, 0)?;
        Some(Exports {
            memory,
            bias,
            strings: strings?,
            symbols: symbols?,
            buckets,
            bucket_count,
            chains: buckets.checked_add(u64::from(bucket_count) * 4)?,
            first,
        })
    }

    /// Returns a symbol that the file defines.
    pub(crate) fn find(&self, name: &str) -> Option<Export> {
        let Some(first) = self.first else {
            return self.find_by_old_hash(name);
        };
        let step = |hash: u32, byte: u8| hash.wrapping_mul(33).wrapping_add(byte.into());
        let hash = name.bytes().fold(5381, step);
        let bucket = u64::from(hash.checked_rem(self.bucket_count)?);
        let mut number = self.memory.half(self.buckets.checked_add(bucket * 4)?)?;
        for _ in 0..CHAIN_MAX {
            let place = u64::from(number.checked_sub(first)?);
            let word = self.memory.half(self.chains.checked_add(place * 4)?)?;
            if word | 1 == hash | 1
                && let Some(export) = self.symbol(number, name)
            {
                return Some(export);
            }
            if word & 1 == 1 {
                return None;
            }
            number = number.checked_add(1)?;
        }
        None
    }

    /// As [`Exports::find`], in a `DT_HASH`.
    fn find_by_old_hash(&self, name: &str) -> Option<Export> {
        let bucket = u64::from(old_hash(name).checked_rem(self.bucket_count)?);
        let mut number = self.memory.half(self.buckets.checked_add(bucket * 4)?)?;
        for _ in 0..CHAIN_MAX {
            if number == 0 {
                return None;
            }
            if let Some(export) = self.symbol(number, name) {
                return Some(export);
            }
            let word = self.chains.checked_add(u64::from(number) * 4)?;
            number = self.memory.half(word)?;
        }
        None
    }

    /// Returns the symbol of this number, if it has this name and a place in the file.
    fn symbol(&self, number: u32, name: &str) -> Option<Export> {
        let mut symbol = [0; SYMBOL_BYTES];
        let offset = u64::from(number) * SYMBOL_BYTES as u64;
        self.memory
            .read_all(self.symbols.checked_add(offset)?, &mut symbol)?;
        let mut found = vec![0; name.len() + 1];
        let text = self.strings.checked_add(u32_at(&symbol, 0)?.into())?;
        self.memory.read_all(text, &mut found)?;
        let is_it = found.strip_suffix(&[0]) == Some(name.as_bytes());
        let is_defined = symbol[6..8] != [0, 0];
        (is_it && is_defined).then_some(())?;
        Some(Export {
            address: self.bias.wrapping_add(u64_at(&symbol, 8)?),
            size: u64_at(&symbol, 16)?,
        })
    }
}

/// The hash of the System V ABI.
fn old_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(byte.into());
        (hash ^ (hash >> 28 << 4)) & 0x0fff_ffff
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ProcessMemory;
    use crate::modules::Modules;

    /// Two buckets, of which the second has both symbols.
    struct Old;

    impl Memory for Old {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            // From 0: one word of each bucket, of each chain; then names, then symbols.
            let mut bytes = Vec::new();
            for word in [0u32, 2, 0, 0, 1] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.resize(32, 0);
            bytes.extend_from_slice(b"\0a\0c\0");
            bytes.resize(64 + SYMBOL_BYTES, 0);
            for (name, value) in [(1u32, 0x100u64), (3, 0x200)] {
                bytes.extend_from_slice(&name.to_le_bytes());
                bytes.extend_from_slice(&[0, 0, 1, 0]);
                bytes.extend_from_slice(&value.to_le_bytes());
                bytes.extend_from_slice(&8u64.to_le_bytes());
            }
            let from = bytes.get(address as usize..).unwrap_or_default();
            let count = from.len().min(to.len());
            to[..count].copy_from_slice(&from[..count]);
            count
        }
    }

    #[test]
    fn symbols_are_found_by_the_older_hash() {
        // The ABI's own example has this hash.
        assert_eq!(old_hash("printf"), 0x077905a6);
        let exports = Exports {
            memory: &Old,
            bias: 0x1000,
            strings: 32,
            symbols: 64,
            buckets: 0,
            bucket_count: 2,
            chains: 8,
            first: None,
        };
        let address = |name: &str| exports.find(name).map(|it| it.address);
        assert_eq!([address("a"), address("c")], [Some(0x1100), Some(0x1200)]);
        assert_eq!([address("e"), address("b")], [None, None]);
    }

    #[test]
    fn a_function_of_libc_is_found_where_it_is() {
        let memory = ProcessMemory::of(std::process::id());
        let modules = Modules::of(std::process::id()).unwrap();
        // SAFETY: a plain look-up of a name that libc has.
        let wanted = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getppid".as_ptr()) } as u64;
        let module = modules.at(wanted).unwrap();
        let exports = Exports::of(&memory, module.start()).unwrap();
        assert_eq!(exports.find("getppid").unwrap().address, wanted);
        assert_eq!(exports.find("no_such_function"), None);
        assert!(Exports::of(&memory, 0).is_none());
    }
}
