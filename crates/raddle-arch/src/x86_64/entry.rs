//! Where system calls enter the runtime: the entries that stubs call.
//!
//! A stub has skipped the red zone, pushed the address that follows the system call (so that
//! unwinders see an ordinary frame), and called one of the entries. The stack of
//! `raddle_entry_plain`:
//!
//! ```text
//!   [ the program's stack      ]
//!   [ 128 bytes of red zone    ]
//!   [ address after the site   ]  pushed by the stub
//!   [ return address           ]  into the stub
//!   [ rbp                      ]  <- rbp
//!   [ rdi rsi rdx r10 r8 r9    ]  `CallFrame`, its highest word first
//!   [ rax                      ]  <- rdi at the handler
//!   [ rbx r12 r13 r14 r15      ]  for `SigContext::show_call`; never loaded
//! ```
//!
//! A call that passes to the kernel without a handler has no registers below the `CallFrame`.
//!
//! `raddle_entry_vector` has a frame of its own around this one, with xmm0 to xmm15 in it, and with
//! the wide state, x87's registers included, if any of it is in use
//! ([`WideState`](crate::WideState)); `raddle_entry_narrow` has the same, without the wide state:
//!
//! ```text
//!   [ return address           ]  into the stub
//!   [ rbp                      ]  <- rbp
//!   [ address of the wide state]  or 0
//!   [ xmm0 to xmm15            ]
//!   [ wide state               ]  in the form of `xsave`, or nothing
//!   [ return address           ]
//! ```
//!
//! `raddle_entry_clone_after` has the same, without the wide state, around a frame like the first
//! one. Where a call by a run-time
//! number goes through `raddle_entry_clone_before`, one return address more lies above the entry's
//! frame. At a clone-like call the frame is a [`CloneFrame`]:
//!
//! ```text
//!   [ address after the site   ]  pushed by the stub
//!   [ return address           ]  into the stub
//!   [ rbp                      ]  <- rbp
//!   [ rbx, r12 to r15          ]
//!   [ `CallFrame`              ]  <- rbx, and rdi at the handler
//!   [ xmm0 to xmm15            ]  <- rsp at the handler
//! ```

