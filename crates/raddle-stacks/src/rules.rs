//! What the unwind tables say of one instruction: where the caller's registers are.
//!
//! Rules are compiled once for each address and rows: ten thousand threads wait in a few places.
//!
//! Formats: Linux Standard Base, "Exception Frames"; DWARF 5, 6.4; System V ABI, AMD64 supplement,
//! 3.6.2.
//!
//! Rejected: framehop. It tracks three registers, evaluates no expression that reads memory (the
//! frames of signal handlers and of functions that align their stack have some), and takes the
//! frame pointer without a word where tables fail, so that a guess looks like a fact.

use std::rc::Rc;

use gimli::{
    CfaRule, EhFrame, Encoding, EndianSlice, Evaluation, EvaluationResult, LittleEndian, Location,
    Register, RegisterRule, StoreOnHeap, UnwindContext, UnwindExpression, UnwindTableRow, Value,
};

use rustc_hash::FxHashMap;

use crate::memory::Memory;
use crate::modules::Modules;

pub(crate) const RBX: usize = 3;
pub(crate) const RBP: usize = 6;
pub(crate) const RSP: usize = 7;
pub(crate) const RIP: usize = 16;
pub(crate) const REGISTERS: usize = 17;
/// The registers that functions preserve: rbx, rbp, r12 to r15.
const PRESERVED: [usize; 6] = [RBX, RBP, 12, 13, 14, 15];
/// The most operations of an expression that are executed.
const OPERATIONS_MAX: u32 = 1000;
/// The most rows that are remembered.
const ROWS_MAX: usize = 1 << 18;

/// The registers of a frame, by their DWARF numbers, as far as they are known.
pub(crate) type Registers = [Option<u64>; REGISTERS];

/// DWARF numbers, and the places of the same registers in `user_regs_struct`.
pub(crate) const DWARF_OF_USER: [(usize, usize); REGISTERS] = [
    (0, 10), // rax
    (1, 12), // rdx
    (2, 11), // rcx
    (3, 5),  // rbx
    (4, 13), // rsi
    (5, 14), // rdi
    (6, 4),  // rbp
    (7, 19), // rsp
    (8, 9),  // r8 to r15
    (9, 8),
    (10, 7),
    (11, 6),
    (12, 3),
    (13, 2),
    (14, 1),
    (15, 0),
    (16, 16), // rip
];

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The rules at one address.
pub(crate) struct Row {
    frame: Place,
    registers: Vec<(usize, Rule)>,
    /// The function has no caller.
    pub is_outermost: bool,
    /// The caller was interrupted: its address isn't that of a return.
    pub is_signal_frame: bool,
    encoding: Encoding,
}

enum Place {
    At(usize, i64),
    Computed(Box<[u8]>),
}

enum Rule {
    Unknown,
    Same,
    /// In memory, by the distance from the frame's address.
    Saved(i64),
    /// The frame's address and a distance.
    Sum(i64),
    Other(usize),
    SavedAtComputed(Box<[u8]>),
    Computed(Box<[u8]>),
}

/// The rules of a process, as far as they were needed.
#[derive(Default)]
pub(crate) struct Rules {
    rows: FxHashMap<u64, Option<Rc<Row>>>,
}

impl Rules {
    /// Returns the rules for an address; `None` if no table covers the address, or makes sense.
    pub(crate) fn at(
        &mut self,
        address: u64,
        modules: &Modules,
        memory: &dyn Memory,
    ) -> Option<Rc<Row>> {
        if let Some(row) = self.rows.get(&address) {
            return row.clone();
        }
        if self.rows.len() == ROWS_MAX {
            self.rows.clear();
        }
        let row = Row::find(address, modules, memory).map(Rc::new);
        self.rows.insert(address, row.clone());
        row
    }
}

impl Row {
    fn find(address: u64, modules: &Modules, memory: &dyn Memory) -> Option<Row> {
        let image = modules.image(modules.at(address)?, memory)?;
        let sections = image.tables.as_ref()?.sections()?;
        let (frames, bases) = (&sections.frames, &sections.bases);
        let entry = sections.entry(address)?;
        let mut context = UnwindContext::<usize, StoreOnHeap>::new_in();
        let row = entry
            .unwind_info_for_address(frames, bases, &mut context, address)
            .ok()?;
        let encoding = entry.cie().encoding();
        Row::compile(row, frames, encoding, entry.is_signal_trampoline())
    }

