//! One `syscall` instruction, and what planning knows of it.

use crate::decode::Vectors;

/// How far before and behind a site the targets of jumps matter: numbers and windows lie within.
/// The sum fits the bits of a word.
pub(crate) const NEAR_BEFORE: usize = 48;
pub(crate) const NEAR_AFTER: usize = 15;

/// One place in the text that holds the bytes of `syscall`.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The address of the instruction.
    pub address: usize,
    /// One bit for each address, from `NEAR_BEFORE` bytes before the site on, that another function
    /// jumps to.
    pub(crate) jumped_to: u64,
    /// The system call's number.
    pub number: Number,
    /// Bytes of the window before the instruction.
    pub before: u8,
    /// Bytes of the window behind the instruction.
    pub after: u8,
    /// The decision about the site.
    pub state: State,
}

/// A system call's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This constant reaches the site in eax on every path.
    Constant(u32),
    /// Known only when the site is reached.
    AtRunTime,
}

/// The decision about a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not decided yet.
    Found,
    /// No instruction starts there: the bytes are part of another instruction.
    NotCode,
    /// The site's number isn't wanted.
    Untouched,
    /// The site has a window; its stub will call this entry.
    Planned(EntryKind),
    /// The site can't be patched.
    Refused(Cause),
}

/// The entry that a site's stub calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The entry that saves no vector registers: none holds anything.
    Plain,
    /// The entry that saves xmm0 to xmm15: no others hold anything.
    Narrow,
    /// The entry that saves all vector registers.
    Vector,
    /// The pair around a real system call: clone, clone3, vfork and numbers known at run time.
    Clone,
    /// The same for a number known at run time, where xmm0 to xmm15 at most hold something: the
    /// entry saves others for clones only.
    NarrowClone,
    /// The same where no vector register holds anything.
    PlainClone,
}

impl EntryKind {
    /// Returns true for the pairs.
    pub fn is_pair(self) -> bool {
        matches!(self, Self::Clone | Self::NarrowClone | Self::PlainClone)
    }

    /// Returns the kind that replaces this one where these vector registers at most hold something.
    pub(crate) fn with_vectors(self, vectors: Vectors, number: Number) -> Self {
        match (self, vectors) {
            (Self::Vector, Vectors::None) => Self::Plain,
            (Self::Vector, Vectors::Narrow) => Self::Narrow,
            (Self::Clone, Vectors::None) if number == Number::AtRunTime => Self::PlainClone,
            (Self::Clone, Vectors::Narrow) if number == Number::AtRunTime => Self::NarrowClone,
            (other, _) => other,
        }
    }
}

/// Why one site can't be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No unwind entry lies before the site, so there is no start for decoding.
    NoFunction,
    /// The site's function is larger than 64 KiB.
    LongFunction,
    /// The decoder doesn't know an instruction before the site.
    Undecodable,
    /// The site's neighbours can't be moved, or jumps lead to them.
    NoWindow,
}

impl Site {
    /// A site without an address, to fill the array that [`plan`](crate::plan) needs.
    pub const EMPTY: Self = Self::at(0);

    pub(crate) const fn at(address: usize) -> Self {
        Self {
            address,
            jumped_to: 0,
            number: Number::AtRunTime,
            before: 0,
            after: 0,
            state: State::Found,
        }
    }

    /// Returns the first address of the window.
    pub fn window_start(&self) -> usize {
        self.address - usize::from(self.before)
    }

    /// Returns the address behind the window.
    pub fn window_end(&self) -> usize {
        self.address + INSTRUCTION_LEN + usize::from(self.after)
    }

    /// Notes that a jump leads to `target`, unless that is too far from the site.
    pub(crate) fn note_jump(&mut self, target: usize) {
        if let Some(bit) = self.bit(target) {
            self.jumped_to |= bit;
        }
    }

    /// Returns whether another function jumps to `address`; true for addresses too far to be noted.
    pub(crate) fn is_jumped_to(&self, address: usize) -> bool {
        self.bit(address)
            .is_none_or(|bit| self.jumped_to & bit != 0)
    }

    fn bit(&self, address: usize) -> Option<u64> {
        let index = (address + NEAR_BEFORE).checked_sub(self.address)?;
        (index <= NEAR_BEFORE + NEAR_AFTER).then(|| 1 << index)
    }
}

/// The length of `syscall`.
pub(crate) const INSTRUCTION_LEN: usize = 2;

/// The numbers with stubs that run the real system call themselves: clone, vfork, clone3.
pub(crate) const CLONES: [u32; 4] = [56, 57, 58, 435];

/// `rt_sigreturn`: never patched, because it finds its frame by rsp, and unwinders recognise its
/// caller by the bytes.
pub(crate) const SIGRETURN: u32 = 15;

const _: () = assert!(size_of::<Site>() <= 32);
const _: () = assert!(NEAR_BEFORE + NEAR_AFTER < u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_remembered_for_its_address_alone() {
        let mut site = Site::at(1000);
        site.note_jump(1000 - NEAR_BEFORE);
        site.note_jump(1001);
        site.note_jump(1000 + NEAR_AFTER);
        for address in 1000 - NEAR_BEFORE..=1000 + NEAR_AFTER {
            let noted = [1000 - NEAR_BEFORE, 1001, 1000 + NEAR_AFTER].contains(&address);
            assert_eq!(site.is_jumped_to(address), noted, "{address}");
        }
    }

    #[test]
    fn what_is_too_far_away_counts_as_jumped_to() {
        let mut site = Site::at(1000);
        site.note_jump(5);
        assert_eq!(site.jumped_to, 0);
        assert!(site.is_jumped_to(999 - NEAR_BEFORE));
        assert!(site.is_jumped_to(1001 + NEAR_AFTER));
    }
}
