//! The instruction decoder: how long an x86-64 instruction is, and the little that patching needs
//! to know about it.
//!
//! It answers five questions and no other: the length; where control goes; whether the bytes mean
//! the same elsewhere (no operand relative to rip); what happens to rsp and eax; and whether a
//! vector, x87, MMX, mask or tile register is touched. Opcode properties are in [`tables`].
//!
//! The answers err on one side. `eax` may be called clobbered where it is kept, `vector` set where
//! no register is touched, and `rsp` called changed where it is only read: each of these makes a
//! stub slower or a window be refused, never wrong. What isn't known is no instruction at all.
//!
//! Rejected: a general disassembler. It would be an order of magnitude slower (start-up has a
//! budget of one millisecond for a megabyte and a half of text) and would bring its own ideas of
//! allocation and formatting into the program's process. One serves as the oracle of our tests.

mod tables;

use tables::{Destination, Opcode};

/// What one instruction does, as far as patching cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Length in bytes, 1 to 15.
    pub len: u8,
    /// Where control goes.
    pub flow: Flow,
    /// Whether an operand is relative to the instruction pointer.
    pub rip: RipOperand,
    /// What it does with the stack pointer.
    pub rsp: RspUse,
    /// What happens to eax.
    pub eax: Eax,
    /// It touches a vector, x87, MMX, mask or tile register.
    pub vector: bool,
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
    /// Whether the instruction that follows can be reached from this one.
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
    /// It addresses memory relative to rsp, and leaves rsp as it is.
    Memory,
    /// It may change rsp, or uses it as a value.
    Register,
}

/// What happens to eax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eax {
    Kept,
    /// It holds this constant afterwards, zero-extended to rax.
    Set(u32),
    /// It holds something else.
    Clobbered,
}

/// No instruction is longer.
pub const MAX_LENGTH: usize = 15;

/// Decodes the instruction at the start of `bytes`.
///
/// `None` if the bytes end too early, or are no instruction of 64-bit user code that this decoder
/// knows.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let mut cursor = Cursor::at_start_of(bytes);
    let prefixes = Prefixes::read(&mut cursor)?;
    let encoding = Encoding::read(&mut cursor, prefixes);
    let shape = encoding.shape;
    let modrm = shape.has_modrm().then(|| ModRm::read(&mut cursor, encoding.prefixes));
    let immediate = read_immediate(&mut cursor, &encoding, modrm);
    if cursor.at > bytes.len().min(MAX_LENGTH) || shape.is_bad() {
        return None;
    }
    let len = cursor.at as u8;
    let form = Form { encoding, modrm, immediate, len };
    let flow = form.flow()?;
    Some(Instruction {
        len,
        flow,
        rip: form.rip(),
        rsp: form.rsp(),
        eax: form.eax(flow),
        vector: form.vector(),
    })
}

/// The bytes that are left, and zeros behind the last: whoever reads too far finds out by `at`.
struct Cursor {
    bytes: [u8; CURSOR_LEN],
    at: usize,
}

/// More than the longest sequence of fields that may be read before lengths are checked: 14
/// prefixes, an opcode of four, operand, base, displacement, eight bytes of immediate.
const CURSOR_LEN: usize = 32;

impl Cursor {
    #[inline(always)]
    fn at_start_of(text: &[u8]) -> Self {
        let bytes = match text.first_chunk() {
            Some(bytes) => *bytes,
            None => {
                let mut bytes = [0; CURSOR_LEN];
                bytes[..text.len()].copy_from_slice(text);
                bytes
            }
        };
        Self { bytes, at: 0 }
    }

    #[inline(always)]
    fn peek(&self) -> u8 {
        self.bytes[self.at % CURSOR_LEN]
    }

    #[inline(always)]
    fn byte(&mut self) -> u8 {
        let byte = self.peek();
        self.at += 1;
        byte
    }

