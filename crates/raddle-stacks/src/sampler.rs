//! Registers and the stack of a kernel thread that executes, at one instant: a sample of a perf
//! event. The kernel takes it in an interrupt, so that the thread does not stop, and nothing
//! changes while registers and stack are copied.
//!
//! 1. The event counts the CPU time that the thread uses, and is due each millisecond.
//! 2. The first sample has the registers of user mode and up to 64 KiB of the stack above the
//!    stack pointer.
//! 3. The event ends. Without a dump there is none: the process pays nothing.
//!
//! The layout of a record is in perf_event_open(2). Where the kernel permits no events
//! (`perf_event_paranoid` is 3, or a container's filter), there is no sample.
//!
//! Rejected: a handler in the process that notes the registers. The stack changes while it is read
//! from outside, and a copy by the handler needs memory of the process.

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::memory::Memory;
use crate::rules::{RBP, RBX, RIP, RSP, Registers};

/// How long a sample is waited for: some turns of a thread that shares its CPU.
const PATIENCE: Duration = Duration::from_millis(30);
/// The most time for all samples of a dump.
const ALL_PATIENCE: Duration = Duration::from_secs(2);
const PERIOD_NS: u64 = 1_000_000;
/// The most bytes of the stack; the kernel copies fewer if a record would be too large.
const STACK_BYTES: u32 = 65_528;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const PERF_SAMPLE_REGS_USER: u64 = 1 << 12;
const PERF_SAMPLE_STACK_USER: u64 = 1 << 13;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_SAMPLE_REGS_ABI_64: u64 = 2;
/// `exclude_kernel` and `exclude_hv`: samples of user mode, which users may take.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;
/// rbx, rbp, rsp, rip, r12 to r15, as perf numbers them; a record has them in this order.
const PERF_REGISTERS: [(u32, usize); 8] = [
    (1, RBX),
    (6, RBP),
    (7, RSP),
    (8, RIP),
    (20, 12),
    (21, 13),
    (22, 14),
    (23, 15),
];

/// `struct perf_event_attr`, version 3.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

const _ATTRIBUTES: () = assert!(size_of::<Attributes>() == 96);

/// A thread that executes, at one instant.
pub(crate) struct Sample {
    pub registers: Registers,
    pub stack: CopiedStack,
}

/// A copy of the inner part of a stack.
pub(crate) struct CopiedStack {
    /// The address of the first byte, at the start of a page; what is below the stack pointer is 0.
    start: u64,
    bytes: Vec<u8>,
}

impl Memory for CopiedStack {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let from = address
            .checked_sub(self.start)
            .and_then(|at| self.bytes.get(usize::try_from(at).ok()?..));
        let from = from.unwrap_or_default();
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
        length
    }
}

/// Takes samples for a dump.
#[derive(Default)]
pub(crate) struct Sampler {
    spent: Duration,
    /// True if the kernel has refused an event.
    is_refused: bool,
}

impl Sampler {
    /// Takes a sample of a kernel thread, by its number here; `None` if the thread doesn't execute
    /// in user mode soon, or the kernel doesn't permit it.
    pub(crate) fn take(&mut self, tid: u32) -> Option<Sample> {
        if self.is_refused || self.spent >= ALL_PATIENCE {
            return None;
        }
        let begun = Instant::now();
        let event = Event::of(tid);
        self.is_refused = event.is_none();
        let sample = event.and_then(|event| event.wait());
        self.spent += begun.elapsed();
        sample
    }
}

/// A perf event, and the buffer of its records.
struct Event {
    file: OwnedFd,
    /// The control page, and the records behind it.
    buffer: *mut u8,
}

const PAGE: usize = 4096;
const RECORD_BYTES: usize = 32 * PAGE;
const BUFFER_BYTES: usize = PAGE + RECORD_BYTES;
/// The place of `data_head` in the control page.
const HEAD: usize = 1024;

impl Event {
    fn of(tid: u32) -> Option<Event> {
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_TASK_CLOCK,
            sample_period: PERIOD_NS,
            sample_type: PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
            flags: USER_ONLY,
            wakeup_events: 1,
            sample_regs_user: PERF_REGISTERS
                .iter()
                .fold(0, |all, (bit, _)| all | 1 << bit),
            sample_stack_user: STACK_BYTES,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads a live structure of the size that it names.
        let file = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid as libc::pid_t,
                -1,
                -1,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let file = i32::try_from(file).ok().filter(|&file| file >= 0)?;
        // SAFETY: a new descriptor, which nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever there is room.
        let buffer = unsafe {
            let fd = file.as_raw_fd();
            libc::mmap(null_mut(), BUFFER_BYTES, access, libc::MAP_SHARED, fd, 0)
        };
        (buffer != libc::MAP_FAILED).then_some(Event {
            file,
            buffer: buffer.cast(),
        })
    }

