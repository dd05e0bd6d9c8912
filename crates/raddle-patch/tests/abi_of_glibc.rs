//! glibc's own functions expect nothing in vector and x87 registers over calls of those that make
//! system calls by the entries that save none.
//!
//! GCC knows which registers a function of the same file leaves alone, and lets callers keep values
//! there (`-fipa-ra`). This test looks at each call of a function that makes system calls, calls
//! no unknown function and returns: no path behind the call may read a register that it has not
//! written.

mod common;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use common::{LD_SO, LIBC, image, module};
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};
use object::{Object, ObjectSection, SectionKind};
use raddle_patch::{EntryKind, Site, State, plan};

/// A library's instructions by address, and the ranges of its functions by their start.
struct Code {
    instructions: BTreeMap<u64, Instruction>,
    functions: BTreeMap<u64, u64>,
}

impl Code {
    fn read(path: &str) -> Self {
        let bytes = std::fs::read(path).expect(path);
        let file = object::File::parse(&*bytes).expect(path);
        let texts = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text);
        let mut instructions = BTreeMap::new();
        for text in texts {
            let data = text.data().expect(path);
            let decoder = Decoder::with_ip(64, data, text.address(), DecoderOptions::NONE);
            instructions.extend(decoder.into_iter().map(|found| (found.ip(), found)));
        }
        let frames = file.section_by_name(".eh_frame").expect(path);
        Self {
            instructions,
            functions: functions(frames.address(), frames.data().expect(path)),
        }
    }

    /// Returns the start of the function that has this address.
    fn function_at(&self, address: u64) -> Option<u64> {
        let (&start, &end) = self.functions.range(..=address).next_back()?;
        (address < end).then_some(start)
    }

    fn of_function(&self, start: u64) -> impl Iterator<Item = &Instruction> {
        let range = start..self.functions[&start];
        self.instructions.range(range).map(|(_, found)| found)
    }

    /// Returns the functions that `start` calls or goes to; `None` if one isn't known.
    fn callees(&self, start: u64) -> Option<Vec<u64>> {
        let range: Range<u64> = start..self.functions[&start];
        let mut callees = Vec::new();
        for found in self.of_function(start) {
            match found.flow_control() {
                FlowControl::Call
                | FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                    if found.is_call_near()
                        || found.is_jmp_short_or_near()
                        || found.is_jcc_short_or_near() =>
                {
                    let target = found.near_branch_target();
                    if !range.contains(&target) {
                        callees.push(self.function_at(target)?);
                    }
                }
                FlowControl::IndirectCall | FlowControl::IndirectBranch => return None,
                _ => {}
            }
        }
        Some(callees)
    }

    fn returns(&self, start: u64) -> bool {
        self.of_function(start)
            .any(|found| found.flow_control() == FlowControl::Return)
    }
}

/// Returns the functions that unwind tables describe: ends by starts.
fn functions(address: u64, data: &[u8]) -> BTreeMap<u64, u64> {
    let frames = EhFrame::new(data, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut found = BTreeMap::new();
    let mut entries = frames.entries(&bases);
    while let Some(entry) = entries.next().expect("a valid table") {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(EhFrame::cie_from_offset).expect("an entry");
            found.insert(fde.initial_address(), fde.initial_address() + fde.len());
        }
    }
    found
}

/// Returns the functions over which GCC may let callers keep registers, of those that reach a
/// function of `cheap`.
fn transparent(code: &Code, cheap: &BTreeSet<u64>) -> BTreeSet<u64> {
    let callees: BTreeMap<u64, Option<Vec<u64>>> = code
        .functions
        .keys()
        .map(|&start| (start, code.callees(start)))
        .collect();
    let mut known: BTreeSet<u64> = callees
        .iter()
        .filter(|(_, callees)| callees.is_some())
        .map(|(&start, _)| start)
        .collect();
    let calls = |start: &u64| callees[start].as_deref().unwrap_or(&[]);
    loop {
        let before = known.len();
        let still = known.clone();
        known.retain(|start| calls(start).iter().all(|callee| still.contains(callee)));
        if known.len() == before {
            break;
        }
    }
    let mut reaching = cheap.clone();
    loop {
        let before = reaching.len();
        for start in &known {
            if calls(start).iter().any(|callee| reaching.contains(callee)) {
                reaching.insert(*start);
            }
        }
        if reaching.len() == before {
            break;
        }
    }
    known
        .into_iter()
        .filter(|start| reaching.contains(start) && code.returns(*start))
        .collect()
}

/// One bit for each vector register that isn't written yet; the highest is for x87's.
type Unwritten = u64;
const X87: Unwritten = 1 << 63;

fn bit(register: Register) -> Unwritten {
    if register.is_vector_register() {
        1 << register.number()
    } else if register.is_k() {
        1 << (32 + register.number())
    } else if register.is_st() || register.is_mm() {
        X87
    } else {
        0
    }
}

/// Loads and words of x87's, which read no register.
fn reads_no_x87_register(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Fld | Fild
            | Fld1
            | Fldz
            | Fldpi
            | Fldl2e
            | Fldln2
            | Fnstcw
            | Fldcw
            | Fnclex
            | Fninit
            | Fnstenv
            | Fldenv
            | Fnstsw
            | Wait
            | Emms
    )
}