    /// A little-endian, sign-extended number of `len` bytes. Of longer ones than four bytes the
    /// first four.
    #[inline(always)]
    fn number(&mut self, len: usize) -> i64 {
        let at = self.at;
        self.at += len;
        let byte = |index: usize| self.bytes[(at + index) % CURSOR_LEN];
        let four = i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
        i64::from(match len {
            0 => 0,
            1 => four << 24 >> 24,
            2 => four << 16 >> 16,
            _ => four,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand_size: bool,
    address_size: bool,
    /// f3 or f2, whichever came last.
    repeat: u8,
    /// The bits W, R, X, B as in REX.
    rex: u8,
}

impl Prefixes {
    #[inline(always)]
    fn read(cursor: &mut Cursor) -> Option<Self> {
        let mut prefixes = Self::default();
        loop {
            match cursor.peek() {
                0x66 => prefixes.operand_size = true,
                0x67 => prefixes.address_size = true,
                repeat @ (0xf2 | 0xf3) => prefixes.repeat = repeat,
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
                rex @ 0x40..=0x4f => {
                    prefixes.rex = rex & 15;
                    cursor.at += 1;
                    // A REX that isn't the last prefix is ignored.
                    if !is_legacy_prefix_or_rex(cursor.peek()) {
                        return Some(prefixes);
                    }
                    prefixes.rex = 0;
                    continue;
                }
                _ => return Some(prefixes),
            }
            cursor.at += 1;
            if cursor.at >= MAX_LENGTH {
                return None;
            }
        }
    }

    fn wide(self) -> bool {
        self.rex & 8 != 0
    }

    fn r(self) -> u8 {
        (self.rex & 4) << 1
    }

    fn b(self) -> u8 {
        (self.rex & 1) << 3
    }
}

fn is_legacy_prefix_or_rex(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3
    )
}

/// Which table the opcode is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Map {
    /// One byte.
    One,
    /// 0f.
    Two,
    /// 0f 38.
    Three8,
    /// 0f 3a.
    Three8a,
    /// Behind a VEX, XOP or EVEX prefix.
    Vector(u8),
}

struct Encoding {
    map: Map,
    opcode: u8,
    shape: Opcode,
    prefixes: Prefixes,
}

impl Encoding {
    #[inline(always)]
    fn read(cursor: &mut Cursor, mut prefixes: Prefixes) -> Self {
        let first = cursor.byte();
        let (map, opcode) = match first {
            0x0f => match cursor.byte() {
                0x38 => (Map::Three8, cursor.byte()),
                0x3a => (Map::Three8a, cursor.byte()),
                opcode => (Map::Two, opcode),
            },
            0xc5 => {
                prefixes.rex = (!cursor.byte() >> 5) & 4;
                (Map::Vector(1), cursor.byte())
            }
            0xc4 => Self::read_three_byte(cursor, &mut prefixes),
            0x8f if cursor.peek() & 0x1f >= 8 => Self::read_three_byte(cursor, &mut prefixes),
            0x62 => Self::read_evex(cursor, &mut prefixes),
            opcode => (Map::One, opcode),
        };
        let shape = match map {
            Map::One => tables::ONE[usize::from(opcode)],
            Map::Two => tables::TWO[usize::from(opcode)],
            Map::Three8 => tables::three_38(opcode),
            Map::Three8a => tables::three_3a(opcode),
            Map::Vector(number) => tables::vector(number, opcode, first == 0x62),
        };
        Self { map, opcode, shape, prefixes }
    }

    /// VEX c4 and XOP 8f: two bytes of payload.
    fn read_three_byte(cursor: &mut Cursor, prefixes: &mut Prefixes) -> (Map, u8) {
        let (first, second) = (cursor.byte(), cursor.byte());
        prefixes.rex = (!first >> 5) | ((second >> 4) & 8);
        (Map::Vector(first & 0x1f), cursor.byte())
    }

