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
/// 0.3 s at most. The filters' lock is held for single looks only: sysmon takes it, too.
pub fn prepare() {
    PROCESS.roster.close();
    let until_ns = clock::now_ns() + PATIENCE_NS;
    wait_while(until_ns, || look(|| !PROCESS.roster.is_quiet()));
    if look(is_traced) {
        kthread::nap(SETTLES_NS);
        let is_stopped = |tid| look(|| kthread::is_stopped(tid));
        wait_while(until_ns, || PROCESS.roster.any(is_stopped));
    }
}

fn wait_while(until_ns: u64, is_so: impl Fn() -> bool) {
    while is_so() && clock::now_ns() < until_ns {
        kthread::nap(PAUSE_NS);
    }
}

/// Returns what `is_so` finds; false in a process with a filter.
fn look(is_so: impl FnOnce() -> bool) -> bool {
    PROCESS.filters.unless_any(is_so).unwrap_or(false)
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

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::thread;

    #[test]
    fn the_end_waits_without_the_filters_lock() {
        let made = PROCESS.roster.enter(|| {
            // A kernel thread is being made: the end waits for it.
            let end = thread::spawn(prepare);
            while !PROCESS.roster.is_closed() {
                thread::yield_now();
            }
            kthread::nap(PATIENCE_NS / 10);
            let looks = (0..100).filter(|_| PROCESS.filters.unless_any(|| ()).is_some());
            assert_eq!(looks.count(), 100);
            assert!(!end.is_finished(), "the looks have waited for the end");
            end.join().expect("it ends after its patience");
            raddle_sys::err(raddle_sys::errno::EAGAIN)
        });
        assert!(made.is_err());
    }
}
