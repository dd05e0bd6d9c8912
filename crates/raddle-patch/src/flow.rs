//! A decoded function: where its instructions start, where it jumps to, and whether it touches
//! vector registers.
//!
//! Jumps through tables count. If a function jumps to a computed address, each constant that it
//! takes the address of is read as a table of offsets from itself, as compilers write them, as long
//! as the offsets lead into text. Addresses of code that the function takes count as targets, too.
//!
//! Landing pads of exceptions are not looked for. Control enters them only after a call, and they
//! begin with a block of their own, so they are never in the middle of a window.

use crate::decode::{Flow, Instruction, RipOperand, Vectors, decode};
use crate::image::{Image, Span, i32_at};
use crate::scan;
use crate::unwind::{Function, Functions};

/// A decoded function. One value is reused for the next function: its sets take 16 KiB.
pub(crate) struct Listing {
    function: Span,
    /// The end of the decoded part.
    end: usize,
    starts: Offsets,
    targets: Offsets,
    vectors: Vectors,
    jumps_indirectly: bool,
    knows_neighbours: bool,
    tables: Few<8>,
    outside: Few<32>,
}

/// The length of the longest function that is decoded.
pub(crate) const MAX_LEN: usize = 1 << 16;
const TABLE_MAX_ENTRIES: usize = 4096;
/// The reach of a jump with an 8-bit displacement, its own length included.
const REACH: usize = 2 + 128;

impl Listing {
    pub(crate) fn new() -> Self {
        Self {
            function: Span::default(),
            end: 0,
            starts: Offsets::new(),
            targets: Offsets::new(),
            vectors: Vectors::None,
            jumps_indirectly: false,
            knows_neighbours: false,
            tables: Few::new(),
            outside: Few::new(),
        }
    }

    /// Returns whether this is the listing of `function`.
    pub(crate) fn is_of(&self, function: Function) -> bool {
        self.function == function.whole
    }

    /// Decodes `function`, which is no longer than [`MAX_LEN`], as far as its bytes are code.
    pub(crate) fn decode(&mut self, image: &Image, function: Function) {
        let span = function.whole;
        self.starts.clear(self.function.len());
        self.targets.clear(self.function.len());
        self.function = span;
        self.end = span.start;
        self.vectors = Vectors::None;
        self.jumps_indirectly = false;
        self.knows_neighbours = false;
        self.tables.clear();
        self.outside.clear();
        let text = image.bytes(span).unwrap_or(&[]);
        each_instruction(text, |offset, instruction| {
            self.starts.insert(offset);
            self.end = span.start + offset + instruction.len();
            self.note(image, span.start + offset, instruction);
            true
        });
        if self.jumps_indirectly {
            for index in 0..self.tables.len {
                self.note_table(image, self.tables.items[index]);
            }
        }
    }

    /// Notes jumps from the neighbouring functions to `[first, last]`, which hand-written code may
    /// have: the scan of all text sees only those with a 32-bit displacement. Returns whether it
    /// noted any new jump.
    ///
    /// Decodes only where the bytes look like such a jump, and once.
    pub(crate) fn note_neighbours(
        &mut self,
        image: &Image,
        functions: &Functions<'_>,
        first: usize,
        last: usize,
    ) -> bool {
        if self.knows_neighbours || !self.may_be_entered(image, first, last) {
            return false;
        }
        self.knows_neighbours = true;
        let Span { start, end } = self.function;
        let mut lowest = start;
        while start - lowest < REACH
            && let Some(previous) = lowest.checked_sub(1).and_then(|at| functions.at(at))
        {
            lowest = previous.whole.start;
            self.note_jumps_of(image, previous.whole);
        }
        let mut highest = end;
        while highest - end < REACH
            && let Some(next) = functions.at(highest)
        {
            let reached = next.whole.end.min(end + REACH);
            self.note_jumps_of(
                image,
                Span {
                    start: next.whole.start,
                    end: reached,
                },
            );
            highest = next.whole.end;
        }
        true
    }

