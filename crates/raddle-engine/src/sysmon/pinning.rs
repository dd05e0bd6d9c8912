//! Pinning events: which threads sat in the kernel and kept a carrier, and where.
//!
//! Sysmon notes one whenever it hands a carrier's place to another, and shows the latest on
//! request. Only sysmon writes and reads them; they are atomic because they live in a static.
//!
//! It also counts the most frequent *places* (call and address), and keeps of each what was on the
//! stack: the tool finds the frames in that, the process has no unwinder. A new place takes that of
//! the one with the least count, and goes on from its count (the Space-Saving algorithm of
//! Metwally, Agrawal and El Abbadi, 2005): whatever makes a sixteenth of all events is there.
//!
//! Sysmon must not wait for the program's memory. It reads the pages of a stack that are there
//! (`mincore(2)`), by a system call, since the thread may come back and its stack may go. After
//! that the thread must still be where it was. With a seccomp filter, which may kill for calls that
//! it doesn't know, no stacks are kept.

use crate::kernel_threads::kthread;
use crate::os::cpus::read_file;
use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::parts::pinning::{Log, Place};
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{PINS, PinPlace, PinRecord, Pins, STACK_WORDS};
use raddle_sys::{is_err, mem, nr, sys};

/// After a refusal the kernel isn't asked for so long: a process that may not be traced
/// (`PR_SET_DUMPABLE`, a change of its user) is refused each time.
const REFUSED_NS: u64 = 1_000_000_000;

/// A place's stack is read so often at most.
const READ_EVERY_NS: u64 = 1_000_000_000;

impl Place {
    fn is_of(&self, at: At) -> bool {
        self.count.load(Ordering::Relaxed) != 0
            && self.call.load(Ordering::Relaxed) == at.call as u64
            && self.address.load(Ordering::Relaxed) == at.address
    }

    /// One more event here, by the thread `tid` on the kernel thread `kernel_tid`.
    fn count(&self, at: At, tid: u32, kernel_tid: u32, now_ns: u64) {
        if !self.is_of(at) {
            self.call.store(at.call as u64, Ordering::Relaxed);
            self.address.store(at.address, Ordering::Relaxed);
            self.words.store(0, Ordering::Relaxed);
            self.read_ns.store(0, Ordering::Relaxed);
        }
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        self.at_ns.store(now_ns, Ordering::Relaxed);
        self.tid.store(u64::from(tid), Ordering::Relaxed);
        if now_ns.saturating_sub(self.read_ns.load(Ordering::Relaxed)) < READ_EVERY_NS {
            return;
        }
        self.read_ns.store(now_ns, Ordering::Relaxed);
        self.words.store(0, Ordering::Relaxed);
        let words = read_stack(at.stack_pointer, &self.stack);
        if where_it_waits(kernel_tid) == Some(Some(at)) {
            self.stack_pointer
                .store(at.stack_pointer, Ordering::Relaxed);
            self.words.store(words as u64, Ordering::Relaxed);
        }
    }

    fn show(&self) -> PinPlace {
        PinPlace {
            count: self.count.load(Ordering::Relaxed),
            at_ns: self.at_ns.load(Ordering::Relaxed),
            tid: self.tid.load(Ordering::Relaxed),
            call: self.call.load(Ordering::Relaxed) as i64,
            address: self.address.load(Ordering::Relaxed),
            stack_pointer: self.stack_pointer.load(Ordering::Relaxed),
            words: self.words.load(Ordering::Relaxed),
            stack: core::array::from_fn(|i| self.stack[i].load(Ordering::Relaxed)),
        }
    }
}

