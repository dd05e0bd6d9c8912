//! Pieces of assembly that several entries share, as text: how registers are saved and loaded.
//!
//! Exported for the macros of this crate that expand in other crates; no other code uses them.

/// The beginning of a function with a frame pointer. rbp is the frame pointer afterwards:
///
/// ```text
///   [ return address ]
///   [ caller's rbp   ]  <- rbp, rsp
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! enter_frame {
    () => {
        "push rbp\n.cfi_def_cfa_offset 16\n.cfi_offset rbp, -16\n\
         mov rbp, rsp\n.cfi_def_cfa_register rbp"
    };
}

/// The end of a function that began with [`enter_frame`].
#[doc(hidden)]
#[macro_export]
macro_rules! leave_frame {
    () => {
        "leave\n.cfi_def_cfa rsp, 8\nret"
    };
}

/// Pushes the registers with the arguments of a system call, and its number: a `CallFrame`.
///
/// ```text
///   [ rdi ]
///   [ rsi ]
///   [ rdx ]
///   [ r10 ]
///   [ r8  ]
///   [ r9  ]
///   [ rax ]  <- rsp, which points to the `CallFrame`
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! push_call {
    () => {
        "push rdi\npush rsi\npush rdx\npush r10\npush r8\npush r9\npush rax"
    };
}

/// Says where [`push_call`] has put the arguments right below the frame pointer, so that a debugger
/// shows them in the function that made the call.
#[doc(hidden)]
#[macro_export]
macro_rules! pushed_call {
    () => {
        ".cfi_offset rdi, -24\n.cfi_offset rsi, -32\n.cfi_offset rdx, -40\n\
         .cfi_offset r10, -48\n.cfi_offset r8, -56\n.cfi_offset r9, -64"
    };
}

/// Loads the registers that [`push_call`] has pushed, except the number, which is at
/// `[$above - 56]`. `$above` is the address right above the `CallFrame`.
#[doc(hidden)]
#[macro_export]
macro_rules! load_call {
    ($above:literal) => {
        concat!(
            concat!("mov rdi, [", $above, " - 8]\n"),
            concat!("mov rsi, [", $above, " - 16]\n"),
            concat!("mov rdx, [", $above, " - 24]\n"),
            concat!("mov r10, [", $above, " - 32]\n"),
            concat!("mov r8, [", $above, " - 40]\n"),
            concat!("mov r9, [", $above, " - 48]"),
        )
    };
}

/// Loads the arguments of a system call from an array. `$array` is a register that holds the
/// array's address and no argument.
#[doc(hidden)]
#[macro_export]
macro_rules! load_arguments {
    ($array:literal) => {
        concat!(
            concat!("mov rdi, [", $array, "]\n"),
            concat!("mov rsi, [", $array, " + 8]\n"),
            concat!("mov rdx, [", $array, " + 16]\n"),
            concat!("mov r10, [", $array, " + 24]\n"),
            concat!("mov r8, [", $array, " + 32]\n"),
            concat!("mov r9, [", $array, " + 40]"),
        )
    };
}

/// Saves xmm0 to xmm15 in 256 bytes below the stack pointer, which is rounded down to a multiple of
/// 16. The function has a frame pointer, by which it gets the stack pointer back.
#[doc(hidden)]
#[macro_export]
macro_rules! save_vectors {
    () => {
        "sub rsp, 256\nand rsp, -16\n\
         .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovaps [rsp + 16*\\n], xmm\\n\n.endr"
    };
}

/// Loads what [`save_vectors`] has saved.
#[doc(hidden)]
#[macro_export]
macro_rules! load_vectors {
    () => {
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovaps xmm\\n, [rsp + 16*\\n]\n.endr"
    };
}

/// Pushes a `SwitchFrame` that continues at the label `2:` ahead. Changes `$free`, which is rax if
/// none is named.
///
/// ```text
///   [ address of 2:   ]
///   [ mxcsr, x87 word ]  <- rsp, a context
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! push_switch_frame {
    () => {
        $crate::push_switch_frame!("rax")
    };
    ($free:literal) => {
        concat!(
            concat!("lea ", $free, ", [rip + 2f]\n"),
            concat!("push ", $free, "\n"),
            "sub rsp, 8\nstmxcsr [rsp]\nfnstcw [rsp + 4]",
        )
    };
}