    /// Returns whether the bytes around the function look like short jumps to `[first, last]`.
    fn may_be_entered(&self, image: &Image, first: usize, last: usize) -> bool {
        let Some(text) = image.text_at(self.function.start) else {
            return false;
        };
        let before = Span {
            start: text
                .start
                .max(first.saturating_sub(REACH))
                .min(self.function.start),
            end: self.function.start,
        };
        let behind = Span {
            start: self.function.end,
            end: text.end.min(last + REACH).max(self.function.end),
        };
        [before, behind].into_iter().any(|span| {
            let relative = |address: usize| address as i64 - span.start as i64;
            let bytes = image.bytes(span).unwrap_or(&[]);
            scan::may_jump_nearby(bytes, relative(first), relative(last))
        })
    }

    fn note_jumps_of(&mut self, image: &Image, neighbour: Span) {
        let text = image.bytes(neighbour).unwrap_or(&[]);
        each_instruction(text, |offset, instruction| {
            if let Flow::Branch(by) | Flow::Jump(by) = instruction.flow() {
                let address = neighbour.start + offset;
                self.note_target(address.wrapping_add_signed(by as isize));
            }
            true
        });
    }

    #[inline]
    fn note(&mut self, image: &Image, address: usize, instruction: Instruction) {
        self.vectors = self.vectors.max(instruction.vectors());
        match instruction.flow() {
            Flow::Branch(by) | Flow::Jump(by) => {
                let target = address.wrapping_add_signed(by as isize);
                if self.function.contains(target) {
                    self.note_target(target);
                } else {
                    self.outside.insert(target);
                }
            }
            Flow::Call(by) => self.note_target(address.wrapping_add_signed(by as isize)),
            Flow::IndirectJump => self.jumps_indirectly = true,
            _ => {}
        }
        if let RipOperand::Address(by) = instruction.rip() {
            let target = address.wrapping_add_signed(by as isize);
            if self.function.contains(target) {
                self.note_target(target);
            } else if image.text_at(target).is_none() && table_entry(image, target, 0).is_some() {
                self.tables.insert(target);
            }
        }
    }

    #[inline]
    fn note_target(&mut self, target: usize) {
        if self.function.contains(target) {
            self.targets.insert(target - self.function.start);
        }
    }

    /// Reads a table of offsets, as long as they lead into text.
    fn note_table(&mut self, image: &Image, table: usize) {
        let entries = (0..TABLE_MAX_ENTRIES).map_while(|index| table_entry(image, table, index));
        entries.for_each(|target| self.note_target(target));
    }

    /// Returns the end of the known part of the function.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Returns whether an instruction starts at `address`.
    pub(crate) fn starts_at(&self, address: usize) -> bool {
        self.offset(address)
            .is_some_and(|offset| self.starts.contains(offset))
    }

    /// Returns whether the function itself jumps to `address`, or may.
    pub(crate) fn jumps_to(&self, address: usize) -> bool {
        // There are too many tables to remember: any address may be in one.
        let unknown = self.jumps_indirectly && self.tables.overflowed;
        unknown
            || self
                .offset(address)
                .is_some_and(|offset| self.targets.contains(offset))
    }

    /// Returns the instruction that ends where the one at `address` starts.
    pub(crate) fn before(&self, address: usize) -> Option<usize> {
        let offset = self.offset(address)?;
        let nearest = offset.saturating_sub(crate::decode::MAX_LENGTH)..offset;
        nearest
            .rev()
            .find(|&o| self.starts.contains(o))
            .map(|o| self.function.start + o)
    }

    fn offset(&self, address: usize) -> Option<usize> {
        self.function
            .contains(address)
            .then(|| address - self.function.start)
    }

