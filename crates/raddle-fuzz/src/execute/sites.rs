//! The instructions that make a case's calls, and the registers that they must preserve.
//!
//! `fuzz_call` fills every register that the kernel preserves with a pattern, calls a site, and
//! stores the registers as it finds them. Sites are small functions of the program's own text, so
//! that raddle patches them as it patches any program's.

use std::arch::global_asm;

/// Registers after a call; the patterns are those that were there before it.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Registers {
    pub result: u64,
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    arguments: [u64; 6],
    /// The word below the stack pointer, which a leaf function may use.
    red_zone: u64,
    direction: u64,
    control: u64,
    vectors: [u64; 32],
}

const NAMES: [&str; 15] = [
    "rbx",
    "rbp",
    "r12",
    "r13",
    "r14",
    "r15",
    "rdi",
    "rsi",
    "rdx",
    "r10",
    "r8",
    "r9",
    "red-zone",
    "direction",
    "mxcsr",
];

const PATTERN: u64 = 0x5eed_0000_0000_0000;

unsafe extern "C" {
    fn fuzz_call(site: usize, number: u64, arguments: *const [u64; 6], to: *mut Registers);
    fn fuzz_site_register();
    fn fuzz_site_clone();
    fn fuzz_restorer();
}

impl Registers {
    const fn empty() -> Self {
        Self {
            result: 0,
            rbx: 0,
            rbp: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            arguments: [0; 6],
            red_zone: 0,
            direction: 0,
            control: 0,
            vectors: [0; 32],
        }
    }

    fn words(&self) -> [u64; 15] {
        let [rdi, rsi, rdx, r10, r8, r9] = self.arguments;
        [
            self.rbx,
            self.rbp,
            self.r12,
            self.r13,
            self.r14,
            self.r15,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            self.red_zone,
            self.direction,
            self.control,
        ]
    }

    /// The names of registers that changed. Vector registers count only if the site's function uses
    /// them: a function without them may change them like any other function.
    pub(super) fn changed(
        &self,
        arguments: &[u64; 6],
        with_vectors: bool,
    ) -> impl Iterator<Item = &'static str> {
        let pattern = |index| PATTERN + index;
        let [rdi, rsi, rdx, r10, r8, r9] = *arguments;
        const CONTROL: u64 = 0x1f80;
        let expected = [
            pattern(1),
            pattern(2),
            pattern(3),
            pattern(4),
            pattern(5),
            pattern(6),
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            pattern(7),
            0,
            CONTROL,
        ];
        let pairs = self.words().into_iter().zip(expected).zip(NAMES);
        let general = pairs
            .filter(|((is, was), _)| is != was)
            .map(|(_, name)| name);
        let vectors = with_vectors && self.vectors.iter().any(|&half| half != PATTERN);
        general.chain(vectors.then_some("xmm"))
    }
}

/// Makes a call at a site.
///
/// # Safety
/// The call must not change memory that Rust relies on, nor return twice into one memory.
pub(super) unsafe fn call(site: usize, number: u32, arguments: &[u64; 6]) -> Registers {
    let mut registers = Registers::empty();
    // SAFETY: the caller's promise; the structure is live and has the layout that the code fills.
    unsafe { fuzz_call(site, number.into(), arguments, &mut registers) };
    registers
}

/// Returns true if a jump stands where the program has an instruction of its own.
pub(super) fn are_patched() -> bool {
    const MOVE_TO_EAX: u8 = 0xb8;
    let [site, _] = constant_sites(libc::SYS_read as u32).expect("a site");
    let code = std::ptr::with_exposed_provenance::<u8>(site);
    // SAFETY: the site is a function of seven bytes and more.
    unsafe { code.read_volatile() != MOVE_TO_EAX }
}

/// The site with a computed number.
pub(super) fn register_site() -> usize {
    (fuzz_site_register as *const ()).addr()
}

/// The site for clones: a child without memory of its own ends right there.
pub(super) fn clone_site() -> usize {
    (fuzz_site_clone as *const ()).addr()
}

/// The function by which handlers return to the kernel.
pub(super) fn restorer() -> usize {
    (fuzz_restorer as *const ()).addr()
}