/// Lays out the entries, around the handlers that are named.
///
/// | register | at an entry | at exit |
/// |---|---|---|
/// | rax | number; after a raw clone-like call its result | the result; unchanged if r11 is 0 |
/// | rdi, rsi, rdx, r10, r8, r9 | arguments | preserved |
/// | rcx | address after the site | changed |
/// | r11 | changed | after `clone_before`: 1 if handled, else 0 |
/// | xmm0 to xmm15 | the program's | preserved, but for the plain entries |
/// | all others | the program's | preserved |
///
/// `raddle_child_start` is where a new green thread begins, behind the stub's call, as the child of
/// a clone: rsp points to its [`ChildRegisters`], right below the word that the stub pops.
///
/// `$carrier` is a module with the offsets of the carrier's fields `RAW`, `ATTENTION` and `CURRENT`
/// and the bit `SIGNALLED`; `$call_site` and `$call_frame` are the offsets of a thread's fields.
/// `$handlers` is a table of 512 handlers by number, 0 where the kernel answers. `$on_attention`
/// gets the result and the `CallFrame`, `$before_call` the `CallFrame`. `$wide` is a
/// [`WideState`](crate::WideState).
#[macro_export]
macro_rules! system_call_entries {
    (
        carrier: $carrier:ident,
        call_site: $call_site:path,
        call_frame: $call_frame:path,
        handlers: $handlers:path,
        before_call: $before_call:path,
        on_attention: $on_attention:path,
        clone_before: $clone_before:path,
        clone_after: $clone_after:path,
        wide: $wide:path $(,)?
    ) => {
        ::core::arch::global_asm!(
            ".pushsection .text.raddle_boundary,\"ax\",@progbits",
            ".hidden raddle_entry_plain, raddle_entry_narrow, raddle_entry_vector",
            ".hidden raddle_entry_clone_before, raddle_entry_clone_after, raddle_child_start",
            ".hidden raddle_entry_plain_clone_before, raddle_plain_clone_return",
            ".globl raddle_entry_plain_clone_before, raddle_plain_clone_return",
            ".hidden raddle_entry_narrow_clone_before, raddle_narrow_clone_return",
            ".globl raddle_entry_narrow_clone_before, raddle_narrow_clone_return",
            ".hidden raddle_vector_return, raddle_clone_return, raddle_after_return",
            ".globl raddle_vector_return, raddle_clone_return, raddle_after_return",
            ".hidden raddle_narrow_return, raddle_wide_return",
            ".globl raddle_narrow_return, raddle_wide_return",
            ".hidden raddle_pass_check, raddle_pass_begin, raddle_pass_end",
            ".globl raddle_entry_plain, raddle_entry_narrow, raddle_entry_vector",
            ".globl raddle_entry_clone_before, raddle_entry_clone_after, raddle_child_start",
            ".globl raddle_pass_check, raddle_pass_begin, raddle_pass_end",
            // ---- plain
            ".p2align 6",
            "raddle_entry_plain:",
            ".cfi_startproc",
            $crate::enter_frame!(),
            $crate::push_call!(),
            $crate::pushed_call!(),
            "cmp dword ptr gs:[{raw}], 0",
            "jne 3f",
            "cmp rax, 512",
            "jae 3f",
            "lea r11, [rip + {table}]",
            "mov r11, [r11 + rax * 8]",
            "test r11, r11",
            "jz 3f",
            $crate::push_preserved!(),
            "mov rsi, gs:[{thread}]",
            "lea rdi, [rbp - 56]",
            "mov [rsi + {call_frame}], rdi",
            "and rsp, -16",
            "call r11", // rax = value, rdx = pass
            "test edx, edx",
            "jnz 3f",
            "cmp dword ptr gs:[{attention}], 0",
            "jne 4f",
            "2:", // rax = result
            $crate::load_call!("rbp"),
            ".cfi_remember_state",
            $crate::leave_frame!(),
            ".cfi_restore_state",
            "3:", // the kernel's turn, with the program's registers
            $crate::load_call!("rbp"),
            "mov rax, [rbp - 56]",
            "xor ecx, ecx", // see `interrupted_pass`
            "raddle_pass_check:",
            "test dword ptr gs:[{attention}], {signalled}",
            "jnz 6f",
            "raddle_pass_begin:",
            "syscall",
            "raddle_pass_end:",
            "cmp dword ptr gs:[{attention}], 0",
            "jne 4f",
            ".cfi_remember_state",
            $crate::leave_frame!(),
            ".cfi_restore_state",
            "4:", // signals to look at
            "mov rdi, rax",
            "lea rsi, [rbp - 56]",
            "mov rsp, rsi",
            $crate::push_preserved!(),
            "and rsp, -16",
            "call {on_attention}",
            "jmp 2b",
            "6:", // signals that came before the kernel's turn: it might wait for long
            "cmp dword ptr gs:[{raw}], 0",
            "jne raddle_pass_begin",
            "lea rdi, [rbp - 56]",
            "mov rsp, rdi",
            $crate::push_preserved!(),
            "and rsp, -16",
            "call {before_call}",
            "jmp 3b",
            ".cfi_endproc",
            // ---- narrow: the function around the site holds nothing in wide registers
            ".p2align 6",
            "raddle_entry_narrow:",
            ".cfi_startproc",
            $crate::enter_frame!(),
            "push 0",
            $crate::save_vectors!(),
            "call raddle_entry_plain",
            "raddle_narrow_return:",
            $crate::load_vectors!(),
            $crate::leave_frame!(),
            ".cfi_endproc",
            // ---- vector
            ".p2align 6",
            "raddle_entry_vector:",
            ".cfi_startproc",
            $crate::enter_frame!(),
            "push 0",
            $crate::save_vectors!(),
            "mov r11d, [rip + {wide}]",
            "test r11d, r11d",
            "jz 2f",
            "cmp dword ptr [rip + {wide} + 4], 2",
            "jne 5f", // what is in use isn't known
            "push rax",
            "push rdx",
            "mov ecx, 1",
            "xgetbv", // edx:eax = components in use
            "and r11d, eax",
            "pop rdx",
            "pop rax",
            "jnz 5f", // the flags are those of `and`
            "2:",
            "call raddle_entry_plain",
            "raddle_vector_return:",
            "cmp dword ptr [rip + {wide}], 0",
            "je 4f",
            "mov r11, rax",
            "push rdx",
            "mov ecx, 1",
            "xgetbv",
            "pop rdx",
            "and eax, [rip + {wide}]", // another thread's: there was nothing in use before
            "test al, {x87}",
            "jz 3f",
            "fninit",
            "3:",
            "test eax, ~{x87}",
            "mov rax, r11",
            "jz 4f",
            "vzeroupper",
            "4:",
            $crate::load_vectors!(),
            ".cfi_remember_state",
            $crate::leave_frame!(),
            ".cfi_restore_state",
            "5:", // r11d = components to save; rax, rdx keep what they have
            "sub rsp, [rip + {wide} + 8]",
            "and rsp, -64",
            "mov [rbp - 8], rsp",
            "pxor xmm0, xmm0", // the header
            "movaps [rsp + 512], xmm0",
            "movaps [rsp + 528], xmm0",
            "movaps [rsp + 544], xmm0",
            "movaps [rsp + 560], xmm0",
            "mov rcx, rax",
            "mov eax, r11d",
            "mov r11, rdx",
            "xor edx, edx",
            "cmp dword ptr [rip + {wide} + 4], 0",
            "je 22f",
            "xsave64 [rsp]",
            "23:",
            "test al, {x87}",
            "jz 3f",
            "fninit", // for the runtime and other threads the registers are empty
            "fldcw [rsp]",
            "3:",
            "mov rdx, r11",
            "mov rax, rcx",
            "call raddle_entry_plain",
            "raddle_wide_return:",
            "mov rcx, rax",
            "mov r11, rdx",
            "stmxcsr [rsp + 24]", // not the one of the call's beginning
            "mov eax, [rip + {wide}]",
            "xor edx, edx",
            "cmp dword ptr [rip + {wide} + 4], 0",
            "je 24f",
            "xrstor64 [rsp]",
            "25:",
            "mov rdx, r11",
            "mov rax, rcx",
            "lea rsp, [rbp - 8 - 256]",
            "and rsp, -16",
            "jmp 4b",
            "22:", // a CPU without `xsave`
            "fxsave64 [rsp]",
            "mov [rsp + 512], eax", // the header
            "jmp 23b",
            "24:",
            "fxrstor64 [rsp]",
            "jmp 25b",
            ".cfi_endproc",
            // ---- clone, before, for code that holds nothing in wide registers, or in none
            ".p2align 6",
            "raddle_entry_narrow_clone_before:",
            ".cfi_startproc",
            "cmp dword ptr gs:[{raw}], 0",
            "jne raddle_entry_clone_before",
            $crate::jump_if_clone!("8"),
            $crate::handle_any_number!("raddle_entry_narrow", "raddle_narrow_clone_return"),
            "8:",
            "jmp raddle_entry_clone_before",
            ".cfi_endproc",
            ".p2align 6",
            "raddle_entry_plain_clone_before:",
            ".cfi_startproc",
            "cmp dword ptr gs:[{raw}], 0",
            "jne raddle_entry_clone_before",
            $crate::jump_if_clone!("8"),
            $crate::handle_any_number!("raddle_entry_plain", "raddle_plain_clone_return"),
            "8:",
            "jmp raddle_entry_clone_before",
            ".cfi_endproc",
            // ---- clone, before
            ".p2align 6",
            "raddle_entry_clone_before:",
            ".cfi_startproc",
            "cmp dword ptr gs:[{raw}], 0",
            "jne 6f",
            $crate::jump_if_clone!("5"),
            $crate::handle_any_number!("raddle_entry_vector", "raddle_clone_return"),
            "6:",
            "xor r11d, r11d",
            "ret",
            "5:",
            $crate::enter_frame!(),
            $crate::push_preserved!(),
            $crate::push_call!(),
            "mov rdi, rsp",
            "mov rbx, rsp",
            $crate::save_vectors!(),
            "call {clone_before}", // rax = value, rdx = pass
            "mov r11d, edx",
            "xor r11d, 1",
            $crate::load_vectors!(),
            "test r11d, r11d",
            "cmovz rax, [rbx]", // passes: the number again
            $crate::load_call!("rbx + 56"),
            "mov rbx, [rbp - 8]",
            $crate::leave_frame!(),
            ".cfi_endproc",
            // ---- clone, after; a vfork child's calls by run-time numbers come here, too
            ".p2align 6",
            "raddle_entry_clone_after:",
            ".cfi_startproc",
            "cmp dword ptr gs:[{raw}], 0",
            "je 7f",
            "ret",
            "7:",
            $crate::enter_frame!(),
            "push 0",
            $crate::save_vectors!(),
            "call 9f",
            "raddle_after_return:",
            $crate::load_vectors!(),
            $crate::leave_frame!(),
            ".cfi_endproc",
            ".cfi_startproc",
            "9:",
            $crate::enter_frame!(),
            $crate::push_call!(),
            $crate::push_preserved!(),
            "mov rdi, rax",
            "lea rsi, [rbp - 56]",
            "and rsp, -16",
            "call {clone_after}",
            $crate::load_call!("rbp"),
            "mov rax, [rbp - 56]",
            $crate::leave_frame!(),
            ".cfi_endproc",
            // ---- a new green thread: rsp -> ChildRegisters, right below what the stub pops
            ".p2align 6",
            "raddle_child_start:",
            ".cfi_startproc",
            ".cfi_undefined rip",
            "pop rdi",
            "pop rsi",
            "pop rdx",
            "pop r10",
            "pop r8",
            "pop r9",
            "pop rbx",
            "pop rbp",
            "pop r12",
            "pop r13",
            "pop r14",
            "pop r15",
            "pop rcx",
            "xor eax, eax",
            "mov r11d, 1",
            "jmp rcx",
            ".cfi_endproc",
            ".popsection",
            raw = const $carrier::RAW,
            attention = const $carrier::ATTENTION,
            thread = const $carrier::CURRENT,
            call_site = const $call_site,
            call_frame = const $call_frame,
            table = sym $handlers,
            signalled = const $carrier::SIGNALLED,
            before_call = sym $before_call,
            on_attention = sym $on_attention,
            clone_before = sym $clone_before,
            clone_after = sym $clone_after,
            wide = sym $wide,
            x87 = const $crate::X87,
        );
    };
}