/// Pushes the registers that code behind a switch expects to be unchanged, except the stack
/// pointer: rbx and rbp.
///
/// ```text
///   [ rbx ]
///   [ rbp ]  <- rsp
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! push_context {
    () => {
        "push rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx, -16\n\
         push rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbp, -24"
    };
}

/// Saves what a context that is left by a jump must keep: [`push_context`], then
/// [`push_switch_frame`]. Changes rax.
///
/// ```text
///   [ rbx             ]
///   [ rbp             ]
///   [ address of 2:   ]
///   [ mxcsr, x87 word ]  <- rsp, a context
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! save_context {
    () => {
        concat!($crate::push_context!(), "\n", $crate::push_switch_frame!())
    };
}

/// Pops the rbp and rbx that [`push_context`] has pushed.
#[doc(hidden)]
#[macro_export]
macro_rules! pop_context {
    () => {
        "pop rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbp\n\
         pop rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx"
    };
}

/// Keeps the loaded control words, which lie at the stack pointer, for [`continue_context`].
#[doc(hidden)]
#[macro_export]
macro_rules! keep_control_words {
    ($mxcsr:literal, $x87:literal) => {
        concat!(
            concat!("mov ", $mxcsr, ", [rsp]\n"),
            concat!("movzx ", $x87, ", word ptr [rsp + 4]"),
        )
    };
}

/// Continues the context at the stack pointer. `$mxcsr` and `$x87` are registers with the loaded
/// control words (32 and 16 bits). The labels are the caller's: [`load_control_words`] stands at
/// `$other`. Changes rax.
#[doc(hidden)]
#[macro_export]
macro_rules! continue_context {
    ($mxcsr:literal, $x87:literal, $other:literal, $same:literal) => {
        concat!(
            // The control words rarely differ, and loading them takes longer than comparing them.
            concat!("cmp ", $mxcsr, ", [rsp]\n"),
            concat!("jne ", $other, "f\n"),
            concat!("cmp ", $x87, ", [rsp + 4]\n"),
            concat!("jne ", $other, "f\n"),
            concat!($same, ":\n"),
            "add rsp, 8\npop rax\njmp rax",
        )
    };
}

/// The rare part of [`continue_context`].
#[doc(hidden)]
#[macro_export]
macro_rules! load_control_words {
    ($other:literal, $same:literal) => {
        concat!(
            concat!($other, ":\n"),
            "ldmxcsr [rsp]\nfldcw [rsp + 4]\n",
            concat!("jmp ", $same, "b"),
        )
    };
}

/// Calls `$function`, which leaves the stack pointer 8 below a multiple of 16 at its caller.
#[doc(hidden)]
#[macro_export]
macro_rules! call_aligned {
    ($function:literal) => {
        concat!(
            "sub rsp, 8\n.cfi_adjust_cfa_offset 8\n",
            concat!("call ", $function, "\n"),
            "add rsp, 8\n.cfi_adjust_cfa_offset -8",
        )
    };
}

/// Returns from a function that was entered by a jump: takes the address off the stack.
#[doc(hidden)]
#[macro_export]
macro_rules! return_by_jump {
    () => {
        "pop rcx\n.cfi_adjust_cfa_offset -8\njmp rcx\n.cfi_adjust_cfa_offset 8"
    };
}

/// Pushes the registers, except rbp, that a function preserves.
///
/// ```text
///   [ rbx ]
///   [ r12 ]
///   [ r13 ]
///   [ r14 ]
///   [ r15 ]  <- rsp
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! push_preserved {
    () => {
        "push rbx\npush r12\npush r13\npush r14\npush r15"
    };
}

/// Pops what [`push_preserved`] has pushed.
#[doc(hidden)]
#[macro_export]
macro_rules! pop_preserved {
    () => {
        "pop r15\npop r14\npop r13\npop r12\npop rbx"
    };
}

/// Calls `$entry` for a call by a run-time number that is no clone, then returns with 1 in r11. rcx
/// is the site, which the stub pushed.
#[doc(hidden)]
#[macro_export]
macro_rules! handle_any_number {
    ($entry:literal, $return:literal) => {
        concat!(
            "mov r11, gs:[{thread}]\n",
            "mov [r11 + {call_site}], rcx\n",
            concat!("call ", $entry, "\n"),
            concat!($return, ":\n"),
            "mov r11, gs:[{thread}]\n",
            "mov qword ptr [r11 + {call_site}], 0\n",
            "mov r11d, 1\n",
            "ret",
        )
    };
}
