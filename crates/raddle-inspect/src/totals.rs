//! What a process counts of itself as a whole, for an exporter of metrics. It follows the carriers
//! in the answer to a [`RequestKind::METRICS`](crate::RequestKind), and the
//! [`Layout`](crate::Layout) follows it.

use crate::codes::PolicyKind;
use crate::histogram::Histogram;
use crate::records::Wire;

/// The version of [`Totals`] that this crate writes. A reader knows one version only.
pub const TOTALS_VERSION: u32 = 1;

/// Kinds of waits that are counted apart: a [`WaitKind`](crate::WaitKind) modulo this number.
pub const WAIT_KINDS: usize = 32;

/// Engines of a process.
pub const ENGINES_MAX: usize = 64;

/// One engine; all zero for one that isn't in use.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineRecord {
    /// Carriers that may be active; 0 for an engine that isn't in use.
    pub wanted: u32,
    /// Carriers that may be active beside these, while other processes want the CPUs.
    pub extra: u32,
    /// Carriers with a kernel thread, and those that are being made; without those of bound
    /// threads.
    pub made: u32,
    pub policy: PolicyKind,
    /// Percent of one CPU that its threads may use; 0 for all.
    pub quota: u32,
    /// 1 while that is used up.
    pub is_held: u32,
    /// Runnable threads in its own queues; those in the carriers' queues come on top.
    pub queue_len: u64,
}

/// Counters of the process. They only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// [`TOTALS_VERSION`] of the writer.
    pub version: u32,
    /// Bytes of this structure as the writer knows it.
    pub size: u32,
    /// Green threads that were made, the main one included.
    pub created: u64,
    /// Waits that ended by their time limit.
    pub time_outs: u64,
    /// Looks into the event pump.
    pub polls: u64,
    /// Events that these have found.
    pub poll_events: u64,
    /// Carriers that were replaced while they sat in the kernel.
    pub blocked: u64,
    /// The sum of the durations in `wake_ups`.
    pub wake_ups_ns: u64,
    /// The sum of the durations in `delays`.
    pub delays_ns: u64,
    /// Times that a thread parked, by the kind of its wait.
    pub parks: [u64; WAIT_KINDS],
    /// The time from a wake-up to running, of one wake-up in 64.
    pub wake_ups: Histogram,
    /// The time from runnable to running.
    pub delays: Histogram,
    /// By their numbers.
    pub engines: [EngineRecord; ENGINES_MAX],
}

impl Totals {
    /// Everything zero.
    pub const NONE: Totals = Totals {
        version: TOTALS_VERSION,
        size: size_of::<Totals>() as u32,
        created: 0,
        time_outs: 0,
        polls: 0,
        poll_events: 0,
        blocked: 0,
        wake_ups_ns: 0,
        delays_ns: 0,
        parks: [0; WAIT_KINDS],
        wake_ups: Histogram::EMPTY,
        delays: Histogram::EMPTY,
        engines: [const {
            EngineRecord {
                wanted: 0,
                extra: 0,
                made: 0,
                policy: PolicyKind::FIFO,
                quota: 0,
                is_held: 0,
                queue_len: 0,
            }
        }; ENGINES_MAX],
    };

    /// Reads the totals at the start of `bytes`; `None` if these are none of the version that the
    /// reader knows.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(raddle_inspect::Totals::parse(&[0; 8192]), None);
    /// ```
    pub fn parse(bytes: &[u8]) -> Option<Totals> {
        let totals = Totals::from_prefix(bytes)?;
        let is_known =
            totals.version == TOTALS_VERSION && totals.size as usize == size_of::<Totals>();
        is_known.then_some(totals)
    }
}

// SAFETY: integers and structures of them; `_LAYOUT` checks that no byte is padding.
unsafe impl Wire for Totals {}

const _LAYOUT: () = {
    assert!(size_of::<EngineRecord>() == 6 * 4 + 8);
    let engines = ENGINES_MAX * size_of::<EngineRecord>();
    let histograms = 2 * size_of::<Histogram>();
    assert!(size_of::<Totals>() == 2 * 4 + 7 * 8 + WAIT_KINDS * 8 + histograms + engines);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_not_read() {
        let totals = Totals {
            created: 7,
            ..Totals::NONE
        };
        assert_eq!(Totals::parse(totals.as_bytes()), Some(totals));
        let later = Totals {
            version: TOTALS_VERSION + 1,
            ..totals
        };
        assert_eq!(Totals::parse(later.as_bytes()), None);
        assert_eq!(Totals::parse(&totals.as_bytes()[1..]), None);
    }
}