/// Jumps to the label `$to` ahead if rax is the number of a call that makes a thread or a process:
/// clone, fork, vfork, clone3.
#[doc(hidden)]
#[macro_export]
macro_rules! jump_if_clone {
    ($to:literal) => {
        concat!(
            concat!("cmp rax, 56\nje ", $to, "f\n"),
            concat!("cmp rax, 57\nje ", $to, "f\n"),
            concat!("cmp rax, 58\nje ", $to, "f\n"),
            concat!("cmp rax, 435\nje ", $to, "f"),
        )
    };
}

/// Bytes below the stack pointer that a function may use without moving it.
pub const RED_ZONE: usize = 128;

/// A system call of the program: the number and the arguments.
#[repr(C)]
pub struct CallFrame {
    pub(crate) rax: u64,
    pub(crate) r9: u64,
    pub(crate) r8: u64,
    pub(crate) r10: u64,
    pub(crate) rdx: u64,
    pub(crate) rsi: u64,
    pub(crate) rdi: u64,
}

impl CallFrame {
    /// Returns the call's number. Entries hand over none that is longer.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.rax as u32
    }

    /// Returns all arguments.
    #[inline(always)]
    pub fn args(&self) -> [usize; 6] {
        [
            self.rdi as usize,
            self.rsi as usize,
            self.rdx as usize,
            self.r10 as usize,
            self.r8 as usize,
            self.r9 as usize,
        ]
    }

    /// Changes the first two arguments, of a call that passes.
    pub fn set_first_args(&mut self, args: [usize; 2]) {
        [self.rdi, self.rsi] = args.map(|arg| arg as u64);
    }

    /// Returns where the stub pushed the address after the site; see [`CallFrame::caller`].
    ///
    /// # Safety
    /// As for [`CallFrame::caller`].
    #[inline(always)]
    pub unsafe fn pushed_site(&self, returns: &EntryReturns) -> *const usize {
        // SAFETY: the caller's promise.
        unsafe { self.caller(returns).site }
    }

    /// Returns what the entries have pushed above the frame.
    ///
    /// # Safety
    /// The frame must be on a stack, where an entry has pushed it.
    #[inline(always)]
    pub unsafe fn caller(&self, returns: &EntryReturns) -> Caller {
        let mut frame = core::ptr::from_ref(self)
            .wrapping_add(1)
            .cast::<[usize; 3]>();
        let mut vectors = None;
        // SAFETY: behind the arguments lie rbp, a return address and, if that leads to the stub,
        // the site; if it leads to an entry that called this one, rbp points at the same of that
        // entry.
        unsafe {
            if returns.vector.contains(&(*frame)[1]) {
                vectors = Some(Vectors::of((*frame)[0]));
                frame = core::ptr::with_exposed_provenance((*frame)[0]);
            }
            let rbp = frame.cast::<u64>();
            if returns.direct.contains(&(*frame)[1]) {
                frame = frame.wrapping_byte_add(size_of::<usize>());
            }
            let site = frame.cast::<usize>().wrapping_add(2);
            Caller { rbp, site, vectors }
        }
    }
}

