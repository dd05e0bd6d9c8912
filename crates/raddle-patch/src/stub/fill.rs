//! Writing slots, and reading back what they remember. The layout is in the parent module.

use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Array, PREFIX_MAX, Patched, SUFFIX_MAX};
use crate::image::i32_at;
use crate::memory::PAGE_SIZE;
use crate::refusal::Refusal;
use crate::site::{EntryKind, INSTRUCTION_LEN, Site};

/// Behind `lea RA(%rip), %rcx`: where its operand counts from.
const LEA_END: usize = PREFIX_MAX + 7;

/// How many slots of each array are in use, in whole pages. Only [`Slots`] reads or writes them,
/// and the callers of `apply` see to it that there is one at a time.
static PLAIN_USED: AtomicUsize = AtomicUsize::new(0);
static CLONE_USED: AtomicUsize = AtomicUsize::new(0);

/// The slots that one run of `apply` fills.
pub(crate) struct Slots {
    plain: Supply,
    clone_like: Supply,
}

struct Supply {
    array: Array,
    first: usize,
    next: usize,
}

impl Slots {
    /// Starts behind the slots that are in use.
    pub fn unused() -> Self {
        Self {
            plain: Supply::new(Array::plain(), &PLAIN_USED),
            clone_like: Supply::new(Array::clone_like(), &CLONE_USED),
        }
    }

    /// Takes a slot, and says where it is.
    pub fn take(&mut self, kind: EntryKind) -> Result<usize, Refusal> {
        match kind {
            EntryKind::Plain | EntryKind::Vector => self.plain.take(),
            EntryKind::Clone => self.clone_like.take(),
        }
    }

    /// The pages of the slots taken: an array may have none.
    pub fn pages(&self) -> [Range<usize>; 2] {
        [self.plain.pages(), self.clone_like.pages()]
    }

    /// Makes the slots taken used for good.
    pub fn keep(self) {
        self.plain.keep(&PLAIN_USED);
        self.clone_like.keep(&CLONE_USED);
    }
}

impl Supply {
    fn new(array: Array, used: &AtomicUsize) -> Self {
        let first = used.load(Ordering::Relaxed);
        Self {
            array,
            first,
            next: first,
        }
    }

    fn take(&mut self) -> Result<usize, Refusal> {
        if self.next >= self.array.count {
            return Err(Refusal::NoStubsLeft);
        }
        let slot = self.array.start + self.next * self.array.slot_len;
        self.next += 1;
        Ok(slot)
    }

    fn pages(&self) -> Range<usize> {
        let address = |index: usize| self.array.start + index * self.array.slot_len;
        address(self.first)..address(self.next).next_multiple_of(PAGE_SIZE)
    }

    /// What is left of the last page stays empty: it is never written again.
    fn keep(self, used: &AtomicUsize) {
        let per_page = PAGE_SIZE / self.array.slot_len;
        used.store(self.next.next_multiple_of(per_page), Ordering::Relaxed);
    }
}

/// The bytes of one slot, being written.
pub(crate) struct Code {
    slot: usize,
    bytes: [u8; super::CLONE_LEN],
    at: usize,
}

/// What a slot is filled with.
pub(crate) struct Filling<'a> {
    pub site: &'a Site,
    /// The window's instructions before and behind the site.
    pub prefix: &'a [u8],
    pub suffix: &'a [u8],
    pub entry: Entry,
}

/// The entries that a stub calls.
pub(crate) enum Entry {
    One(usize),
    Clone { before: usize, after: usize },
}

/// The code of the slot at `slot`; nothing if it can't reach an entry or the site.
pub(crate) fn code(slot: usize, filling: &Filling<'_>) -> Option<Code> {
    let mut code = Code {
        slot,
        bytes: [0xcc; super::CLONE_LEN],
        at: 0,
    };
    let len = match filling.entry {
        Entry::One(_) => super::PLAIN_LEN,
        Entry::Clone { .. } => super::CLONE_LEN,
    };
    let back = filling.site.window_end();
    code.at = PREFIX_MAX.checked_sub(filling.prefix.len())?;
    code.put(filling.prefix)?;
    match filling.entry {
        Entry::One(entry) => code.put_call(entry, back)?,
        Entry::Clone { before, after } => {
            code.put_call(before, back)?;
            code.put(&[0x49, 0x8d, 0x4b, 0xff])?; // lea -1(%r11), %rcx
            code.put(&[0xe3, 29])?; // jrcxz, over what follows
            code.put(&[0x0f, 0x05])?; // syscall
            code.put_call(after, back)?;
        }
    }
    code.put(filling.suffix)?;
    code.put_relative(&[0xe9], back)?; // jmp RA
    code.at = len - 2;
    let lengths = [filling.prefix.len() as u8, filling.suffix.len() as u8];
    code.put(&lengths)?;
    Some(code)
}

impl Code {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at + bytes.len();
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    /// An instruction that ends with a 32-bit distance from its end to `target`.
    fn put_relative(&mut self, opcode: &[u8], target: usize) -> Option<()> {
        self.put(opcode)?;
        let displacement = displacement(self.slot + self.at + 4, target)?;
        self.put(&displacement.to_le_bytes())
    }

    /// From `lea RA` to the second `lea`.
    fn put_call(&mut self, entry: usize, back: usize) -> Option<()> {
        self.put_relative(&[0x48, 0x8d, 0x0d], back)?; // lea RA(%rip), %rcx
        self.put(&[0x48, 0x8d, 0x64, 0x24, 0x80])?; // lea -128(%rsp), %rsp
        self.put(&[0x51])?; // push %rcx
        self.put_relative(&[0xe8], entry)?; // call entry
        self.put(&[0x59])?; // pop %rcx
        self.put(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]) // lea 128(%rsp), %rsp
    }
}

/// The 32-bit distance from `from` to `to`, if it is one.
pub(crate) fn displacement(from: usize, to: usize) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as isize).ok()
}

/// Where the instructions behind the site are in a slot.
const PLAIN_SUFFIX: usize = PREFIX_MAX + 27;
const CLONE_SUFFIX: usize = PREFIX_MAX + 62;

/// Where the slot at `slot` keeps the instructions of `site`'s window: those before the site and
/// those behind it.
pub(crate) fn copies(slot: usize, site: &Site, kind: EntryKind) -> [Range<usize>; 2] {
    let suffix = match kind {
        EntryKind::Plain | EntryKind::Vector => slot + PLAIN_SUFFIX,
        EntryKind::Clone => slot + CLONE_SUFFIX,
    };
    let prefix_end = slot + PREFIX_MAX;
    let prefix_start = prefix_end - usize::from(site.before);
    [
        prefix_start..prefix_end,
        suffix..suffix + usize::from(site.after),
    ]
}

/// What the slot at `slot` with these bytes remembers.
pub(crate) fn read(slot: usize, bytes: &[u8]) -> Option<Patched> {
    let &[.., prefix_len, suffix_len] = bytes else {
        return None;
    };
    let (prefix_len, suffix_len) = (usize::from(prefix_len), usize::from(suffix_len));
    if prefix_len > PREFIX_MAX || suffix_len > SUFFIX_MAX {
        return None;
    }
    let back = i32_at(bytes, LEA_END - 4)?;
    let window_end = (slot + LEA_END).wrapping_add_signed(back as isize);
    let site = window_end.checked_sub(suffix_len + INSTRUCTION_LEN)?;
    Some(Patched {
        site,
        window_start: site.checked_sub(prefix_len)?,
        window_end,
    })
}