// rdi: site, rsi: number, rdx: arguments, rcx: result
// stack after the pushes: [rsp] the result's address, [rsp + 8] the site
global_asm!(
    ".pushsection .text.fuzz_sites,\"ax\",@progbits",
    ".globl fuzz_call",
    ".type fuzz_call, @function",
    "fuzz_call:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbp, 0",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "push r14",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r14, 0",
    "push r15",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r15, 0",
    "sub rsp, 24",
    ".cfi_adjust_cfa_offset 24",
    "mov [rsp], rcx",
    "mov [rsp + 8], rdi",
    "mov r11, rdx",
    "movabs rax, {pattern}",
    "movq xmm0, rax",
    "punpcklqdq xmm0, xmm0",
    ".irp n,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movaps xmm\\n, xmm0",
    ".endr",
    "lea rbx, [rax + 1]",
    "lea rbp, [rax + 2]",
    "lea r12, [rax + 3]",
    "lea r13, [rax + 4]",
    "lea r14, [rax + 5]",
    "lea r15, [rax + 6]",
    "lea rcx, [rax + 7]",
    "mov [rsp - 24], rcx", // in the site's red zone; its return address is at rsp - 8
    "mov rax, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "call [rsp + 8]",
    "mov rcx, [rsp]",
    "mov [rcx], rax",
    "mov [rcx + 8], rbx",
    "mov [rcx + 16], rbp",
    "mov [rcx + 24], r12",
    "mov [rcx + 32], r13",
    "mov [rcx + 40], r14",
    "mov [rcx + 48], r15",
    "mov [rcx + 56], rdi",
    "mov [rcx + 64], rsi",
    "mov [rcx + 72], rdx",
    "mov [rcx + 80], r10",
    "mov [rcx + 88], r8",
    "mov [rcx + 96], r9",
    "mov rax, [rsp - 24]",
    "mov [rcx + 104], rax",
    "pushfq",
    "pop rax",
    "and eax, 0x400",
    "mov [rcx + 112], rax",
    "stmxcsr [rsp + 16]",
    "mov eax, [rsp + 16]",
    "and eax, 0xffc0",
    "mov [rcx + 120], rax",
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    "movups [rcx + 128 + 16 * \\n], xmm\\n",
    ".endr",
    "cld",
    "add rsp, 24",
    ".cfi_adjust_cfa_offset -24",
    "pop r15",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r15",
    "pop r14",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r14",
    "pop r13",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r13",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "pop rbp",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbp",
    "ret",
    ".cfi_endproc",
    ".size fuzz_call, . - fuzz_call",
    // ---- the number is in rax already; the move keeps it a computed one
    ".p2align 4",
    ".globl fuzz_site_register",
    ".type fuzz_site_register, @function",
    "fuzz_site_register:",
    ".cfi_startproc",
    "mov rcx, rax",
    "mov rax, rcx",
    "syscall",
    "cmp rax, -4095",
    "ret",
    ".cfi_endproc",
    ".size fuzz_site_register, . - fuzz_site_register",
    // ---- the same; a child ends at once, without a stack
    ".p2align 4",
    ".globl fuzz_site_clone",
    ".type fuzz_site_clone, @function",
    "fuzz_site_clone:",
    ".cfi_startproc",
    "mov rcx, rax",
    "mov rax, rcx",
    "syscall",
    "test rax, rax",
    "jnz 2f",
    "mov edi, 42",
    "mov eax, 60",
    "syscall",
    "ud2",
    "2:",
    "ret",
    ".cfi_endproc",
    ".size fuzz_site_clone, . - fuzz_site_clone",
    ".p2align 4",
    ".globl fuzz_restorer",
    ".type fuzz_restorer, @function",
    "fuzz_restorer:",
    ".cfi_startproc",
    ".cfi_signal_frame",
    "mov eax, 15",
    "syscall",
    "ud2",
    ".cfi_endproc",
    ".size fuzz_restorer, . - fuzz_restorer",
    ".popsection",
    pattern = const PATTERN,
);

macro_rules! constant_sites {
    ($($number:literal)*) => {
        $(global_asm!(
            ".pushsection .text.fuzz_sites,\"ax\",@progbits",
            ".p2align 4",
            concat!(".type fuzz_inline_", $number, ", @function"),
            concat!("fuzz_inline_", $number, ":"),
            ".cfi_startproc",
            concat!("mov eax, ", $number),
            "syscall",
            "ret",
            ".cfi_endproc",
            concat!(".size fuzz_inline_", $number, ", . - fuzz_inline_", $number),
            ".p2align 4",
            concat!(".type fuzz_vector_", $number, ", @function"),
            concat!("fuzz_vector_", $number, ":"),
            ".cfi_startproc",
            "movaps xmm3, xmm3",
            concat!("mov eax, ", $number),
            "syscall",
            "ret",
            ".cfi_endproc",
            concat!(".size fuzz_vector_", $number, ", . - fuzz_vector_", $number),
            ".popsection",
            // The table of both, by number; its first row comes first.
            ".pushsection .data.rel.ro.fuzz_table,\"aw\",@progbits",
            concat!(".quad ", $number, ", fuzz_inline_", $number, ", fuzz_vector_", $number),
            ".popsection",
        );)*
    };
}

global_asm!(
    ".pushsection .data.rel.ro.fuzz_table,\"aw\",@progbits",
    ".p2align 4",
    ".globl fuzz_table",
    "fuzz_table:",
    ".popsection",
);

include!("numbers.rs");

global_asm!(
    ".pushsection .data.rel.ro.fuzz_table,\"aw\",@progbits",
    ".quad -1, 0, 0",
    ".popsection",
);

unsafe extern "C" {
    static fuzz_table: [usize; 3];
}

/// The sites with that number: one in a function without vector registers, one in another.
pub(super) fn constant_sites(number: u32) -> Option<[usize; 2]> {
    let mut row = &raw const fuzz_table;
    loop {
        // SAFETY: the table goes on until the row of -1.
        let [row_number, inline, vector] = unsafe { *row };
        if row_number == usize::MAX {
            return None;
        }
        if row_number == number as usize {
            return Some([inline, vector]);
        }
        row = row.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;

    #[test]
    fn every_call_has_sites_with_its_number() {
        for spec in calls::all() {
            if let Some(number) = spec.number {
                assert!(constant_sites(number).is_some(), "{}", spec.name);
            }
        }
    }

    #[test]
    fn a_call_by_the_kernel_changes_no_register() {
        let arguments = [1, 2, 3, 4, 5, 6];
        let [inline, vector] = constant_sites(libc::SYS_getpid as u32).expect("a site");
        for site in [inline, vector, register_site()] {
            // SAFETY: getpid changes nothing.
            let registers = unsafe { call(site, libc::SYS_getpid as u32, &arguments) };
            assert_eq!(registers.result, std::process::id().into());
            let changed: Vec<_> = registers.changed(&arguments, true).collect();
            assert!(changed.is_empty(), "{changed:?}");
        }
    }
}