    /// Returns which vector registers the function touches, or any part of it that the compiler
    /// moved elsewhere.
    ///
    /// A part elsewhere is code that the function enters in its middle, or that jumps back into the
    /// middle of the function. A plain tail call does neither.
    pub(crate) fn vectors(&self, image: &Image, functions: &Functions<'_>) -> Vectors {
        if self.outside.overflowed {
            return Vectors::Wide;
        }
        let of_parts = self.outside.iter().map(|target| {
            functions.at(target).map_or(Vectors::Wide, |other| {
                let entered_in_middle = target != other.whole.start;
                self.vectors_of_moved_part(image, other.whole, entered_in_middle)
            })
        });
        of_parts.fold(self.vectors, Vectors::max)
    }

    /// Returns those of a part that was moved elsewhere; none if it is another function.
    fn vectors_of_moved_part(&self, image: &Image, other: Span, is_part: bool) -> Vectors {
        const LONG: usize = 1 << 13;
        let Some(text) = image.bytes(other).filter(|text| text.len() <= LONG) else {
            return Vectors::Wide;
        };
        let (mut vectors, mut is_part) = (Vectors::None, is_part);
        each_instruction(text, |offset, instruction| {
            vectors = vectors.max(instruction.vectors());
            if let Flow::Branch(by) | Flow::Jump(by) = instruction.flow() {
                let target = (other.start + offset).wrapping_add_signed(by as isize);
                is_part |= self.function.contains(target) && target != self.function.start;
            }
            !(vectors == Vectors::Wide && is_part)
        });
        if is_part { vectors } else { Vectors::None }
    }
}

/// Returns the target of entry `index` of a table of offsets from its own start, if that is text.
fn table_entry(image: &Image, table: usize, index: usize) -> Option<usize> {
    let offset = i32_at(image.from(table)?, index * 4)?;
    let target = table.wrapping_add_signed(offset as isize);
    image.text_at(target).map(|_| target)
}

/// Decodes from the start of `text` to its end, to bytes that are no instruction, or until `visit`
/// returns false.
fn each_instruction(text: &[u8], mut visit: impl FnMut(usize, Instruction) -> bool) {
    let mut offset = 0;
    while let Some(instruction) = text.get(offset..).and_then(decode) {
        if !visit(offset, instruction) {
            return;
        }
        offset += instruction.len();
    }
}

/// A set of offsets into a function.
pub(crate) struct Offsets {
    words: [u64; MAX_LEN / 64],
}

impl Offsets {
    pub(crate) fn new() -> Self {
        Self {
            words: [0; MAX_LEN / 64],
        }
    }

    /// Returns true if `other` holds each offset of this set, which are below `len`.
    pub(crate) fn is_within(&self, other: &Self, len: usize) -> bool {
        let mut words = self.words.iter().zip(&other.words).take(len.div_ceil(64));
        words.all(|(own, others)| own & !others == 0)
    }

    /// Empties the set, which holds nothing at `len` or above.
    pub(crate) fn clear(&mut self, len: usize) {
        self.words
            .iter_mut()
            .take(len.div_ceil(64))
            .for_each(|word| *word = 0);
    }

    #[inline]
    pub(crate) fn insert(&mut self, offset: usize) {
        if let Some(word) = self.words.get_mut(offset / 64) {
            *word |= 1 << (offset % 64);
        }
    }

    #[inline]
    fn contains(&self, offset: usize) -> bool {
        self.words
            .get(offset / 64)
            .is_some_and(|word| word & (1 << (offset % 64)) != 0)
    }
}

/// A set of a few addresses; `overflowed` is true once there were more.
struct Few<const N: usize> {
    items: [usize; N],
    len: usize,
    overflowed: bool,
}

impl<const N: usize> Few<N> {
    fn new() -> Self {
        Self {
            items: [0; N],
            len: 0,
            overflowed: false,
        }
    }

    fn clear(&mut self) {
        self.len = 0;
        self.overflowed = false;
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.items.iter().take(self.len).copied()
    }

    fn insert(&mut self, item: usize) {
        if self.iter().any(|known| known == item) {
            return;
        }
        match self.items.get_mut(self.len) {
            Some(slot) => {
                *slot = item;
                self.len += 1;
            }
            None => self.overflowed = true,
        }
    }
}
