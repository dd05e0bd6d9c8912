//! The short way from a UMS worker that yields to its scheduler, from that to the next worker, and
//! from a worker that decides in its scheduler's place to the next one.
//!
//! All are called by jumps: the code that returns from here isn't the code that called. They make
//! no call and touch nothing that another CPU writes, unless something is out of the ordinary: then
//! the long way is called.
//!
//! A thread that left by the short way looks like one that called the switch:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx                      ]
//!   [ rbp                      ]
//!   [ address of 2: in `change`]
//!   [ mxcsr, x87 word          ]  <- context
//! ```
//!
//! | register | at entry | at `change` | at exit |
//! |---|---|---|---|
//! | rdi | control, parameter or next thread | of no meaning | changed |
//! | rsi | token, if it is an argument | the carrier | changed |
//! | rdx | | the thread that leaves | changed |
//! | rcx | | the thread that comes | where the caller goes on |
//! | r8 | | the token | changed |
//! | r9, r10 | | the loaded control words, once the context is saved | changed |
//! | rax | | changed | the result |
//! | rbx, rbp | the caller's | the caller's | preserved |
//! | r12 to r15, vector registers | the caller saves what it needs | not used | changed |

/// The end of these functions: calls Rust, with the arguments that are in place.
#[doc(hidden)]
#[macro_export]
macro_rules! go_the_long_way {
    () => {
        concat!(
            $crate::call_aligned!("{long_way}"),
            "\npop rcx\njmp rcx\n.cfi_endproc"
        )
    };
}

