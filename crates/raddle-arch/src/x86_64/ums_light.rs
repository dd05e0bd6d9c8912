//! The short way from a light worker that yields in place to the next one: one function, which
//! calls the scheduler's procedure and switches, and returns to the caller of another worker.
//!
//! A light worker at rest looks like a thread that has left by the short way:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx                      ]
//!   [ rbp                      ]
//!   [ address of 2:            ]
//!   [ mxcsr, x87 word          ]  <- stack
//! ```
//!
//! | register | at entry | at the switch | at exit, as the next worker |
//! |---|---|---|---|
//! | rdi | parameter | changed | changed |
//! | rax | | the next worker's control | 1; else the token + 1, for the caller to do the rest |
//! | rcx | | the caller's control | where the caller goes on |
//! | rdx | the thread | the thread, which stays | the thread |
//! | rsi | | the carrier | the carrier |
//! | r8 | the token | changed | changed |
//! | rbx | the caller's | the token | as saved |
//! | rbp | the caller's | the caller's rsp, during the scheduler's procedure | as saved |
//! | r9, r10 | | the loaded control words | changed |
//! | r12 to r15, vector registers | the caller saves what it needs | not used | changed |

/// The host becomes the next worker, which gets the token, and the caller rests.
#[doc(hidden)]
#[macro_export]
macro_rules! become_next_worker {
    () => {
        concat!(
            "5:\n",
            "mov rcx, [rbx + {worker}]\n",
            "mov [rax + {of_control}], rdx\n", // it is claimed, and read by no other thread
            "mov dword ptr [rcx + {leaves}], 1\n",
            "mov qword ptr [rcx + {of_control}], 0\n", // at rest, once its stack is left
            "mov [rcx + {stack}], rsp\n",
            $crate::keep_control_words!("r9d", "r10d"),
            "\n",
            "mov [rdx + {ums}], rax\n",
            "mov [rdx + {token}], rbx\n", // the taker of the token owns the scheduler now
            "mov rsp, [rax + {stack}]\n",
            "mov dword ptr [rcx + {leaves}], 0\n", // the old stack is free from here on
            "inc qword ptr [rsi + {switches}]\n",
            "mov dword ptr [rsi + {calls}], 0\n",
            "mov eax, [rsi + {attention}]\n",
            "or rax, [rdx + {pending}]\n",
            "jnz 6f\n",
            "8:\n",
        )
    };
}

/// What is out of the ordinary.
#[doc(hidden)]
#[macro_export]
macro_rules! rare_ways_of_decide {
    () => {
        concat!(
            "4:\n", // rare: others run meanwhile, and this thread may be moved
            ".cfi_def_cfa rsp, 40\n",
            "push rax\n",
            ".cfi_def_cfa_offset 48\n",
            "call {breathe}\n",
            "pop rax\n",
            ".cfi_def_cfa_offset 40\n",
            "mov rsi, gs:[0]\n",
            "mov rdx, [rsi + {current}]\n",
            "jmp 5b\n",
            "6:\n", // the next one has signals, or is to give way
            "mov rbp, rsp\n",
            ".cfi_def_cfa rbp, 40\n",
            "sub rsp, 16\n",
            "and rsp, -16\n",
            "mov [rsp], r9\n",
            "mov [rsp + 8], r10\n",
            "call {look}\n",
            "mov r9, [rsp]\n",
            "mov r10, [rsp + 8]\n",
            "mov rsp, rbp\n",
            ".cfi_def_cfa rsp, 40\n",
            "jmp 8b\n",
            "7:\n", // the caller does the rest
            "lea rax, [rbx + 1]\n",
            "add rsp, 16\n",
            ".cfi_def_cfa_offset 24\n",
            "pop rbp\n",
            ".cfi_def_cfa_offset 16\n",
            "pop rbx\n",
            ".cfi_def_cfa_offset 8\n",
            "pop rcx\n",
            "jmp rcx\n",
            ".cfi_def_cfa rsp, 40\n",
        )
    };
}

/// Defines `decide`. `$carrier` and `$thread` are modules with the offsets of fields, `$token_type`
/// and `$control` types that have theirs.
#[macro_export]
macro_rules! short_way_of_light_workers {
    (
        carrier: $carrier:ident,
        thread: $thread:ident,
        token: $token_type:ident,
        control: $control:ident,
        in_place: $in_place:path,
        breathe: $breathe:path,
        look: $look:path $(,)?
    ) => {
        /// Decides in the scheduler's place, and becomes the next worker if that is at rest.
        ///
        /// # Safety
        /// Jumped to as `yield_to_scheduler` is, by a light worker that has taken its token.
        #[unsafe(naked)]
        pub unsafe extern "C" fn decide() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::save_context!(),
                "mov [rdx + {deciding}], r8",
                "mov rbp, rsp",
                ".cfi_def_cfa rbp, 40",
                "mov rcx, [r8 + {scheduler}]",
                "mov rsi, rdi",
                "mov rdi, r8",
                "cmp dword ptr [rcx + {on_cpu}], 0",
                "jne 3f", // its stack isn't free yet
                "mov rsp, [rcx + {context}]",
                "3:",
                "and rsp, -16",
                "call [r8 + {decide}]",
                "mov rsp, rbp",
                ".cfi_def_cfa rsp, 40",
                "mov rsi, gs:[0]",
                "mov rdx, [rsi + {current}]",
                "mov rbx, [rdx + {deciding}]", // kept there: only the thread is the same
                "test rax, rax",
                "jz 7f",
                "cmp qword ptr [rax + {of_control}], 0",
                "jne 7f", // it is no light one, or isn't at rest
                "test dword ptr [rsi + {switches}], {breath}",
                "jz 4f",
                $crate::become_next_worker!(),
                $crate::continue_context!("r9d", "r10w", "9", "10"),
                "2:",
                ".cfi_def_cfa rsp, 24",
                "mov eax, 1",
                "pop rbp",
                "pop rbx",
                "pop rcx",
                "jmp rcx",
                $crate::rare_ways_of_decide!(),
                $crate::load_control_words!("9", "10"),
                ".cfi_endproc",
                scheduler = const $token_type::SCHEDULER,
                decide = const $token_type::DECIDE,
                deciding = const $thread::DECIDING,
                worker = const $token_type::WORKER,
                on_cpu = const $thread::ON_CPU,
                context = const $thread::CONTEXT,
                ums = const $thread::UMS,
                token = const $thread::TOKEN,
                pending = const $thread::PENDING,
                of_control = const ::core::mem::offset_of!($control, thread),
                leaves = const ::core::mem::offset_of!($control, on_cpu),
                stack = const ::core::mem::offset_of!($control, stack),
                switches = const $carrier::SWITCHES,
                breath = const $in_place,
                current = const $carrier::CURRENT,
                calls = const $carrier::CALLS,
                attention = const $carrier::ATTENTION,
                breathe = sym $breathe,
                look = sym $look,
            )
        }
    };
}
