//! The memory of another process, read by `process_vm_readv(2)`: the process neither helps nor
//! stops.

use std::fmt;
use std::io;

/// Memory that is read by address.
pub trait Memory {
    /// Reads from `address` on, and returns how many bytes could be read before the first that is
    /// missing.
    fn read(&self, address: u64, to: &mut [u8]) -> usize;

    /// Returns how many bytes there are at most.
    fn size(&self) -> u64 {
        u64::MAX
    }

    /// Reads all of `to`, or fails.
    fn read_all(&self, address: u64, to: &mut [u8]) -> Option<()> {
        (self.read(address, to) == to.len()).then_some(())
    }

    /// Reads as many bytes from each of the addresses, one behind the other. Returns for each
    /// address whether all of its bytes were read.
    fn read_pieces(&self, addresses: &[u64], bytes: usize, to: &mut [u8]) -> Vec<bool> {
        let pieces = addresses.iter().zip(to.chunks_exact_mut(bytes));
        pieces
            .map(|(&address, piece)| self.read_all(address, piece).is_some())
            .collect()
    }

    /// Reads parts in their order: each from an address on, into its bytes. Returns how many bytes
    /// could be read before the first that is missing.
    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> usize {
        let mut all = 0;
        for (address, to) in parts {
            let got = self.read(*address, to);
            all += got;
            if got < to.len() {
                break;
            }
        }
        all
    }

    /// Reads eight bytes.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read_all(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Reads four bytes.
    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read_all(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }
}

/// The memory of a process.
pub struct ProcessMemory {
    pid: libc::pid_t,
}

/// Why a process's memory can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel doesn't permit it.
    Forbidden,
    /// There is no such process any more.
    Gone,
    /// The kernel, or a filter, has no such call.
    Missing,
    /// The address that was tried isn't mapped.
    Unmapped,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Refusal::Forbidden => "the kernel doesn't let this user read its memory",
            Refusal::Gone => "it has ended",
            Refusal::Missing => "process_vm_readv is not there, or a filter refuses it",
            Refusal::Unmapped => "its tables are not where it says",
        })
    }
}

impl std::error::Error for Refusal {}

impl ProcessMemory {
    pub fn of(pid: u32) -> ProcessMemory {
        ProcessMemory {
            pid: pid as libc::pid_t,
        }
    }

    /// Tries to read at an address, and says why not.
    ///
    /// # Errors
    /// The reason.
    pub fn probe(&self, address: u64) -> Result<(), Refusal> {
        match self.try_read(address, &mut [0; 8]) {
            Ok(8) => Ok(()),
            Ok(_) => Err(Refusal::Unmapped),
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::ESRCH) => Refusal::Gone,
                Some(libc::EPERM) => Refusal::Forbidden,
                Some(libc::EFAULT) => Refusal::Unmapped,
                _ => Refusal::Missing,
            }),
        }
    }

    /// The kernel stops at the first byte that is missing.
    fn try_read_pieces(&self, addresses: &[u64], bytes: usize, to: &mut [u8]) -> io::Result<usize> {
        let local = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: to.len(),
        };
        let remote: Vec<libc::iovec> = addresses
            .iter()
            .map(|&address| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(address as usize),
                iov_len: bytes,
            })
            .collect();
        // SAFETY: the kernel writes to a live buffer, which has room for all pieces; the other
        // addresses are the other process's.
        let got = unsafe {
            libc::process_vm_readv(
                self.pid,
                &raw const local,
                1,
                remote.as_ptr(),
                remote.len() as libc::c_ulong,
                0,
            )
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }

    fn try_read(&self, address: u64, to: &mut [u8]) -> io::Result<usize> {
        let local = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: to.len(),
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(address as usize),
            iov_len: to.len(),
        };
        // SAFETY: the kernel writes to a live buffer of this length; the other address is the other
        // process's.
        let got = unsafe {
            libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0)
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        if to.is_empty() || address.checked_add(to.len() as u64).is_none() {
            return 0;
        }
        self.try_read(address, to).unwrap_or(0)
    }

    /// By one call, for up to [`PARTS_MAX`]: the kernel reads them in their order.
    fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> usize {
        const NONE: libc::iovec = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let (mut local, mut remote) = ([NONE; PARTS_MAX], [NONE; PARTS_MAX]);
        let count = parts.len().min(PARTS_MAX);
        for (number, (address, to)) in parts.iter_mut().take(count).enumerate() {
            (local[number].iov_base, local[number].iov_len) = (to.as_mut_ptr().cast(), to.len());
            remote[number].iov_base = std::ptr::without_provenance_mut(*address as usize);
            remote[number].iov_len = to.len();
        }
        // SAFETY: the kernel writes to live buffers of these lengths; the other addresses are the
        // other process's.
        let got = unsafe {
            let count = count as libc::c_ulong;
            libc::process_vm_readv(self.pid, local.as_ptr(), count, remote.as_ptr(), count, 0)
        };
        usize::try_from(got).unwrap_or(0)
    }

    /// By as few calls as there are missing pieces, and one for each [`PIECES_MAX`].
    fn read_pieces(&self, addresses: &[u64], bytes: usize, to: &mut [u8]) -> Vec<bool> {
        let count = addresses.len().min(to.len() / bytes.max(1));
        let mut are_read = vec![false; addresses.len()];
        let mut at = 0;
        while at < count {
            let end = count.min(at + PIECES_MAX);
            let room = &mut to[at * bytes..end * bytes];
            let got = self.try_read_pieces(&addresses[at..end], bytes, room);
            let whole = got.unwrap_or(0) / bytes.max(1);
            are_read[at..at + whole].fill(true);
            at += whole + usize::from(at + whole < end);
        }
        are_read
    }
}

