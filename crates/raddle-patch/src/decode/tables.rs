//! Opcode properties, by map: Intel's Software Developer's Manual, volume 2, appendix A.
//!
//! Holds only the properties that lengths, destinations and vector use need. Undefined opcodes,
//! those that 64-bit mode dropped and the privileged moves are bad: the decoder has no such
//! instruction.

/// Properties of one opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Opcode(u32);

/// Where an instruction writes a general register, if that may be eax.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Destination {
    None,
    Rm,
    Reg,
    /// Both operands, or unexamined.
    Either,
    /// The low three bits of the opcode.
    InOpcode,
    /// The same for byte instructions: 4 is `ah`.
    InOpcodeByte,
    Eax,
    /// The other operand, except for member 7 of the group, a comparison.
    RmUnlessSeven,
    /// That of test, not, neg, mul, imul, div, idiv.
    Unary,
}

/// The lowest three bits are the length of an immediate that depends on nothing else.
const IMM8: u32 = 1;
const IMM16: u32 = 2;
const IMM32: u32 = 4;
/// Two or four bytes by operand size.
pub(super) const IMM_Z: u32 = 1 << 3;
/// Two, four or eight bytes by operand size.
pub(super) const IMM_V: u32 = 1 << 4;
/// An address of four or eight bytes.
pub(super) const OFFSET: u32 = 1 << 5;
/// Only members 0 and 1 of the group have one.
pub(super) const IMM_UNARY: u32 = 1 << 6;
const ODD_IMMEDIATE: u32 = IMM_Z | IMM_V | OFFSET | IMM_UNARY;
const MODRM: u32 = 1 << 7;
/// The register field selects the operation.
const GROUP: u32 = 1 << 8;
/// The instruction changes rsp without naming it.
const STACK: u32 = 1 << 9;
const VECTOR: u32 = 1 << 10;
/// Control may go elsewhere than to the next instruction, or some members don't exist.
const FLOW: u32 = 1 << 11;
/// More of the opcode follows.
const PREFIX: u32 = 1 << 12;
const BAD: u32 = 1 << 13;
const DESTINATION_SHIFT: u32 = 16;

const fn to(destination: Destination) -> u32 {
    (destination as u32) << DESTINATION_SHIFT
}

impl Opcode {
    pub(super) const BAD: Self = Self(BAD);

    pub(super) const fn has_modrm(self) -> bool {
        self.0 & MODRM != 0
    }

    pub(super) const fn fixed_immediate_len(self) -> usize {
        (self.0 & 7) as usize
    }

    pub(super) const fn has_odd_immediate(self) -> bool {
        self.0 & ODD_IMMEDIATE != 0
    }

    /// Returns the rule for the immediate's length.
    pub(super) const fn odd_immediate(self) -> u32 {
        self.0 & ODD_IMMEDIATE
    }

    pub(super) const fn is_group(self) -> bool {
        self.0 & GROUP != 0
    }

    pub(super) const fn changes_rsp(self) -> bool {
        self.0 & STACK != 0
    }

    pub(super) const fn is_vector(self) -> bool {
        self.0 & VECTOR != 0
    }

    pub(super) const fn directs_flow(self) -> bool {
        self.0 & FLOW != 0
    }

    pub(super) const fn is_prefix(self) -> bool {
        self.0 & PREFIX != 0
    }

    /// Returns the same opcode where it is known not to be a prefix: `pop` shares one with XOP.
    pub(super) const fn without_prefix(self) -> Self {
        Self(self.0 & !PREFIX)
    }

    pub(super) const fn is_bad(self) -> bool {
        self.0 & BAD != 0
    }

    pub(super) const fn has_register_in_opcode(self) -> bool {
        matches!(
            self.destination(),
            Destination::InOpcode | Destination::InOpcodeByte
        )
    }

    pub(super) const fn destination(self) -> Destination {
        match self.0 >> DESTINATION_SHIFT {
            0 => Destination::None,
            1 => Destination::Rm,
            2 => Destination::Reg,
            4 => Destination::InOpcode,
            5 => Destination::InOpcodeByte,
            6 => Destination::Eax,
            7 => Destination::RmUnlessSeven,
            8 => Destination::Unary,
            _ => Destination::Either,
        }
    }
}

/// The one-byte map.
pub(super) static ONE: [Opcode; 256] = one();
/// The map behind 0f.
pub(super) static TWO: [Opcode; 256] = two();

const fn set(table: &mut [Opcode; 256], from: usize, to: usize, bits: u32) {
    let mut at = from;
    while at <= to {
        table[at] = Opcode(bits);
        at += 1;
    }
}

