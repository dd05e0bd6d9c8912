//! A perf event that samples registers and the stack of one kernel thread while it executes.
//!
//! The event counts the CPU time that the thread uses. At the end of each period the kernel copies,
//! in an interrupt, the registers of user mode and the inner part of the stack, with the time. The
//! thread does not stop for it, and nothing changes meanwhile. The layout of a record is in
//! perf_event_open(2).

use std::cell::Cell;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::Memory;
use crate::modules::MappedCode;
use crate::rules::{RBP, RBX, RIP, RSP, Registers};

/// The most bytes of the stack that a record can have; the kernel copies fewer if it would be too
/// large.
pub(crate) const STACK_BYTES_MAX: u32 = 65_528;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const PERF_COUNT_SW_CONTEXT_SWITCHES: u64 = 3;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_READ: u64 = 1 << 4;
const PERF_SAMPLE_REGS_USER: u64 = 1 << 12;
const PERF_SAMPLE_STACK_USER: u64 = 1 << 13;
const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;
const PERF_RECORD_MMAP2: u32 = 10;
const PERF_RECORD_MISC_CPUMODE: u16 = 7;
const PERF_RECORD_MISC_KERNEL: u16 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_SAMPLE_REGS_ABI_64: u64 = 2;
/// `exclude_kernel`: no samples of kernel mode, which the kernel may forbid to users.
const EXCLUDE_KERNEL: u64 = 1 << 5;
/// `exclude_hv`.
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// `mmap` and `mmap2`: a record of each mapping of code; `sample_id_all`: with its time.
const MAPPINGS: u64 = 1 << 8 | 1 << 23;
const SAMPLE_ID_ALL: u64 = 1 << 18;
/// `use_clockid`.
const USE_CLOCK_ID: u64 = 1 << 25;
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
    /// By CLOCK_BOOTTIME.
    pub boot_ns: u64,
    /// The CPU time that the thread has used since the event was opened.
    pub cpu_ns: u64,
    /// The thread was in the kernel; registers and stack are those of user mode all the same.
    pub is_in_kernel: bool,
    pub registers: Registers,
    pub stack: CopiedStack,
}

/// A copy of the inner part of a stack.
pub(crate) struct CopiedStack {
    /// The address of the first byte, at the start of a page; what is below the stack pointer is 0.
    start: u64,
    bytes: Vec<u8>,
}

impl CopiedStack {
    /// A copy of the stack from the stack pointer upwards.
    pub(crate) fn of(pointer: u64, copy: &[u8]) -> CopiedStack {
        let start = pointer & !(PAGE as u64 - 1);
        let mut bytes = vec![0; (pointer - start) as usize];
        bytes.extend_from_slice(copy);
        CopiedStack { start, bytes }
    }

    /// Returns the copy from an address on.
    pub(crate) fn from(&self, pointer: Option<u64>) -> Option<(u64, &[u8])> {
        let pointer = pointer?;
        let below = usize::try_from(pointer.checked_sub(self.start)?).ok()?;
        Some((pointer, self.bytes.get(below..)?))
    }

    /// The stack as far as it was copied, and elsewhere the memory as it is now: behind the copy,
    /// and on the stack that a handler on an alternate stack has interrupted. A thread rarely
    /// returns so far out between the sample and the reading.
    pub(crate) fn and<'a>(&'a self, memory: &'a dyn Memory) -> StackAndMemory<'a> {
        StackAndMemory {
            stack: self,
            memory,
            is_deep: Cell::new(false),
        }
    }
}

/// See [`CopiedStack::and`].
pub(crate) struct StackAndMemory<'a> {
    stack: &'a CopiedStack,
    memory: &'a dyn Memory,
    is_deep: Cell<bool>,
}

impl StackAndMemory<'_> {
    /// Returns true if more of the stack was read than was copied.
    pub(crate) fn is_deep(&self) -> bool {
        self.is_deep.get()
    }
}

impl Memory for StackAndMemory<'_> {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let got = self.stack.read(address, to);
        if got == to.len() {
            return got;
        }
        self.is_deep.set(true);
        got + self.memory.read(address + got as u64, &mut to[got..])
    }
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

/// What a thread is sampled with.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// The CPU time between two samples; `None` for a sample of each switch to another thread.
    pub period_ns: Option<u64>,
    /// The thread is sampled in the kernel, too.
    pub with_kernel: bool,
    /// Bytes of the stack that are copied: a multiple of 8, at most [`STACK_BYTES_MAX`].
    pub stack_bytes: u32,
    /// Pages for records: a power of two.
    pub pages: usize,
    /// The descriptor is readable with each sample, and not only when records fill half of the
    /// pages: the kernel has to interrupt a CPU for that.
    pub is_prompt: bool,
    /// Code that the thread maps is told, too.
    pub with_mappings: bool,
}

