//! Strings, bytes and code objects in the memory of a process with CPython.

use std::collections::HashMap;

use crate::elf::{u32_at, u64_at};
use crate::memory::Memory;
use crate::python::lines;
use crate::python::offsets::Offsets;

/// The longest name, or path, in characters.
const TEXT_MAX: u64 = 4096;
/// The longest table of lines.
const TABLE_MAX: u64 = 1 << 18;
/// The most bytes of a code object that have fields that are read.
const CODE_BYTES_MAX: u64 = 1 << 12;

/// Reads a string in one of the compact forms, which all names of code have.
pub(super) fn text(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<String> {
    let length = memory.word(address.checked_add(offsets.length)?)?;
    let state = memory.half(address.checked_add(offsets.state)?)?;
    let (kind, is_ascii) = form(state)?;
    let more = if is_ascii { 0 } else { offsets.compact_more };
    let from = address.checked_add(offsets.ascii_bytes + more)?;
    let count = usize::try_from(length.min(TEXT_MAX)).ok()?;
    let mut bytes = vec![0; count * kind];
    memory.read_all(from, &mut bytes)?;
    let character = |unit: &[u8]| {
        let mut word = [0; 4];
        word[..unit.len()].copy_from_slice(unit);
        char::from_u32(u32::from_le_bytes(word)).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    Some(bytes.chunks_exact(kind).map(character).collect())
}

/// Returns how many bytes a character has, and whether all are ASCII. Versions differ in how many
/// bits come before: the place where the rest makes sense is it.
fn form(state: u32) -> Option<(usize, bool)> {
    [2, 8, 16].into_iter().find_map(|shift| {
        let bits = state >> shift;
        let (kind, is_compact, is_ascii) = (bits & 7, bits & 8 != 0, bits & 16 != 0);
        let makes_sense = matches!((kind, is_ascii), (1, _) | (2 | 4, false));
        (is_compact && makes_sense).then_some((kind as usize, is_ascii))
    })
}

/// What is known of a code object: the words that tell it from another at the same address, and
/// what they lead to.
pub(super) struct Code {
    /// The addresses of its file's name, its own name and its table of lines, and its first line.
    identity: [u64; 4],
    pub name: String,
    pub file: Option<String>,
    table: Vec<u8>,
    /// The numbers of the frames at places in it, as far as they have been named; `None` for one
    /// that found no room.
    pub numbers: HashMap<Option<i64>, Option<u32>>,
}

impl Code {
    /// Returns the words that tell a code object from another at the same address.
    fn identity(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<[u64; 4]> {
        let fields = [offsets.filename, offsets.name, offsets.lines];
        let end = fields.into_iter().max()?.max(offsets.first_line) + 8;
        let mut bytes = vec![0; usize::try_from(end.min(CODE_BYTES_MAX)).ok()?];
        memory.read_all(address, &mut bytes)?;
        let word = |offset: u64| u64_at(&bytes, usize::try_from(offset).ok()?);
        Some([
            word(offsets.filename)?,
            word(offsets.name)?,
            word(offsets.lines)?,
            u32_at(&bytes, usize::try_from(offsets.first_line).ok()?)?.into(),
        ])
    }

    pub(super) fn read(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<Code> {
        let identity = Code::identity(memory, offsets, address)?;
        let name = text(memory, offsets, identity[1])?;
        Some(Code {
            name,
            file: text(memory, offsets, identity[0]),
            table: bytes(memory, offsets, identity[2]).unwrap_or_default(),
            identity,
            numbers: HashMap::new(),
        })
    }

    /// Returns about how many bytes were read for it.
    pub(super) fn bytes_read(&self) -> usize {
        let file = self.file.as_ref().map_or(0, String::len);
        1024 + self.table.len() + self.name.len() + file
    }

    /// Returns true if this is still the object at the address.
    pub(super) fn is_it(&self, memory: &dyn Memory, offsets: &Offsets, address: u64) -> bool {
        Code::identity(memory, offsets, address) == Some(self.identity)
    }

    /// Returns the line of an instruction.
    pub(super) fn line(&self, offsets: &Offsets, position: i64) -> Option<u32> {
        let first = self.identity[3] as u32 as i32;
        lines::line(offsets.lines_format, &self.table, first, position)
    }
}

fn bytes(memory: &dyn Memory, offsets: &Offsets, address: u64) -> Option<Vec<u8>> {
    let size = memory.word(address.checked_add(offsets.size)?)?;
    let mut bytes = vec![0; usize::try_from(size.min(TABLE_MAX)).ok()?];
    memory.read_all(address.checked_add(offsets.bytes)?, &mut bytes)?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_string_is_found_in_all_versions() {
        let bits = |kind: u32, is_ascii: u32| kind | 1 << 3 | is_ascii << 4 | 1 << 5;
        for (shift, interned) in [(2, 0), (2, 3), (8, 0), (8, 3), (16, 0), (16, 3)] {
            for (kind, is_ascii) in [(1, 1), (1, 0), (2, 0), (4, 0)] {
                let state = bits(kind, is_ascii) << shift | interned;
                assert_eq!(form(state), Some((kind as usize, is_ascii == 1)));
            }
        }
        assert_eq!(form(0), None);
    }
}
