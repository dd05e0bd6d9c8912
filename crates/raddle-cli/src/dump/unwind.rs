//! The frames of a thread that sits in the kernel, found from outside: by its stack pointer, its
//! instruction pointer, what is on its stack, and the unwind tables of the files that it has
//! mapped.
//!
//! The kernel shows no other register of a thread that isn't stopped, and stopping it would end
//! some waits. So registers that functions preserve (rbp, mostly) are known only once a frame has
//! restored them. If a frame needs an unknown one, or no table covers the frame, the next frame is
//! *guessed*: the nearest word on the stack that an executed call can have left there. Guessed
//! frames, and those found through them, are marked.
//!
//! Format: Linux Standard Base, "Exception Frames"; System V ABI, AMD64 supplement, 3.6 and 3.7.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, LittleEndian, Register, RegisterRule,
    StoreOnHeap, UnwindContext, UnwindSection,
};

use super::mappings::Mappings;

/// The most frames that are looked for.
const FRAMES: usize = 64;
/// How far a guess looks, in bytes.
const GUESS: u64 = 4096;

const RBP: usize = 6;
const RSP: usize = 7;
const RETURN: usize = 16;
const REGISTERS: usize = 17;

/// The content of a stack.
pub(super) struct Stack {
    pub pointer: u64,
    pub words: Vec<u64>,
}

impl Stack {
    fn word(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.pointer)?;
        let word = self.words.get(usize::try_from(at / 8).ok()?);
        word.copied().filter(|_| at % 8 == 0)
    }

    fn end(&self) -> u64 {
        self.pointer + self.words.len() as u64 * 8
    }
}

/// One call that hasn't returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The address at which the call goes on.
    pub address: u64,
    /// True if this frame, or one further in, was guessed.
    pub guessed: bool,
}

/// Returns the frames, from the inside out; the first is at `address`.
pub(super) fn frames(address: u64, stack: &Stack, mappings: &Mappings) -> Vec<Frame> {
    let mut registers = [None; REGISTERS];
    registers[RSP] = Some(stack.pointer);
    registers[RETURN] = Some(address);
    let mut frames = vec![Frame {
        address,
        guessed: false,
    }];
    let mut guessed = false;
    while frames.len() < FRAMES {
        let next = match step(&registers, frames.len() > 1, stack, mappings) {
            Step::Known(next) => *next,
            Step::Outermost => break,
            Step::Unknown => match guess(&registers, stack, mappings) {
                Some(next) => {
                    guessed = true;
                    next
                }
                None => break,
            },
        };
        let (Some(from), Some(to)) = (registers[RSP], next[RSP]) else {
            break;
        };
        let Some(address) = next[RETURN].filter(|&address| address != 0 && to > from) else {
            break;
        };
        if !mappings.is_code(address - 1) {
            break;
        }
        frames.push(Frame { address, guessed });
        registers = next;
    }
    frames
}

type Registers = [Option<u64>; REGISTERS];

enum Step {
    Known(Box<Registers>),
    /// The tables say that the function has no caller.
    Outermost,
    Unknown,
}

/// Computes the registers of the caller by the tables.
fn step(registers: &Registers, is_caller: bool, stack: &Stack, mappings: &Mappings) -> Step {
    let Some(address) = registers[RETURN] else {
        return Step::Unknown;
    };
    // A call may be a function's last instruction: it returns to the next function.
    let within = address - u64::from(is_caller);
    let Some((file, within)) = mappings.tables(within) else {
        return Step::Unknown;
    };
    let mut section = EhFrame::new(&file.bytes, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default().set_eh_frame(file.address);
    let mut context = UnwindContext::<usize, StoreOnHeap>::new_in();
    let row = section.unwind_info_for_address(
        &bases,
        &mut context,
        within,
        EhFrame::<EndianSlice<'_, LittleEndian>>::cie_from_offset,
    );
    let Ok(row) = row else {
        return Step::Unknown;
    };
    let known = |register: Register| registers.get(usize::from(register.0)).copied().flatten();
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return Step::Unknown;
    };
    let Some(frame) = known(register).map(|value| value.wrapping_add_signed(offset)) else {
        return Step::Unknown;
    };
    let mut next = *registers;
    for (number, value) in next.iter_mut().enumerate() {
        *value = match row.register(Register(number as u16)) {
            Some(RegisterRule::Offset(at)) => stack.word(frame.wrapping_add_signed(at)),
            Some(RegisterRule::ValOffset(at)) => Some(frame.wrapping_add_signed(at)),
            Some(RegisterRule::Register(other)) => known(other),
            Some(RegisterRule::Undefined) if number == RETURN => return Step::Outermost,
            None if number == RETURN => None,
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => *value,
            _ => None,
        };
    }
    next[RSP] = Some(frame);
    match next[RETURN] {
        Some(_) => Step::Known(Box::new(next)),
        None => Step::Unknown,
    }
}

/// Guesses the caller: the nearest word on the stack that a call can have left. A frame pointer
/// that was saved before it, and points further up, becomes known, too.
fn guess(registers: &Registers, stack: &Stack, mappings: &Mappings) -> Option<Registers> {
    let from = registers[RSP]?.next_multiple_of(8);
    let mut slots = (from..from.saturating_add(GUESS)).step_by(8);
    let (at, address) = slots.find_map(|at| {
        let address = stack.word(at)?;
        mappings.follows_call(address).then_some((at, address))
    })?;
    let saved = at.checked_sub(8).filter(|&below| below >= from);
    let saved = saved.and_then(|below| stack.word(below));
    let mut next = [None; REGISTERS];
    next[RBP] = saved.filter(|&up| up > at && up < stack.end());
    next[RSP] = Some(at + 8);
    next[RETURN] = Some(address);
    Some(next)
}

/// Formats the frames, one line each.
pub(super) fn lines(frames: &[Frame], mappings: &Mappings) -> Vec<String> {
    let line = |(number, frame): (usize, &Frame)| {
        let text = mappings.name_frame(frame.address, number != 0);
        if frame.guessed {
            format!("{text}, guessed")
        } else {
            text
        }
    };
    frames.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::blocking::BlockedThread;
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[inline(never)]
    fn wait_for_a_byte(mut from: impl Read) -> usize {
        let mut byte = [0];
        from.read(&mut byte).unwrap_or_default()
    }

    #[test]
    fn the_frames_of_a_thread_that_reads_are_found() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: it has no argument and can't fail.
            sender.send(unsafe { libc::gettid() }).unwrap();
            wait_for_a_byte(reader)
        });
        let tid = receiver.recv().unwrap().unsigned_abs();
        let pid = std::process::id();
        let started = Instant::now();
        let frames = loop {
            let sitting = BlockedThread::of(pid, tid, &Mappings::of(pid));
            let reads = sitting.filter(|it| i64::from(libc::SYS_read as i32) == it.call);
            if let Some(reads) = reads {
                break reads.frames;
            }
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "it never reads"
            );
        };
        drop(writer);
        assert_eq!(thread.join().unwrap(), 0);
        let at = |name: &str| frames.iter().position(|frame| frame.contains(name));
        let (inner, outer) = (at("read+"), at("wait_for_a_byte"));
        assert!(inner.is_some() && inner < outer, "{frames:#?}");
    }

    #[test]
    fn where_nothing_is_known_there_is_one_frame() {
        let stack = Stack {
            pointer: 0x1000,
            words: vec![0, 1, 2, u64::MAX],
        };
        let found = frames(0x10, &stack, &Mappings::of(std::process::id()));
        let only = Frame {
            address: 0x10,
            guessed: false,
        };
        assert_eq!(found, [only]);
    }
}
