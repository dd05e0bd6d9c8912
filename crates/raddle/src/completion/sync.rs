//! What completions are made of, so that model checkers can replace it.
//!
//! Threads block by the parking of their library: under raddle that parks the green thread. Parking
//! may end without cause; whoever parks looks again.

pub use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::time::Instant;

#[cfg(raddle_loom)]
pub use loom::thread::{Thread, current, park};

#[cfg(raddle_shuttle)]
pub use shuttle::thread::{Thread, current, park};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub use std::thread::{Thread, current, park};

/// Parks the thread until it is unparked or the time has come. False: it is past the time.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub fn park_until(deadline: Option<Instant>) -> bool {
    let Some(deadline) = deadline else {
        park();
        return true;
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    std::thread::park_timeout(left);
    true
}

/// In a model any time is over at once.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub fn park_until(deadline: Option<Instant>) -> bool {
    if deadline.is_none() {
        park();
    }
    deadline.is_none()
}
