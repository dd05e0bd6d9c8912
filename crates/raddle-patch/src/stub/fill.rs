//! Writes slots, and reads back their sites. The layout is in the parent module.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Array, PREFIX_MAX, Patched, SUFFIX_MAX};
use crate::image::{i32_at, usize_at};
use crate::memory::PAGE_SIZE;
use crate::refusal::Refusal;
use crate::site::{EntryKind, INSTRUCTION_LEN, Site};
use raddle_arch::{CALL_BEGINS, CALL_ENDS};

/// The end of `lea RA(%rip), %rcx`, from which its operand counts.
const LEA_END: usize = PREFIX_MAX + 7;

/// The pages of each array that are in use, one bit each. Only [`Slots`] and [`Stubs`] read or
/// write them; the callers of `apply` ensure that one of these does so at a time.
static PLAIN_USED: AtomicU64 = AtomicU64::new(0);
static CLONE_USED: AtomicU64 = AtomicU64::new(0);
static FAR_USED: AtomicU64 = AtomicU64::new(0);

/// The pages of stubs that belong to one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stubs {
    plain: u64,
    clone_like: u64,
    far: u64,
}

impl Stubs {
    /// Releases the stubs for use by another image.
    ///
    /// # Safety
    /// The image is gone, so that no thread executes its stubs, and [`apply`](crate::apply) doesn't
    /// run meanwhile.
    pub unsafe fn release(self) {
        PLAIN_USED.fetch_and(!self.plain, Ordering::Relaxed);
        CLONE_USED.fetch_and(!self.clone_like, Ordering::Relaxed);
        FAR_USED.fetch_and(!self.far, Ordering::Relaxed);
    }
}

/// The slots that one call of `apply` fills.
pub(crate) struct Slots {
    plain: Supply,
    clone_like: Supply,
    far: Supply,
    reach: Reach,
}

/// How the sites of an image reach their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Directly by their jumps.
    Near,
    /// By an array of islands, which begins at this address.
    Islands(usize),
}

impl Reach {
    pub(crate) fn is_far(self) -> bool {
        self != Self::Near
    }
}

struct Supply {
    array: Array,
    /// The pages that hold the slots.
    pages: Range<usize>,
    next: usize,
}

impl Slots {
    /// Returns unused slots, as many of each kind as asked for: the same ones until slots are kept
    /// or released.
    pub(crate) fn unused(reach: Reach, plain: usize, clone_like: usize) -> Result<Self, Refusal> {
        let (plain, clone_like, far) = match reach {
            Reach::Near => (plain, clone_like, 0),
            Reach::Islands(_) => (0, 0, plain + clone_like),
        };
        Ok(Self {
            plain: Supply::new(Array::plain(), &PLAIN_USED, plain, End::Last)?,
            clone_like: Supply::new(Array::clone_like(), &CLONE_USED, clone_like, End::First)?,
            far: Supply::new(Array::far(), &FAR_USED, far, End::First)?,
            reach,
        })
    }

    /// Takes a slot, and returns its address.
    pub(crate) fn take(&mut self, kind: EntryKind) -> Result<usize, Refusal> {
        match kind {
            _ if self.reach.is_far() => self.far.take(),
            EntryKind::Plain | EntryKind::Narrow | EntryKind::Vector => self.plain.take(),
            _ => self.clone_like.take(),
        }
    }

    /// Returns the pages of the slots, per array; the range of an array may be empty.
    pub(crate) fn pages(&self) -> [Range<usize>; 3] {
        [&self.plain, &self.clone_like, &self.far].map(Supply::addresses)
    }

    /// Marks the slots as used, until they are released.
    pub(crate) fn keep(self) -> Stubs {
        let stubs = Stubs {
            plain: bits(&self.plain.pages),
            clone_like: bits(&self.clone_like.pages),
            far: bits(&self.far.pages),
        };
        PLAIN_USED.fetch_or(stubs.plain, Ordering::Relaxed);
        CLONE_USED.fetch_or(stubs.clone_like, Ordering::Relaxed);
        FAR_USED.fetch_or(stubs.far, Ordering::Relaxed);
        stubs
    }
}

/// Returns the bits of these pages.
fn bits(pages: &Range<usize>) -> u64 {
    pages.clone().fold(0, |set, page| set | 1 << page)
}