const fn one() -> [Opcode; 256] {
    use Destination::*;
    let mut table = [Opcode(BAD); 256];
    arithmetic(&mut table);
    let t = &mut table;
    set(t, 0x50, 0x57, STACK);
    set(t, 0x58, 0x5f, STACK | to(InOpcode));
    set(t, 0x63, 0x63, MODRM | to(Reg));
    set(t, 0x68, 0x68, STACK | IMM_Z);
    set(t, 0x69, 0x69, MODRM | IMM_Z | to(Reg));
    set(t, 0x6a, 0x6a, STACK | IMM8);
    set(t, 0x6b, 0x6b, MODRM | IMM8 | to(Reg));
    set(t, 0x6c, 0x6f, 0);
    set(t, 0x70, 0x7f, FLOW | IMM8);
    set(t, 0x80, 0x80, MODRM | GROUP | IMM8 | to(RmUnlessSeven));
    set(t, 0x81, 0x81, MODRM | GROUP | IMM_Z | to(RmUnlessSeven));
    set(t, 0x83, 0x83, MODRM | GROUP | IMM8 | to(RmUnlessSeven));
    set(t, 0x84, 0x85, MODRM);
    set(t, 0x86, 0x87, MODRM | to(Either));
    set(t, 0x88, 0x89, MODRM | to(Rm));
    set(t, 0x8a, 0x8b, MODRM | to(Reg));
    set(t, 0x8c, 0x8c, MODRM | GROUP | to(Rm));
    set(t, 0x8d, 0x8d, MODRM | to(Reg));
    set(t, 0x8e, 0x8e, MODRM | GROUP);
    set(t, 0x8f, 0x8f, PREFIX | MODRM | GROUP | STACK | to(Rm));
    set(t, 0x90, 0x90, 0);
    set(t, 0x91, 0x97, to(Eax));
    set(t, 0x94, 0x94, STACK | to(Eax));
    set(t, 0x98, 0x98, to(Eax));
    set(t, 0x99, 0x99, 0);
    set(t, 0x9b, 0x9b, VECTOR);
    set(t, 0x9c, 0x9d, STACK);
    set(t, 0x9e, 0x9e, 0);
    set(t, 0x9f, 0x9f, to(Eax));
    set(t, 0xa0, 0xa1, OFFSET | to(Eax));
    set(t, 0xa2, 0xa3, OFFSET);
    set(t, 0xa4, 0xa7, 0);
    set(t, 0xa8, 0xa8, IMM8);
    set(t, 0xa9, 0xa9, IMM_Z);
    set(t, 0xaa, 0xab, 0);
    set(t, 0xac, 0xad, to(Eax));
    set(t, 0xae, 0xaf, 0);
    set(t, 0xb0, 0xb7, IMM8 | to(InOpcodeByte));
    set(t, 0xb8, 0xbf, IMM_V | to(InOpcode));
    set(t, 0xc0, 0xc1, MODRM | GROUP | IMM8 | to(Rm));
    set(t, 0xc2, 0xc2, FLOW | STACK | IMM16);
    set(t, 0xc3, 0xc3, FLOW | STACK);
    set(t, 0xc6, 0xc6, FLOW | MODRM | GROUP | IMM8 | to(Rm));
    set(t, 0xc7, 0xc7, FLOW | MODRM | GROUP | IMM_Z | to(Rm));
    set(t, 0xc8, 0xc8, STACK | IMM16 | IMM8);
    set(t, 0xc9, 0xc9, STACK);
    set(t, 0xca, 0xca, FLOW | STACK | IMM16);
    set(t, 0xcb, 0xcb, FLOW | STACK);
    set(t, 0xcc, 0xcc, FLOW);
    set(t, 0xcd, 0xcd, FLOW | IMM8);
    set(t, 0xcf, 0xcf, FLOW | STACK);
    set(t, 0xd0, 0xd3, MODRM | GROUP | to(Rm));
    set(t, 0xd7, 0xd7, to(Eax));
    set(t, 0xd8, 0xde, MODRM | GROUP | VECTOR);
    // df e0 is `fnstsw %ax`.
    set(t, 0xdf, 0xdf, MODRM | GROUP | VECTOR | to(Eax));
    set(t, 0xe0, 0xe3, FLOW | IMM8);
    set(t, 0xe4, 0xe5, IMM8 | to(Eax));
    set(t, 0xe6, 0xe7, IMM8);
    set(t, 0xe8, 0xe8, FLOW | STACK | IMM32);
    set(t, 0xe9, 0xe9, FLOW | IMM32);
    set(t, 0xeb, 0xeb, FLOW | IMM8);
    set(t, 0xec, 0xed, to(Eax));
    set(t, 0xee, 0xef, 0);
    set(t, 0xf1, 0xf1, FLOW);
    set(t, 0xf4, 0xf4, FLOW);
    set(t, 0xf5, 0xf5, 0);
    set(t, 0xf6, 0xf7, MODRM | GROUP | IMM_UNARY | to(Unary));
    set(t, 0xf8, 0xfd, 0);
    set(t, 0xfe, 0xfe, MODRM | GROUP | to(Rm));
    set(t, 0xff, 0xff, FLOW | MODRM | GROUP | to(Rm));
    prefixes(&mut table);
    table
}

