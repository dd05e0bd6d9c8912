//! The fields of an instruction, read from its bytes.
//!
//! The order of fields: prefixes, REX or one of the vector prefixes, opcode, operand byte (ModRM),
//! index byte (SIB), displacement, immediate. Nearly all instructions have a one-byte opcode and at
//! most a REX before it; the others take the slow path.

use super::tables::{self, Opcode};

/// Bytes that are looked at: more than any sequence of fields that passes the checks.
pub(super) const WINDOW: usize = 32;

/// The table that holds the opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Map {
    /// One byte.
    One,
    /// 0f.
    Two,
    /// Behind 0f 38 or 0f 3a.
    Three,
    /// Behind a VEX, XOP or EVEX prefix.
    Vex,
}

/// The fields of an instruction.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub shape: Opcode,
    pub map: Map,
    pub opcode: u8,
    /// The bits W, R, X, B as in REX.
    pub rex: u8,
    /// True if there is a prefix for another operand size.
    pub operand_size: bool,
    /// True if there is a prefix for repetition, which chooses among vector instructions, too.
    pub repeats: bool,
    pub len: u8,
    /// The operand byte; zero if there is none.
    modrm: u8,
    /// The index byte; zero if there is none.
    sib: u8,
    /// Meaningful for operands relative to rip only.
    pub displacement: i32,
    immediate_len: u8,
    /// The bytes of the immediate and what follows.
    immediate: i32,
}

impl Fields {
    /// Reads an instruction, which may be longer than the bytes that exist.
    #[inline(always)]
    pub(super) fn read(window: &[u8; WINDOW]) -> Self {
        let first = window[0];
        let is_rex = first & 0xf0 == 0x40;
        let (rex, opcode) = if is_rex {
            (first & 15, window[1])
        } else {
            (0, first)
        };
        let head = Head {
            shape: tables::ONE[usize::from(opcode)],
            map: Map::One,
            opcode,
            rex,
            operand_size: false,
            repeats: false,
            address_size: false,
            at: 1 + usize::from(is_rex),
        };
        if head.shape.is_prefix() {
            return Head::read_slowly(window).read_operands(window);
        }
        head.read_operands(window)
    }

    /// Returns the register field of the operand byte, without its REX bit.
    #[inline]
    pub(super) fn reg(&self) -> u8 {
        (self.modrm >> 3) & 7
    }

    /// Returns the register that the register field names.
    pub(super) fn reg_register(&self) -> u8 {
        self.reg() | (self.rex & 4) << 1
    }

    /// Returns the register of the other operand, if that is a register.
    pub(super) fn rm_register(&self) -> Option<u8> {
        let is_register = self.shape.has_modrm() && self.modrm >= 0xc0;
        is_register.then_some(self.modrm & 7 | (self.rex & 1) << 3)
    }

    /// Returns the register in the low bits of the opcode.
    pub(super) fn opcode_register(&self) -> u8 {
        self.opcode & 7 | (self.rex & 1) << 3
    }

    pub(super) fn is_wide(&self) -> bool {
        self.rex & 8 != 0
    }

    #[inline]
    pub(super) fn is_rip_relative(&self) -> bool {
        self.shape.has_modrm() && self.modrm & 0xc7 == 5
    }

    /// Returns whether the memory operand's base is rsp.
    pub(super) fn is_relative_to_rsp(&self) -> bool {
        let has_sib = self.shape.has_modrm() && has_sib(self.modrm);
        has_sib && self.sib & 7 == 4 && self.rex & 1 == 0
    }

    /// Returns the immediate, sign-extended; if it is longer than four bytes, its first four.
    #[inline]
    pub(super) fn immediate(&self) -> i32 {
        match self.immediate_len {
            0 => 0,
            1 => self.immediate << 24 >> 24,
            2 => self.immediate << 16 >> 16,
            _ => self.immediate,
        }
    }
}

fn has_sib(modrm: u8) -> bool {
    modrm < 0xc0 && modrm & 7 == 4
}

/// The fields before the operands.
struct Head {
    shape: Opcode,
    map: Map,
    opcode: u8,
    rex: u8,
    operand_size: bool,
    repeats: bool,
    address_size: bool,
    /// Bytes so far.
    at: usize,
}

