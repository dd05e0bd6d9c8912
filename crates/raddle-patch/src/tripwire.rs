//! A few jumps over single system calls, set before anything is planned and removed before
//! planning.
//!
//! A wire is a jump that replaces seven bytes: `syscall` and the instruction of five bytes before
//! it. [`find`] looks only for shapes that the caller names, in functions of libc that have that
//! shape: it decodes no function, and reads no more of libc than these functions.

use crate::apply::{prove_permission, write};
use crate::memory::{Memory, PAGE_SIZE, Protection};
use crate::refusal::Refusal;
use crate::stub::fill::displacement;
use crate::window::JUMP_LEN;
use core::ffi::CStr;

/// Bytes that a wire replaces.
pub const LEN: usize = 7;

/// The bytes that a wire replaces.
pub type Shape = [u8; LEN];

/// `mov $number, %eax; syscall`.
#[must_use]
pub const fn constant(number: u32) -> Shape {
    let [a, b, c, d] = number.to_le_bytes();
    [0xb8, a, b, c, d, 0x0f, 0x05]
}

/// `mov 8(%rsp), %r9; syscall`: the end of a function that takes a call's number and arguments.
pub const SIXTH_FROM_STACK: Shape = [0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05];

/// Returns the offset of the only place in `code` that has this shape.
#[must_use]
#[unsafe(link_section = ".text.raddle_start")] // see `raddle_preload::start`
pub fn find(code: &[u8], shape: &Shape) -> Option<usize> {
    let mut found = None;
    let places = code.len().saturating_sub(LEN - 1);
    for (index, chunk) in code[..places].chunks(CHUNK).enumerate() {
        // Compared all at once: this is most of what a start costs that makes no thread.
        let begins = |any, byte: &u8| any | (*byte == shape[0]);
        if !chunk.iter().fold(false, begins) {
            continue;
        }
        for at in (index * CHUNK..).take(chunk.len()) {
            if code[at..at + LEN] == *shape && found.replace(at).is_some() {
                return None;
            }
        }
    }
    found
}

/// Bytes that [`find`] looks through at a time.
const CHUNK: usize = 64;

/// Returns the jump from a wire at `at` to `to`; `None` if that is too far.
#[must_use]
pub fn jump(at: usize, to: usize) -> Option<Shape> {
    let [a, b, c, d] = displacement(at + JUMP_LEN, to)?.to_le_bytes();
    Some([0xe9, a, b, c, d, 0x66, 0x90])
}

/// Writes the bytes of all wires: jumps, or the bytes that were there before. `probe` as for
/// [`apply`](crate::apply).
///
/// # Errors
/// A [`Refusal`]; nothing has changed then, except after [`Refusal::TextLost`].
///
/// # Safety
/// - The addresses are places of text, in one mapping, that have a shape of a wire or hold a wire.
/// - The process has one thread, which executes no text of that mapping, not even in a signal
///   handler.
#[unsafe(link_section = ".text.raddle_start")] // see `raddle_preload::start`
pub unsafe fn rewrite(
    wires: &[(usize, Shape)],
    memory: &impl Memory,
    probe: Option<&CStr>,
) -> Result<(), Refusal> {
    let (Some(first), Some(last)) = (
        wires.iter().map(|wire| wire.0).min(),
        wires.iter().map(|wire| wire.0).max(),
    ) else {
        return Ok(());
    };
    let start = first & !(PAGE_SIZE - 1);
    let end = (last + LEN).next_multiple_of(PAGE_SIZE);
    prove_permission(memory, probe)?;
    // SAFETY: the caller's promise; text is readable and executable before and after.
    unsafe {
        let opened = memory.protect(start, end, Protection::ReadWrite);
        if opened.is_ok() {
            for (at, bytes) in wires {
                write(*at, bytes);
            }
        }
        let closed = memory.protect(start, end, Protection::ReadExecute);
        closed.map_err(|errno| Refusal::TextLost { errno })?;
        opened.map_err(|errno| Refusal::Protect { errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_found_once_or_not_at_all() {
        let shape = constant(435);
        let mut code = [0x90; 64];
        assert_eq!(find(&code, &shape), None);
        code[57..].copy_from_slice(&shape);
        assert_eq!(find(&code, &shape), Some(57));
        code[3..10].copy_from_slice(&shape);
        assert_eq!(find(&code, &shape), None, "which of them?");
        assert_eq!(find(&code[..5], &shape), None);
    }

    #[test]
    fn a_jump_leads_there_or_is_none() {
        let bytes = jump(0x1000, 0x2000).unwrap();
        assert_eq!(bytes[..5], [0xe9, 0xfb, 0x0f, 0, 0]);
        assert_eq!(jump(0x1000, 1 << 40), None);
    }
}