/// Defines `execute`, `yield_to_scheduler` and `pass_token`, and the switch that they end in.
///
/// `$carrier` and `$thread` are modules with the offsets of fields, `$token` and `$control` types
/// that have theirs. The functions of `long_ways` take the same arguments as the short ones.
#[macro_export]
macro_rules! short_ways {
    (
        carrier: $carrier:ident,
        thread: $thread:ident,
        token: $token:ident,
        control: $control:ident,
        accounting: $accounting:path,
        masks: [$breath:path, $in_place:path],
        waits: $waits:path,
        hands_back: $hands_back:path,
        yielded: $yielded:expr,
        look: $look:path,
        breathe: $breathe:path,
        decide: $decide:path,
        long_ways: [$execute:path, $yield_to_scheduler:path, $pass_token:path] $(,)?
    ) => {
        /// Executes a worker: see `Runtime::execute_worker`.
        ///
        /// # Safety
        /// Called by jumps, with live arguments.
        #[unsafe(naked)]
        pub unsafe extern "C" fn execute() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov r8, rsi",
                "mov rsi, gs:[0]",
                "test dword ptr [rsi + {switches}], {breath}",
                "jz 3f",
                "2:",
                "mov rcx, [rdi + {of_control}]",
                "mov rdx, [rsi + {current}]",
                "cmp [rcx + {carrier}], rsi", // it ran here last
                "jne 4f",
                "cmp qword ptr [rsi + {bound}], 0",
                "jne 4f",
                "cmp dword ptr [rip + {accounting}], 0",
                "jne 4f",
                "mov [r8 + {scheduler}], rdx",
                "mov dword ptr [rdx + {wait_kind}], {waits}",
                "mov qword ptr [rdx + {wait_arg}], 0",
                "mov qword ptr [rdx + {deadline}], 0",
                "mov [rcx + {token}], r8", // the taker of the token owns the scheduler from here on
                "jmp {change}",
                "3:", // rare: others run meanwhile, and this thread may be moved
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push r8",
                ".cfi_adjust_cfa_offset 8",
                $crate::call_aligned!("{breathe}"),
                "pop r8",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "mov rsi, gs:[0]",
                "jmp 2b",
                "4:",
                "mov rsi, r8",
                $crate::go_the_long_way!(),
                of_control = const ::core::mem::offset_of!($control, thread),
                current = const $carrier::CURRENT,
                switches = const $carrier::SWITCHES,
                breath = const $breath,
                bound = const $carrier::BOUND,
                carrier = const $thread::CARRIER,
                accounting = sym $accounting,
                scheduler = const $token::SCHEDULER,
                wait_kind = const $thread::WAIT_KIND,
                waits = const $waits,
                wait_arg = const $thread::WAIT_ARG,
                deadline = const $thread::DEADLINE,
                token = const $thread::TOKEN,
                change = sym change,
                breathe = sym $breathe,
                long_way = sym $execute,
            )
        }

        /// Yields to the scheduler: see `Runtime::yield_worker`.
        ///
        /// # Safety
        /// Called by jumps, with live arguments.
        #[unsafe(naked)]
        pub unsafe extern "C" fn yield_to_scheduler() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rsi, gs:[0]",
                "mov rdx, [rsi + {current}]",
                "test rdx, rdx", // a vfork child, which borrows memory
                "jz 3f",
                // Sysmon leaves the token alone from here on,
                "mov dword ptr [rdx + {on_cpu}], {hands_back}",
                "cmp dword ptr [rsi + {watched}], 0", // has begun before,
                "jne 2f",
                "mov r8, [rdx + {token}]", // or is done
                "test r8, r8",
                "jz 2f",
                "cmp qword ptr [r8 + {decide}], 0",
                "jne 5f",
                "mov rcx, [r8 + {scheduler}]",
                "cmp [rcx + {carrier}], rsi", // it waits here
                "jne 2f",
                "cmp dword ptr [rip + {accounting}], 0",
                "jne 2f",
                "mov qword ptr [rdx + {token}], 0",
                "mov [r8 + {parameter}], rdi",
                "mov dword ptr [r8 + {end}], {yielded}",
                "jmp {change}",
                "5:", // the caller decides: it has the token, and is an ordinary thread
                "mov rcx, [rdx + {ums}]",
                "mov [r8 + {worker}], rcx",
                "mov qword ptr [rdx + {ums}], 0",
                "mov qword ptr [rdx + {token}], 0",
                "mov dword ptr [rdx + {on_cpu}], 1", // sysmon finds no token now
                "cmp dword ptr [rcx + {kind}], {light}",
                "je {decides}",
                "mov rax, r8",
                $crate::return_by_jump!(),
                "2:",
                "mov dword ptr [rdx + {on_cpu}], 1",
                "3:",
                $crate::go_the_long_way!(),
                current = const $carrier::CURRENT,
                watched = const $carrier::WATCHED,
                token = const $thread::TOKEN,
                on_cpu = const $thread::ON_CPU,
                hands_back = const $hands_back,
                decide = const $token::DECIDE,
                decides = sym $decide,
                kind = const ::core::mem::offset_of!($control, kind),
                light = const $control::LIGHT,
                worker = const $token::WORKER,
                ums = const $thread::UMS,
                scheduler = const $token::SCHEDULER,
                carrier = const $thread::CARRIER,
                accounting = sym $accounting,
                parameter = const $token::PARAMETER,
                end = const $token::END,
                yielded = const $yielded,
                change = sym change,
                long_way = sym $yield_to_scheduler,
            )
        }

        /// Passes the token on: see `Runtime::pass_token`.
        ///
        /// # Safety
        /// Called by jumps, with live arguments.
        #[unsafe(naked)]
        pub unsafe extern "C" fn pass_token() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov rcx, rdi",
                "mov r8, rsi",
                "mov rsi, gs:[0]",
                "mov rdx, [rsi + {current}]",
                "cmp [rcx + {carrier}], rsi", // it ran here last
                "jne 4f",
                "cmp rcx, rdx",
                "je 7f",
                "test dword ptr [rsi + {switches}], {breath}",
                "jz 4f",
                "cmp qword ptr [rsi + {bound}], 0",
                "jne 4f",
                "cmp dword ptr [rip + {accounting}], 0",
                "jne 4f",
                "mov rax, [r8 + {worker}]",
                "mov [rdx + {ums}], rax",
                "mov [rcx + {token}], r8", // the taker of the token owns the scheduler from here on
                "jmp {change}",
                "7:", // the thread stays, as another worker perhaps
                "test dword ptr [rsi + {switches}], {breath}",
                "jz 4f",
                "inc qword ptr [rsi + {switches}]",
                "mov dword ptr [rsi + {calls}], 0",
                "mov rax, [r8 + {worker}]",
                "mov [rdx + {ums}], rax",
                "mov [rdx + {token}], r8",
                "mov eax, [rsi + {attention}]",
                "or rax, [rdx + {pending}]",
                "jnz 8f",
                $crate::return_by_jump!(),
                "8:",
                $crate::call_aligned!("{look}"),
                $crate::return_by_jump!(),
                "4:",
                "mov rsi, r8",
                $crate::go_the_long_way!(),
                calls = const $carrier::CALLS,
                attention = const $carrier::ATTENTION,
                pending = const $thread::PENDING,
                look = sym $look,
                current = const $carrier::CURRENT,
                switches = const $carrier::SWITCHES,
                breath = const $in_place,
                bound = const $carrier::BOUND,
                carrier = const $thread::CARRIER,
                accounting = sym $accounting,
                worker = const $token::WORKER,
                ums = const $thread::UMS,
                token = const $thread::TOKEN,
                change = sym change,
                long_way = sym $pass_token,
            )
        }

        /// The switch.
        #[unsafe(naked)]
        unsafe extern "C" fn change() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                "mov dword ptr [rcx + {on_cpu}], 1",
                "inc qword ptr [rcx + {switches}]",
                "inc qword ptr [rsi + {carrier_switches}]",
                "mov dword ptr [rsi + {calls}], 0",
                "mov [rsi + {current}], rcx",
                $crate::save_context!(),
                $crate::keep_control_words!("r9d", "r10d"),
                "mov [rdx + {context}], rsp",
                "mov rsp, [rcx + {context}]",
                "mov rax, [rcx + {fs}]",
                "mov dword ptr [rdx + {on_cpu}], 0", // the old stack is free from here on
                "wrfsbase rax",
                $crate::continue_context!("r9d", "r10w", "5", "6"),
                "2:", // resumed, by this switch or by another one
                "mov rsi, gs:[0]",
                "mov rdx, [rsi + {current}]",
                "mov eax, [rsi + {attention}]",
                "or rax, [rdx + {pending}]",
                "jnz 4f",
                "3:",
                "mov eax, 1",
                $crate::pop_context!(),
                "pop rcx",
                "jmp rcx",
                ".cfi_adjust_cfa_offset 16",
                ".cfi_offset rbx, -16",
                ".cfi_offset rbp, -24",
                "4:",
                $crate::call_aligned!("{look}"),
                "jmp 3b",
                $crate::load_control_words!("5", "6"),
                ".cfi_endproc",
                on_cpu = const $thread::ON_CPU,
                switches = const $thread::SWITCHES,
                carrier_switches = const $carrier::SWITCHES,
                calls = const $carrier::CALLS,
                current = const $carrier::CURRENT,
                context = const $thread::CONTEXT,
                fs = const $thread::FS,
                attention = const $carrier::ATTENTION,
                pending = const $thread::PENDING,
                look = sym $look,
            )
        }
    };
}
