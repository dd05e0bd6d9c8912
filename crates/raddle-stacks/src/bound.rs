//! Bound threads. Each has a carrier that runs nothing else, and its calls block in the kernel. No
//! list of the process's has these carriers; the threads' slots name them.

use std::fs;

use raddle_inspect::{ThreadRecord, ThreadState};

use crate::capture::Target;
use crate::kernel::KernelThreads;
use crate::table::Table;

/// The most bound threads that are told.
const BOUND_MAX: usize = 1 << 12;

/// A bound thread, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundThread {
    pub tid: u32,
    /// The address of its carrier.
    pub carrier: u64,
    /// The carrier's id.
    pub id: u32,
    /// The kernel thread's number in the process's own namespace.
    pub own_kernel_tid: u32,
    /// The kernel thread's number here.
    pub kernel_tid: u32,
    /// It is on a carrier. It may wait in the kernel there.
    pub is_running: bool,
}

/// Returns the records of all threads that live, and which of them are bound; `None` if the layout
/// makes no sense.
pub fn threads_and_bound(target: &Target<'_>) -> Option<(Vec<ThreadRecord>, Vec<BoundThread>)> {
    let (mut threads, mut slots) = (Vec::new(), Vec::new());
    Table::new(target)?.for_each(|slot| {
        threads.push(slot.record);
        if slot.bound != 0 && slots.len() < BOUND_MAX {
            slots.push(slot);
        }
    });
    if slots.is_empty() {
        return Some((threads, Vec::new()));
    }
    let kernel_threads = KernelThreads::of(target.pid, target.stopped);
    let bound = slots.iter().filter_map(|slot| {
        let half = |at: u64| target.memory.half(slot.bound.wrapping_add(at));
        let own_kernel_tid = half(target.layout.carrier_kernel_tid).filter(|&tid| tid != 0)?;
        Some(BoundThread {
            tid: slot.record.tid,
            carrier: slot.bound,
            id: half(target.layout.carrier_id)?,
            own_kernel_tid,
            kernel_tid: kernel_threads.here(own_kernel_tid),
            is_running: slot.record.state == ThreadState::RUNNING,
        })
    });
    let bound = bound.collect();
    Some((threads, bound))
}

/// What the kernel has counted of a kernel thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTimes {
    /// The time for which it executed.
    pub cpu_ns: u64,
    /// The time for which it waited for a CPU.
    pub delay_ns: u64,
}

impl KernelTimes {
    /// Reads the times of a kernel thread, by its number here; `None` where the kernel doesn't tell
    /// them.
    pub fn of(pid: u32, tid: u32) -> Option<KernelTimes> {
        let line = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
        let mut words = line.split_whitespace().map(str::parse);
        Some(KernelTimes {
            cpu_ns: words.next()?.ok()?,
            delay_ns: words.next()?.ok()?,
        })
    }
}

/// Returns true if a kernel thread waits in the kernel: it neither executes nor wants a CPU.
pub fn waits_in_kernel(pid: u32, tid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| state != 'R')
}

/// Returns how often a kernel thread has begun to wait, by its number here.
pub fn kernel_waits(pid: u32, tid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

/// Returns when a kernel thread began, by its number here: by CLOCK_BOOTTIME, at the last tick
/// before.
pub fn kernel_thread_began_ns(pid: u32, tid: u32) -> Option<u64> {
    /// The field of proc_pid_stat(5), behind the name, which may have anything in it.
    const START_TIME: usize = 19;
    /// USER_HZ, which is the same for all programs on this architecture.
    const TICK_NS: u64 = 10_000_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_whitespace().nth(START_TIME)?.parse().ok()?;
    ticks.checked_mul(TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_thread_began_a_moment_ago() {
        let boot_ns = || {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: a live structure.
            unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        };
        let before_ns = boot_ns();
        let pid = std::process::id();
        // SAFETY: it has no argument and can't fail.
        let of_this = move || kernel_thread_began_ns(pid, unsafe { libc::gettid() }.unsigned_abs());
        let began_ns = std::thread::spawn(of_this).join().unwrap().unwrap();
        assert!(began_ns + 10_000_000 > before_ns && began_ns <= boot_ns());
        assert_eq!(kernel_thread_began_ns(pid, 0), None);
    }

    #[test]
    fn this_thread_has_times_and_waits() {
        let pid = std::process::id();
        // SAFETY: it has no argument and can't fail.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        let before = kernel_waits(pid, tid).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(kernel_waits(pid, tid).unwrap() > before);
        assert!(KernelTimes::of(pid, tid).is_some());
        assert_eq!(KernelTimes::of(pid, 0), None);
        assert_eq!(kernel_waits(pid, 0), None);
    }
}
