//! The instruction decoder: the length of an x86-64 instruction, and the few properties that
//! patching needs.
//!
//! It answers five questions and no other: the length; where control goes; whether the bytes mean
//! the same elsewhere (no operand relative to rip); what happens to rsp and eax; and whether a
//! vector, x87, MMX, mask or tile register is touched. Opcode properties are in `tables`.
//!
//! The answers err on one side. `eax` may be called clobbered where it is kept, `vector` set where
//! no register is touched, and `rsp` called changed where it is only read: each makes a stub slower
//! or a window be refused, never wrong. Unknown bytes are no instruction at all.
//!
//! Decoding finds the fields and the length; each other property is computed on demand. So a walk
//! over a function, which needs two properties of each instruction, costs a few nanoseconds an
//! instruction.
//!
//! Rejected: a general disassembler. It would be an order of magnitude slower (start-up has a
//! budget of one millisecond for a megabyte and a half of text), and would allocate and format
//! inside the program's process. One serves as the oracle of our tests.

mod fields;
mod tables;

use fields::{Fields, Map};
use tables::Destination;

/// A decoded instruction.
#[derive(Clone, Copy)]
pub struct Instruction {
    fields: Fields,
}

/// Where control goes. Displacements count from the *start* of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To the next instruction or by this displacement.
    Branch(i64),
    /// By this displacement.
    Jump(i64),
    /// By this displacement, and back.
    Call(i64),
    /// To a computed address.
    IndirectJump,
    /// To a computed address, and back.
    IndirectCall,
    /// To the caller.
    Return,
    /// Into the kernel by `syscall`.
    Syscall,
    /// Into the kernel by another instruction, and back.
    Trap,
    /// Nowhere: `hlt`, `ud2`, `int3`.
    Stop,
}

impl Flow {
    /// Returns whether control can pass to the instruction that follows.
    pub fn falls_through(self) -> bool {
        !matches!(
            self,
            Flow::Jump(_) | Flow::IndirectJump | Flow::Return | Flow::Stop
        )
    }
}

/// An operand relative to the instruction pointer. Displacements count from the start of the
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RipOperand {
    None,
    /// Memory at the displacement is read, written or called through.
    Access(i64),
    /// `lea`: the address itself is taken.
    Address(i64),
}

/// What an instruction does with the stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RspUse {
    None,
    /// Addresses memory relative to rsp, and leaves rsp as it is.
    Memory,
    /// May change rsp, or uses it as a value.
    Register,
}

/// What happens to eax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eax {
    Kept,
    /// Holds this constant afterwards, zero-extended to rax.
    Set(u32),
    /// Holds something else.
    Clobbered,
}

/// The length of the longest instruction.
pub const MAX_LENGTH: usize = 15;

const RSP: u8 = 4;

/// Decodes the instruction at the start of `bytes`.
///
/// Returns `None` if the bytes end too early, or are no instruction of 64-bit user code that this
/// decoder knows.
///
/// # Examples
/// ```
/// use raddle_patch::decode::{Eax, Flow, decode};
///
/// let code = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05]; // mov $39, %eax; syscall
/// let first = decode(&code).unwrap();
/// assert_eq!((first.len(), first.eax()), (5, Eax::Set(39)));
/// assert_eq!(decode(&code[5..]).unwrap().flow(), Flow::Syscall);
/// ```
#[inline(always)] // so that unused properties aren't computed
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let fields = match bytes.first_chunk() {
        Some(window) => Fields::read(window),
        None => {
            let mut window = [0; fields::WINDOW];
            window[..bytes.len()].copy_from_slice(bytes);
            Fields::read(&window)
        }
    };
    let instruction = Instruction { fields };
    let exists = instruction.len() <= bytes.len().min(MAX_LENGTH)
        && !fields.shape.is_bad()
        && !(fields.shape.directs_flow() && instruction.is_undefined_group_member());
    exists.then_some(instruction)
}

/// Which vector and x87 registers code touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// None.
    None,
    /// xmm0 to xmm15 at most.
    Narrow,
    /// Perhaps upper halves, zmm16 to zmm31, masks, tiles, MMX or x87 registers.
    Wide,
}