/// Where pages are looked for first. The arrays follow each other, so those of plain stubs at the
/// end of theirs are one mapping with those of the next array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

impl Supply {
    /// Finds the unused pages in a row that hold `wanted` slots and are nearest to this end.
    fn new(array: Array, used: &AtomicU64, wanted: usize, end: End) -> Result<Self, Refusal> {
        let per_page = PAGE_SIZE / array.slot_len;
        let (len, all) = (wanted.div_ceil(per_page), array.count / per_page);
        let used = used.load(Ordering::Relaxed);
        let mut places = 0..=all.saturating_sub(len);
        let is_free = |first: &usize| used & bits(&(*first..*first + len)) == 0;
        let first = match end {
            End::First => places.find(is_free),
            End::Last => places.rfind(is_free),
        };
        let first = first.filter(|_| len <= all).ok_or(Refusal::NoStubsLeft)?;
        Ok(Self {
            array,
            pages: first..first + len,
            next: first * per_page,
        })
    }

    fn take(&mut self) -> Result<usize, Refusal> {
        let slot = self.array.start + self.next * self.array.slot_len;
        if slot >= self.addresses().end {
            return Err(Refusal::NoStubsLeft);
        }
        self.next += 1;
        Ok(slot)
    }

    fn addresses(&self) -> Range<usize> {
        let address = |page: usize| self.array.start + page * PAGE_SIZE;
        address(self.pages.start)..address(self.pages.end)
    }
}

const _: () = assert!(super::PLAIN_COUNT * super::PLAIN_LEN / PAGE_SIZE < u64::BITS as usize);
const _: () = assert!(super::CLONE_COUNT * super::CLONE_LEN / PAGE_SIZE < u64::BITS as usize);
const _: () = assert!(super::FAR_COUNT * super::CLONE_LEN / PAGE_SIZE < u64::BITS as usize);

/// The bytes of one slot while they are written.
pub(crate) struct Code {
    slot: usize,
    bytes: [u8; super::CLONE_LEN],
    at: usize,
}

/// The content of a slot.
pub(crate) struct Filling<'a> {
    pub site: &'a Site,
    /// The window's instructions before and behind the site.
    pub prefix: &'a [u8],
    pub suffix: &'a [u8],
    pub entry: Entry,
    /// True for a far slot.
    pub is_far: bool,
}

/// The entries that a stub calls.
pub(crate) enum Entry {
    One(usize),
    Clone { before: usize, after: usize },
}

/// Where a far slot keeps the address behind the window.
const FAR_BACK: usize = 112;

/// Returns the code of the slot at `slot`; `None` if it can't reach an entry or the site.
pub(crate) fn code(slot: usize, filling: &Filling<'_>) -> Option<Code> {
    let mut code = Code {
        slot,
        bytes: [0xcc; super::CLONE_LEN],
        at: 0,
    };
    let is_one = matches!(filling.entry, Entry::One(_));
    let len = if is_one && !filling.is_far {
        super::PLAIN_LEN
    } else {
        super::CLONE_LEN
    };
    let back = if filling.is_far {
        Back::Kept(slot + FAR_BACK)
    } else {
        Back::Near(filling.site.window_end())
    };
    code.at = PREFIX_MAX.checked_sub(filling.prefix.len())?;
    code.put(filling.prefix)?;
    match filling.entry {
        Entry::One(entry) => code.put_call(entry, back)?,
        Entry::Clone { before, after } => {
            code.put_call(before, back)?;
            code.put(&[0x49, 0x8d, 0x4b, 0xff])?; // lea -1(%r11), %rcx
            code.put(&[0xe3, 29])?; // jrcxz, to the suffix
            code.put(&[0x0f, 0x05])?; // syscall
            code.put_call(after, back)?;
        }
    }
    if is_one && filling.is_far {
        code.put(&[0xeb, (CLONE_SUFFIX - PLAIN_SUFFIX - 2) as u8])?; // jmp, to the suffix
        code.at = CLONE_SUFFIX;
    }
    code.put(filling.suffix)?;
    match back {
        Back::Near(end) => code.put_relative(&[0xe9], end)?, // jmp RA
        Back::Kept(at) => {
            code.put_relative(&[0xff, 0x25], at)?; // jmp *RA's place
            code.at = FAR_BACK;
            code.put(&filling.site.window_end().to_le_bytes())?;
        }
    }
    code.at = len - 2;
    let lengths = [filling.prefix.len() as u8, filling.suffix.len() as u8];
    code.put(&lengths)?;
    Some(code)
}

