//! The structures of a snapshot and of a request, exactly as they are on the wire.

use core::mem::{offset_of, size_of};

use crate::codes::{CarrierState, PolicyKind, RequestKind, ThreadFlags, ThreadState, WaitKind};

/// The first eight bytes of every snapshot.
pub const MAGIC: [u8; 8] = *b"RADDLE\0\x01";

/// The version that this crate writes. It reads this and every later version.
pub const VERSION: u32 = 2;

/// [`ThreadRecord::carrier`] of a green thread that has no carrier yet.
pub const NO_CARRIER: u32 = u32::MAX;

/// Bytes of a name, as `prctl(PR_SET_NAME)` has them: 15 and a zero.
pub const NAME_BYTES: usize = 16;

/// A structure that has its wire form in memory, byte for byte.
///
/// # Safety
/// The type is `repr(C)`, has no padding and no pointer, and every bit pattern is a value.
pub unsafe trait Wire: Copy {
    /// Returns the bytes to write.
    ///
    /// # Blocking
    /// Nothing.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: `self` is valid for reads of its size, and by the promise of `Wire` none of
        // these bytes is padding, so all are initialized.
        unsafe { core::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }

    /// Reads a value from the start of `bytes`, at any alignment; what follows belongs to later
    /// versions. Returns `None` if there are too few bytes.
    fn from_prefix(bytes: &[u8]) -> Option<Self> {
        let own = bytes.get(..size_of::<Self>())?;
        // SAFETY: `own` is as long as the type, the read is unaligned, and by the promise of `Wire`
        // every bit pattern is a value.
        Some(unsafe { own.as_ptr().cast::<Self>().read_unaligned() })
    }
}

// SAFETY: integers and arrays of integers only; `layout` below checks that no byte is padding.
unsafe impl Wire for Header {}
// SAFETY: as for `Header`.
unsafe impl Wire for Request {}
// SAFETY: as for `Header`.
unsafe impl Wire for CarrierRecord {}
// SAFETY: as for `Header`.
unsafe impl Wire for ThreadRecord {}

/// The first eight bytes of every request.
pub const REQUEST_MAGIC: [u8; 8] = *b"RADDLE\0\x02";

/// The server's first bytes, which ask for the proof.
pub const PROOF_WANTED: [u8; 8] = *b"RDLPROOF";
/// The beginning of the mapping's name in `/proc/PID/maps`, behind `/memfd:`.
pub const PROOF_NAME: &[u8; 18] = b"raddle-inspection-";
/// Bytes of the proof: the rest of the name, hexadecimal digits.
pub const PROOF_BYTES: usize = 32;

/// A client's message, which follows the proof. The answer is a snapshot taken after the request
/// took effect.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`REQUEST_MAGIC`].
    pub magic: [u8; 8],
    /// The kind; an unknown kind only takes a snapshot.
    pub kind: RequestKind,
    /// The word that some kinds define; otherwise zero.
    pub reserved: u32,
    /// The value that the kind defines.
    pub value: u64,
}

impl Request {
    /// A request of this kind.
    pub const fn new(kind: RequestKind, value: u64) -> Request {
        Request {
            magic: REQUEST_MAGIC,
            kind,
            reserved: 0,
            value,
        }
    }
}

impl CarrierRecord {
    /// Returns how often a carrier was woken that went to sleep `park` times: each time, but for a
    /// sleep that lasts. A spare or a blocked carrier is in no such sleep.
    ///
    /// # Blocking
    /// Nothing.
    pub fn wakeups_of(park: u64, state: CarrierState) -> u64 {
        let sleeps = matches!(state, CarrierState::IDLE | CarrierState::POLLING);
        park.saturating_sub(sleeps as u64)
    }
}