    /// EVEX 62: three bytes of payload.
    fn read_evex(cursor: &mut Cursor, prefixes: &mut Prefixes) -> (Map, u8) {
        let (first, second, _) = (cursor.byte(), cursor.byte(), cursor.byte());
        prefixes.rex = (!first >> 5) | ((second >> 4) & 8);
        (Map::Vector(first & 7), cursor.byte())
    }
}

/// The operand byte and what follows it.
#[derive(Clone, Copy)]
struct ModRm {
    /// The register field without its REX bit.
    reg: u8,
    /// The other operand is a register: its field without the REX bit.
    register: Option<u8>,
    /// The base of the memory operand is rsp.
    rsp_base: bool,
    /// A displacement from the next instruction.
    rip_displacement: Option<i64>,
}

impl ModRm {
    #[inline(always)]
    fn read(cursor: &mut Cursor, prefixes: Prefixes) -> Self {
        let byte = cursor.byte();
        let (mode, rm) = (byte >> 6, byte & 7);
        let mut modrm = Self {
            reg: (byte >> 3) & 7,
            register: (mode == 3).then_some(rm),
            rsp_base: false,
            rip_displacement: None,
        };
        let mut displacement_len = [0, 1, 4, 0][usize::from(mode)];
        if mode != 3 && rm == 4 {
            let base = cursor.byte() & 7;
            modrm.rsp_base = base == 4 && prefixes.b() == 0;
            if base == 5 && mode == 0 {
                displacement_len = 4;
            }
        }
        if mode == 0 && rm == 5 {
            modrm.rip_displacement = Some(cursor.number(4));
        } else {
            cursor.at += displacement_len;
        }
        modrm
    }
}

#[inline(always)]
fn read_immediate(cursor: &mut Cursor, encoding: &Encoding, modrm: Option<ModRm>) -> i64 {
    let shape = encoding.shape;
    let prefixes = encoding.prefixes;
    let by_operand = if prefixes.operand_size && !prefixes.wide() { 2 } else { 4 };
    let mut len = shape.fixed_immediate_len();
    if shape.has_operand_immediate() {
        len += by_operand;
    }
    if shape.has_full_immediate() {
        len += if prefixes.wide() { 8 } else { by_operand };
    }
    if shape.has_offset() {
        len += if prefixes.address_size { 4 } else { 8 };
    }
    if encoding.map == Map::One && modrm.is_some_and(|m| m.reg < 2) {
        // Of the unary group only `test` has an immediate.
        match encoding.opcode {
            0xf6 => len += 1,
            0xf7 => len += by_operand,
            _ => {}
        }
    }
    cursor.number(len)
}

/// A decoded instruction, before its meaning.
struct Form {
    encoding: Encoding,
    modrm: Option<ModRm>,
    immediate: i64,
    len: u8,
}

impl Form {
    fn is_one(&self, opcode: u8) -> bool {
        self.encoding.map == Map::One && self.encoding.opcode == opcode
    }

    #[inline]
    fn flow(&self) -> Option<Flow> {
        let target = i64::from(self.len) + self.immediate;
        match self.encoding.map {
            Map::One => self.flow_of_one(target),
            Map::Two => Some(match self.encoding.opcode {
                0x05 => Flow::Syscall,
                0x34 => Flow::Trap,
                0x0b | 0xb9 | 0xff => Flow::Stop,
                0x80..=0x8f => Flow::Branch(target),
                _ => Flow::Next,
            }),
            _ => Some(Flow::Next),
        }
    }

    #[inline]
    fn flow_of_one(&self, target: i64) -> Option<Flow> {
        let reg = self.modrm.map_or(0, |m| m.reg);
        Some(match self.encoding.opcode {
            0x70..=0x7f | 0xe0..=0xe3 => Flow::Branch(target),
            0xe8 => Flow::Call(target),
            0xe9 | 0xeb => Flow::Jump(target),
            0xc2 | 0xc3 | 0xca | 0xcb | 0xcf => Flow::Return,
            0xcc | 0xf1 | 0xf4 => Flow::Stop,
            0xcd => Flow::Trap,
            // xabort, and xbegin, whose abort handler is at the displacement.
            0xc6 if reg == 7 => Flow::Next,
            0xc7 if reg == 7 => Flow::Branch(target),
            0xc6 | 0xc7 if reg != 0 => return None,
            0xff => match reg {
                2 | 3 => Flow::IndirectCall,
                4 | 5 => Flow::IndirectJump,
                7 => return None,
                _ => Flow::Next,
            },
            _ => Flow::Next,
        })
    }

    fn rip(&self) -> RipOperand {
        match self.modrm.and_then(|m| m.rip_displacement) {
            None => RipOperand::None,
            Some(displacement) => {
                let displacement = displacement + i64::from(self.len);
                if self.is_one(0x8d) {
                    RipOperand::Address(displacement)
                } else {
                    RipOperand::Access(displacement)
                }
            }
        }
    }

    /// Whether general register `number` (0 to 15) may be an explicit operand.
    #[inline]
    fn names_register(&self, number: u8) -> bool {
        let prefixes = self.encoding.prefixes;
        let Some(modrm) = self.modrm else {
            let low = self.encoding.opcode & 7;
            return self.encoding.shape.has_register_in_opcode() && low | prefixes.b() == number;
        };
        let rm = modrm.register.map(|rm| rm | prefixes.b());
        let reg = modrm.reg | prefixes.r();
        rm == Some(number) || (!self.encoding.shape.is_group() && reg == number)
    }

