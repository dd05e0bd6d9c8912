//! CPU time of carriers by the kernel, added up over the kernel threads that a carrier has had.
//!
//! A carrier without work ends, and begins again with another kernel thread, of which the kernel
//! counts anew. What a kernel thread used between the last look at it and its end is missing.

use std::fs;

/// What the kernel says of a kernel thread, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelTime {
    pub cpu_ns: u64,
    /// It was runnable, and had no CPU.
    pub delay_ns: u64,
}

impl KernelTime {
    /// Reads the times of a kernel thread; `None` if there is none with this number.
    pub(super) fn read(pid: u32, tid: u32) -> Option<KernelTime> {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        KernelTime::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(schedstat: &str) -> Option<KernelTime> {
        let mut words = schedstat.split_ascii_whitespace();
        Some(KernelTime {
            cpu_ns: words.next()?.parse().ok()?,
            delay_ns: words.next()?.parse().ok()?,
        })
    }

    fn plus(self, more: KernelTime) -> KernelTime {
        KernelTime {
            cpu_ns: self.cpu_ns.saturating_add(more.cpu_ns),
            delay_ns: self.delay_ns.saturating_add(more.delay_ns),
        }
    }
}

/// The times of a process's carriers, retained from one reading to the next.
#[derive(Default)]
pub(super) struct KernelTimes {
    /// By the carriers' places; `None` for one without a time so far.
    carriers: Vec<Option<Seen>>,
}

/// What was seen of a carrier.
#[derive(Clone, Copy, Default)]
struct Seen {
    tid: u32,
    latest: KernelTime,
    /// The sum of the kernel threads before.
    before: KernelTime,
}

impl KernelTimes {
    /// Notes the time of the carrier's kernel thread, if it has one. Returns the sum of all that
    /// the carrier has had; `None` without any.
    pub(super) fn note(
        &mut self,
        carrier: usize,
        tid: u32,
        now: Option<KernelTime>,
    ) -> Option<KernelTime> {
        if carrier >= self.carriers.len() {
            self.carriers.resize(carrier + 1, None);
        }
        let place = &mut self.carriers[carrier];
        if let Some(now) = now {
            let seen = place.get_or_insert_default();
            let is_another = seen.tid != tid || now.cpu_ns < seen.latest.cpu_ns;
            if is_another {
                seen.before = seen.before.plus(seen.latest);
            }
            (seen.tid, seen.latest) = (tid, now);
        }
        place.map(|seen| seen.before.plus(seen.latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(cpu_ns: u64, delay_ns: u64) -> KernelTime {
        KernelTime { cpu_ns, delay_ns }
    }

    #[test]
    fn the_kernels_times_are_its_first_two_numbers() {
        assert_eq!(KernelTime::parse("12 34 5\n"), Some(time(12, 34)));
        assert_eq!(KernelTime::parse("12\n"), None);
        assert_eq!(KernelTime::parse(""), None);
    }

    #[test]
    fn a_carrier_that_begins_again_goes_on_counting() {
        let mut times = KernelTimes::default();
        assert_eq!(times.note(1, 0, None), None);
        assert_eq!(times.note(1, 7, Some(time(100, 10))), Some(time(100, 10)));
        assert_eq!(times.note(1, 7, Some(time(150, 10))), Some(time(150, 10)));
        assert_eq!(times.note(1, 7, None), Some(time(150, 10))); // it has ended
        assert_eq!(times.note(1, 8, Some(time(5, 1))), Some(time(155, 11)));
        assert_eq!(times.note(1, 8, Some(time(6, 1))), Some(time(156, 11)));
        // The kernel uses a number again.
        assert_eq!(times.note(1, 8, Some(time(2, 0))), Some(time(158, 11)));
        assert_eq!(times.note(0, 7, Some(time(1, 1))), Some(time(1, 1)));
    }
}
