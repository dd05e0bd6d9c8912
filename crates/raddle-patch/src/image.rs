//! A loaded ELF file, read through bounds checks.
//!
//! It reads only the segments that the program headers declare readable and not writable: the
//! headers themselves, text, constants and unwind tables. Every access names an address and a
//! length and gets a slice or nothing, so that a malformed file leads to a refusal, not to a fault.

use crate::memory::PAGE_SIZE;
use crate::refusal::Refusal;

/// A loaded ELF file.
#[derive(Clone, Debug)]
pub struct Image {
    segments: [Segment; MAX_SEGMENTS],
    segment_count: usize,
    unwind_header: Option<Span>,
    dynamic: Option<Span>,
    stays: bool,
    keeps_abi: bool,
}

/// Addresses `[start, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub(crate) fn contains(self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    span: Span,
    executable: bool,
}

const MAX_SEGMENTS: usize = 16;
const ELF_HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

impl Image {
    /// Reads the headers of the file that is loaded with its ELF header at `header`.
    ///
    /// `limit` is the largest size of the image, in bytes from the header: no byte behind it is
    /// read, whatever the headers say. For a module of ld.so's list, [`Image::ANY_SIZE`].
    ///
    /// # Errors
    /// A [`Refusal`] that says what is wrong with the headers.
    ///
    /// # Safety
    /// The first page at `header` is readable, or `limit` bytes of it if that is less. Each segment
    /// that the headers declare readable and that ends before the limit is mapped, readable, and
    /// unchanged as long as the image exists, but for what [`apply`](crate::apply) writes.
    pub unsafe fn at(header: usize, limit: usize) -> Result<Self, Refusal> {
        let end = header
            .checked_add(limit.min(PAGE_SIZE))
            .ok_or(Refusal::BadHeaders)?;
        // SAFETY: the caller promises one page, or `limit` bytes.
        let page = unsafe { core::slice::from_raw_parts(header as *const u8, end - header) };
        let table = program_headers(page)?;
        let whole = Span {
            start: header,
            end: header.saturating_add(limit),
        };
        let mut image = Self {
            segments: [Segment::default(); MAX_SEGMENTS],
            segment_count: 0,
            unwind_header: None,
            dynamic: None,
            stays: false,
            keeps_abi: false,
        };
        for entry in table.chunks_exact(PROGRAM_HEADER_LEN) {
            image.add(entry, whole)?;
        }
        if image.texts().next().is_none() {
            return Err(Refusal::NoText);
        }
        Ok(image)
    }

    /// The limit for images with a size that only the headers tell: 2 GiB, since code is never
    /// farther apart.
    pub const ANY_SIZE: usize = 1 << 31;

    /// Returns the same image, marked as one that is never unmapped, such as the program itself: if
    /// it is too far from the stubs, memory near it may be taken for good.
    #[must_use]
    pub fn that_stays(self) -> Self {
        Self {
            stays: true,
            ..self
        }
    }

    /// Returns the same image, marked as one of glibc's: its functions expect nothing in vector and
    /// x87 registers over calls of other functions.
    ///
    /// That is the ABI's rule, but compilers know better: where they see what a function does, its
    /// caller keeps registers that the function leaves alone (`-fipa-ra` of GCC).
    #[must_use]
    pub fn that_keeps_the_abi(self) -> Self {
        Self {
            keeps_abi: true,
            ..self
        }
    }

    pub(crate) fn keeps_abi(&self) -> bool {
        self.keeps_abi
    }

    pub(crate) fn stays(&self) -> bool {
        self.stays
    }

    fn add(&mut self, entry: &[u8], whole: Span) -> Result<(), Refusal> {
        let kind = u32_at(entry, 0).ok_or(Refusal::BadHeaders)?;
        let flags = u32_at(entry, 4).ok_or(Refusal::BadHeaders)?;
        if !matches!(kind, PT_LOAD | PT_GNU_EH_FRAME | PT_DYNAMIC) {
            return Ok(());
        }
        let span = span_of(entry, whole).ok_or(Refusal::BadHeaders)?;
        if kind == PT_DYNAMIC {
            self.dynamic = Some(span);
        } else if kind == PT_GNU_EH_FRAME {
            self.unwind_header = Some(span);
        } else if flags & (PF_R | PF_W) == PF_R {
            let slot = self
                .segments
                .get_mut(self.segment_count)
                .ok_or(Refusal::BadHeaders)?;
            *slot = Segment {
                span,
                executable: flags & PF_X != 0,
            };
            self.segment_count += 1;
        }
        Ok(())
    }

