//! Functions that do little more than make a system call.
//!
//! A handler that must know the caller of such a function finds the return address on the stack, as
//! many words above the stack pointer as the function has pushed.

use crate::decode::{Flow, RspUse, decode};

/// Bytes of a function that are looked at.
const MOST: usize = 128;

/// The first system call of a function, on the straight way from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapper {
    /// Bytes from the function's start to the end of the `syscall` instruction.
    pub site: usize,
    /// Words between the stack pointer there and the return address.
    pub words: usize,
}

/// Examines a function's code, before it is patched. Returns `None` if it has no system call near
/// its start, or moves the stack pointer other than by pushing registers.
///
/// # Examples
/// ```
/// use raddle_patch::wrapper::{Wrapper, look_at};
///
/// let code = [0x55, 0x41, 0x54, 0xb8, 9, 0, 0, 0, 0x0f, 0x05]; // push; push; mov $9,%eax; syscall
/// assert_eq!(look_at(&code), Some(Wrapper { site: 10, words: 2 }));
/// ```
pub fn look_at(code: &[u8]) -> Option<Wrapper> {
    let (mut at, mut words) = (0, 0);
    while at < MOST {
        let rest = code.get(at..)?;
        let instruction = decode(rest)?;
        match instruction.flow() {
            Flow::Next | Flow::Branch(_) => {}
            Flow::Syscall => {
                let site = at + instruction.len();
                return Some(Wrapper { site, words });
            }
            _ => return None,
        }
        if is_push(rest) {
            words += 1;
        } else if instruction.rsp() == RspUse::Register {
            return None;
        }
        at += instruction.len();
    }
    None
}

/// Returns true for a push of a general register.
fn is_push(code: &[u8]) -> bool {
    match code {
        [0x41, opcode, ..] | [opcode, ..] => (0x50..=0x57).contains(opcode),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Wrapper, look_at};

    #[test]
    fn pushes_are_counted_up_to_the_call() {
        // glibc 2.43's mmap: test; jne; push rbp; mov; push rbx; mov; test; je; mov; mov; syscall.
        let code = [
            0x41, 0xf7, 0xc1, 0xff, 0x0f, 0, 0, 0x75, 0x27, 0x55, 0x89, 0xcd, 0x53, 0x48, 0x89,
            0xfb, 0x48, 0x85, 0xff, 0x74, 0x3b, 0x41, 0x89, 0xea, 0xb8, 9, 0, 0, 0, 0x0f, 0x05,
        ];
        assert_eq!(look_at(&code), Some(Wrapper { site: 31, words: 2 }));
    }

    #[test]
    fn a_frame_of_another_kind_is_refused() {
        let code = [0x48, 0x83, 0xec, 0x18, 0xb8, 9, 0, 0, 0, 0x0f, 0x05]; // sub $24,%rsp
        assert_eq!(look_at(&code), None);
        let code = [0xb8, 9, 0, 0, 0, 0xc3, 0x0f, 0x05]; // mov; ret
        assert_eq!(look_at(&code), None);
    }
}
