//! Where functions begin and end: the search table of `.eh_frame_hdr` and the unwind entries it
//! points to.
//!
//! Formats: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4. Only the form that GNU
//! ld, gold, lld and mold write is read: a table of 32-bit offsets from its own header, sorted by
//! address.

use crate::image::{Image, Span, i32_at, u32_at, usize_at};
use crate::refusal::Refusal;

/// The search table of an image.
pub(crate) struct Functions<'a> {
    image: &'a Image,
    /// The address that the table's offsets count from.
    origin: usize,
    /// Pairs of (function, unwind entry).
    table: &'a [u8],
}

/// A function, or the part of one that an unwind entry covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// The addresses that its unwind entry covers.
    pub covered: Span,
    /// From its start to the next function's. Hand-written code may run past its unwind entry: in
    /// glibc the `syscall` of `clone` does.
    pub whole: Span,
}

const HEADER_LEN: usize = 12;
const PAIR_LEN: usize = 8;
/// Relative to its own address, signed, 32 bits.
const PCREL_SDATA4: u8 = 0x1b;
/// Unsigned, 32 bits.
const UDATA4: u8 = 0x03;
/// Relative to the header's address, signed, 32 bits.
const DATAREL_SDATA4: u8 = 0x3b;

impl<'a> Functions<'a> {
    pub(crate) fn of(image: &'a Image) -> Result<Self, Refusal> {
        Self::find(image).ok_or(Refusal::NoUnwindTable)
    }

    fn find(image: &'a Image) -> Option<Self> {
        let span = image.unwind_header()?;
        let header = image.bytes(span)?;
        let known = [1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4];
        if header.get(..4)? != known {
            return None;
        }
        let count = usize::try_from(u32_at(header, 8)?).ok()?;
        let table = header.get(HEADER_LEN..HEADER_LEN + count.checked_mul(PAIR_LEN)?)?;
        Some(Self {
            image,
            origin: span.start,
            table,
        })
    }

    fn count(&self) -> usize {
        self.table.len() / PAIR_LEN
    }

    fn address(&self, index: usize, field: usize) -> Option<usize> {
        let offset = i32_at(self.table, index * PAIR_LEN + field)?;
        Some(self.origin.wrapping_add_signed(offset as isize))
    }

    /// Returns where the first function starts.
    pub(crate) fn first(&self) -> Option<usize> {
        self.address(0, 0)
    }

    /// Returns the last function that starts at or before `address`.
    pub(crate) fn at(&self, address: usize) -> Option<Function> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            if self.address(middle, 0)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let entry = self.entry(index)?;
        let start = self.address(index, 0)?;
        let text = self.image.text_at(start)?;
        let next = self.address(low, 0).unwrap_or(text.end);
        let end = start.checked_add(entry.len)?.min(text.end);
        // The entry of a signal handler's return begins one byte early, because unwinders look up
        // the address one byte before a return address.
        let start = start + usize::from(entry.signal_frame);
        let covered = Span {
            start,
            end: end.max(start),
        };
        let whole = Span {
            start,
            end: next.clamp(start, text.end),
        };
        whole
            .contains(address)
            .then_some(Function { covered, whole })
    }

    fn entry(&self, index: usize) -> Option<Entry> {
        let entry_at = self.address(index, 4)?;
        let entry = self.image.from(entry_at)?;
        // Length, then the distance back to the common entry, then address and length.
        let common_at = entry_at
            .checked_add(4)?
            .checked_sub(usize_of(u32_at(entry, 4)?))?;
        let common = Common::parse(self.image.from(common_at)?)?;
        let len = match common.encoding & 0x0f {
            0x03 | 0x0b => usize_of(u32_at(entry, 12)?),
            0x00 | 0x04 | 0x0c => usize_at(entry, 16)?,
            _ => return None,
        };
        Some(Entry {
            len,
            signal_frame: common.signal_frame,
        })
    }
}

/// The needed fields of an unwind entry.
struct Entry {
    /// How many bytes of code it covers.
    len: usize,
    signal_frame: bool,
}

/// The needed fields of the common part of unwind entries.
struct Common {
    /// How they encode addresses.
    encoding: u8,
    signal_frame: bool,
}

fn usize_of(value: u32) -> usize {
    value as usize
}

impl Common {
    fn parse(bytes: &[u8]) -> Option<Self> {
        const ABSOLUTE: u8 = 0;
        let mut fields = Fields {
            bytes: bytes.get(8..)?,
        };
        let _version = fields.byte()?;
        let name_len = fields.bytes.iter().take(8).position(|&byte| byte == 0)?;
        let (augmentation, rest) = fields.bytes.split_at_checked(name_len)?;
        fields.bytes = rest.get(1..)?;
        let mut common = Self {
            encoding: ABSOLUTE,
            signal_frame: augmentation.contains(&b'S'),
        };
        if augmentation.first() != Some(&b'z') {
            return augmentation.is_empty().then_some(common);
        }
        // Code and data alignment, return address column, length of the augmentation data.
        for _ in 0..4 {
            fields.skip_leb128()?;
        }
        for &letter in augmentation.get(1..)? {
            match letter {
                b'R' => common.encoding = fields.byte()?,
                b'P' => fields.skip_pointer()?,
                b'L' => {
                    fields.byte()?;
                }
                b'S' | b'B' => {}
                _ => return None,
            }
        }
        Some(common)
    }
}

struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(first)
    }

    fn skip_leb128(&mut self) -> Option<()> {
        while self.byte()? & 0x80 != 0 {}
        Some(())
    }

    /// Skips an encoding and a pointer in that encoding.
    fn skip_pointer(&mut self) -> Option<()> {
        let len = match self.byte()? & 0x0f {
            0x03 | 0x0b => 4,
            0x00 | 0x04 | 0x0c => 8,
            _ => return None,
        };
        self.bytes = self.bytes.get(len..)?;
        Some(())
    }
}