    /// Returns the addresses from the first executable segment to the end of the last.
    pub fn text_range(&self) -> (usize, usize) {
        let from = self.texts().map(|text| text.start).min().unwrap_or(0);
        (from, self.texts().map(|text| text.end).max().unwrap_or(0))
    }

    /// Returns true if ld.so relocates the text, which must not have been changed before that.
    ///
    /// # Safety
    /// The dynamic section is mapped, as the other segments are.
    pub unsafe fn has_text_relocations(&self) -> bool {
        const DT_TEXTREL: u64 = 22;
        const DT_FLAGS: u64 = 30;
        const DF_TEXTREL: u64 = 4;
        let dynamic = self.dynamic.unwrap_or_default();
        (dynamic.start..dynamic.end.saturating_sub(15))
            .step_by(16)
            // SAFETY: the caller's promise; entries are two words.
            .map(|at| unsafe { (at as *const [u64; 2]).read_unaligned() })
            .take_while(|entry| entry[0] != 0)
            .any(|[tag, value]| tag == DT_TEXTREL || tag == DT_FLAGS && value & DF_TEXTREL != 0)
    }

    fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().take(self.segment_count)
    }

    /// Returns the executable segments.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Span> {
        self.segments()
            .filter(|s| s.executable && s.span.len() > 0)
            .map(|s| s.span)
    }

    /// Returns the executable segment that holds `address`.
    pub(crate) fn text_at(&self, address: usize) -> Option<Span> {
        self.texts().find(|text| text.contains(address))
    }

    /// Returns where the search table of unwind entries is.
    pub(crate) fn unwind_header(&self) -> Option<Span> {
        self.unwind_header
    }

    /// Returns the bytes from `address` to the end of its segment.
    pub(crate) fn from(&self, address: usize) -> Option<&[u8]> {
        let segment = self.segments().find(|s| s.span.contains(address))?;
        let len = segment.span.end - address;
        // SAFETY: the address is in a readable segment below the limit, which the caller of `at`
        // promised to be mapped and unchanged.
        Some(unsafe { core::slice::from_raw_parts(address as *const u8, len) })
    }

    /// Returns the bytes of a span within one segment.
    pub(crate) fn bytes(&self, span: Span) -> Option<&[u8]> {
        self.from(span.start)?
            .get(..span.end.checked_sub(span.start)?)
    }
}

/// Returns the program header table, which must lie in the first page.
fn program_headers(page: &[u8]) -> Result<&[u8], Refusal> {
    let header = page.get(..ELF_HEADER_LEN).ok_or(Refusal::NotElf)?;
    let is_elf = header.starts_with(b"\x7fELF\x02\x01") && u16_at(header, 18) == Some(EM_X86_64);
    if !is_elf {
        return Err(Refusal::NotElf);
    }
    if u16_at(header, 16) != Some(ET_DYN) {
        return Err(Refusal::NotRelocatable);
    }
    let start = usize_at(header, 32).ok_or(Refusal::BadHeaders)?;
    let entry_len = u16_at(header, 54).ok_or(Refusal::BadHeaders)?;
    let count = u16_at(header, 56).ok_or(Refusal::BadHeaders)?;
    if usize::from(entry_len) != PROGRAM_HEADER_LEN {
        return Err(Refusal::BadHeaders);
    }
    let end = start.checked_add(usize::from(count) * PROGRAM_HEADER_LEN);
    let table = end.and_then(|end| page.get(start..end));
    table.ok_or(Refusal::BadHeaders)
}

/// Returns the span that a program header maps from the file, if it lies within the image.
fn span_of(entry: &[u8], whole: Span) -> Option<Span> {
    let start = whole.start.checked_add(usize_at(entry, 16)?)?;
    let end = start.checked_add(usize_at(entry, 32)?)?;
    (end <= whole.end).then_some(Span { start, end })
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

#[inline]
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(|value| value as i32)
}

#[inline]
pub(crate) fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?) as usize)
}