/// How a slot finds the address behind the window.
#[derive(Clone, Copy)]
enum Back {
    /// The address itself, which is near.
    Near(usize),
    /// The slot keeps it at this address.
    Kept(usize),
}

/// Bytes of an island.
pub(crate) const ISLAND_LEN: usize = 16;

/// Returns the code of an island that leads to `target`.
pub(crate) fn island(target: usize) -> [u8; ISLAND_LEN] {
    let mut bytes = [0xcc; ISLAND_LEN];
    bytes[..6].copy_from_slice(&[0xff, 0x25, 2, 0, 0, 0]); // jmp *2(%rip)
    bytes[8..].copy_from_slice(&target.to_le_bytes());
    bytes
}

impl Code {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// Writes an instruction that ends with a 32-bit distance from its end to `target`.
    fn put_relative(&mut self, opcode: &[u8], target: usize) -> Option<()> {
        self.put(opcode)?;
        let displacement = displacement(self.slot + self.at + 4, target)?;
        self.put(&displacement.to_le_bytes())
    }

    /// Writes the code from `lea RA` to the second `lea`.
    fn put_call(&mut self, entry: usize, back: Back) -> Option<()> {
        let begin = self.at;
        match back {
            Back::Near(end) => self.put_relative(&[0x48, 0x8d, 0x0d], end)?, // lea RA(%rip), %rcx
            Back::Kept(at) => self.put_relative(&[0x48, 0x8b, 0x0d], at)?,   // mov (%rip), %rcx
        }
        self.put(&[0x48, 0x8d, 0x64, 0x24, 0x80])?; // lea -128(%rsp), %rsp
        self.put(&[0x51])?; // push %rcx
        self.put_relative(&[0xe8], entry)?; // call entry
        debug_assert_eq!(self.at - begin, CALL_BEGINS, "handlers go back by this");
        self.put(&[0x59])?; // pop %rcx
        self.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]) // lea 128(%rsp), %rsp
    }
}

/// Returns the distance from `from` to `to`, if it fits 32 bits.
pub(crate) fn displacement(from: usize, to: usize) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as isize).ok()
}

/// Offsets of the instructions behind the site in a slot.
const PLAIN_SUFFIX: usize = PREFIX_MAX + 27;
const CLONE_SUFFIX: usize = PREFIX_MAX + 62;
const _: () = assert!(PREFIX_MAX + CALL_BEGINS + CALL_ENDS == PLAIN_SUFFIX);

/// Returns where the slot at `slot` keeps the instructions of `site`'s window: before the site, and
/// behind it. `is_short` is true for a near slot of a call with a single entry.
pub(crate) fn copies(slot: usize, site: &Site, is_short: bool) -> [Range<usize>; 2] {
    let suffix = slot + if is_short { PLAIN_SUFFIX } else { CLONE_SUFFIX };
    let prefix_end = slot + PREFIX_MAX;
    let prefix_start = prefix_end - usize::from(site.before);
    [
        prefix_start..prefix_end,
        suffix..suffix + usize::from(site.after),
    ]
}

/// Returns the site of the slot at `slot` with these bytes.
pub(crate) fn read(slot: usize, bytes: &[u8], is_far: bool) -> Option<Patched> {
    let &[.., prefix_len, suffix_len] = bytes else {
        return None;
    };
    let (prefix_len, suffix_len) = (usize::from(prefix_len), usize::from(suffix_len));
    if prefix_len > PREFIX_MAX || suffix_len > SUFFIX_MAX {
        return None;
    }
    let window_end = if is_far {
        usize_at(bytes, FAR_BACK)?
    } else {
        (slot + LEA_END).wrapping_add_signed(i32_at(bytes, LEA_END - 4)? as isize)
    };
    let site = window_end.checked_sub(suffix_len + INSTRUCTION_LEN)?;
    Some(Patched {
        site,
        window_start: site.checked_sub(prefix_len)?,
        window_end,
    })
}
