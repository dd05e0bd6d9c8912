//! One `syscall` instruction, and what is known about it.

/// How far before and behind a site it matters where jumps lead: numbers are looked for and
/// windows lie within. Together they are the bits of a word.
pub(crate) const NEAR_BEFORE: usize = 48;
pub(crate) const NEAR_AFTER: usize = 15;

/// One place in the text that holds the bytes of `syscall`.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The address of the instruction.
    pub address: usize,
    /// One bit for each address from `NEAR_BEFORE` bytes before the site that is jumped to from
    /// another function.
    pub(crate) jumped_to: u64,
    /// The system call's number.
    pub number: Number,
    /// Bytes of the window before the instruction.
    pub before: u8,
    /// Bytes of the window behind the instruction.
    pub after: u8,
    /// What becomes of it.
    pub state: State,
}

/// A system call's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This constant reaches the site in eax, whatever path leads there.
    Constant(u32),
    /// Only known when the site is reached.
    AtRunTime,
}

/// What becomes of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not looked at yet.
    Found,
    /// No instruction starts there: the bytes are part of another one.
    NotCode,
    /// Its number isn't wanted.
    Untouched,
    /// It has a window, and will call this entry.
    Planned(EntryKind),
    /// It can't be patched.
    Refused(Cause),
}

/// Which entry a site's stub calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The one that saves no vector registers: the site's function touches none.
    Plain,
    /// The one that saves them.
    Vector,
    /// The pair around a real system call: clone, clone3, vfork and numbers known at run time.
    Clone,
    /// The same for a number known at run time, where the site's function touches no vector
    /// registers: those are saved for clones only.
    PlainClone,
}

impl EntryKind {
    /// True for the pairs.
    pub fn is_pair(self) -> bool {
        matches!(self, Self::Clone | Self::PlainClone)
    }

    /// What takes its place in a function that touches no vector registers.
    pub(crate) fn without_vectors(self, number: Number) -> Self {
        match self {
            Self::Vector => Self::Plain,
            Self::Clone if number == Number::AtRunTime => Self::PlainClone,
            other => other,
        }
    }
}

/// Why one site can't be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No unwind entry lies before it, so there is nowhere to start decoding.
    NoFunction,
    /// Its function is larger than 64 KiB.
    LongFunction,
    /// Something before it is no instruction that the decoder knows.
    Undecodable,
    /// Its neighbours can't be moved, or are jumped to.
    NoWindow,
}

impl Site {
    /// A site that nobody has looked at, to fill the array that [`plan`](crate::plan) asks for.
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

    /// The first address of the window.
    pub fn window_start(&self) -> usize {
        self.address - usize::from(self.before)
    }

    /// The address behind the window.
    pub fn window_end(&self) -> usize {
        self.address + INSTRUCTION_LEN + usize::from(self.after)
    }

    /// Notes that a jump leads to `target`; nothing if that is too far from the site.
    pub(crate) fn note_jump(&mut self, target: usize) {
        if let Some(bit) = self.bit(target) {
            self.jumped_to |= bit;
        }
    }

    /// Whether another function jumps to `address`; true where nobody looked.
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

/// The numbers whose stubs run the real system call themselves: clone, vfork, clone3.
pub(crate) const CLONES: [u32; 4] = [56, 57, 58, 435];

/// `rt_sigreturn`: never patched, for it finds its frame by rsp, and unwinders know its caller by
/// its bytes.
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
