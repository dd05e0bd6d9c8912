//! The two questions about a site: which number reaches it, and which instructions around it a
//! jump can replace.
//!
//! Rules of a window `[start, end)`:
//!
//! 1. It consists of whole instructions, the site among them, and is at least five bytes long: a
//!    jump with a 32-bit displacement.
//! 2. No jump leads strictly into it, from the function or elsewhere. Its start may be a target:
//!    such a jump finds our jump.
//! 3. Each other instruction falls through to the next, has no operand relative to rip, and leaves
//!    rsp alone: executed in the stub, with the stub's unwind information, it does the same.
//! 4. It does not overlap another site's window.
//!
//! Of the windows that obey, the one with the fewest instructions is taken, because the stub copies
//! them all and executes all but the jump; operands relative to rsp count as two. Of equals the one
//! before the site wins, because `mov $nr, %eax; syscall` is the usual shape.

use crate::decode::{Eax, Flow, Instruction, RipOperand, RspUse, decode};
use crate::flow::Listing;
use crate::image::Image;
use crate::site::{INSTRUCTION_LEN, Number, Site};
use crate::stub::{PREFIX_MAX, SUFFIX_MAX};

/// The jump that replaces a window: opcode and displacement.
pub(crate) const JUMP_LEN: usize = 5;

/// A function around a site.
pub(crate) struct Surroundings<'a> {
    pub image: &'a Image,
    pub listing: &'a Listing,
    pub site: &'a Site,
    /// The previous window's end: no window may start before it.
    pub floor: usize,
}

impl Surroundings<'_> {
    /// Looks back from the site for the constant that reaches it in eax. Also returns the address
    /// of the load, or of the site without one.
    pub(crate) fn number(&self) -> (Number, usize) {
        let found = self.constant();
        found.map_or((Number::AtRunTime, self.site.address), |(constant, at)| {
            (Number::Constant(constant), at)
        })
    }

    fn constant(&self) -> Option<(u32, usize)> {
        let mut at = self.site.address;
        loop {
            let earlier = self.listing.before(at)?;
            if self.any_target(earlier + 1, at) {
                return None;
            }
            at = earlier;
            let instruction = self.decode(at)?;
            match instruction.eax() {
                Eax::Set(constant) => return Some((constant, at)),
                Eax::Clobbered => return None,
                Eax::Kept if !instruction.flow().falls_through() => return None,
                Eax::Kept => {}
            }
        }
    }

    /// Returns the best window: its bytes before and behind the site.
    pub(crate) fn window(&self) -> Option<(u8, u8)> {
        if self.is_target(self.site.address + 1) {
            return None;
        }
        let before = self.movable_before();
        let after = self.movable_after();
        let mut best: Option<(u32, Reach, Reach)> = None;
        for b in before.candidates() {
            for a in after.candidates() {
                let long_enough = b.bytes + INSTRUCTION_LEN + a.bytes >= JUMP_LEN;
                let cost = b.cost + a.cost;
                let cheaper = best.is_none_or(|(known, known_before, _)| {
                    cost < known || (cost == known && b.bytes > known_before.bytes)
                });
                if long_enough && cheaper {
                    best = Some((cost, b, a));
                }
            }
        }
        let (_, b, a) = best?;
        Some((u8::try_from(b.bytes).ok()?, u8::try_from(a.bytes).ok()?))
    }

    /// Returns how far a window can reach back.
    fn movable_before(&self) -> Reaches {
        let mut reaches = Reaches::new();
        let mut at = self.site.address;
        while let Some(earlier) = self.movable_that_ends_at(at) {
            let bytes = self.site.address - earlier.0;
            let fits = bytes <= PREFIX_MAX && earlier.0 >= self.floor;
            if !fits || !reaches.push(bytes, &earlier.1) {
                break;
            }
            at = earlier.0;
        }
        reaches
    }

    /// Returns the instruction that ends at `at`, if a window can contain both it and what follows.
    fn movable_that_ends_at(&self, at: usize) -> Option<(usize, Instruction)> {
        let start = self.listing.before(at)?;
        let instruction = self.decode(start)?;
        let joined = start + instruction.len() == at && !self.any_target(start + 1, at);
        (joined && is_movable(&instruction)).then_some((start, instruction))
    }

    /// Returns how far a window can reach on.
    fn movable_after(&self) -> Reaches {
        let mut reaches = Reaches::new();
        let behind = self.site.address + INSTRUCTION_LEN;
        let mut at = behind;
        while let Some(instruction) = self.decode(at).filter(is_movable) {
            let end = at + instruction.len();
            let inside = self.listing.starts_at(at) && !self.any_target(at, end - 1);
            let fits = end - behind <= SUFFIX_MAX;
            if !inside || !fits || !reaches.push(end - behind, &instruction) {
                break;
            }
            at = end;
        }
        reaches
    }

    /// Returns whether a jump leads to any address of `[first, last]`.
    fn any_target(&self, first: usize, last: usize) -> bool {
        (first..=last).any(|address| self.is_target(address))
    }

    fn is_target(&self, address: usize) -> bool {
        self.listing.jumps_to(address) || self.site.is_jumped_to(address)
    }

    fn decode(&self, address: usize) -> Option<Instruction> {
        decode(self.image.from(address)?)
    }
}

fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow() == Flow::Next
        && instruction.rip() == RipOperand::None
        && instruction.rsp() != RspUse::Register
}

/// One way to extend a window in one direction.
#[derive(Clone, Copy)]
struct Reach {
    bytes: usize,
    cost: u32,
}

/// The ways to extend a window in one direction, each one instruction longer than the last.
struct Reaches {
    items: [Reach; MAX_REACHES],
    len: usize,
}

/// Not at all, or by one to three instructions: three bytes are missing, and none is empty.
const MAX_REACHES: usize = 4;

impl Reaches {
    fn new() -> Self {
        Self {
            items: [Reach { bytes: 0, cost: 0 }; MAX_REACHES],
            len: 1,
        }
    }

    /// Adds one instruction; returns false if the window needs no more of them.
    fn push(&mut self, bytes: usize, instruction: &Instruction) -> bool {
        let last = self.items[self.len - 1];
        let price = if instruction.rsp() == RspUse::Memory {
            2
        } else {
            1
        };
        let Some(slot) = self.items.get_mut(self.len) else {
            return false;
        };
        *slot = Reach {
            bytes,
            cost: last.cost + price,
        };
        self.len += 1;
        true
    }

    fn candidates(&self) -> impl Iterator<Item = Reach> {
        self.items.iter().take(self.len).copied()
    }
}
