//! Blocking records: which threads blocked in the kernel and kept a carrier, and where.
//!
//! Sysmon makes a record whenever it lets another carrier take a carrier's place, and shows the
//! latest records on request. Only sysmon writes and reads them. They are atomic because they live
//! in a static.
//!
//! Sysmon also counts the most frequent *blocking sites* (call and address), and keeps the words
//! that were on the stack at each: the tool finds the frames in these words, since the process has
//! no unwinder. A new site replaces the site with the least count, and goes on from that count (the
//! Space-Saving algorithm of Metwally, Agrawal and El Abbadi, 2005): a site that makes a sixteenth
//! of all records is there.
//!
//! Sysmon must not wait for the program's memory. It reads the pages of a stack that are there
//! (`mincore(2)`), by a system call, since the thread may come back and its stack may go. After
//! that the thread must still be where it was. With a seccomp filter, which may kill for calls that
//! it doesn't know, no stacks are entry.

use crate::kernel_threads::kthread;
use crate::os::cpus::read_file;
use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::parts::blocking::{BlockingLog, SiteEntry};
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_inspect::{
    BLOCKING_RECORDS, BlockingRecord, BlockingRecords, BlockingSite, STACK_WORDS,
};
use raddle_sys::{is_err, mem, nr, sys};

/// After a refusal the kernel isn't asked for so long: a process that may not be traced
/// (`PR_SET_DUMPABLE`, a change of its user) is refused each time.
const REFUSED_NS: u64 = 1_000_000_000;

/// The least time between two reads of the stack at one site.
const READ_EVERY_NS: u64 = 1_000_000_000;

impl SiteEntry {
    fn is_of(&self, at: BlockedAt) -> bool {
        self.count.load(Ordering::Relaxed) != 0
            && self.call.load(Ordering::Relaxed) == at.call as u64
            && self.address.load(Ordering::Relaxed) == at.address
    }

    /// Counts one more record here, by the thread `tid` on the kernel thread `kernel_tid`.
    fn count(&self, at: BlockedAt, tid: u32, kernel_tid: u32, now_ns: u64) {
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

    fn show(&self) -> BlockingSite {
        BlockingSite {
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

impl BlockingLog {
    /// Makes a record: `carrier` sits in the kernel. In sysmon.
    pub(crate) fn note(&self, carrier: &Carrier) {
        let total = self.total.load(Ordering::Relaxed);
        let entry = &self.records[total as usize % BLOCKING_RECORDS];
        let kernel_tid = carrier.kernel_tid.load(Ordering::Relaxed);
        let now_ns = clock::now_ns();
        let at = self.ask(kernel_tid, now_ns);
        let tid = carrier.thread_or_none().map_or(0, Thread::tid);
        let (call, address) = at.map_or((BlockingRecord::UNKNOWN, 0), |at| (at.call, at.address));
        entry.at_ns.store(now_ns, Ordering::Relaxed);
        entry.tid.store(u64::from(tid), Ordering::Relaxed);
        entry.call.store(call as u64, Ordering::Relaxed);
        entry.address.store(address, Ordering::Relaxed);
        self.total.store(total + 1, Ordering::Relaxed);
        let Some(at) = at else {
            return;
        };
        let known = self.sites.iter().find(|site| site.is_of(at));
        let rarest = || {
            let count = |site: &&SiteEntry| site.count.load(Ordering::Relaxed);
            self.sites.iter().min_by_key(count)
        };
        if let Some(site) = known.or_else(rarest) {
            site.count(at, tid, kernel_tid, now_ns);
        }
    }

    /// Where the carrier's kernel thread waits, unless the kernel has refused to say so of late.
    fn ask(&self, kernel_tid: u32, now_ns: u64) -> Option<BlockedAt> {
        let refused_ns = self.refused_ns.load(Ordering::Relaxed);
        if refused_ns != 0 && now_ns.saturating_sub(refused_ns) < REFUSED_NS {
            return None;
        }
        let answer = where_it_waits(kernel_tid);
        let refused_ns = if answer.is_none() { now_ns } else { 0 };
        self.refused_ns.store(refused_ns, Ordering::Relaxed);
        answer?
    }

    /// Returns the most frequent sites, in no order. In sysmon.
    pub(crate) fn sites(&self) -> impl Iterator<Item = BlockingSite> {
        self.sites.iter().map(SiteEntry::show)
    }

    /// Returns the latest records, oldest first. In sysmon.
    pub(crate) fn latest(&self) -> BlockingRecords {
        let total = self.total.load(Ordering::Relaxed);
        let mut records = BlockingRecords {
            total,
            ..BlockingRecords::NONE
        };
        let first = total.saturating_sub(BLOCKING_RECORDS as u64);
        for (to, number) in records.latest.iter_mut().zip(first..total) {
            let entry = &self.records[number as usize % BLOCKING_RECORDS];
            *to = BlockingRecord {
                at_ns: entry.at_ns.load(Ordering::Relaxed),
                address: entry.address.load(Ordering::Relaxed),
                call: entry.call.load(Ordering::Relaxed) as i64,
                tid: entry.tid.load(Ordering::Relaxed),
            };
        }
        records
    }
}

/// Where a kernel thread blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BlockedAt {
    /// The number of the call that it is in, -1 outside of calls (a page fault).
    call: i64,
    stack_pointer: u64,
    /// The program counter.
    address: u64,
}

/// `None` where `/proc` doesn't say; nothing if the thread has come back.
fn where_it_waits(tid: u32) -> Option<Option<BlockedAt>> {
    let mut text = [0u8; 256];
    let mut path = [0u8; kthread::TASK_PATH];
    let path = kthread::task_path(&mut path, tid, b"/syscall\0");
    read_file(path, &mut text).map(parsed)
}

/// Returns what `/proc/self/task/TID/syscall` says; `None` if the thread has come back.
fn parsed(text: &[u8]) -> Option<BlockedAt> {
    let line = text.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|&byte| byte == b' ');
    let call = words.next().and_then(decimal)?;
    let address = words.next_back().and_then(hexadecimal)?;
    let stack_pointer = words.next_back().and_then(hexadecimal)?;
    Some(BlockedAt {
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