    fn wait(&self) -> Option<Sample> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.checked_duration_since(Instant::now())?;
            let mut polled = libc::pollfd {
                fd: self.file.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let wait_ms = left.as_millis() as i32 + 1;
            // SAFETY: one live structure.
            unsafe { libc::poll(&raw mut polled, 1, wait_ms) };
            let records = self.records();
            if !records.is_empty() {
                return find_sample(&records);
            }
            if polled.revents & !libc::POLLIN != 0 {
                return None; // the thread has ended
            }
        }
    }

    /// Copies what the kernel has written. It writes no more than fits: no record is overwritten.
    fn records(&self) -> Vec<u8> {
        // SAFETY: the word is inside the control page, aligned, and the kernel writes it whole.
        let head = unsafe { AtomicU64::from_ptr(self.buffer.add(HEAD).cast()) };
        // Pairs with the kernel's store after it has written a record.
        let length = (head.load(Ordering::Acquire) as usize).min(RECORD_BYTES);
        let mut bytes = vec![0; length];
        // SAFETY: so many bytes behind the control page are mapped, and the kernel has written
        // them.
        unsafe {
            let from = self.buffer.add(PAGE);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), length);
        }
        bytes
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: our own mapping, without references to it.
        unsafe { libc::munmap(self.buffer.cast(), BUFFER_BYTES) };
    }
}

/// Finds the first sample with registers and a stack.
fn find_sample(mut records: &[u8]) -> Option<Sample> {
    while let Some(header) = records.first_chunk::<8>() {
        let kind = u32::from_le_bytes(*header.first_chunk()?);
        let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let record = records.get(8..size)?;
        if kind == PERF_RECORD_SAMPLE
            && let Some(sample) = Sample::parse(record)
        {
            return Some(sample);
        }
        records = &records[size..];
    }
    None
}

impl Sample {
    /// The body of a record: the ABI, the registers, the size of the copy, the copy, and how many
    /// of its bytes the kernel could read.
    fn parse(record: &[u8]) -> Option<Sample> {
        let word = |number: usize| {
            let bytes = record.get(number * 8..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        if word(0)? != PERF_SAMPLE_REGS_ABI_64 {
            return None;
        }
        let mut registers: Registers = Default::default();
        for (number, (_, register)) in PERF_REGISTERS.iter().enumerate() {
            registers[*register] = Some(word(1 + number)?);
        }
        let behind = 1 + PERF_REGISTERS.len();
        let size = usize::try_from(word(behind)?).ok()?;
        let copy = record.get((behind + 1) * 8..)?.get(..size)?;
        let read = word(behind + 1 + size / 8)?;
        let copy = copy.get(..usize::try_from(read).ok()?)?;
        let pointer = registers[RSP]?;
        let start = pointer & !(PAGE as u64 - 1);
        let mut bytes = vec![0; (pointer - start) as usize];
        bytes.extend_from_slice(copy);
        Some(Sample {
            registers,
            stack: CopiedStack { start, bytes },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;

    #[inline(never)]
    fn compute(stop: &AtomicBool) -> u64 {
        let mut turns = 0;
        while !stop.load(Ordering::Relaxed) {
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_thread_that_computes_is_sampled() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            let local = 0u8;
            // SAFETY: it has no argument and can't fail.
            let tid = unsafe { libc::gettid() };
            sender.send((tid, &raw const local as u64)).unwrap();
            compute(&STOP)
        });
        let (tid, local) = receiver.recv().unwrap();
        let mut sampler = Sampler::default();
        // On a busy machine the thread may have no CPU for a while.
        let sample = (0..20).find_map(|_| sampler.take(tid.unsigned_abs()));
        STOP.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let Some(sample) = sample else {
            assert!(sampler.is_refused, "the thread was never seen");
            eprintln!("skipped: the kernel permits no perf events");
            return;
        };
        let pointer = sample.registers[RSP].unwrap();
        assert!(pointer <= local && local - pointer < 1 << 16);
        assert!(sample.stack.read(local, &mut [0]) == 1);
    }

    #[test]
    fn broken_records_are_no_samples() {
        assert!(find_sample(&[]).is_none());
        assert!(find_sample(&[9, 0, 0, 0, 0, 0, 0, 0]).is_none());
        assert!(find_sample(&[0xff; 64]).is_none());
        let mut record = [0; 96];
        record[..8].copy_from_slice(&[9, 0, 0, 0, 0, 0, 96, 0]);
        record[8] = 2;
        record[80..88].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(find_sample(&record).is_none());
    }
}