/// The most parts of [`ProcessMemory::read_parts`].
const PARTS_MAX: usize = 8;
/// The most pieces that Linux reads by one call (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

const PAGE: usize = 4096;
/// The most pages of one stack that are kept: a deeper one is cut there.
const PAGES_MAX: usize = 2048;

/// Pages of one stack, each read once and whole. Two reads of the same word agree.
pub(crate) struct Pages<'a> {
    memory: &'a dyn Memory,
    /// The address and the readable bytes of each page; the latest used is the last.
    pages: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(memory: &'a dyn Memory) -> Pages<'a> {
        Pages {
            memory,
            pages: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Forgets all pages, for the next stack.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bytes.clear();
    }

    /// Returns the word at an address, if it is aligned and readable.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return self.memory.word(address);
        }
        let page = address & !(PAGE as u64 - 1);
        let found = self.pages.iter().rposition(|&(at, _)| at == page);
        let index = match found {
            Some(index) => index,
            None => self.load(page)?,
        };
        let offset = (address - page) as usize;
        (offset + 8 <= self.pages[index].1).then_some(())?;
        let from = index * PAGE + offset;
        let bytes = self.bytes.get(from..from + 8)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    /// Returns true if all pages are in memory as they were when they were read.
    pub(crate) fn are_unchanged(&self) -> bool {
        let mut now = [0; PAGE];
        let mut kept = self.pages.iter().zip(self.bytes.chunks_exact(PAGE));
        kept.all(|(&(page, got), bytes)| {
            self.memory.read(page, &mut now[..got]) == got && now[..got] == bytes[..got]
        })
    }

    /// Returns how many pages were read.
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Returns the addresses of the pages that were read whole.
    pub(crate) fn whole(&self) -> impl Iterator<Item = u64> {
        let whole = self.pages.iter().filter(|&&(_, got)| got == PAGE);
        whole.map(|&(page, _)| page)
    }

    /// Forgets all pages, and reads these, between two readings of other bytes at an address: all
    /// by one call, in this order. Returns false, without a page, if something is missing.
    pub(crate) fn load_between(
        &mut self,
        pages: &[u64],
        address: u64,
        [before, after]: [&mut [u8]; 2],
    ) -> bool {
        self.pages.clear();
        self.bytes.resize(pages.len() * PAGE, 0);
        let all = before.len() + self.bytes.len() + after.len();
        let mut parts: Vec<(u64, &mut [u8])> = vec![(address, before)];
        parts.extend(pages.iter().copied().zip(self.bytes.chunks_exact_mut(PAGE)));
        parts.push((address, after));
        let is_whole = self.memory.read_parts(&mut parts) == all;
        if is_whole {
            self.pages.extend(pages.iter().map(|&page| (page, PAGE)));
        }
        is_whole
    }

    fn load(&mut self, page: u64) -> Option<usize> {
        let index = self.pages.len();
        if index == PAGES_MAX {
            return None;
        }
        self.bytes.resize((index + 1) * PAGE, 0);
        let got = self.memory.read(page, &mut self.bytes[index * PAGE..]);
        self.pages.push((page, got));
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_up_to_its_end() {
        let memory = ProcessMemory::of(std::process::id());
        let words = [1u64, 2, 3];
        assert_eq!(memory.word(words.as_ptr() as u64 + 8), Some(2));
        assert_eq!(memory.word(8), None);
        assert_eq!(memory.word(u64::MAX - 3), None);
        assert_eq!(memory.probe(words.as_ptr() as u64), Ok(()));
        assert_eq!(memory.probe(8), Err(Refusal::Unmapped));
    }

    #[test]
    fn pieces_are_read_past_those_that_are_missing() {
        let memory = ProcessMemory::of(std::process::id());
        let words = [1u64, 2, 3];
        let at = words.as_ptr() as u64;
        let mut to = [0; 32];
        let read = memory.read_pieces(&[at, 8, at + 16, at + 8], 8, &mut to);
        assert_eq!(read, [true, false, true, true]);
        assert_eq!((to[0], to[16], to[24]), (1, 3, 2));
        let many = vec![at + 8; 3000];
        let mut to = vec![0; 3000 * 8];
        let read = memory.read_pieces(&many, 8, &mut to);
        assert!(read.iter().all(|it| *it) && to.chunks(8).all(|it| it[0] == 2));
    }

    #[test]
    fn parts_are_read_in_their_order_up_to_the_first_that_is_missing() {
        let memory = ProcessMemory::of(std::process::id());
        let words = [1u64, 2, 3];
        let at = words.as_ptr() as u64;
        let (mut one, mut two) = ([0; 8], [0; 16]);
        let got = memory.read_parts(&mut [(at + 16, &mut one), (at, &mut two)]);
        assert_eq!((got, one[0], two[0], two[8]), (24, 3, 1, 2));
        let got = memory.read_parts(&mut [(at, &mut one), (8, &mut two)]);
        assert_eq!((got, one[0]), (8, 1));
        assert_eq!(memory.read_parts(&mut [(8, &mut one), (at, &mut two)]), 0);
    }

    #[test]
    fn a_process_that_has_ended_says_so() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(ProcessMemory::of(child.id()).probe(8), Err(Refusal::Gone));
    }

    #[test]
    fn pages_are_read_between_two_readings_of_other_bytes() {
        let own = ProcessMemory::of(std::process::id());
        let bytes = vec![7u8; 3 * PAGE];
        let page = (bytes.as_ptr() as u64).next_multiple_of(PAGE as u64);
        let word = 5u64;
        let at = &raw const word as u64;
        let mut pages = Pages::new(&own);
        let (mut before, mut after) = ([0; 8], [0; 8]);
        assert!(pages.load_between(&[page, page + 4096], at, [&mut before, &mut after]));
        assert_eq!((before[0], after[0], pages.count()), (5, 5, 2));
        assert_eq!(pages.word(page + 4096), Some(0x0707_0707_0707_0707));
        assert!(pages.whole().eq([page, page + 4096]));
        assert!(!pages.load_between(&[page, 0], at, [&mut before, &mut after]));
        assert_eq!(pages.count(), 0);
    }

    #[test]
    fn a_page_is_read_once() {
        let memory = ProcessMemory::of(std::process::id());
        let word = Box::new(std::cell::Cell::new(7u64));
        let mut pages = Pages::new(&memory);
        let at = word.as_ptr() as u64;
        assert_eq!(pages.word(at), Some(7));
        word.set(8);
        assert_eq!(pages.word(at), Some(7));
        pages.clear();
        assert_eq!(pages.word(at), Some(8));
        assert_eq!(pages.word(0), None);
    }
}
