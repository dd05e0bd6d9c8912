//! The room for stubs, with unwind information: `int3` until they are filled in.

/// Reserves arrays of slots in the text of the invoking crate. They are laid out by a macro because
/// only the library that patches needs their 256 KiB.
///
/// What a filled slot of a handled call does to the stack and the registers:
///
/// ```text
///   [ the function's stack   ]  <- rsp at the site, the CFA
///   [ 128 bytes of red zone  ]
///   [ address after the site ]  CFA - 136, pushed for the entry
///   [ return address         ]  into the slot
/// ```
///
/// | register | in the slot's beginning | at the entry | in the slot's end |
/// |---|---|---|---|
/// | rax | the call's number | the same | the result |
/// | rcx | the program's, which the call may destroy | the window's end | changed |
/// | rsp | the program's | 144 below that | the program's |
/// | flags | the program's | the same | as the entry leaves them |
/// | all others | the program's | the same | as the entry leaves them |
///
/// The bytes of a slot are those that `raddle-patch` documents and fills in: a slot has 64 bytes,
/// one of a clone-like call or a far one 128.
#[macro_export]
macro_rules! stubs {
    (
        plain_count: $plain_count:path,
        clone_count: $clone_count:path,
        far_count: $far_count:path $(,)?
    ) => {
        ::core::arch::global_asm!(
            ".pushsection .text.raddle_patch_stubs, \"ax\", @progbits",
            ".hidden raddle_patch_plain_stubs, raddle_patch_clone_stubs",
            ".hidden raddle_patch_far_stubs, raddle_patch_stubs_end",
            ".globl raddle_patch_plain_stubs, raddle_patch_clone_stubs",
            ".globl raddle_patch_far_stubs, raddle_patch_stubs_end",
            // The return address: at `base`, rip rounded down to a slot, the operand of `lea` is 19
            // bytes in, and counts from 23 bytes in. DW_CFA_val_expression for rip, 19 bytes long:
            // breg16 0; const1s -LEN; and; dup; plus_uconst 19; deref_size 4;
            // const1u 32; shl; const1u 32; shra; plus; plus_uconst 23.
            ".macro raddle_patch_rip_by_expression mask",
            ".cfi_escape 0x16, 0x10, 19, 0x80, 0, 0x09, \\mask, 0x1a, 0x12, 0x23, 19, 0x94, 4, \
            0x08, 32, 0x24, 0x08, 32, 0x26, 0x22, 0x23, 23",
            ".endm",
            // In a far slot, 8 bytes long: breg16 0; const1s -128; and; plus_uconst 112; deref.
            ".macro raddle_patch_rip_in_slot",
            ".cfi_escape 0x16, 0x10, 8, 0x80, 0, 0x09, 0x80, 0x1a, 0x23, 112, 0x06",
            ".endm",
            // From `lea RA` to the second `lea`.
            ".macro raddle_patch_call",
            ".skip 12, 0xcc",
            ".cfi_def_cfa_offset 128",
            ".skip 1, 0xcc",
            ".cfi_remember_state",
            ".cfi_def_cfa_offset 136",
            ".cfi_offset rip, -136",
            ".skip 6, 0xcc",
            ".cfi_restore_state",
            ".skip 8, 0xcc",
            ".cfi_def_cfa_offset 0",
            ".endm",
            ".p2align 12, 0xcc",
            "raddle_patch_plain_stubs:",
            ".rept {plain_count}",
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            "raddle_patch_rip_by_expression 0xc0", // -64
            ".skip 16, 0xcc",
            "raddle_patch_call",
            ".skip 64 - 43, 0xcc",
            ".cfi_endproc",
            ".endr",
            ".p2align 12, 0xcc",
            "raddle_patch_clone_stubs:",
            ".rept {clone_count}",
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            "raddle_patch_rip_by_expression 0x80", // -128
            ".skip 16, 0xcc",
            "raddle_patch_call",
            ".skip 8, 0xcc",
            "raddle_patch_call",
            ".skip 128 - 78, 0xcc",
            ".cfi_endproc",
            ".endr",
            ".p2align 12, 0xcc",
            "raddle_patch_far_stubs:",
            ".rept {far_count}",
            ".cfi_startproc",
            ".cfi_def_cfa rsp, 0",
            "raddle_patch_rip_in_slot",
            ".skip 16, 0xcc",
            "raddle_patch_call",
            ".skip 8, 0xcc",
            "raddle_patch_call",
            ".skip 128 - 78, 0xcc",
            ".cfi_endproc",
            ".endr",
            ".p2align 12, 0xcc",
            "raddle_patch_stubs_end:",
            ".purgem raddle_patch_rip_by_expression",
            ".purgem raddle_patch_rip_in_slot",
            ".purgem raddle_patch_call",
            ".popsection",
            plain_count = const $plain_count,
            clone_count = const $clone_count,
            far_count = const $far_count,
        );
    };
}