const PAGE: usize = 4096;
/// The places of `data_head` and `data_tail` in the control page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// A perf event, and the buffer of its records.
pub(crate) struct Event {
    file: OwnedFd,
    /// The control page, and the records behind it.
    buffer: *mut u8,
    record_bytes: usize,
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Event {
    /// Begins to sample a kernel thread, by its number here.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` if the kernel or a filter forbids it, `ESRCH` if the thread has ended.
    pub(crate) fn open(tid: u32, settings: Settings) -> io::Result<Event> {
        let kernel = if settings.with_kernel {
            0
        } else {
            EXCLUDE_KERNEL
        };
        let mappings = u64::from(settings.with_mappings) * (MAPPINGS | SAMPLE_ID_ALL);
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: match settings.period_ns {
                Some(_) => PERF_COUNT_SW_TASK_CLOCK,
                None => PERF_COUNT_SW_CONTEXT_SWITCHES,
            },
            sample_period: settings.period_ns.unwrap_or(1),
            sample_type: PERF_SAMPLE_TIME
                | PERF_SAMPLE_READ
                | PERF_SAMPLE_REGS_USER
                | PERF_SAMPLE_STACK_USER,
            flags: kernel | mappings | EXCLUDE_HYPERVISOR | USE_CLOCK_ID,
            wakeup_events: settings.is_prompt.into(),
            sample_regs_user: PERF_REGISTERS
                .iter()
                .fold(0, |all, (bit, _)| all | 1 << bit),
            sample_stack_user: settings.stack_bytes,
            clockid: libc::CLOCK_BOOTTIME,
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
        let file = i32::try_from(file).ok().filter(|&file| file >= 0);
        let file = file.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a new descriptor, which nothing else owns.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        let record_bytes = settings.pages * PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever there is room.
        let buffer = unsafe {
            let (fd, bytes) = (file.as_raw_fd(), PAGE + record_bytes);
            libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, fd, 0)
        };
        if buffer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Event {
            file,
            buffer: buffer.cast(),
            record_bytes,
        })
    }

    /// Calls `each` with the samples since the last call and `mapped` with code that was mapped,
    /// and gives their room back to the kernel. Returns how many of them the kernel had no room
    /// for.
    pub(crate) fn take(
        &mut self,
        mut each: impl FnMut(Sample),
        mut mapped: impl FnMut(MappedCode),
    ) -> u64 {
        let bytes = self.take_records();
        let mut lost = 0;
        let mut records = &bytes[..];
        while let Some((kind, misc, record)) = next_record(&mut records) {
            match kind {
                PERF_RECORD_SAMPLE => {
                    let is_in_kernel = misc & PERF_RECORD_MISC_CPUMODE == PERF_RECORD_MISC_KERNEL;
                    if let Some(sample) = Sample::parse(record, is_in_kernel) {
                        each(sample);
                    }
                }
                PERF_RECORD_MMAP2 => {
                    if let Some(code) = mapped_code(record) {
                        mapped(code);
                    }
                }
                // The event's number, and how many were lost.
                PERF_RECORD_LOST => lost += word(record, 1).unwrap_or(0),
                _ => {}
            }
        }
        lost
    }

    /// Has the next sample come after so much CPU time from now.
    pub(crate) fn set_period(&self, ns: u64) {
        // _IOW('$', 4, u64)
        const PERF_EVENT_IOC_PERIOD: libc::c_ulong = 0x4008_2404;
        let period = ns.max(1);
        // SAFETY: the kernel reads a live word.
        unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                PERF_EVENT_IOC_PERIOD,
                &raw const period,
            )
        };
    }

    /// Copies what the kernel has written. It never writes over what was not taken.
    fn take_records(&mut self) -> Vec<u8> {
        // SAFETY: the words are inside the control page, aligned, and are written whole.
        let (head, tail) = unsafe {
            let at = |place| AtomicU64::from_ptr(self.buffer.add(place).cast());
            (at(HEAD), at(TAIL))
        };
        // Pairs with the kernel's store after it has written a record.
        let end = head.load(Ordering::Acquire);
        let begin = tail.load(Ordering::Relaxed);
        let length = (end.wrapping_sub(begin) as usize).min(self.record_bytes);
        let from = begin as usize % self.record_bytes;
        let mut bytes = vec![0; length];
        let (first, second) = bytes.split_at_mut(length.min(self.record_bytes - from));
        // SAFETY: so many bytes behind the control page are mapped, and the kernel has written
        // them; those past the end are at the beginning.
        unsafe {
            let records = self.buffer.add(PAGE);
            let copy = std::ptr::copy_nonoverlapping::<u8>;
            copy(records.add(from), first.as_mut_ptr(), first.len());
            copy(records, second.as_mut_ptr(), second.len());
        }
        // The kernel reads it before it writes over the records.
        tail.store(end, Ordering::Release);
        bytes
    }
}

