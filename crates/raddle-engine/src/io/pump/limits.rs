//! Time limits of sockets (`SO_RCVTIMEO`, `SO_SNDTIMEO`): the kernel's value counts.
//!
//! A limit is the socket's. Every descriptor of the socket sets it, in every process; an accepted
//! socket inherits it; and descriptors come by `fork`, `execve` and messages. Asking the kernel
//! before each wait costs a system call. So a row notes that its socket has *no* limit, and the
//! *round* in which the kernel said so:
//!
//! 1. A wait compares the row's note with the present round. If they are the same, there is no
//!    limit, and nothing is asked.
//! 2. Otherwise the kernel is asked. A socket without a limit gets the round, as it was before the
//!    question, for its note. A socket with a limit gets none: each of its waits asks.
//! 3. A `setsockopt` that sets a limit begins a new round when the kernel has changed the socket. A
//!    wait that begins after that call asks, by whatever descriptor of the socket.
//! 4. A change that the runtime doesn't see (another process, an instruction that isn't patched)
//!    begins no round. The sweep asks about sockets on which a wait lasts, notes the limit as
//!    *found* and wakes the waiters. They ask, and count from the beginning of their waits.
//!
//! A wait that is under way keeps its limit, as in Linux: rule 3 concerns later waits only.
//!
//! An accepted socket has its listener's limits, or none. As long as this process has set no limit,
//! the listener's note is the accepted socket's note. Later it isn't: a limit may have been changed
//! between the connection's arrival and its acceptance.
//!
//! Rejected: the value of the limit in the row. It would have to be right in every row of the
//! socket, and after a change by another process in the rows of this one.

use super::{Entry, Kind, Pump};
use crate::state::clock;
use crate::state::parts::pump::Limits;
use core::sync::atomic::Ordering;
use raddle_arch::timestamp;
use raddle_sys::{is_err, nr, sys};

/// The first round. Rounds are odd numbers, so that no note of another kind is one.
const FIRST: u32 = 1;
/// A note: the sweep has found a limit.
const FOUND: u32 = 2;

/// How long a call on a socket may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// For ever.
    None,
    /// So many nanoseconds.
    Lasts(u64),
    /// For ever or not at all: the kernel tells a negative limit, with which no call waits, as
    /// none.
    Unclear,
}

impl Limits {
    /// The present round.
    fn round(&self) -> u32 {
        FIRST.wrapping_add(self.raised.load(Ordering::Relaxed))
    }

    pub(super) fn start(&self) {
        self.start[0].store(timestamp(), Ordering::Relaxed);
        self.start[1].store(clock::now_ns(), Ordering::Relaxed);
    }
}

impl Pump {
    /// Returns true if the socket is known to have no limit for reads (0) or writes (1).
    #[inline(always)]
    pub fn is_unlimited(&self, entry: &Entry, way: usize) -> bool {
        entry.unlimited[way].load(Ordering::Relaxed) == self.limits.round()
    }

    /// Returns true if a wait that began without a limit must ask again: the sweep has found one,
    /// or the number has become another file.
    #[inline(always)]
    pub fn has_found_limit(&self, entry: &Entry, way: usize) -> bool {
        entry.unlimited[way].load(Ordering::Relaxed) & 1 == 0
    }

    /// Asks the kernel for the limit of reads (0) or writes (1).
    #[cold]
    pub fn ask_limit(&self, entry: &Entry, fd: usize, way: usize) -> Limit {
        let is_socket = matches!(entry.kind(), Kind::Stream | Kind::Datagram | Kind::Device);
        if !is_socket {
            return Limit::None;
        }
        let round = self.limits.round();
        match kernel_limit_ns(fd, way) {
            0 if self.limits.has_negative.load(Ordering::Relaxed) != 0 => Limit::Unclear,
            0 => {
                entry.unlimited[way].store(round, Ordering::Relaxed);
                Limit::None
            }
            limit_ns => Limit::Lasts(limit_ns),
        }
    }

    /// The program has set a limit of some socket.
    pub fn limit_was_set(&self, is_negative: bool) {
        if is_negative {
            self.limits.has_negative.store(1, Ordering::Relaxed);
        }
        self.limits.raised.fetch_add(2, Ordering::Relaxed);
    }

    /// The socket `fd` was accepted from that of `listener`.
    #[inline(always)]
    pub fn was_accepted(&self, listener: &Entry, fd: u32) {
        let known = listener.unlimited[0].load(Ordering::Relaxed);
        if known == FIRST
            && self.limits.round() == FIRST
            && let Some(entry) = self.entry(fd)
        {
            entry.unlimited[0].store(FIRST, Ordering::Relaxed);
        }
    }

    /// Nanoseconds since the time stamp counter stood at `began`.
    #[cold]
    pub fn elapsed_ns(&self, began: u64) -> u64 {
        let [ticks, ns] =
            [0, 1].map(|index: usize| self.limits.start[index].load(Ordering::Relaxed));
        let (now, now_ns) = (timestamp(), clock::now_ns());
        let elapsed = u128::from(now.saturating_sub(began));
        let (all, all_ns) = (now.saturating_sub(ticks), now_ns.saturating_sub(ns));
        (elapsed * u128::from(all_ns) / u128::from(all.max(1))) as u64
    }

    /// Asks about a socket on which a wait lasts and which was known to have no limit. Returns true
    /// if it has one. Under the row's lock.
    pub(super) fn finds_limit(&self, entry: &Entry, fd: usize) -> bool {
        let mut found = false;
        for way in 0..2 {
            if self.is_unlimited(entry, way) && kernel_limit_ns(fd, way) != 0 {
                entry.unlimited[way].store(FOUND, Ordering::Relaxed);
                found = true;
            }
        }
        found
    }
}

/// The limit that the kernel tells; 0 for none.
fn kernel_limit_ns(fd: usize, way: usize) -> u64 {
    const SOL_SOCKET: usize = 1;
    const SO_RCVTIMEO: usize = 20; // and SO_SNDTIMEO behind it
    let (mut time, mut len) = ([0u64; 2], 16u32);
    let (name, at, len_at) = (SO_RCVTIMEO + way, time.as_mut_ptr(), &raw mut len);
    // SAFETY: the kernel fills a live struct timeval.
    let result = unsafe { sys!(nr::__NR_getsockopt, fd, SOL_SOCKET, name, at, len_at) };
    if is_err(result) {
        return 0;
    }
    let seconds = time[0].saturating_mul(1_000_000_000);
    seconds.saturating_add(time[1] * 1000)
}
