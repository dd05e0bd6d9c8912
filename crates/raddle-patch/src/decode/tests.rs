use super::*;

fn one(bytes: &[u8]) -> Instruction {
    let instruction = decode(bytes).expect("an instruction");
    assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?}");
    instruction
}

#[test]
fn bytes_that_end_too_early_are_no_instruction() {
    for whole in [
        &[0xb8, 1, 0, 0, 0][..],
        &[0x0f, 0x05],
        &[0x48, 0x8b, 0x84, 0x24, 0, 1, 0, 0],
        &[0xc4, 0xe2, 0x7d, 0x18, 0x05, 0, 0, 0, 0],
    ] {
        assert!(decode(whole).is_some());
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_none(), "{:02x?}", &whole[..len]);
        }
    }
}

#[test]
fn prefixes_without_end_are_no_instruction() {
    assert!(decode(&[0x66; 40]).is_none());
    assert!(decode(&[0x48; 40]).is_none());
    let mut long = [0x66; 16];
    long[14] = 0x90;
    assert_eq!(decode(&long).map(|i| i.len()), Some(15));
    assert!(decode(&[&[0x66; 15][..], &[0x90]].concat()).is_none());
}

#[test]
fn only_the_last_prefix_can_be_rex() {
    // REX.W, then 66: `mov $imm16, %ax`, not `mov $imm64, %rax`.
    assert_eq!(one(&[0x48, 0x66, 0xb8, 1, 0]).eax(), Eax::Clobbered);
    assert_eq!(one(&[0x66, 0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0]).len(), 11);
}

#[test]
fn constants_are_recognised() {
    assert_eq!(one(&[0xb8, 0xca, 0, 0, 0]).eax(), Eax::Set(202));
    assert_eq!(one(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0]).eax(), Eax::Set(15));
    assert_eq!(one(&[0xc7, 0xc0, 15, 0, 0, 0]).eax(), Eax::Set(15));
    for zero in [[0x31, 0xc0], [0x33, 0xc0], [0x29, 0xc0]] {
        assert_eq!(one(&zero).eax(), Eax::Set(0));
    }
}

#[test]
fn what_resembles_a_constant_is_none() {
    // mov $1, %r8d; xor %r8d, %r8d; xor %eax, %ecx
    assert_eq!(one(&[0x41, 0xb8, 1, 0, 0, 0]).eax(), Eax::Kept);
    assert_eq!(one(&[0x45, 0x31, 0xc0]).eax(), Eax::Kept);
    assert_eq!(one(&[0x31, 0xc1]).eax(), Eax::Kept);
    // mov $-1, %rax; mov $1, %ax; movl $1, (%rax)
    assert_eq!(
        one(&[0x48, 0xc7, 0xc0, 255, 255, 255, 255]).eax(),
        Eax::Clobbered
    );
    assert_eq!(one(&[0x66, 0xb8, 1, 0]).eax(), Eax::Clobbered);
    assert_eq!(one(&[0xc7, 0x00, 1, 0, 0, 0]).eax(), Eax::Kept);
    // xor %r8d, %eax
    assert_eq!(one(&[0x44, 0x31, 0xc0]).eax(), Eax::Clobbered);
}

#[test]
fn displacements_count_from_the_start() {
    assert_eq!(one(&[0xeb, 0xfe]).flow(), Flow::Jump(0));
    assert_eq!(one(&[0x74, 0x10]).flow(), Flow::Branch(18));
    assert_eq!(one(&[0x0f, 0x84, 0, 1, 0, 0]).flow(), Flow::Branch(262));
    assert_eq!(one(&[0xe8, 0xfb, 255, 255, 255]).flow(), Flow::Call(0));
    // lea 8(%rip), %rdi; cmpl $1, 8(%rip)
    assert_eq!(
        one(&[0x48, 0x8d, 0x3d, 8, 0, 0, 0]).rip(),
        RipOperand::Address(15)
    );
    assert_eq!(
        one(&[0x83, 0x3d, 8, 0, 0, 0, 1]).rip(),
        RipOperand::Access(15)
    );
}

#[test]
fn the_stack_pointer_is_told_from_its_neighbours() {
    // mov %r12, %rdi; mov (%r12), %rdi; mov 8(%rsp), %rdi; push %rdi; mov %rdi, %rsp
    assert_eq!(one(&[0x4c, 0x89, 0xe7]).rsp(), RspUse::None);
    assert_eq!(one(&[0x49, 0x8b, 0x3c, 0x24]).rsp(), RspUse::None);
    assert_eq!(one(&[0x48, 0x8b, 0x7c, 0x24, 8]).rsp(), RspUse::Memory);
    assert_eq!(one(&[0x57]).rsp(), RspUse::Register);
    assert_eq!(one(&[0x48, 0x89, 0xfc]).rsp(), RspUse::Register);
    // movaps %xmm4, (%rdi)
    assert_eq!(one(&[0x0f, 0x29, 0x27]).rsp(), RspUse::None);
}

#[test]
fn groups_with_vector_state_are_told_apart() {
    // fxsave (%rdi); mfence; clflush (%rdi); rdfsbase %rdi; cmpxchg16b (%rdi); xsavec (%rdi)
    assert!(one(&[0x0f, 0xae, 0x07]).is_vector());
    assert!(!one(&[0x0f, 0xae, 0xf0]).is_vector());
    assert!(!one(&[0x0f, 0xae, 0x3f]).is_vector());
    assert!(!one(&[0xf3, 0x48, 0x0f, 0xae, 0xc7]).is_vector());
    assert!(!one(&[0x48, 0x0f, 0xc7, 0x0f]).is_vector());
    assert!(one(&[0x0f, 0xc7, 0x27]).is_vector());
}

#[test]
fn what_user_code_does_not_have_is_no_instruction() {
    // push %es; REX2; mov %cr0, %rax; undefined members of groups
    for bytes in [&[0x06, 0, 0][..], &[0xd5, 0, 0x90], &[0x0f, 0x20, 0xc0]] {
        assert!(decode(bytes).is_none(), "{bytes:02x?}");
    }
    assert!(decode(&[0xff, 0xff]).is_none());
    assert!(decode(&[0xc6, 0xc8, 0]).is_none());
}

#[test]
fn wide_registers_are_told_by_the_prefix() {
    assert_eq!(one(&[0x89, 0xc0]).vectors(), Vectors::None);
    assert_eq!(one(&[0x66, 0x0f, 0xef, 0xc0]).vectors(), Vectors::Narrow);
    assert_eq!(
        one(&[0x66, 0x0f, 0x38, 0x17, 0xc0]).vectors(),
        Vectors::Narrow
    );
    assert_eq!(one(&[0xc5, 0xf9, 0xef, 0xc0]).vectors(), Vectors::Wide);
    assert_eq!(one(&[0xc5, 0xf8, 0x77]).vectors(), Vectors::Wide); // vzeroupper
    assert_eq!(
        one(&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0xc1]).vectors(),
        Vectors::Wide
    );
    assert_eq!(
        one(&[0xc4, 0xe2, 0x78, 0xf2, 0xc1]).vectors(),
        Vectors::None
    ); // andn
    assert_eq!(one(&[0x0f, 0xae, 0x2f]).vectors(), Vectors::Wide); // xrstor
}