/// Marks prefixes and escapes, after which the opcode goes on: legacy, REX, 0f, VEX, EVEX.
const fn prefixes(table: &mut [Opcode; 256]) {
    set(table, 0x0f, 0x0f, PREFIX | BAD);
    set(table, 0x26, 0x26, PREFIX | BAD);
    set(table, 0x2e, 0x2e, PREFIX | BAD);
    set(table, 0x36, 0x36, PREFIX | BAD);
    set(table, 0x3e, 0x3e, PREFIX | BAD);
    set(table, 0x40, 0x4f, PREFIX | BAD);
    set(table, 0x62, 0x62, PREFIX | BAD);
    set(table, 0x64, 0x67, PREFIX | BAD);
    set(table, 0xc4, 0xc5, PREFIX | BAD);
    set(table, 0xf0, 0xf0, PREFIX | BAD);
    set(table, 0xf2, 0xf3, PREFIX | BAD);
}

/// Sets add, or, adc, sbb, and, sub, xor, cmp: eight opcodes each, of which 64-bit mode has six.
const fn arithmetic(table: &mut [Opcode; 256]) {
    use Destination::*;
    let mut at = 0;
    while at < 0x40 {
        let writes = at < 0x38;
        set(table, at, at + 1, MODRM | if writes { to(Rm) } else { 0 });
        set(
            table,
            at + 2,
            at + 3,
            MODRM | if writes { to(Reg) } else { 0 },
        );
        set(
            table,
            at + 4,
            at + 4,
            IMM8 | if writes { to(Eax) } else { 0 },
        );
        set(
            table,
            at + 5,
            at + 5,
            IMM_Z | if writes { to(Eax) } else { 0 },
        );
        at += 8;
    }
}

const fn two() -> [Opcode; 256] {
    use Destination::*;
    let mut table = [Opcode(BAD); 256];
    let t = &mut table;
    set(t, 0x00, 0x00, MODRM | GROUP | to(Rm));
    // xgetbv, rdtscp and many others: edx:eax as a rule.
    set(t, 0x01, 0x01, MODRM | GROUP | to(Eax));
    set(t, 0x02, 0x03, MODRM | to(Reg));
    set(t, 0x05, 0x05, FLOW | to(Eax));
    set(t, 0x0b, 0x0b, FLOW);
    set(t, 0x0d, 0x0d, MODRM | GROUP);
    set(t, 0x0e, 0x0e, VECTOR);
    set(t, 0x0f, 0x0f, MODRM | IMM8 | VECTOR);
    set(t, 0x10, 0x17, MODRM | VECTOR);
    // Prefetches, hints, the shadow stack's reads and endbr64.
    set(t, 0x18, 0x1d, MODRM | GROUP);
    set(t, 0x1e, 0x1e, MODRM | GROUP | to(Rm));
    set(t, 0x1f, 0x1f, MODRM | GROUP);
    set(t, 0x28, 0x2f, MODRM | VECTOR);
    set(t, 0x2c, 0x2d, MODRM | VECTOR | to(Either));
    // rdtsc, rdpmc.
    set(t, 0x31, 0x31, to(Eax));
    set(t, 0x33, 0x33, to(Eax));
    set(t, 0x34, 0x34, FLOW | to(Eax));
    set(t, 0x40, 0x4f, MODRM | to(Reg));
    set(t, 0x50, 0x76, MODRM | VECTOR);
    set(t, 0x50, 0x50, MODRM | VECTOR | to(Either));
    set(t, 0x70, 0x73, MODRM | VECTOR | IMM8);
    set(t, 0x77, 0x77, VECTOR);
    set(t, 0x78, 0x7f, MODRM | VECTOR);
    set(t, 0x7e, 0x7e, MODRM | VECTOR | to(Either));
    set(t, 0x80, 0x8f, FLOW | IMM32);
    set(t, 0x90, 0x9f, MODRM | GROUP | to(Rm));
    set(t, 0xa0, 0xa1, STACK);
    set(t, 0xa2, 0xa2, to(Eax));
    set(t, 0xa3, 0xa3, MODRM);
    set(t, 0xa4, 0xa4, MODRM | IMM8 | to(Rm));
    set(t, 0xa5, 0xa5, MODRM | to(Rm));
    set(t, 0xa8, 0xa9, STACK);
    set(t, 0xab, 0xab, MODRM | to(Rm));
    set(t, 0xac, 0xac, MODRM | IMM8 | to(Rm));
    set(t, 0xad, 0xad, MODRM | to(Rm));
    set(t, 0xae, 0xae, MODRM | GROUP | VECTOR | to(Rm));
    set(t, 0xaf, 0xaf, MODRM | to(Reg));
    set(t, 0xb0, 0xb1, MODRM | to(Eax));
    set(t, 0xb2, 0xb2, MODRM | to(Reg));
    set(t, 0xb3, 0xb3, MODRM | to(Rm));
    set(t, 0xb4, 0xb8, MODRM | to(Reg));
    set(t, 0xb9, 0xb9, FLOW | MODRM);
    set(t, 0xba, 0xba, MODRM | GROUP | IMM8 | to(Rm));
    set(t, 0xbb, 0xbb, MODRM | to(Rm));
    set(t, 0xbc, 0xbf, MODRM | to(Reg));
    set(t, 0xc0, 0xc1, MODRM | to(Either));
    set(t, 0xc2, 0xc2, MODRM | VECTOR | IMM8);
    set(t, 0xc3, 0xc3, MODRM);
    set(t, 0xc4, 0xc4, MODRM | VECTOR | IMM8);
    set(t, 0xc5, 0xc5, MODRM | VECTOR | IMM8 | to(Either));
    set(t, 0xc6, 0xc6, MODRM | VECTOR | IMM8);
    // cmpxchg8b and cmpxchg16b load edx:eax; rdrand and rdseed any register.
    set(t, 0xc7, 0xc7, MODRM | GROUP | VECTOR | to(Eax));
    set(t, 0xc8, 0xcf, to(InOpcode));
    set(t, 0xd0, 0xfe, MODRM | VECTOR);
    set(t, 0xd7, 0xd7, MODRM | VECTOR | to(Either));
    set(t, 0xff, 0xff, FLOW | MODRM);
    table
}