    fn compile(
        row: &UnwindTableRow<usize>,
        frames: &EhFrame<Slice<'_>>,
        encoding: Encoding,
        is_signal_frame: bool,
    ) -> Option<Row> {
        let bytes = |expression: &UnwindExpression<usize>| -> Option<Box<[u8]>> {
            Some(expression.get(frames).ok()?.0.slice().into())
        };
        let number = |register: Register| {
            let number = usize::from(register.0);
            (number < REGISTERS).then_some(number)
        };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                Place::At(number(*register)?, *offset)
            }
            CfaRule::Expression(expression) => Place::Computed(bytes(expression)?),
        };
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let Some(register) = number(*register) else {
                continue;
            };
            let rule = match rule {
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(at) => Rule::Saved(*at),
                RegisterRule::ValOffset(distance) => Rule::Sum(*distance),
                RegisterRule::Register(other) => Rule::Other(number(*other)?),
                RegisterRule::Expression(expression) => Rule::SavedAtComputed(bytes(expression)?),
                RegisterRule::ValExpression(expression) => Rule::Computed(bytes(expression)?),
                _ => Rule::Unknown,
            };
            registers.push((register, rule));
        }
        // Without a rule for the return address, or with "undefined", there is no caller.
        let returns = registers.iter().find(|(register, _)| *register == RIP);
        let is_outermost = returns.is_none_or(|(_, rule)| matches!(rule, Rule::Unknown));
        Some(Row {
            frame,
            registers,
            is_outermost,
            is_signal_frame,
            encoding,
        })
    }

    /// Computes the caller's registers; `None` if one that is needed isn't known.
    pub(crate) fn caller(
        &self,
        registers: &Registers,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<Registers> {
        let frame = match &self.frame {
            Place::At(register, offset) => registers[*register]?.wrapping_add_signed(*offset),
            Place::Computed(bytes) => self.compute(bytes, None, registers, word)?,
        };
        let mut next: Registers = [None; REGISTERS];
        for register in PRESERVED {
            next[register] = registers[register];
        }
        next[RSP] = Some(frame);
        for (register, rule) in &self.registers {
            next[*register] = match rule {
                Rule::Unknown => None,
                Rule::Same => registers[*register],
                Rule::Saved(at) => word(frame.wrapping_add_signed(*at)),
                Rule::Sum(distance) => Some(frame.wrapping_add_signed(*distance)),
                Rule::Other(other) => registers[*other],
                Rule::SavedAtComputed(bytes) => self
                    .compute(bytes, Some(frame), registers, word)
                    .and_then(&mut *word),
                Rule::Computed(bytes) => self.compute(bytes, Some(frame), registers, word),
            };
        }
        next[RIP]?;
        Some(next)
    }

    fn compute(
        &self,
        bytes: &[u8],
        initial: Option<u64>,
        registers: &Registers,
        word: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut evaluation = Evaluation::new(Slice::new(bytes, LittleEndian), self.encoding);
        evaluation.set_max_iterations(OPERATIONS_MAX);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        // Each result but the last one belongs to an operation, of which there are so many at most.
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(usize::from(register.0)).copied()??;
                    evaluation
                        .resume_with_register(Value::Generic(value))
                        .ok()?
                }
                EvaluationResult::RequiresMemory { address, size, .. } => {
                    let value = word_of(address, size, word)?;
                    evaluation.resume_with_memory(Value::Generic(value)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result().last()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

/// Reads up to eight bytes, which lie in at most two aligned words.
fn word_of(address: u64, size: u8, word: &mut impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let begin = address & !7;
    let shift = (address - begin) * 8;
    let low = word(begin)? >> shift;
    let bits = u32::from(size) * 8;
    let high = if shift + u64::from(bits) > 64 {
        word(begin.checked_add(8)?)? << (64 - shift)
    } else {
        0
    };
    let mask = u64::MAX.checked_shr(64u32.checked_sub(bits)?).unwrap_or(0);
    Some((low | high) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_words_are_read() {
        let words = [0x8877_6655_4433_2211u64, 0x00ff_eedd_ccbb_aa99];
        let mut word = |address: u64| words.get((address / 8) as usize).copied();
        assert_eq!(word_of(0, 8, &mut word), Some(words[0]));
        assert_eq!(word_of(1, 4, &mut word), Some(0x5544_3322));
        assert_eq!(word_of(6, 4, &mut word), Some(0xaa99_8877));
        assert_eq!(word_of(7, 1, &mut word), Some(0x88));
        assert_eq!(word_of(0, 0, &mut word), Some(0));
        assert_eq!(word_of(12, 8, &mut word), None);
    }
}
