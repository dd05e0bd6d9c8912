//! The decoder agrees with a full disassembler on every instruction of real libraries.
//!
//! Lengths, flow and rip-relative operands must be equal. For registers the decoder may only err
//! on the safe side: it must see every write of eax and rsp and every touched vector register.

use std::fs;
use std::path::PathBuf;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as Oracle, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use object::{Object, ObjectSection, SectionKind};
use raddle_patch::decode::{Eax, Flow, Instruction, RipOperand, RspUse, Vectors, decode};

const LIBRARIES: [&str; 9] = [
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "libm.so.6",
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libcrypto.so.3",
    "libgmp.so.10",
    "libz.so.1",
    "libzstd.so.1",
];

fn library(name: &str) -> Option<Vec<u8>> {
    let folders = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
    ];
    folders
        .iter()
        .find_map(|folder| fs::read(PathBuf::from(folder).join(name)).ok())
}

#[test]
fn the_decoder_agrees_with_the_oracle_on_installed_libraries() {
    let mut compared = 0;
    for name in LIBRARIES {
        let Some(file) = library(name) else {
            continue;
        };
        let file = object::File::parse(&*file).expect(name);
        let texts = file
            .sections()
            .filter(|section| section.kind() == SectionKind::Text);
        for text in texts {
            compared += compare(name, text.data().expect(name));
        }
    }
    // glibc alone, which every test run has, has more.
    assert!(compared > 300_000, "only {compared} instructions compared");
    println!("{compared} instructions compared");
}

/// Walks by the oracle's lengths, and returns how many instructions were compared.
fn compare(name: &str, text: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, text, DecoderOptions::NONE);
    let mut registers = InstructionInfoFactory::new();
    let mut compared = 0;
    while decoder.can_decode() {
        let at = decoder.position();
        let oracle = decoder.decode();
        if oracle.is_invalid() {
            continue;
        }
        let bytes = &text[at..];
        let context = || format!("{name}+{at:#x}: {oracle} {:02x?}", &bytes[..oracle.len()]);
        let Some(ours) = decode(bytes) else {
            assert!(is_refused_on_purpose(&oracle), "not decoded: {}", context());
            continue;
        };
        assert_eq!(ours.len(), oracle.len(), "length: {}", context());
        assert!(
            same_flow(&ours, &oracle, at),
            "flow {:?}: {}",
            ours.flow(),
            context()
        );
        assert!(
            same_rip(&ours, &oracle, at),
            "rip {:?}: {}",
            ours.rip(),
            context()
        );
        let info = registers.info(&oracle);
        for used in info.used_registers() {
            let full = used.register().full_register();
            let writes = is_write(used.access());
            if full == Register::RAX && writes {
                assert_ne!(ours.eax(), Eax::Kept, "eax: {}", context());
            }
            if full == Register::RSP && writes {
                assert_eq!(ours.rsp(), RspUse::Register, "rsp: {}", context());
            }
            if full == Register::RSP {
                assert_ne!(ours.rsp(), RspUse::None, "rsp: {}", context());
            }
            if is_vector(used.register()) {
                assert!(ours.is_vector(), "vector: {}", context());
                let is_narrow = used.register().is_xmm() && used.register().number() < 16;
                let is_told = is_narrow || ours.vectors() == Vectors::Wide;
                assert!(is_told, "wide: {}", context());
            }
        }
        if let Eax::Set(constant) = ours.eax() {
            assert!(
                sets_eax(&oracle, constant),
                "constant {constant}: {}",
                context()
            );
        }
        compared += 1;
    }
    compared
}

fn is_write(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn is_vector(register: Register) -> bool {
    register.is_vector_register()
        || register.is_st()
        || register.is_mm()
        || register.is_k()
        || register.is_tmm()
}

/// Instructions that user code doesn't have, or that text of today's libraries has only by
/// accident, in tables between functions.
fn is_refused_on_purpose(oracle: &Oracle) -> bool {
    oracle.is_privileged() || matches!(oracle.mnemonic(), Mnemonic::Jmpe | Mnemonic::Loadall)
}

fn same_flow(ours: &Instruction, oracle: &Oracle, at: usize) -> bool {
    let target = oracle.near_branch_target() as i64 - at as i64;
    match oracle.flow_control() {
        FlowControl::Next => match ours.flow() {
            Flow::Next => true,
            // For our decoder hlt ends a function's code.
            Flow::Stop => oracle.mnemonic() == Mnemonic::Hlt,
            _ => false,
        },
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => match ours.flow() {
            Flow::Branch(by) => by == target,
            other => other == Flow::Next && oracle.op0_kind() != OpKind::NearBranch64,
        },
        FlowControl::UnconditionalBranch => ours.flow() == Flow::Jump(target),
        FlowControl::Call if oracle.mnemonic() == Mnemonic::Syscall => ours.flow() == Flow::Syscall,
        FlowControl::Call if oracle.mnemonic() == Mnemonic::Sysenter => ours.flow() == Flow::Trap,
        FlowControl::Call => ours.flow() == Flow::Call(target),
        FlowControl::IndirectBranch => ours.flow() == Flow::IndirectJump,
        FlowControl::IndirectCall => ours.flow() == Flow::IndirectCall,
        FlowControl::Return => ours.flow() == Flow::Return,
        FlowControl::Interrupt => matches!(ours.flow(), Flow::Stop | Flow::Trap),
        FlowControl::Exception => ours.flow() == Flow::Stop,
    }
}

fn same_rip(ours: &Instruction, oracle: &Oracle, at: usize) -> bool {
    let expected = oracle.is_ip_rel_memory_operand().then(|| {
        // Addresses of 32 bits occur in data only.
        let displacement = i64::from(oracle.ip_rel_memory_address() as i32) - at as i64;
        (displacement, oracle.mnemonic() == Mnemonic::Lea)
    });
    expected
        == match ours.rip() {
            RipOperand::None => None,
            RipOperand::Access(by) => Some((by, false)),
            RipOperand::Address(by) => Some((by, true)),
        }
}

fn sets_eax(oracle: &Oracle, constant: u32) -> bool {
    if oracle.op0_register().full_register() != Register::RAX {
        return false;
    }
    match oracle.mnemonic() {
        Mnemonic::Mov => oracle.immediate(1) == u64::from(constant),
        Mnemonic::Xor | Mnemonic::Sub => {
            constant == 0 && oracle.op1_register() == oracle.op0_register()
        }
        _ => false,
    }
}