/// Bytes of xmm0 to xmm15.
const VECTORS: usize = 256;

/// The return addresses of entries that call another one.
pub struct EntryReturns {
    /// Of those that have a frame with the vector registers.
    pub vector: [usize; 4],
    /// Of those without a frame.
    pub direct: [usize; 3],
}

/// What lies above a [`CallFrame`].
pub struct Caller {
    /// Where the program's rbp is.
    pub(crate) rbp: *const u64,
    /// Where the stub pushed the address after the site.
    pub(crate) site: *const usize,
    /// What an entry has saved of the vector registers.
    pub(crate) vectors: Option<Vectors>,
}

/// Where an entry has saved vector registers.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    /// Of xmm0 to xmm15.
    pub narrow: usize,
    /// Of the wide state; 0 if none was in use.
    pub wide: usize,
}

impl Vectors {
    /// Returns those of the entry with this frame pointer.
    unsafe fn of(frame: usize) -> Self {
        let wide = frame - size_of::<usize>();
        Self {
            narrow: (wide - VECTORS) & !15,
            // SAFETY: the entry has pushed the word.
            wide: unsafe { *core::ptr::with_exposed_provenance(wide) },
        }
    }
}

impl Caller {
    /// Returns the address in the stub to which the outermost entry returns.
    ///
    /// # Safety
    /// The entries must not have returned.
    pub(crate) unsafe fn stub_return(&self) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { *self.site.wrapping_sub(1) as u64 }
    }
}

