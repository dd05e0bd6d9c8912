//! HotSpot's heaps of code: which block an address is in, and what that is.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::compressed::Numbers;
use super::offsets::{Offsets, Place};
use super::structs::text;
use crate::memory::Memory;

/// The most heaps.
const HEAPS_MAX: u64 = 16;
/// The most steps from a segment to the first one of its block.
const STEPS_MAX: u32 = 1 << 12;
/// The most bytes of a block, and words of a frame.
const BLOB_BYTES_MAX: u64 = 1 << 28;
const FRAME_WORDS_MAX: u64 = 1 << 16;
/// The most blocks of a heap that are looked at one after another.
const BLOCKS_MAX: u32 = 1 << 18;
/// The most blocks that are kept.
const BLOBS_MAX: usize = 1 << 16;
/// The most methods that are inlined at one place.
const INLINED_MAX: usize = 256;

/// The name of a block that wraps a native method.
const NATIVE_METHOD: &str = "native nmethod";

/// All heaps of code.
pub(super) struct CodeHeaps {
    heaps: Vec<CodeHeap>,
    /// Blocks by the addresses that were looked for.
    kept: HashMap<u64, Option<Rc<Blob>>>,
}

struct CodeHeap {
    range: Range<u64>,
    segments: Range<u64>,
    log2_segment_bytes: u32,
}

/// A block of code.
pub(super) struct Blob {
    pub start: u64,
    pub code: u64,
    pub name: String,
    /// How many bytes of its code pass before it has a frame; `None` if it never has.
    pub frame_complete: Option<u64>,
    /// The bytes of its frame, with the return address; 0 if it has none.
    pub frame_bytes: u64,
    /// Where frames of a method return to that are to be interpreted from now on.
    handlers: [Option<u64>; 2],
}

impl Blob {
    /// Returns true for a compiled method, or a wrapper around a native one.
    pub(super) fn is_method(&self) -> bool {
        matches!(self.name.as_str(), "nmethod" | NATIVE_METHOD)
    }

    /// Returns true if the address is that of a handler for a frame that is to be interpreted.
    pub(super) fn is_handler(&self, address: u64) -> bool {
        self.handlers.contains(&Some(address))
    }

    fn read(memory: &dyn Memory, offsets: &Offsets, start: u64, inside: u64) -> Option<Blob> {
        let at = &offsets.blob;
        let field = |offset: u64| start.checked_add(offset);
        let size = u64::from(memory.half(field(at.size)?)?);
        let end = start.checked_add(size)?;
        if size > BLOB_BYTES_MAX || !(start..end).contains(&inside) {
            return None;
        }
        let words = u64::from(memory.half(field(at.frame_words)?)?);
        let complete = memory.half(field(at.frame_complete)?)?;
        let complete = if at.is_frame_complete_short {
            i32::from(complete as i16)
        } else {
            complete as i32
        };
        let mut blob = Blob {
            start,
            code: place(memory, start, at.code)?,
            name: text(memory, memory.word(field(at.name)?)?)?,
            handlers: [None; 2],
            frame_complete: u64::try_from(complete).ok(),
            frame_bytes: match words {
                words if words <= FRAME_WORDS_MAX => words * 8,
                _ => 0,
            },
        };
        if blob.is_method() {
            let handler = |handler: Option<Place>| place(memory, start, handler?);
            blob.handlers = offsets.compiled.handlers.map(handler);
        }
        Some(blob)
    }
}

/// Returns the address of a place in or near a block.
fn place(memory: &dyn Memory, start: u64, place: Place) -> Option<u64> {
    let half = |at: u64| memory.half(start.checked_add(at)?).map(u64::from);
    match place {
        Place::Address(at) => memory.word(start.checked_add(at)?),
        Place::Distance(at) => start.checked_add(half(at)?),
        Place::Behind(base, at) => memory
            .word(start.checked_add(base)?)?
            .checked_add(half(at)?),
        Place::InData(data, at) => {
            let distance = half(data)?.checked_add(half(at)? & 0xffff)?;
            start.checked_add(distance)
        }
    }
}

