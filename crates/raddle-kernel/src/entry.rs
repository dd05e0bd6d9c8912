//! Where a system call enters the runtime: the entries that stubs call.
//!
//! A stub has skipped the red zone, pushed the address that follows the system call (so that
//! unwinders see an ordinary frame), and called one of seven entries:
//!
//! | entry | for | saves |
//! |---|---|---|
//! | `raddle_entry_plain` | sites where no vector register holds anything | general registers |
//! | `raddle_entry_narrow` | sites where xmm0 to xmm15 may | and those |
//! | `raddle_entry_vector` | all other sites | and xmm0 to xmm15, wide ones in use |
//! | `raddle_entry_clone_before` | clone, clone3, vfork, run-time numbers | all but wide vectors |
//! | `raddle_entry_narrow_clone_before` | run-time numbers | as narrow; clones as that |
//! | `raddle_entry_plain_clone_before` | run-time numbers | as plain; clones as that |
//! | `raddle_entry_clone_after` | behind the raw instruction of those | all but wide vectors |
//!
//! All preserve the registers that the kernel preserves. Handlers get a
//! [`Frame`](crate::frame::Frame) and return an [`Outcome`](crate::frame::Outcome). The entry
//! itself executes a call that passes, at `raddle_pass_begin`, with all registers as they were: a
//! signal that arrives there, or during the look right before, finds a thread that is, for all
//! purposes, in user code. The look handles every signal that came before, so that no call sleeps
//! over a pending signal.
//!
//! Stacks and registers are in `raddle_arch::system_call_entries`.

use crate::table;
use raddle_engine::carrier;
use raddle_engine::thread::{CALL_FRAME, CALL_SITE};

raddle_arch::system_call_entries! {
    carrier: carrier,
    call_site: CALL_SITE,
    call_frame: CALL_FRAME,
    handlers: table::TABLE,
    before_call: crate::signal::before_call,
    on_attention: crate::signal::on_attention,
    clone_before: crate::task::process::clone_before,
    clone_after: crate::task::process::clone_after,
    wide: crate::frame::WIDE,
}
