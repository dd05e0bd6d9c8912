//! Temporary patcher.
use core::arch::global_asm;
use raddle_sys::{is_err, nr, sys};
use yaxpeax_arch::{Decoder, LengthedInstruction, U8Reader};
use yaxpeax_x86::amd64::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

pub const SLOT: usize = 128;
const SLOTS: usize = 640;
const P: usize = 24;

global_asm!(
    ".pushsection .text.raddle_stubs,\"ax\",@progbits",
    ".hidden raddle_stubs, raddle_stubs_end, raddle_cstubs, raddle_cstubs_end",
    ".globl raddle_stubs, raddle_stubs_end, raddle_cstubs, raddle_cstubs_end",
    ".p2align 12",
    "raddle_stubs:",
    ".rept 640",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_undefined rip",
    ".skip 24+7, 0xcc",
    ".cfi_register rip, rcx",
    ".skip 5, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".skip 1, 0xcc",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    ".skip 5+1, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".cfi_register rip, rcx",
    ".skip 8, 0xcc",
    ".cfi_def_cfa_offset 0",
    ".skip 128-24-7-5-1-6-8, 0xcc",
    ".cfi_endproc",
    ".endr",
    "raddle_stubs_end:",
    "raddle_cstubs:",
    ".rept 128",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_undefined rip",
    ".skip 24+7, 0xcc",
    ".cfi_register rip, rcx",
    ".skip 5, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".skip 1, 0xcc",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    ".skip 5+1, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".cfi_register rip, rcx",
    ".skip 8, 0xcc",
    ".cfi_def_cfa_offset 0",
    // test r11,r11 (3) jne (2) syscall (2) lea rcx (7)
    ".skip 14, 0xcc",
    ".skip 5, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".skip 1, 0xcc",
    ".cfi_def_cfa_offset 136",
    ".cfi_offset rip, -136",
    ".skip 6, 0xcc",
    ".cfi_def_cfa_offset 128",
    ".cfi_register rip, rcx",
    ".skip 8, 0xcc",
    ".cfi_def_cfa_offset 0",
    ".skip 128-24-7-5-1-6-8-14-5-1-6-8, 0xcc",
    ".cfi_endproc",
    ".endr",
    "raddle_cstubs_end:",
    ".p2align 12",
    ".popsection",
);
unsafe extern "C" {
    static raddle_stubs: u8;
    static raddle_cstubs: u8;
    static raddle_cstubs_end: u8;
}

pub struct Targets {
    pub plain: usize,
    pub vector: usize,
    pub before: usize,
    pub after: usize,
}

#[derive(Clone, Copy)]
struct I {
    at: u32,
    len: u8,
    /// 1 branchy, 2 rip-relative, 4 uses rsp, 8 vector, 16 syscall, 32 target of a jump
    f: u8,
}
const MAXI: usize = 6000;
static mut INS: [I; MAXI] = [I { at: 0, len: 0, f: 0 }; MAXI];
static mut NRS: [i32; MAXI] = [0; MAXI];

fn reg_flags(r: RegSpec) -> u8 {
    use yaxpeax_x86::amd64::register_class as rc;
    let c = r.class();
    if r == RegSpec::rip() {
        2
    } else if r == RegSpec::rsp() || r == RegSpec::esp() {
        4
    } else if c == rc::X || c == rc::Y || c == rc::Z || c == rc::ST || c == rc::MM || c == rc::K {
        8
    } else {
        0
    }
}
fn op_flags(o: &Operand) -> u8 {
    match *o {
        Operand::Register { reg } => reg_flags(reg),
        Operand::MemDeref { base } => reg_flags(base),
        Operand::Disp { base, .. } => reg_flags(base),
        Operand::MemIndexScale { index, .. } => reg_flags(index),
        Operand::MemIndexScaleDisp { index, .. } => reg_flags(index),
        Operand::MemBaseIndexScale { base, index, .. } => reg_flags(base) | reg_flags(index),
        Operand::MemBaseIndexScaleDisp { base, index, .. } => reg_flags(base) | reg_flags(index),
        Operand::RegisterMaskMerge { .. } => 8,
        Operand::Nothing | Operand::ImmediateI8 { .. } | Operand::ImmediateU8 { .. } | Operand::ImmediateI16 { .. } | Operand::ImmediateU16 { .. } | Operand::ImmediateI32 { .. } | Operand::ImmediateU32 { .. } | Operand::ImmediateI64 { .. } | Operand::ImmediateU64 { .. } | Operand::AbsoluteU32 { .. } | Operand::AbsoluteU64 { .. } => 0,
        _ => 8,
    }
}
fn rel(i: &Instruction) -> Option<i64> {
    match i.operand(0) {
        Operand::ImmediateI8 { imm } => Some(imm as i64),
        Operand::ImmediateI32 { imm } => Some(imm as i64),
        _ => None,
    }
}