impl CodeHeaps {
    /// Reads the list of heaps.
    pub(super) fn read(memory: &dyn Memory, offsets: &Offsets) -> Option<CodeHeaps> {
        let at = &offsets.heaps;
        let list = memory.word(at.list)?;
        let length = u64::from(memory.half(list.checked_add(at.list_length)?)?);
        let data = memory.word(list.checked_add(at.list_data)?)?;
        let mut heaps = Vec::new();
        for number in 0..length.min(HEAPS_MAX) {
            let heap = memory.word(data.checked_add(number * 8)?)?;
            let space = |space: u64| {
                let bound = |bound: u64| {
                    let field = heap.checked_add(space)?.checked_add(bound)?;
                    memory.word(field)
                };
                Some(bound(at.low)?..bound(at.high)?)
            };
            let log2 = memory.half(heap.checked_add(at.log2_segment_bytes)?)?;
            heaps.push(CodeHeap {
                range: space(at.memory)?,
                segments: space(at.segments)?,
                log2_segment_bytes: Some(log2).filter(|log2| (3..32).contains(log2))?,
            });
        }
        Some(CodeHeaps {
            heaps,
            kept: HashMap::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        self.heaps.iter().map(|heap| heap.range.clone()).collect()
    }

    /// Returns the first block in use, of those that wrap native methods, of which `is_it` is true.
    pub(super) fn native_method(
        &self,
        memory: &dyn Memory,
        offsets: &Offsets,
        is_it: &mut dyn FnMut(&Blob) -> bool,
    ) -> Option<Blob> {
        let mut heaps = self.heaps.iter();
        heaps.find_map(|heap| {
            heap.blocks(memory, offsets, &mut |start| {
                let blob = Blob::read(memory, offsets, start, start)?;
                (blob.name == NATIVE_METHOD && is_it(&blob)).then_some(blob)
            })
        })
    }

    /// Returns the block that an address is in.
    pub(super) fn find(
        &mut self,
        memory: &dyn Memory,
        offsets: &Offsets,
        inside: u64,
    ) -> Option<Rc<Blob>> {
        if let Some(blob) = self.kept.get(&inside) {
            return blob.clone();
        }
        if self.kept.len() == BLOBS_MAX {
            self.kept.clear();
        }
        let mut heaps = self.heaps.iter();
        let heap = heaps.find(|heap| heap.range.contains(&inside))?;
        let start = heap.block(memory, offsets, inside);
        let blob = start.and_then(|start| Blob::read(memory, offsets, start, inside));
        let blob = blob.map(Rc::new);
        self.kept.insert(inside, blob.clone());
        blob
    }
}

impl CodeHeap {
    /// Returns where the block of an address begins. Each segment of a block has a byte, which says
    /// how many segments to go back for an earlier one of the same block, or 0 at the first.
    fn block(&self, memory: &dyn Memory, offsets: &Offsets, inside: u64) -> Option<u64> {
        const UNUSED: u8 = 0xff;
        let mut segment = (inside - self.range.start) >> self.log2_segment_bytes;
        for _ in 0..STEPS_MAX {
            let at = self.segments.start.checked_add(segment)?;
            let mut byte = [0];
            memory.read_all(at, &mut byte)?;
            match byte[0] {
                UNUSED => return None,
                0 => break,
                back => segment = segment.checked_sub(back.into())?,
            }
        }
        let block = self
            .range
            .start
            .checked_add(segment << self.log2_segment_bytes)?;
        let mut is_used = [0];
        memory.read_all(block.checked_add(offsets.heaps.is_used)?, &mut is_used)?;
        let start = block.checked_add(offsets.heaps.header_bytes)?;
        (is_used[0] != 0).then_some(start)
    }

    /// Calls `find` with the start of each block in use, up to one for which it returns something.
    fn blocks<T>(
        &self,
        memory: &dyn Memory,
        offsets: &Offsets,
        find: &mut dyn FnMut(u64) -> Option<T>,
    ) -> Option<T> {
        let at = &offsets.heaps;
        let mut block = self.range.start;
        for _ in 0..BLOCKS_MAX {
            let mut is_used = [0];
            memory.read_all(block.checked_add(at.is_used)?, &mut is_used)?;
            if is_used[0] != 0
                && let Some(found) = find(block.checked_add(at.header_bytes)?)
            {
                return Some(found);
            }
            // Behind the last block are zeros.
            let segments = memory.word(block.checked_add(at.block_length)?)?;
            let bytes = segments.checked_mul(1 << self.log2_segment_bytes)?;
            block = block.checked_add(bytes).filter(|_| bytes != 0)?;
            if !self.range.contains(&block) {
                break;
            }
        }
        None
    }
}

/// A method, and the number of the byte of its code that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Position {
    pub method: u64,
    pub byte: Option<u32>,
}

/// Reads which methods a compiled one executes at an address, the innermost inlined one first.
pub(super) struct Scopes<'a> {
    pub memory: &'a dyn Memory,
    pub offsets: &'a Offsets,
}