/// Returns the first instruction behind `from`, in the same function, that reads a register which
/// a path to it has not written.
fn first_read(code: &Code, transparent: &BTreeSet<u64>, from: u64) -> Option<Instruction> {
    let mut info = InstructionInfoFactory::new();
    // xmm0 and xmm1 are for results.
    let mut open = vec![(from, !(bit(Register::XMM0) | bit(Register::XMM1)))];
    let mut seen = HashSet::new();
    let function = code.function_at(from);
    while let Some((address, mut unwritten)) = open.pop() {
        if code.function_at(address) != function {
            continue; // a call at the end; or the call before did not return
        }
        if unwritten == 0 || !seen.insert((address, unwritten)) {
            continue;
        }
        assert!(seen.len() < 200_000, "too many paths from {from:x}");
        let Some(found) = code.instructions.get(&address) else {
            continue;
        };
        for used in info.info(found).used_registers() {
            let bit = bit(used.register());
            let reads = matches!(
                used.access(),
                OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead
            );
            if reads && bit & unwritten != 0 && !reads_no_x87_register(found) {
                return Some(*found);
            }
        }
        for used in info.info(found).used_registers() {
            if matches!(used.access(), OpAccess::Write | OpAccess::ReadWrite) {
                unwritten &= !bit(used.register());
            }
        }
        let next = (found.next_ip(), unwritten);
        let target = (found.near_branch_target(), unwritten);
        match found.flow_control() {
            FlowControl::Next => open.push(next),
            FlowControl::Call => {
                let callee = code.function_at(found.near_branch_target());
                let is_system_call = found.mnemonic() == Mnemonic::Syscall;
                if is_system_call || callee.is_some_and(|callee| transparent.contains(&callee)) {
                    open.push(next);
                }
            }
            FlowControl::ConditionalBranch => open.extend([next, target]),
            FlowControl::UnconditionalBranch => open.push(target),
            _ => {}
        }
    }
    None
}

/// Returns how many calls there are of functions that make system calls, and the first of them
/// over which a register is kept, as text.
fn calls_with_kept_registers(code: &Code, cheap: &BTreeSet<u64>) -> (usize, Option<String>) {
    let transparent = transparent(code, cheap);
    let (mut calls, mut kept) = (0, None);
    for found in code
        .instructions
        .values()
        .filter(|found| found.is_call_near())
    {
        let target = found.near_branch_target();
        let callee = code.function_at(target);
        if callee.is_some_and(|callee| transparent.contains(&callee)) {
            calls += 1;
            let read = first_read(code, &transparent, found.next_ip());
            kept = kept.or_else(|| {
                let read = read?;
                let (from, at) = (found.ip(), read.ip());
                Some(format!(
                    "{from:x} calls {target:x}, and {at:x} reads: {read}"
                ))
            });
        }
    }
    (calls, kept)
}

fn check(name: &str) {
    let module = module(name);
    let path = module.path.to_str().expect(name);
    let code = Code::read(path);
    let mut scratch = vec![Site::EMPTY; 2048];
    let plan = plan(&image(name), &[u64::MAX; 8], &mut scratch).expect(name);
    let cheap: BTreeSet<u64> = plan
        .planned()
        .filter(|(_, kind)| !matches!(kind, EntryKind::Vector | EntryKind::Clone))
        .filter_map(|(site, _)| code.function_at((site.address - module.base) as u64))
        .collect();
    let (calls, read) = calls_with_kept_registers(&code, &cheap);
    assert_eq!(read, None, "{name}");
    println!(
        "{name}: {} functions with system calls, {calls} calls of them",
        cheap.len()
    );
    assert!(calls >= 10, "{name}: {calls}");
    assert!(plan.sites().iter().any(|site| site.state != State::NotCode));
}

#[test]
fn no_function_keeps_registers_over_calls_of_functions_that_make_system_calls() {
    check(LIBC);
    check(LD_SO);
}

#[test]
fn registers_that_a_caller_keeps_are_found() {
    const LEAF: [u8; 8] = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]; // mov $39, %eax; syscall; ret
    const CALL_LEAF: [u8; 5] = [0xe8, 0xf3, 0xff, 0xff, 0xff]; // call 0
    const LOAD: [u8; 5] = [0xf3, 0x0f, 0x7e, 0x16, 0xc3]; // movq (%rsi), %xmm2; ret
    const ADD: [u8; 5] = [0xf2, 0x0f, 0x58, 0xd2, 0xc3]; // addsd %xmm2, %xmm2; ret
    const ADD_X87: [u8; 5] = [0xde, 0xc1, 0x90, 0x90, 0xc3]; // faddp; nop; nop; ret
    for (behind, is_kept) in [(LOAD, false), (ADD, true), (ADD_X87, true)] {
        let text = [&LEAF[..], &CALL_LEAF, &behind].concat();
        let decoder = Decoder::with_ip(64, &text, 0, DecoderOptions::NONE);
        let code = Code {
            instructions: decoder
                .into_iter()
                .map(|found| (found.ip(), found))
                .collect(),
            functions: BTreeMap::from([(0, 8), (8, text.len() as u64)]),
        };
        let (calls, kept) = calls_with_kept_registers(&code, &BTreeSet::from([0]));
        assert_eq!((calls, kept.is_some()), (1, is_kept), "{kept:?}");
    }
}
