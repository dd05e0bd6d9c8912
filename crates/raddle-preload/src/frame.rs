//! How threads that leave by a short way keep their registers, and how whoever left so, or by the
//! switch, goes on.

/// The beginning of a function that leaves at its label 2, where the thread goes on. The stack
/// pointer is the context then. Changes rax.
macro_rules! save_frame {
    () => {
        concat!(
            "push rbx\n",
            ".cfi_adjust_cfa_offset 8\n",
            ".cfi_offset rbx, -16\n",
            "push rbp\n",
            ".cfi_adjust_cfa_offset 8\n",
            ".cfi_offset rbp, -24\n",
            "lea rax, [rip + 2f]\n",
            "push rax\n",
            "sub rsp, 8\n",
            "stmxcsr [rsp]\n",
            "fnstcw [rsp + 4]\n",
        )
    };
}

/// Goes on where the stack pointer, a context, says; r9d and r10w are the control words that are
/// loaded. Both labels are the caller's: `$other` is where [`load_words`] stands.
macro_rules! go_on {
    ($other:literal, $same:literal) => {
        concat!(
            // The control words are the same but rarely, and loading them is slow.
            "cmp [rsp], r9d\n",
            concat!("jne ", $other, "f\n"),
            "cmp [rsp + 4], r10w\n",
            concat!("jne ", $other, "f\n"),
            concat!($same, ":\n"),
            "add rsp, 8\n",
            "pop rax\n",
            "jmp rax\n",
        )
    };
}

/// The rare part of [`go_on`].
macro_rules! load_words {
    ($other:literal, $same:literal) => {
        concat!(
            concat!($other, ":\n"),
            "ldmxcsr [rsp]\n",
            "fldcw [rsp + 4]\n",
            concat!("jmp ", $same, "b\n"),
        )
    };
}

pub(crate) use {go_on, load_words, save_frame};
