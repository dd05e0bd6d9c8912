//! The CPU time of a process while it is recorded, as the kernel counts it: of all its kernel
//! threads, those that have ended too.
//!
//! Green threads executed for no longer than that. Sums of samples err more, above all where few
//! samples were taken, or where other processes have the CPUs.
//!
//! The kernel knows the time of a process that has ended until its parent has waited for it. After
//! that only the last reading is known, and that the process used each of its CPUs until its end at
//! most. So the clock is read at each turn of a recording.

use std::mem::MaybeUninit;
use std::time::Instant;

/// See the module.
pub(super) struct CpuClock {
    clock: libc::clockid_t,
    first_ns: u64,
    last_ns: u64,
    read: Instant,
    /// When the clock was found to be gone.
    gone: Option<Instant>,
    /// The CPUs that the process may use at most.
    cpus: u64,
}

impl CpuClock {
    /// Begins to count. `None` if the kernel doesn't tell.
    pub(super) fn begin(pid: u32) -> Option<CpuClock> {
        let mut clock = MaybeUninit::uninit();
        // SAFETY: a place for a clock's number.
        let error = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, clock.as_mut_ptr()) };
        if error != 0 {
            return None;
        }
        // SAFETY: the call has written it.
        let clock = unsafe { clock.assume_init() };
        let now_ns = read(clock)?;
        Some(CpuClock {
            clock,
            first_ns: now_ns,
            last_ns: now_ns,
            read: Instant::now(),
            gone: None,
            cpus: std::thread::available_parallelism().map_or(1, |it| it.get() as u64),
        })
    }

    /// Reads the clock, as the process may end before the recording does.
    pub(super) fn read(&mut self) {
        if self.gone.is_some() {
            return;
        }
        let begun = Instant::now();
        match read(self.clock) {
            Some(now_ns) => {
                self.last_ns = self.last_ns.max(now_ns);
                self.read = begun;
            }
            None => self.gone = Some(Instant::now()),
        }
    }

    /// Returns the most CPU time that the process can have used since the count began.
    pub(super) fn most_ns(&mut self) -> u64 {
        self.read();
        let unseen_ns = self.gone.map_or(0, |gone| {
            let unseen = gone.saturating_duration_since(self.read);
            unseen.as_nanos() as u64 * self.cpus
        });
        (self.last_ns - self.first_ns).saturating_add(unseen_ns)
    }
}

fn read(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a live structure.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;

    #[test]
    fn a_process_that_computes_uses_cpu_time_and_no_more_than_the_kernel_counts() {
        let usage = || {
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: a live structure, of which zeros are a value.
            let usage = unsafe {
                libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
                usage.assume_init()
            };
            let ns =
                |it: libc::timeval| it.tv_sec as u64 * 1_000_000_000 + it.tv_usec as u64 * 1000;
            ns(usage.ru_utime) + ns(usage.ru_stime)
        };
        let before_ns = usage();
        let mut clock = CpuClock::begin(std::process::id()).unwrap();
        let begun_ns = usage();
        while usage() < begun_ns + 20_000_000 {}
        let most_ns = clock.most_ns();
        assert!(most_ns >= 15_000_000, "{most_ns}");
        let used_ns = usage() - before_ns;
        // getrusage counts in microseconds, and a part of it by ticks.
        assert!(most_ns <= used_ns + 10_000_000, "{most_ns} of {used_ns}");
    }

    #[test]
    fn a_process_that_has_ended_uses_no_more() {
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let begun = Instant::now();
        let mut clock = CpuClock::begin(child.id()).unwrap();
        let id = WaitId::Pid(Pid::from_child(&child));
        waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let executed_ns = begun.elapsed().as_nanos() as u64;
        std::thread::sleep(Duration::from_millis(50));
        let most_ns = clock.most_ns();
        assert!(most_ns > 0 && most_ns <= executed_ns, "of {executed_ns}");
        let read = Instant::now();
        child.wait().unwrap();
        clock.read();
        // The time between the two readings may have been used.
        let gone_ns = most_ns + read.elapsed().as_nanos() as u64 * clock.cpus + 10_000_000;
        std::thread::sleep(Duration::from_millis(50));
        let last_ns = clock.most_ns();
        assert!(last_ns >= most_ns && last_ns <= gone_ns, "{last_ns}");
        assert_eq!(clock.most_ns(), last_ns);
    }

    #[test]
    fn without_a_process_there_is_no_clock() {
        // The highest number is never given.
        assert!(CpuClock::begin(1 << 22).is_none());
    }
}