impl Scopes<'_> {
    /// Returns the methods at an address; at least the compiled one itself.
    pub(super) fn at(&self, blob: &Blob, address: u64) -> Option<Vec<Position>> {
        let field = blob.start.checked_add(self.offsets.compiled.method)?;
        let own = Position {
            method: self.memory.word(field)?,
            byte: None,
        };
        let inlined = self.inlined(blob, address).unwrap_or_default();
        // The outermost scope is of the compiled method: what says otherwise isn't understood.
        Some(match inlined.last() {
            Some(outermost) if outermost.method == own.method => inlined,
            _ => vec![own],
        })
    }

    fn inlined(&self, blob: &Blob, address: u64) -> Option<Vec<Position>> {
        let at = &self.offsets.compiled;
        let scopes = place(self.memory, blob.start, at.scopes)?;
        let metadata = place(self.memory, blob.start, at.metadata?)?;
        let mut scope = self.scope(blob, u32::try_from(address.checked_sub(blob.code)?).ok()?)?;
        let mut found = Vec::new();
        while scope != 0 && found.len() < INLINED_MAX {
            let mut bytes = [0; 16];
            let got = self
                .memory
                .read(scopes.checked_add(scope.into())?, &mut bytes);
            let mut numbers = Numbers::new(&bytes[..got], self.offsets.excludes_zero);
            let next = numbers.next()?;
            let method = numbers.next()?.checked_sub(1)?;
            // At 0 a synchronized method enters its monitor, before its first byte.
            let byte = numbers.next()?.saturating_sub(1);
            let method = metadata.checked_add(u64::from(method) * 8)?;
            found.push(Position {
                method: self.memory.word(method)?,
                byte: Some(byte),
            });
            // A caller's scope was written before.
            if next >= scope {
                return None;
            }
            scope = next;
        }
        Some(found)
    }

    /// Returns where the innermost scope at a distance from the code's begin is written.
    /// Descriptions are sorted by distances: 16 bytes each, with the distance and the scope first.
    fn scope(&self, blob: &Blob, distance: u32) -> Option<u32> {
        const BYTES: u64 = 16;
        let at = &self.offsets.compiled;
        let start = place(self.memory, blob.start, at.descriptions)?;
        let end = place(self.memory, blob.start, at.descriptions_end)?;
        let size = end
            .checked_sub(start)
            .filter(|&size| size <= BLOB_BYTES_MAX)?;
        let (mut from, mut to) = (0, size / BYTES);
        let read = |number: u64, field: u64| {
            let at = start.checked_add(number * BYTES + field)?;
            self.memory.half(at)
        };
        while from < to {
            let middle = from + (to - from) / 2;
            // The first one, a mark, has -1.
            if (read(middle, 0)? as i32) < distance as i32 {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        (from < size / BYTES).then(|| read(from, 4))?
    }
}