    fn rsp(&self) -> RspUse {
        const RSP: u8 = 4;
        let shape = self.encoding.shape;
        // `push` and `call` through a register or memory.
        let pushes = self.is_one(0xff) && self.modrm.is_some_and(|m| (2..=6).contains(&m.reg));
        let in_general_register = !shape.is_vector() && self.names_register(RSP);
        if shape.changes_rsp() || pushes || in_general_register {
            RspUse::Register
        } else if self.modrm.is_some_and(|m| m.rsp_base) {
            RspUse::Memory
        } else {
            RspUse::None
        }
    }

    #[inline]
    fn eax(&self, flow: Flow) -> Eax {
        match flow {
            Flow::Call(_) | Flow::IndirectCall | Flow::Syscall | Flow::Trap => Eax::Clobbered,
            _ => match self.constant() {
                Some(constant) => Eax::Set(constant),
                None if self.clobbers_eax() => Eax::Clobbered,
                None => Eax::Kept,
            },
        }
    }

    /// The constant that this instruction loads into eax.
    #[inline]
    fn constant(&self) -> Option<u32> {
        let prefixes = self.encoding.prefixes;
        if self.encoding.map != Map::One || (prefixes.operand_size && !prefixes.wide()) {
            return None;
        }
        let eax_by_modrm = |m: ModRm| m.register == Some(0) && prefixes.b() == 0;
        match (self.encoding.opcode, self.modrm) {
            (0xb8, _) if prefixes.b() == 0 && !prefixes.wide() => Some(self.immediate as u32),
            // A negative one is sign-extended to rax, and no number of a system call.
            (0xc7, Some(m)) if eax_by_modrm(m) && m.reg == 0 && self.immediate >= 0 => {
                Some(self.immediate as u32)
            }
            (0x29 | 0x2b | 0x31 | 0x33, Some(m)) => {
                (eax_by_modrm(m) && m.reg | prefixes.r() == 0).then_some(0)
            }
            _ => None,
        }
    }

    #[inline]
    fn clobbers_eax(&self) -> bool {
        let prefixes = self.encoding.prefixes;
        let rm_is_eax = || {
            let register = self.modrm.and_then(|m| m.register);
            register.is_some_and(|rm| rm | prefixes.b() == 0 || self.is_high_byte_of_eax(rm))
        };
        let reg_is_eax = || {
            self.modrm.is_some_and(|m| {
                m.reg | prefixes.r() == 0 || self.is_high_byte_of_eax(m.reg)
            })
        };
        match self.encoding.shape.destination() {
            // 90 is `nop`, but exchanges eax with r8 if there is the bit for it.
            Destination::None => self.is_one(0x90) && prefixes.b() != 0,
            Destination::Rm => rm_is_eax(),
            Destination::Reg => reg_is_eax(),
            Destination::Either => rm_is_eax() || reg_is_eax(),
            Destination::InOpcode => self.encoding.opcode & 7 | prefixes.b() == 0,
            Destination::InOpcodeByte => self.encoding.opcode & 3 == 0 && prefixes.b() == 0,
            Destination::Eax => true,
            Destination::RmUnlessSeven => {
                self.modrm.is_some_and(|m| m.reg != 7) && rm_is_eax()
            }
            Destination::Unary => match self.modrm.map_or(4, |m| m.reg) {
                0 | 1 => false,
                2 | 3 => rm_is_eax(),
                _ => true,
            },
        }
    }

    /// Field 4 is `ah` in byte instructions without REX; to be sure, in all without REX.
    fn is_high_byte_of_eax(&self, field: u8) -> bool {
        field == 4 && self.encoding.prefixes.rex == 0
    }

    fn vector(&self) -> bool {
        let shape = self.encoding.shape;
        let in_memory = self.modrm.is_some_and(|m| m.register.is_none());
        let reg = self.modrm.map_or(0, |m| m.reg);
        match (self.encoding.map, self.encoding.opcode) {
            // fxsave, fxrstor, ldmxcsr, stmxcsr, xsave, xrstor, xsaveopt; the rest are fences,
            // cache line operations and the segment bases.
            (Map::Two, 0xae) => in_memory && reg != 7,
            // xrstors, xsavec, xsaves.
            (Map::Two, 0xc7) => in_memory && (3..=5).contains(&reg),
            _ => shape.is_vector(),
        }
    }
}

#[cfg(test)]
mod tests;
