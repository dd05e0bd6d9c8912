//! How a thread of the explicit API ends to be kept, and begins as another one.
//!
//! A thread that is kept looks like one that called the switch:
//!
//! ```text
//!   [ where the caller goes on ]
//!   [ rbx                      ]
//!   [ rbp                      ]
//!   [ address of 2:            ]
//!   [ mxcsr, x87 word          ]  <- context
//! ```
//!
//! | register | at entry | at the switch | at exit, as another thread |
//! |---|---|---|---|
//! | rdi | reuse control | changed | changed |
//! | rax | | the thread that is kept | changed |
//! | rsi | | the carrier | changed |
//! | r9, r10 | | the loaded control words | changed |
//! | rcx | | changed | where the caller goes on |
//! | rbx, rbp | the caller's | saved | as saved |
//! | r12 to r15, vector registers | the caller saves what it needs | not used | changed |

/// Defines `keep`. `ends` takes the reuse control and returns the thread; `begins` is called when
/// the thread begins again. `$thread` is a module with offsets, `$scheduler` the offset of the
/// carrier's own context.
#[macro_export]
macro_rules! keep_threads {
    (
        thread: $thread:ident,
        scheduler: $scheduler:path,
        ends: $ends:path,
        begins: $begins:path $(,)?
    ) => {
        /// Ends the calling thread, and returns as another one: see `Runtime::keep`.
        ///
        /// # Safety
        /// Called by a jump, with a live reuse control.
        #[unsafe(naked)]
        pub unsafe extern "C" fn keep() {
            ::core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::push_context!(),
                $crate::call_aligned!("{ends}"),
                "mov rsi, gs:[0]",
                $crate::push_switch_frame!("rcx"),
                $crate::keep_control_words!("r9d", "r10d"),
                "mov [rax + {context}], rsp",
                "mov rsp, [rsi + {scheduler}]",
                "mov dword ptr [rax + {on_cpu}], 0", // the old stack is free from here on
                $crate::continue_context!("r9d", "r10w", "4", "3"),
                $crate::load_control_words!("4", "3"),
                "2:", // another thread
                $crate::call_aligned!("{begins}"),
                $crate::pop_context!(),
                "pop rcx",
                ".cfi_adjust_cfa_offset -8",
                "jmp rcx",
                ".cfi_endproc",
                ends = sym $ends,
                context = const $thread::CONTEXT,
                scheduler = const $scheduler,
                on_cpu = const $thread::ON_CPU,
                begins = sym $begins,
            )
        }
    };
}
