//! Pinning events: which threads sat in the kernel and kept a carrier, and where.
//!
//! Sysmon notes one whenever it hands a carrier's place to another, and shows the latest to who
//! asks. It writes and reads them alone; they are atomic because they live in a static.

use crate::carrier::Carrier;
use crate::clock;
use crate::cpus::read_file;
use crate::kthread;
use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{PINS, PinRecord, Pins};

/// See the module.
pub(crate) struct Log {
    /// All that ever were; the latest [`PINS`] of them are kept.
    total: AtomicU64,
    kept: [Kept; PINS],
}

struct Kept {
    at_ns: AtomicU64,
    tid: AtomicU64,
    call: AtomicU64,
    address: AtomicU64,
}

impl Kept {
    const fn new() -> Self {
        Self {
            at_ns: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            call: AtomicU64::new(0),
            address: AtomicU64::new(0),
        }
    }
}

impl Log {
    pub(crate) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            kept: [const { Kept::new() }; PINS],
        }
    }

    /// Notes that `carrier` sits in the kernel. In sysmon.
    pub(crate) fn note(&self, carrier: &Carrier) {
        let total = self.total.load(Ordering::Relaxed);
        let kept = &self.kept[total as usize % PINS];
        let (call, address) = where_it_waits(carrier.kernel_tid.load(Ordering::Relaxed));
        let tid = carrier.thread_or_none().map_or(0, Thread::tid);
        kept.at_ns.store(clock::now_ns(), Ordering::Relaxed);
        kept.tid.store(u64::from(tid), Ordering::Relaxed);
        kept.call.store(call as u64, Ordering::Relaxed);
        kept.address.store(address, Ordering::Relaxed);
        self.total.store(total + 1, Ordering::Relaxed);
    }

    /// The latest, oldest first. In sysmon.
    pub(crate) fn latest(&self) -> Pins {
        let total = self.total.load(Ordering::Relaxed);
        let mut pins = Pins {
            total,
            ..Pins::NONE
        };
        let first = total.saturating_sub(PINS as u64);
        for (to, number) in pins.latest.iter_mut().zip(first..total) {
            let kept = &self.kept[number as usize % PINS];
            *to = PinRecord {
                at_ns: kept.at_ns.load(Ordering::Relaxed),
                address: kept.address.load(Ordering::Relaxed),
                call: kept.call.load(Ordering::Relaxed) as i64,
                tid: kept.tid.load(Ordering::Relaxed),
            };
        }
        pins
    }
}

/// The number of the call that a kernel thread is in, -1 outside of calls (a page fault), and the
/// address of its code. -2 where `/proc` doesn't say.
fn where_it_waits(tid: u32) -> (i64, u64) {
    let mut text = [0u8; 256];
    let mut path = [0u8; kthread::TASK_PATH];
    let unknown = (PinRecord::UNKNOWN, 0);
    let Some(text) = read_file(kthread::task_path(&mut path, tid, b"/syscall\0"), &mut text) else {
        return unknown;
    };
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let call = words.next().and_then(decimal);
    let address = words.next_back().and_then(hexadecimal);
    match (call, address) {
        (Some(call), Some(address)) => (call, address),
        _ => unknown, // "running": it has come back
    }
}

fn decimal(word: &[u8]) -> Option<i64> {
    let (digits, sign) = match word {
        [b'-', digits @ ..] => (digits, -1),
        digits => (digits, 1),
    };
    number(digits, 10).map(|value| sign * value as i64)
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"0x")?, 16)
}

fn number(digits: &[u8], base: u32) -> Option<u64> {
    let value = |sum: u64, &digit: &u8| {
        let digit = char::from(digit).to_digit(base)?;
        sum.checked_mul(u64::from(base))?
            .checked_add(u64::from(digit))
    };
    (!digits.is_empty()).then(|| digits.iter().try_fold(0, value))?
}