/// The start of a snapshot. Times are CLOCK_MONOTONIC of the process's machine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`] of the writer.
    pub version: u32,
    /// Bytes of this structure as the writer knows it.
    pub header_size: u32,
    /// Bytes of a [`ThreadRecord`] as the writer knows it.
    pub record_size: u32,
    /// Bytes of a [`CarrierRecord`] as the writer knows it.
    pub carrier_record_size: u32,
    /// The process id, as the process sees it.
    pub pid: u32,
    /// How many [`CarrierRecord`]s follow.
    pub carriers: u32,
    /// How many [`ThreadRecord`]s follow them.
    pub threads: u64,
    /// When the snapshot was taken.
    pub now_ns: u64,
    /// When the engine started.
    pub started_ns: u64,
    /// [`Header::ALARMS`]; other bits are zero.
    pub flags: u64,
    /// Green threads alive when the snapshot began; records may be fewer or more, because
    /// threads come and go while it is taken.
    pub live_threads: u64,
    /// Carriers that may be active.
    pub wanted: u64,
    /// The quantum; `u64::MAX` for none.
    pub quantum_ns: u64,
    /// The policy of the default engine.
    pub policy: PolicyKind,
    /// After a [`RequestKind::SHARE`]: one more than the quota of that engine, in percent of one
    /// CPU, or 0 if there is no such engine. Else zero.
    pub answer: u32,
    /// Percentages of the groups of the fair policy, the rest first; all zero without shares.
    pub shares: [u8; 16],
    /// The longest time for which a runnable thread waited for a carrier, as far as measured.
    pub longest_delay: Delay,
    /// Carriers that may be active beside the wanted ones, while other processes want the CPUs.
    pub extra: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// A time for which a runnable thread waited for a carrier.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// The length in nanoseconds; 0 for no delay.
    pub ns: u64,
    /// When it ended.
    pub at_ns: u64,
    /// The thread.
    pub tid: u64,
    /// The thread's name, as in a [`ThreadRecord`]; empty if the thread has ended.
    pub name: [u8; NAME_BYTES],
}

impl Delay {
    /// No delay.
    pub const NONE: Delay = Delay {
        ns: 0,
        at_ns: 0,
        tid: 0,
        name: [0; NAME_BYTES],
    };

    /// Returns the name without its padding.
    pub fn name_bytes(&self) -> &[u8] {
        name_bytes(&self.name)
    }
}

fn name_bytes(name: &[u8; NAME_BYTES]) -> &[u8] {
    let end = name.iter().position(|&byte| byte == 0);
    &name[..end.unwrap_or(NAME_BYTES)]
}

impl Header {
    /// Set if the kernel reports at once which carrier waits in it, once one has; otherwise sysmon
    /// looks.
    pub const ALARMS: u64 = 1;

    /// Returns a header of this version, with its sizes filled in and everything else zero.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::{Header, Wire};
    /// let header = Header { pid: 42, ..Header::new() };
    /// assert_eq!(header.as_bytes().len(), header.header_size as usize);
    /// ```
    pub const fn new() -> Header {
        Header {
            magic: MAGIC,
            version: VERSION,
            header_size: size_of::<Header>() as u32,
            record_size: size_of::<ThreadRecord>() as u32,
            carrier_record_size: size_of::<CarrierRecord>() as u32,
            pid: 0,
            carriers: 0,
            threads: 0,
            now_ns: 0,
            started_ns: 0,
            flags: 0,
            live_threads: 0,
            wanted: 0,
            quantum_ns: 0,
            policy: PolicyKind::FIFO,
            answer: 0,
            shares: [0; 16],
            longest_delay: Delay::NONE,
            extra: 0,
            reserved: [0; 2],
        }
    }
}

impl Default for Header {
    fn default() -> Header {
        Header::new()
    }
}

/// One carrier. Counters only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierRecord {
    /// The carrier's number, from 0.
    pub id: u32,
    /// The kernel thread, as in `/proc/PID/task`.
    pub kernel_tid: u32,
    pub state: CarrierState,
    /// The green thread that it runs; 0 for none.
    pub current_tid: u32,
    /// Green threads it switched to.
    pub switches: u64,
    /// Green threads it stole.
    pub steal: u64,
    /// Attempts to steal that found nothing.
    pub steal_fail: u64,
    /// Green threads that were preempted on it.
    pub preempt: u64,
    /// Times it went to sleep.
    pub park: u64,
    /// Times it was woken from sleep.
    pub wakeups: u64,
    /// Green threads in its run queue.
    pub queue_len: u64,
    /// The engine that it belongs to; 0 is the first.
    pub engine: u64,
    /// The quota of that engine in percent of one CPU; 0 for none.
    pub quota: u64,
    /// Since when the current thread has its turn; 0 if that isn't measured.
    pub turn_since_ns: u64,
    /// Zero.
    pub reserved: [u64; 4],
}