/// All registers at a clone.
#[repr(C)]
pub struct CloneFrame {
    call: CallFrame,
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    rbx: u64,
    rbp: u64,
    stub: u64,
    site: u64,
}

impl CloneFrame {
    /// Returns the call itself.
    pub fn call(&self) -> &CallFrame {
        &self.call
    }

    /// Returns the call itself, to change its arguments.
    pub fn call_mut(&mut self) -> &mut CallFrame {
        &mut self.call
    }

    /// Returns the address after the site, which the stub pushed.
    pub fn site(&self) -> u64 {
        self.site
    }

    /// Returns the registers with which the child begins.
    pub fn child_registers(&self) -> ChildRegisters {
        let call = &self.call;
        ChildRegisters {
            rdi: call.rdi,
            rsi: call.rsi,
            rdx: call.rdx,
            r10: call.r10,
            r8: call.r8,
            r9: call.r9,
            rbx: self.rbx,
            rbp: self.rbp,
            r12: self.r12,
            r13: self.r13,
            r14: self.r14,
            r15: self.r15,
            stub: self.stub,
        }
    }
}

/// What `raddle_child_start` pops: the registers of a child, and where its stub goes on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChildRegisters {
    rdi: u64,
    rsi: u64,
    rdx: u64,
    r10: u64,
    r8: u64,
    r9: u64,
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    stub: u64,
}
