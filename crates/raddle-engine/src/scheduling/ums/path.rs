//! What the short way of a worker's yield and execution knows of threads and carriers: offsets and
//! values for assembly.
//!
//! The short way is taken if scheduler and worker are where they were, which is the rule: a few
//! loads and stores, and the switch. All else goes through [`super::execute`] and
//! [`super::yield_to_scheduler`]. The fields of a thread that it touches are in two cache lines.

use crate::state::carrier::Carrier;
use crate::state::signals::ThreadSignals;
use crate::state::thread::{Thread, WaitKind};
use core::mem::offset_of;
use raddle_interface::ThreadView;
use raddle_sched::Task;

/// [`Carrier::switches`] without these bits: it is time to let others run.
pub const BREATH: u64 = 30; // switches come in pairs: every sixteenth execution
/// As [`BREATH`], for workers that decide in place: a switch each.
pub const IN_PLACE: u64 = 31;
/// [`Task::on_cpu`] of a worker that is about to take its token.
pub const HANDS_BACK: u32 = 2;
/// [`Thread::wait_kind`] of a scheduler while its worker runs.
pub const WAITS: u32 = WaitKind::OTHER.0;

/// Offsets in a [`Thread`].
pub mod thread {
    use super::*;
    pub const ON_CPU: usize = offset_of!(Thread, task) + offset_of!(Task, on_cpu);
    pub const CONTEXT: usize = offset_of!(Thread, context);
    pub const FS: usize = offset_of!(Thread, fs);
    pub const CARRIER: usize = offset_of!(Thread, carrier);
    pub const SWITCHES: usize = offset_of!(Thread, switches);
    pub const UMS: usize = offset_of!(Thread, ums);
    pub const TOKEN: usize = offset_of!(Thread, scheduler_token);
    pub const DECIDING: usize = offset_of!(Thread, deciding);
    pub const PENDING: usize = offset_of!(Thread, signals) + ThreadSignals::PENDING;
    pub const WAIT_KIND: usize = offset_of!(Thread, wait_kind);
    pub const WAIT_ARG: usize = offset_of!(Thread, wait_arg);
    pub const DEADLINE: usize = offset_of!(Thread, deadline_ns);
}

const _: () = {
    assert!(thread::ON_CPU == ThreadView::ON_CPU);
    assert!(thread::CONTEXT == ThreadView::CONTEXT);
    assert!(thread::UMS == ThreadView::WORKER);
};

/// Offsets in a [`Carrier`].
pub mod carrier {
    use super::*;
    pub use crate::state::carrier::{ATTENTION, CURRENT};
    pub const SWITCHES: usize = offset_of!(Carrier, switches);
    pub const CALLS: usize = offset_of!(Carrier, calls);
    pub const BOUND: usize = offset_of!(Carrier, bound);
    pub const WATCHED: usize = offset_of!(Carrier, watched);
}