/// One green thread. Counters only grow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadRecord {
    /// The thread id that `gettid` returns.
    pub tid: u32,
    /// The carrier it runs on or last ran on, or [`NO_CARRIER`].
    pub carrier: u32,
    pub state: ThreadState,
    /// What the thread waits for.
    pub wait_kind: WaitKind,
    /// An address, a descriptor or a count, by `wait_kind`.
    pub wait_arg: u64,
    /// When the state began; 0 if unknown.
    pub since_ns: u64,
    /// When the wait times out; 0 for never.
    pub deadline_ns: u64,
    /// Times it was switched to.
    pub switches: u64,
    /// Times it was stolen.
    pub steal: u64,
    /// Times a carrier tried to steal it and lost the race.
    pub steal_fail: u64,
    /// Times it was preempted.
    pub preempt: u64,
    /// Times it parked.
    pub park: u64,
    /// As `prctl(PR_SET_NAME)` set it; ends at the first zero byte.
    pub name: [u8; NAME_BYTES],
    pub flags: ThreadFlags,
    /// Its group of [`Header::shares`], or the engine that it belongs to.
    pub group: u32,
    /// CPU time, counted while a tool asks ([`RequestKind::CPU`]), and from the program's first
    /// query on.
    pub cpu_ns: u64,
    /// Of a light thread: the thread that hosts it, 0 if none does yet.
    pub host_tid: u64,
    /// Zero.
    pub reserved: u64,
}

impl ThreadRecord {
    /// Returns the name without its padding: any bytes, UTF-8 or not.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::ThreadRecord;
    /// let name = *b"server\0\0\0\0\0\0\0\0\0\0";
    /// let record = ThreadRecord { name, ..ThreadRecord::default() };
    /// assert_eq!(record.name_bytes(), b"server");
    /// ```
    pub fn name_bytes(&self) -> &[u8] {
        name_bytes(&self.name)
    }
}

/// The wire form, checked at compile time: sizes, and that each last field ends the structure. The
/// sum of the field sizes shows that no field needs padding before it.
const _LAYOUT: () = {
    assert!(size_of::<Header>() == 8 + 6 * 4 + 7 * 8 + 2 * 4 + 16 + 6 * 8 + NAME_BYTES);
    assert!(size_of::<CarrierRecord>() == 4 * 4 + 7 * 8 + 7 * 8);
    assert!(size_of::<ThreadRecord>() == 4 * 4 + 8 * 8 + NAME_BYTES + 2 * 4 + 3 * 8);
    assert!(offset_of!(Header, threads) == 32);
    assert!(offset_of!(Header, live_threads) == 64);
    assert!(offset_of!(CarrierRecord, switches) == 16);
    assert!(offset_of!(CarrierRecord, queue_len) == 64);
    assert!(offset_of!(ThreadRecord, wait_arg) == 16);
    assert!(offset_of!(ThreadRecord, name) == 80);
    assert!(offset_of!(ThreadRecord, flags) == 96);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_at_their_places() {
        let record = ThreadRecord {
            tid: 0x0102_0304,
            carrier: NO_CARRIER,
            wait_arg: 0x7f00_0000_1234,
            flags: ThreadFlags::MAIN,
            ..ThreadRecord::default()
        };
        let bytes = record.as_bytes();
        assert_eq!(bytes.len(), 128);
        assert_eq!(bytes[..8], [4, 3, 2, 1, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[16..24], [0x34, 0x12, 0, 0, 0, 0x7f, 0, 0]);
        assert_eq!(bytes[96..100], [2, 0, 0, 0]);
        assert_eq!(Header::new().as_bytes()[..12], *b"RADDLE\0\x01\x02\0\0\0");
    }

    #[test]
    fn a_value_is_read_from_any_alignment_and_never_from_too_few_bytes() {
        let record = CarrierRecord {
            id: 7,
            queue_len: u64::MAX - 1,
            ..CarrierRecord::default()
        };
        let mut bytes = std::vec![0xaa_u8];
        bytes.extend_from_slice(record.as_bytes());
        bytes.push(0xbb);
        assert_eq!(CarrierRecord::from_prefix(&bytes[1..]), Some(record));
        assert_eq!(CarrierRecord::from_prefix(&bytes[1..128]), None);
    }

    #[test]
    fn a_name_ends_at_its_zero_or_at_its_last_byte() {
        let mut record = ThreadRecord::default();
        assert_eq!(record.name_bytes(), b"");
        record.name = *b"exactly sixteen!";
        assert_eq!(record.name_bytes(), b"exactly sixteen!");
    }
}