/// Returns an opcode of the map behind 0f 38.
pub(super) const fn three_38(opcode: u8) -> Opcode {
    Opcode(match opcode {
        0x80..=0x82 => MODRM,
        // movbe, crc32, adcx, adox, the shadow stack's writes, direct stores.
        0xf0..=0xff => MODRM | to(Destination::Either),
        _ => MODRM | VECTOR,
    })
}

/// Returns an opcode of the map behind 0f 3a.
pub(super) const fn three_3a(opcode: u8) -> Opcode {
    Opcode(match opcode {
        // pextrb, pextrw, pextrd, extractps.
        0x14..=0x17 => MODRM | VECTOR | IMM8 | to(Destination::Eax),
        _ => MODRM | VECTOR | IMM8,
    })
}

/// Returns opcode `opcode` of map `map` behind a VEX, XOP or EVEX prefix.
pub(super) const fn vector(map: u8, opcode: u8, evex: bool) -> Opcode {
    Opcode(match map {
        1 => vector_0f(opcode, evex),
        2 => vector_38(opcode, evex),
        3 => vector_3a(opcode, evex),
        // Half precision.
        5 | 6 if evex => MODRM | VECTOR | to(Destination::Eax),
        // XOP.
        8 if !evex => MODRM | VECTOR | IMM8,
        9 if !evex => MODRM | VECTOR | to(Destination::Eax),
        10 if !evex => MODRM | VECTOR | IMM32 | to(Destination::Eax),
        _ => BAD,
    })
}

const fn vector_0f(opcode: u8, evex: bool) -> u32 {
    match opcode {
        0x77 if !evex => VECTOR,
        0xc5 => MODRM | VECTOR | IMM8 | to(Destination::Eax),
        0x70..=0x73 | 0xc2 | 0xc4 | 0xc6 => MODRM | VECTOR | IMM8,
        // Moves from vector and mask registers to general ones.
        0x2c | 0x2d | 0x50 | 0x78 | 0x79 | 0x7e | 0x93 | 0xd7 => {
            MODRM | VECTOR | to(Destination::Eax)
        }
        _ => MODRM | VECTOR,
    }
}

const fn vector_38(opcode: u8, evex: bool) -> u32 {
    match opcode {
        // andn, blsr and its kin, bzhi, pext, pdep, mulx, shifts: general registers only. The
        // prefix names one of them, which isn't decoded: it may be any.
        0xf2 | 0xf3 | 0xf5..=0xf7 if !evex => MODRM | STACK | to(Destination::Eax),
        // cmpccxadd.
        0xe0..=0xef if !evex => MODRM | STACK | to(Destination::Eax),
        _ => MODRM | VECTOR,
    }
}

const fn vector_3a(opcode: u8, evex: bool) -> u32 {
    match opcode {
        // rorx.
        0xf0 if !evex => MODRM | STACK | IMM8 | to(Destination::Eax),
        0x14..=0x17 => MODRM | VECTOR | IMM8 | to(Destination::Eax),
        _ => MODRM | VECTOR | IMM8,
    }
}