/// Returns the descriptors of events of which the thread has ended and nothing is left to take.
pub(crate) fn ended<'e>(events: impl Iterator<Item = &'e Event>) -> Vec<RawFd> {
    let mut polled: Vec<libc::pollfd> = events
        .map(|event| libc::pollfd {
            fd: event.file.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: so many live structures.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
    let is_ended =
        |it: &&libc::pollfd| it.revents & (libc::POLLHUP | libc::POLLIN) == libc::POLLHUP;
    polled.iter().filter(is_ended).map(|it| it.fd).collect()
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: our own mapping, without references to it.
        unsafe { libc::munmap(self.buffer.cast(), PAGE + self.record_bytes) };
    }
}

/// Takes the next record off the front: its kind, its flags, and its body.
fn next_record<'a>(records: &mut &'a [u8]) -> Option<(u32, u16, &'a [u8])> {
    let header = records.first_chunk::<8>()?;
    let kind = u32::from_le_bytes(*header.first_chunk()?);
    let misc = u16::from_le_bytes([header[4], header[5]]);
    let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
    let record = records.get(8..size)?;
    *records = &records[size..];
    Some((kind, misc, record))
}

fn word(record: &[u8], number: usize) -> Option<u64> {
    let bytes = record.get(number * 8..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// The body of a record: the ids of the process and the thread, the address, the length, the place
/// in the file, the device, the inode with its generation, the rights and flags, the path with
/// zeroes behind it, and the time. `None` for code that is no file's.
fn mapped_code(record: &[u8]) -> Option<MappedCode> {
    const PATH: usize = 8;
    let (start, length) = (word(record, 1)?, word(record, 2)?);
    let end = record.len().checked_sub(8)?;
    let path = record.get(PATH * 8..end)?;
    let path = path.split(|&byte| byte == 0).next()?;
    let path = String::from_utf8_lossy(path);
    let is_file = path.starts_with('/') && !path.starts_with("//");
    is_file.then_some(MappedCode {
        boot_ns: u64::from_le_bytes(*record[end..].first_chunk()?),
        range: start..start.checked_add(length)?,
        offset: word(record, 3)?,
        inode: word(record, 5)?,
        path: path.into_owned(),
    })
}

impl Sample {
    /// The body of a record: the time, the event's count, the ABI, the registers, the size of the
    /// copy, the copy, and how many of its bytes the kernel could read.
    fn parse(record: &[u8], is_in_kernel: bool) -> Option<Sample> {
        const FIRST: usize = 3;
        if word(record, 2)? != PERF_SAMPLE_REGS_ABI_64 {
            return None;
        }
        let mut registers: Registers = Default::default();
        for (number, (_, register)) in PERF_REGISTERS.iter().enumerate() {
            registers[*register] = Some(word(record, FIRST + number)?);
        }
        let behind = FIRST + PERF_REGISTERS.len();
        let size = usize::try_from(word(record, behind)?).ok()?;
        let copy = record.get((behind + 1) * 8..)?.get(..size)?;
        let read = word(record, behind + 1 + size / 8)?;
        let copy = copy.get(..usize::try_from(read).ok()?)?;
        Some(Sample {
            boot_ns: word(record, 0)?,
            cpu_ns: word(record, 1)?,
            is_in_kernel,
            stack: CopiedStack::of(registers[RSP]?, copy),
            registers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_records_are_no_samples() {
        assert!(next_record(&mut &[][..]).is_none());
        assert!(next_record(&mut &[9, 0, 0, 0, 0, 0, 0, 0][..]).is_none());
        assert!(next_record(&mut &[0xff; 64][..]).is_none());
        let mut record = [0; 112];
        record[16] = 2;
        record[88..96].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Sample::parse(&record, false).is_none());
        assert!(Sample::parse(&[], false).is_none());
    }

    #[test]
    fn mapped_code_has_a_range_a_file_and_a_time() {
        let record = |path: &str, time: u64| {
            let words = [0, 0x7000, 0x2000, 0x1000, 0, 42, 0, 0];
            let mut bytes: Vec<u8> = words.iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
            bytes.extend_from_slice(path.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend_from_slice(&time.to_le_bytes());
            bytes
        };
        let code = mapped_code(&record("/lib/a library.so\0", 9)).unwrap();
        assert_eq!((code.range, code.offset), (0x7000..0x9000, 0x1000));
        assert_eq!((code.inode, &*code.path), (42, "/lib/a library.so"));
        assert_eq!(code.boot_ns, 9);
        assert_eq!(mapped_code(&record("//anon\0", 9)), None);
        assert_eq!(mapped_code(&record("[vdso]\0", 9)), None);
        (0..72).for_each(|cut| assert_eq!(mapped_code(&record("/a\0", 9)[..cut]), None, "{cut}"));
    }

    #[test]
    fn records_come_one_after_another() {
        let mut records = Vec::new();
        records.extend_from_slice(&[2, 0, 0, 0, 0, 0, 24, 0]);
        records.extend_from_slice(&[[7; 8], [3, 0, 0, 0, 0, 0, 0, 0]].concat());
        records.extend_from_slice(&[9, 0, 0, 0, 1, 0, 8, 0]);
        let mut rest = &records[..];
        let (kind, _, body) = next_record(&mut rest).unwrap();
        assert_eq!((kind, word(body, 1)), (PERF_RECORD_LOST, Some(3)));
        let (kind, misc, body) = next_record(&mut rest).unwrap();
        assert_eq!(
            (kind, misc, body),
            (PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL, &[][..])
        );
        assert!(next_record(&mut rest).is_none());
    }
}