pub unsafe fn patch(base: usize, foreign: bool, wanted: &[u64; 8], t: &Targets) -> Result<(usize, usize, usize), &'static str> {
    unsafe {
        let phoff = *((base + 32) as *const u64) as usize;
        let phnum = *((base + 56) as *const u16) as usize;
        let (mut tx, mut te, mut ehh) = (0usize, 0usize, 0usize);
        for k in 0..phnum {
            let p = (base + phoff + k * 56) as *const u32;
            let (ty, fl) = (*p, *p.add(1));
            let vaddr = *(p.add(4) as *const u64) as usize;
            let memsz = *(p.add(10) as *const u64) as usize;
            if ty == 1 && fl & 1 != 0 {
                tx = base + vaddr;
                te = tx + memsz;
            }
            if ty == 0x6474e550 {
                ehh = base + vaddr;
            }
        }
        if tx == 0 || ehh == 0 {
            return Err("no text or unwind table");
        }
        let n = *((ehh + 8) as *const u32) as usize;
        let tab = (ehh + 12) as *const [i32; 2];
        let stubs = (&raw const raddle_stubs).addr();
        let cstubs = (&raw const raddle_cstubs).addr();
        let sl = (&raw const raddle_cstubs_end).addr().next_multiple_of(4096) - stubs;
        let (pa, pe) = (tx & !4095, te.next_multiple_of(4096));
        let text = core::slice::from_raw_parts(tx as *const u8, te - tx);
        if foreign && !text.windows(2).any(|w| w == [0x0f, 5]) {
            return Ok((0, 0, 0));
        }
        if is_err(sys!(nr::__NR_mprotect, pa, pe - pa, 3usize)) {
            return Err("mprotect");
        }
        sys!(nr::__NR_mprotect, stubs, sl, 3usize);
        let (mut sites, mut patched, mut bad) = (0, 0, 0);
        static mut NEXT: usize = 0;
        static mut CNEXT: usize = 0;
        let dec = InstDecoder::default();
        let mut p = tx;
        let mut fdone = 0usize;
        while p + 1 < te {
            if *(p as *const u8) != 0x0f || *((p + 1) as *const u8) != 5 {
                p += 1;
                continue;
            }
            if p < fdone {
                p += 1;
                continue;
            }
            // FDE
            let (mut lo, mut hi) = (0usize, n);
            while lo < hi {
                let m = (lo + hi) / 2;
                if (ehh as i64 + (*tab.add(m))[0] as i64) as usize <= p { lo = m + 1 } else { hi = m }
            }
            if lo == 0 {
                p += 1;
                continue;
            }
            let e = *tab.add(lo - 1);
            let fs = (ehh as i64 + e[0] as i64) as usize;
            let fde = (ehh as i64 + e[1] as i64) as usize;
            let mut fe = fs + *((fde + 12) as *const u32) as usize;
            if p >= fe {
                fe = if lo < n { (ehh as i64 + (*tab.add(lo))[0] as i64) as usize } else { te };
            }
            fdone = fe;
            // decode
            let bytes = core::slice::from_raw_parts(fs as *const u8, fe - fs);
            let mut cnt = 0;
            let mut off = 0usize;
            let mut vec = false;
            let ins = &mut *(&raw mut INS);
            let nrs = &mut *(&raw mut NRS);
            while off < bytes.len() && cnt < MAXI {
                let mut rd = U8Reader::new(&bytes[off..]);
                let Ok(i) = dec.decode(&mut rd) else { break };
                let len = i.len().to_const() as usize;
                let mut f = 0u8;
                for k in 0..i.operand_count() {
                    f |= op_flags(&i.operand(k));
                }
                let b = &bytes[off..off + len];
                let op = i.opcode();
                let mut num = -2i32;
                if op == Opcode::SYSCALL {
                    f |= 16;
                } else if matches!(op, Opcode::CALL | Opcode::CALLF | Opcode::JMP | Opcode::JMPF | Opcode::RETURN | Opcode::RETF | Opcode::HLT | Opcode::UD2 | Opcode::INT | Opcode::LOOP | Opcode::LOOPZ | Opcode::LOOPNZ | Opcode::JRCXZ | Opcode::LEAVE | Opcode::ENTER | Opcode::XBEGIN) || (b[0] & 0xf0 == 0x70) || (b[0] == 0x0f && b.len() > 1 && b[1] & 0xf0 == 0x80) || (b[0]==0xf2 && b.len()>1 && (b[1] & 0xf0 == 0x70 || b[1]==0xe9||b[1]==0xeb||b[1]==0xc3)) {
                    f |= 1;
                    nrs[cnt] = -2;
                    if let Some(r) = rel(&i) {
                        num = (off as i64 + len as i64 + r).clamp(-1000, 1 << 30) as i32;
                    }
                } else if matches!(op, Opcode::PUSH | Opcode::POP | Opcode::PUSHF | Opcode::POPF) {
                    f |= 4;
                }
                if f & 8 != 0 || matches!(op, Opcode::VZEROUPPER | Opcode::VZEROALL | Opcode::EMMS | Opcode::XSAVE | Opcode::XRSTOR | Opcode::FXSAVE | Opcode::FXRSTOR) {
                    vec = true;
                }
                ins[cnt] = I { at: off as u32, len: len as u8, f };
                nrs[cnt] = num;
                cnt += 1;
                off += len;
            }
            // targets
            for k in 0..cnt {
                if ins[k].f & 1 != 0 && nrs[k] >= 0 {
                    let tg = nrs[k] as u32;
                    if let Ok(x) = ins[..cnt].binary_search_by_key(&tg, |i| i.at) {
                        ins[x].f |= 32;
                    }
                }
            }
            for k in 0..cnt {
                if ins[k].f & 16 == 0 {
                    continue;
                }
                sites += 1;
                let sy0 = fs + ins[k].at as usize;
                if *((sy0 - 5) as *const [u8; 5]) == [0xc0, 15, 0, 0, 0] || *((sy0 - 5) as *const [u8; 5]) == [0xb8, 15, 0, 0, 0] {
                    continue;
                }
                // number
                let mut num = -1i32;
                let mut j = k;
                let mut tgt = ins[k].f & 32 != 0;
                for _ in 0..12 {
                    if j == 0 {
                        break;
                    }
                    j -= 1;
                    let b = &bytes[ins[j].at as usize..];
                    if ins[j].f & 1 != 0 { break }
                    if b[0] == 0xb8 {
                        num = i32::from_le_bytes([b[1], b[2], b[3], b[4]]);
                        break;
                    }
                    if b[0] == 0x48 && b[1] == 0xc7 && b[2] == 0xc0 {
                        num = i32::from_le_bytes([b[3], b[4], b[5], b[6]]);
                        break;
                    }
                    if (b[0] == 0x31 || b[0] == 0x33) && b[1] == 0xc0 {
                        num = 0;
                        break;
                    }
                    // writes eax?
                    let mut rd = U8Reader::new(b);
                    if let Ok(i) = dec.decode(&mut rd) {
                        if let Operand::Register { reg } = i.operand(0) {
                            if reg.num() == 0 && !matches!(i.opcode(), Opcode::CMP | Opcode::TEST) && reg_flags(reg) == 0 {
                                break;
                            }
                        }
                    }
                    if ins[j].f & 32 != 0 { tgt = true; }
                }
                if tgt { num = -1; }
                let clone = matches!(num, 56 | 58 | 435) || num < 0;
                if num == 15 || num == 231 { continue }
                if num >= 0 && !(num < 512 && wanted[num as usize / 64] >> (num % 64) & 1 != 0) {
                    continue;
                }
                let (mut s, mut e2) = (k, k);
                let size = |s: usize, e: usize| (ins[e].at + ins[e].len as u32 - ins[s].at) as usize;
                let mut ok = true;
                while size(s, e2) < 5 {
                    let can_b = |m: u8| s > 0 && ins[s].f & 32 == 0 && ins[s - 1].f & (17 | m) == 0;
                    let can_f = |m: u8| e2 + 1 < cnt && ins[e2 + 1].f & (32 | 17 | m) == 0;
                    if can_b(6) { s -= 1 } else if can_f(6) { e2 += 1 } else { ok = false; break }
                }
                if !ok { bad += 1; continue }
                if foreign && vec { continue }
                let w0 = fs + ins[s].at as usize;
                let w1 = fs + (ins[e2].at + ins[e2].len as u32) as usize;
                let sy = fs + ins[k].at as usize;
                let slot = if clone { CNEXT += 1; if CNEXT > 128 { bad += 1; continue } cstubs + (CNEXT - 1) * SLOT } else { NEXT += 1; if NEXT > SLOTS { bad += 1; continue } stubs + (NEXT - 1) * SLOT };
                let pre = sy - w0;
                let q0 = slot + P - pre;
                core::ptr::copy_nonoverlapping(w0 as *const u8, q0 as *mut u8, pre);
                let mut q = slot + P;
                let mut emit = |b: &[u8]| { core::ptr::copy_nonoverlapping(b.as_ptr(), q as *mut u8, b.len()); q += b.len(); q };
                let r32 = |to: usize, next: usize| ((to as i64 - next as i64) as i32).to_le_bytes();
                let entry = if clone { t.before } else if vec { t.vector } else { t.plain };
                let around = |emit: &mut dyn FnMut(&[u8]) -> usize, entry: usize| {
                    let a = emit(&[0x48, 0x8d, 0x0d]);
                    let a = emit(&r32(w1, a + 4));
                    let _ = a;
                    emit(&[0x48, 0x8d, 0x64, 0x24, 0x80]);
                    emit(&[0x51]);
                    let a = emit(&[0xe8]);
                    emit(&r32(entry, a + 4));
                    emit(&[0x59]);
                    emit(&[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
                };
                around(&mut emit, entry);
                if clone {
                    emit(&[0x4d, 0x85, 0xdb, 0x75, 2 + 7 + 5 + 1 + 5 + 1 + 8, 0x0f, 0x05]);
                    around(&mut emit, t.after);
                }
                let suf = core::slice::from_raw_parts((sy + 2) as *const u8, w1 - sy - 2);
                emit(suf);
                let a = emit(&[0xe9]);
                emit(&r32(w1, a + 4));
                *(w0 as *mut u8) = 0xe9;
                let r = r32(q0, w0 + 5);
                core::ptr::copy_nonoverlapping(r.as_ptr(), (w0 + 1) as *mut u8, 4);
                for z in w0 + 5..w1 {
                    *(z as *mut u8) = 0x90;
                }
                patched += 1;
            }
            p = fe;
        }
        sys!(nr::__NR_mprotect, pa, pe - pa, 5usize);
        sys!(nr::__NR_mprotect, stubs, sl, 5usize);
        Ok((sites, patched, bad))
    }
}
