//! The end of the process by its own will, as a debugger sees it.
//!
//! gdb (13, for one) gives up if a kernel thread dies while gdb handles that thread's stop. A
//! thread stops when it has just been made, or has got a signal. A program seldom makes or signals
//! threads at its end; the runtime does both at any time. So before the end the runtime stops doing
//! so, and lets a debugger handle the stops that there are.

use crate::kernel_threads::kthread;
use crate::state::clock;
use crate::state::process::PROCESS;

/// How long the end waits at most: for a kernel thread that is being made, and for a debugger.
const PATIENCE_NS: u64 = 300_000_000;
/// The pause after each look, and the time in which a signal that was sent is seen.
const PAUSE_NS: u64 = 100_000;
const SETTLES_NS: u64 = 2_000_000;

/// Before `exit_group(2)`. A process with a filter of system calls ends at once: that might refuse
/// a look at `/proc`.
///
/// # Blocking
/// The carrier: for nothing as a rule, for some milliseconds if the process is being traced, for
/// 0.3 s at most.
pub fn prepare() {
    PROCESS.roster.close();
    PROCESS.filters.unless_any(wait);
}

fn wait() {
    let until_ns = clock::now_ns() + PATIENCE_NS;
    while !PROCESS.roster.is_quiet() && clock::now_ns() < until_ns {
        kthread::nap(PAUSE_NS);
    }
    if !is_traced() {
        return;
    }
    kthread::nap(SETTLES_NS);
    while PROCESS.roster.any(kthread::is_stopped) && clock::now_ns() < until_ns {
        kthread::nap(PAUSE_NS);
    }
}

/// Returns true if a debugger traces this process: the field TracerPid of `/proc/self/status` isn't
/// 0.
fn is_traced() -> bool {
    const FIELD: &[u8] = b"TracerPid:\t";
    let mut text = [0u8; 512];
    let Some(text) = kthread::beginning(b"/proc/self/status\0", &mut text) else {
        return false;
    };
    let at = text.windows(FIELD.len()).position(|part| part == FIELD);
    at.and_then(|at| text.get(at + FIELD.len()))
        .is_some_and(|&digit| digit != b'0')
}