#[expect(clippy::len_without_is_empty, reason = "no instruction is empty")]
impl Instruction {
    /// Returns the length in bytes, 1 to 15.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.fields.len)
    }

    fn is_one(&self, opcode: u8) -> bool {
        self.fields.map == Map::One && self.fields.opcode == opcode
    }

    /// Returns whether this is an undefined member of a group that doesn't direct control.
    fn is_undefined_group_member(&self) -> bool {
        let reg = self.fields.reg();
        match self.fields.opcode {
            0xc6 | 0xc7 => self.fields.map == Map::One && !matches!(reg, 0 | 7),
            0xff => self.fields.map == Map::One && reg == 7,
            _ => false,
        }
    }

    /// Returns where control goes.
    #[inline]
    pub fn flow(&self) -> Flow {
        if !self.fields.shape.directs_flow() {
            return Flow::Next;
        }
        let target = i64::from(self.fields.len) + i64::from(self.fields.immediate());
        match self.fields.map {
            Map::One => self.flow_of_one(target),
            _ => match self.fields.opcode {
                0x05 => Flow::Syscall,
                0x34 => Flow::Trap,
                0x80..=0x8f => Flow::Branch(target),
                _ => Flow::Stop,
            },
        }
    }

    fn flow_of_one(&self, target: i64) -> Flow {
        match self.fields.opcode {
            0x70..=0x7f | 0xe0..=0xe3 => Flow::Branch(target),
            0xe8 => Flow::Call(target),
            0xe9 | 0xeb => Flow::Jump(target),
            0xc2 | 0xc3 | 0xca | 0xcb | 0xcf => Flow::Return,
            0xcd => Flow::Trap,
            // `xbegin`, which has its abort handler at the displacement.
            0xc7 if self.fields.reg() == 7 => Flow::Branch(target),
            0xc6 | 0xc7 => Flow::Next,
            0xff => match self.fields.reg() {
                2 | 3 => Flow::IndirectCall,
                4 | 5 => Flow::IndirectJump,
                _ => Flow::Next,
            },
            _ => Flow::Stop,
        }
    }

    /// Returns the operand that is relative to the instruction pointer.
    #[inline]
    pub fn rip(&self) -> RipOperand {
        if !self.fields.is_rip_relative() {
            return RipOperand::None;
        }
        let by = i64::from(self.fields.displacement) + i64::from(self.fields.len);
        if self.is_one(0x8d) {
            RipOperand::Address(by)
        } else {
            RipOperand::Access(by)
        }
    }

    /// Returns what happens to the stack pointer.
    pub fn rsp(&self) -> RspUse {
        let fields = &self.fields;
        // `push` and `call` through a register or memory.
        let pushes = self.is_one(0xff) && (2..=6).contains(&fields.reg());
        let in_general_register = !fields.shape.is_vector() && self.names_register(RSP);
        if fields.shape.changes_rsp() || pushes || in_general_register {
            RspUse::Register
        } else if fields.is_relative_to_rsp() {
            RspUse::Memory
        } else {
            RspUse::None
        }
    }

    /// Returns whether general register `number` (0 to 15) may be an explicit operand.
    fn names_register(&self, number: u8) -> bool {
        let fields = &self.fields;
        if !fields.shape.has_modrm() {
            return fields.shape.has_register_in_opcode() && fields.opcode_register() == number;
        }
        fields.rm_register() == Some(number)
            || (!fields.shape.is_group() && fields.reg_register() == number)
    }

    /// Returns what happens to eax.
    pub fn eax(&self) -> Eax {
        match self.flow() {
            Flow::Call(_) | Flow::IndirectCall | Flow::Syscall | Flow::Trap => Eax::Clobbered,
            _ => match self.constant() {
                Some(constant) => Eax::Set(constant),
                None if self.clobbers_eax() => Eax::Clobbered,
                None => Eax::Kept,
            },
        }
    }

    /// Returns the constant that this instruction loads into eax.
    fn constant(&self) -> Option<u32> {
        let fields = &self.fields;
        if fields.map != Map::One || (fields.operand_size && !fields.is_wide()) {
            return None;
        }
        let constant = fields.immediate() as u32;
        let rm_is_eax = fields.rm_register() == Some(0);
        match fields.opcode {
            0xb8 if fields.opcode_register() == 0 && !fields.is_wide() => Some(constant),
            // A negative immediate is sign-extended to rax, and is no number of a system call.
            0xc7 if rm_is_eax && fields.reg() == 0 && fields.immediate() >= 0 => Some(constant),
            0x29 | 0x2b | 0x31 | 0x33 if rm_is_eax && fields.reg_register() == 0 => Some(0),
            _ => None,
        }
    }

    fn clobbers_eax(&self) -> bool {
        let fields = &self.fields;
        let rm_is_eax = || match fields.rm_register() {
            Some(register) => self.is_part_of_eax(register),
            None => false,
        };
        let reg_is_eax = || self.is_part_of_eax(fields.reg_register());
        match fields.shape.destination() {
            // 90 is `nop`, but exchanges eax with r8 under REX.B.
            Destination::None => self.is_one(0x90) && fields.opcode_register() != 0,
            Destination::Rm => rm_is_eax(),
            Destination::Reg => reg_is_eax(),
            Destination::Either => rm_is_eax() || reg_is_eax(),
            Destination::InOpcode => fields.opcode_register() == 0,
            Destination::InOpcodeByte => self.is_part_of_eax(fields.opcode_register()),
            Destination::Eax => true,
            Destination::RmUnlessSeven => fields.reg() != 7 && rm_is_eax(),
            Destination::Unary => match fields.reg() {
                0 | 1 => false,
                2 | 3 => rm_is_eax(),
                _ => true,
            },
        }
    }

    /// Returns whether a register is eax or part of it. Register 4 is `ah` in byte instructions
    /// without REX; to be sure, in all instructions without REX.
    fn is_part_of_eax(&self, register: u8) -> bool {
        register == 0 || (register == 4 && self.fields.rex == 0)
    }

    /// Returns whether the instruction touches a vector, x87, MMX, mask or tile register.
    #[inline]
    pub fn is_vector(&self) -> bool {
        self.fields.shape.is_vector() && !self.is_general_member_of_vector_group()
    }

    /// Returns which vector and x87 registers the instruction may touch.
    ///
    /// Without a VEX, XOP or EVEX prefix an instruction has xmm0 to xmm15, MMX or x87 registers for
    /// operands, and leaves upper halves alone. The two groups that load state are called wide.
    #[inline]
    pub fn vectors(&self) -> Vectors {
        if !self.is_vector() {
            return Vectors::None;
        }
        match (self.fields.map, self.fields.opcode) {
            (Map::Vex, _) | (Map::Two, 0xae | 0xc7) | (Map::One, 0xd8..=0xdf) => Vectors::Wide,
            _ if self.may_be_mmx() => Vectors::Wide,
            _ => Vectors::Narrow,
        }
    }

    /// Returns whether a vector instruction may touch MMX registers: those of xmm registers have a
    /// prefix, where both exist.
    fn may_be_mmx(&self) -> bool {
        let fields = &self.fields;
        let has_prefix = fields.operand_size || fields.repeats;
        match (fields.map, fields.opcode) {
            // Conversions from and to MMX registers; those of general registers repeat.
            (Map::Two, 0x2a | 0x2c | 0x2d) => !fields.repeats,
            // `movq2dq` and `movdq2q`, which repeat.
            (Map::Two, 0xd6) => !fields.operand_size,
            (Map::Two, 0x0f | 0x60..=0x7f | 0xc4 | 0xc5 | 0xd1..=0xff) | (Map::Three, _) => {
                !has_prefix
            }
            _ => false,
        }
    }

    /// Returns whether this is a general member of the two groups that also save vector state.
    fn is_general_member_of_vector_group(&self) -> bool {
        let fields = &self.fields;
        match (fields.map, fields.opcode) {
            // Fences, cache line operations and the segment bases, beside fxsave, fxrstor, ldmxcsr,
            // stmxcsr, xsave, xrstor and xsaveopt.
            (Map::Two, 0xae) => fields.rm_register().is_some() || fields.reg() == 7,
            // cmpxchg16b, rdrand and others, beside xrstors, xsavec and xsaves.
            (Map::Two, 0xc7) => fields.rm_register().is_some() || !(3..=5).contains(&fields.reg()),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