impl Head {
    /// Reads any prefixes and opcodes.
    #[inline(never)]
    fn read_slowly(window: &[u8; WINDOW]) -> Self {
        let mut head = Self {
            shape: Opcode::BAD,
            map: Map::One,
            opcode: 0,
            rex: 0,
            operand_size: false,
            repeats: false,
            address_size: false,
            at: 0,
        };
        head.skip_prefixes(window);
        let first = head.byte(window);
        match first {
            0x0f => match head.byte(window) {
                0x38 => head.set_opcode(window, Map::Three, tables::three_38),
                0x3a => head.set_opcode(window, Map::Three, tables::three_3a),
                opcode => {
                    head.map = Map::Two;
                    head.opcode = opcode;
                    head.shape = tables::TWO[usize::from(opcode)];
                }
            },
            0xc5 => {
                head.rex = (!head.byte(window) >> 5) & 4;
                head.set_opcode(window, Map::Vex, |opcode| tables::vector(1, opcode, false));
            }
            0xc4 => head.read_vector_prefix(window, 0x1f, 2, false),
            0x8f if window[head.at % WINDOW] & 0x1f >= 8 => {
                head.read_vector_prefix(window, 0x1f, 2, false);
            }
            0x62 => head.read_vector_prefix(window, 7, 3, true),
            opcode => {
                head.opcode = opcode;
                head.shape = tables::ONE[usize::from(opcode)].without_prefix();
            }
        }
        head
    }

    fn byte(&mut self, window: &[u8; WINDOW]) -> u8 {
        let byte = window[self.at % WINDOW];
        self.at += 1;
        byte
    }

    fn skip_prefixes(&mut self, window: &[u8; WINDOW]) {
        while self.at < super::MAX_LENGTH {
            match window[self.at] {
                0x66 => self.operand_size = true,
                0x67 => self.address_size = true,
                0xf2 | 0xf3 => self.repeats = true,
                0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
                rex @ 0x40..=0x4f => {
                    self.rex = rex & 15;
                    self.at += 1;
                    continue;
                }
                _ => return,
            }
            // A REX that isn't the last prefix is ignored.
            self.rex = 0;
            self.at += 1;
        }
    }

    fn set_opcode(&mut self, window: &[u8; WINDOW], map: Map, shape: impl Fn(u8) -> Opcode) {
        self.opcode = self.byte(window);
        self.map = map;
        self.shape = shape(self.opcode);
    }

    /// VEX c4, XOP 8f, EVEX 62: two or three bytes of payload.
    fn read_vector_prefix(
        &mut self,
        window: &[u8; WINDOW],
        map_mask: u8,
        payload_len: usize,
        evex: bool,
    ) {
        let (first, second) = (self.byte(window), self.byte(window));
        self.at += payload_len - 2;
        self.rex = (!first >> 5) | ((second >> 4) & 8);
        self.set_opcode(window, Map::Vex, |opcode| {
            tables::vector(first & map_mask, opcode, evex)
        });
    }

    #[inline(always)]
    fn read_operands(self, window: &[u8; WINDOW]) -> Fields {
        let shape = self.shape;
        let mut at = self.at;
        let (mut modrm, mut sib, mut displacement) = (0, 0, 0);
        if shape.has_modrm() {
            modrm = window[at % WINDOW];
            sib = window[(at + 1) % WINDOW];
            displacement = number(window, at + 1);
            at += 1 + usize::from(OPERAND_LEN[usize::from(modrm)]);
            if modrm & 0xc7 == 4 && sib & 7 == 5 {
                at += 4; // no base, but a displacement
            }
        }
        let mut immediate_len = shape.fixed_immediate_len();
        if shape.has_odd_immediate() {
            immediate_len += self.odd_immediate_len(modrm);
        }
        Fields {
            shape,
            map: self.map,
            opcode: self.opcode,
            rex: self.rex,
            operand_size: self.operand_size,
            repeats: self.repeats,
            len: (at + immediate_len) as u8,
            modrm,
            sib,
            displacement,
            immediate_len: immediate_len as u8,
            immediate: number(window, at),
        }
    }

    /// Returns the length of an immediate that the opcode alone doesn't determine.
    fn odd_immediate_len(&self, modrm: u8) -> usize {
        let is_wide = self.rex & 8 != 0;
        let by_operand = if self.operand_size && !is_wide { 2 } else { 4 };
        // Of the unary groups f6 and f7 only `test` has an immediate.
        let tests = modrm & 0x30 == 0;
        match self.shape.odd_immediate() {
            tables::IMM_Z => by_operand,
            tables::IMM_V if is_wide => 8,
            tables::IMM_V => by_operand,
            tables::OFFSET if self.address_size => 4,
            tables::OFFSET => 8,
            tables::IMM_UNARY if !tests => 0,
            _ if self.opcode == 0xf6 => 1,
            _ => by_operand,
        }
    }
}

/// Returns four bytes as a number.
#[inline(always)]
fn number(window: &[u8; WINDOW], at: usize) -> i32 {
    // No field in use begins later.
    let at = at.min(WINDOW - 4);
    i32::from_le_bytes([window[at], window[at + 1], window[at + 2], window[at + 3]])
}

/// By operand byte: the length of index byte and displacement, except in one case.
static OPERAND_LEN: [u8; 256] = operand_len();

const fn operand_len() -> [u8; 256] {
    let mut table = [0; 256];
    let mut modrm = 0;
    while modrm < 0xc0 {
        let displacement_len = match modrm >> 6 {
            0 if modrm & 7 == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        table[modrm] = displacement_len + (modrm & 7 == 4) as u8;
        modrm += 1;
    }
    table
}