impl Log {
    /// Notes that `carrier` sits in the kernel. In sysmon.
    pub(crate) fn note(&self, carrier: &Carrier) {
        let total = self.total.load(Ordering::Relaxed);
        let kept = &self.kept[total as usize % PINS];
        let kernel_tid = carrier.kernel_tid.load(Ordering::Relaxed);
        let now_ns = clock::now_ns();
        let at = self.ask(kernel_tid, now_ns);
        let tid = carrier.thread_or_none().map_or(0, Thread::tid);
        let (call, address) = at.map_or((PinRecord::UNKNOWN, 0), |at| (at.call, at.address));
        kept.at_ns.store(now_ns, Ordering::Relaxed);
        kept.tid.store(u64::from(tid), Ordering::Relaxed);
        kept.call.store(call as u64, Ordering::Relaxed);
        kept.address.store(address, Ordering::Relaxed);
        self.total.store(total + 1, Ordering::Relaxed);
        let Some(at) = at else {
            return;
        };
        let known = self.places.iter().find(|place| place.is_of(at));
        let rarest = || {
            let count = |place: &&Place| place.count.load(Ordering::Relaxed);
            self.places.iter().min_by_key(count)
        };
        if let Some(place) = known.or_else(rarest) {
            place.count(at, tid, kernel_tid, now_ns);
        }
    }

    /// Where the carrier's kernel thread waits, unless the kernel has refused to say so of late.
    fn ask(&self, kernel_tid: u32, now_ns: u64) -> Option<At> {
        let refused_ns = self.refused_ns.load(Ordering::Relaxed);
        if refused_ns != 0 && now_ns.saturating_sub(refused_ns) < REFUSED_NS {
            return None;
        }
        let answer = where_it_waits(kernel_tid);
        let refused_ns = if answer.is_none() { now_ns } else { 0 };
        self.refused_ns.store(refused_ns, Ordering::Relaxed);
        answer?
    }

    /// The most frequent places, in no order. In sysmon.
    pub(crate) fn places(&self) -> impl Iterator<Item = PinPlace> {
        self.places.iter().map(Place::show)
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

/// Where a kernel thread sits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct At {
    /// The number of the call that it is in, -1 outside of calls (a page fault).
    call: i64,
    stack_pointer: u64,
    /// The program counter.
    address: u64,
}

/// `None` where `/proc` doesn't say; nothing if the thread has come back.
fn where_it_waits(tid: u32) -> Option<Option<At>> {
    let mut text = [0u8; 256];
    let mut path = [0u8; kthread::TASK_PATH];
    let path = kthread::task_path(&mut path, tid, b"/syscall\0");
    read_file(path, &mut text).map(parsed)
}

/// Returns what `/proc/self/task/TID/syscall` says; `None` if the thread has come back.
fn parsed(text: &[u8]) -> Option<At> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|&byte| byte == b' ');
    let call = words.next().and_then(decimal)?;
    let address = words.next_back().and_then(hexadecimal)?;
    let stack_pointer = words.next_back().and_then(hexadecimal)?;
    Some(At {
        call,
        stack_pointer,
        address,
    })
}

/// Reads the words from `from` on, as far as their pages are in memory; returns how many.
fn read_stack(from: u64, to: &[AtomicU64; STACK_WORDS]) -> usize {
    if !from.is_multiple_of(8) {
        return 0;
    }
    let read = || read_pages(from, to);
    PROCESS.filters.unless_any(read).unwrap_or(0)
}

/// As [`read_stack`], by calls that a filter may kill for.
fn read_pages(from: u64, to: &[AtomicU64; STACK_WORDS]) -> usize {
    const PAGES: usize = size_of::<[u64; STACK_WORDS]>() / mem::PAGE_SIZE + 1;
    let first = from as usize & !(mem::PAGE_SIZE - 1);
    let mut resident = [0u8; PAGES];
    let own = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: queries about memory, which is read by the kernel; it fills arrays that live, and
    // that sysmon alone writes.
    unsafe {
        // The second page may not exist.
        for (at, page) in resident.iter_mut().enumerate() {
            let address = first + at * mem::PAGE_SIZE;
            if is_err(sys!(
                nr::__NR_mincore,
                address,
                mem::PAGE_SIZE,
                &raw mut *page
            )) {
                *page = 0;
            }
        }
        let pages = resident.iter().take_while(|&page| page & 1 != 0).count();
        let end = first + pages * mem::PAGE_SIZE;
        let bytes = end.saturating_sub(from as usize).min(size_of_val(to));
        let local = [(&raw const *to).expose_provenance(), bytes];
        let remote = [from as usize, bytes];
        let got = sys!(
            nr::__NR_process_vm_readv,
            own,
            local.as_ptr(),
            1usize,
            remote.as_ptr(),
            1usize,
            0usize
        );
        got.max(0) as usize / 8
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
