//! A descriptor of the runtime's own, in a static.

use crate::state::process::Process;
use raddle_sys::{is_err, nr, sys};

impl Process {
    /// The engine's own descriptors, in rising order.
    // Beside the boundary's entries: see `raddle_kernel::task::process`.
    #[unsafe(link_section = ".text.raddle_boundary")]
    pub fn own_descriptors(&self) -> impl Iterator<Item = u32> {
        let [a, b, c] = self.pump.own_descriptors();
        let [d, e, f] = self.sysmon.own_descriptors();
        let mut all = [a, b, c, d, e, f];
        all.sort_unstable();
        all.into_iter().filter_map(|fd| u32::try_from(fd).ok())
    }
}

/// Closes descriptors of the runtime's, given in rising order, by as few calls as there are gaps.
pub(crate) fn close_all(fds: impl Iterator<Item = u32>) {
    let close = |[from, to]: [u32; 2]| {
        // SAFETY: the runtime's own, which no kernel thread uses any more.
        let closed = unsafe { sys!(nr::__NR_close_range, from, to, 0usize) };
        if is_err(closed) {
            for fd in from..=to {
                // SAFETY: as above; the kernel is older than 5.9, or a filter refuses the call.
                unsafe { sys!(nr::__NR_close, fd) };
            }
        }
    };
    let mut run: Option<[u32; 2]> = None;
    for fd in fds {
        run = match run {
            Some([from, to]) if to + 1 == fd => Some([from, fd]),
            Some(before) => {
                close(before);
                Some([fd; 2])
            }
            None => Some([fd; 2]),
        };
    }
    if let Some(last) = run {
        close(last);
    }
}

/// Where the runtime's descriptors begin: behind what `select` can name and some hundred numbers
/// more. Not right behind what `select` can name: programs try that number on purpose. Not at the
/// end of any range: each fork copies a table of all numbers up to the highest, and a table of 1024
/// grows to one of 2048 at once.
const FIRST: u64 = 1920;

/// More than the runtime ever has.
const OWN: u64 = 32;

/// A limit at which the runtime's descriptors leave the program nearly all of its own.
const LEAST: u64 = 32;

/// `RLIMIT_NOFILE`: the soft and the hard limit, in descriptors.
type Limits = [u64; 2];

/// Returns true if the engine's start will get the descriptors that it needs, and they leave the
/// program most of its own. Asked by the only thread there is.
pub fn suffice() -> bool {
    with_room(|| {
        // SAFETY: makes a descriptor.
        let probe = unsafe { sys!(nr::__NR_eventfd2, 0usize, 0usize) };
        if is_err(probe) {
            return false;
        }
        let moved = duplicate_high(probe);
        for fd in [probe, moved] {
            if !is_err(fd) {
                // SAFETY: the descriptor is the runtime's.
                unsafe { sys!(nr::__NR_close, fd) };
            }
        }
        !is_err(moved) && limits()[0] >= LEAST
    })
}

/// Makes descriptors of the runtime's while the soft limit is raised, as far as the hard one
/// allows. The descriptors then stand above the program's own limit, or in the way of none of its
/// numbers. Called by the only thread there is, so no other thread meets the raised limit.
pub(crate) fn with_room<T>(make: impl FnOnce() -> T) -> T {
    let [soft, hard] = limits();
    let raised = [hard.min(FIRST + OWN), hard];
    let before = (soft < raised[0]).then(|| set_limits(&raised)).flatten();
    let made = make();
    if let Some(before) = before {
        // Another process may have set a limit meanwhile, which stands then.
        let meanwhile = set_limits(&before);
        if let Some(newer) = meanwhile.filter(|limits| *limits != raised) {
            set_limits(&newer);
        }
    }
    made
}

/// Moves a fresh descriptor out of the program's way: to [`FIRST`], or to the end of a smaller
/// range.
pub(crate) fn hide(fd: isize) -> Result<isize, isize> {
    if is_err(fd) {
        return Err(fd);
    }
    let moved = duplicate_high(fd);
    if is_err(moved) {
        return Ok(fd);
    }
    // SAFETY: the descriptor is the runtime's.
    unsafe { sys!(nr::__NR_close, fd) };
    Ok(moved)
}

pub(crate) fn duplicate_high(fd: isize) -> isize {
    const DUPFD_CLOEXEC: usize = nr::F_DUPFD_CLOEXEC as usize;
    let soft = limits()[0];
    let lowest = (soft - OWN.min(soft / 2)).min(FIRST);
    // SAFETY: makes a descriptor.
    unsafe { sys!(nr::__NR_fcntl, fd, DUPFD_CLOEXEC, lowest) }
}

const NOFILE: usize = nr::RLIMIT_NOFILE as usize;

/// The limits of the process; small ones where a filter refuses the call.
fn limits() -> Limits {
    let mut limits = [2 * OWN; 2];
    // SAFETY: the kernel fills a live structure, or leaves it as it is.
    unsafe {
        let none = 0usize;
        sys!(nr::__NR_prlimit64, 0usize, NOFILE, none, &raw mut limits);
    }
    limits
}

/// Returns the former limits; `None` if the kernel refused.
fn set_limits(limits: &Limits) -> Option<Limits> {
    let mut before = [0; 2];
    // SAFETY: the kernel reads a live structure, and fills another.
    let result = unsafe {
        let limits = &raw const *limits;
        sys!(nr::__NR_prlimit64, 0usize, NOFILE, limits, &raw mut before)
    };
    (!is_err(result)).then_some(before)
}
