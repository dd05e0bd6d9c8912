//! An io_uring's two queues, as the thread that made them uses them.

use super::{EAGAIN, Work};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sys::abi::{Cqe, RingParams, RsrcUpdate, Sqe};
use raddle_sys::{err, errno, is_err, nr, sys};

const ENTRIES: usize = 128;
const COMPLETIONS: u32 = 4096;

// IORING_SETUP_*
const CQSIZE: u32 = 1 << 3;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_SQARRAY: u32 = 1 << 16;
// IORING_ENTER_*
const GETEVENTS: usize = 1;
const REGISTERED: usize = 1 << 4;
// IORING_OP_*
const READ: u8 = 22;
const WRITE: u8 = 23;
const FUTEX_WAIT: u8 = 51;

/// Where the kernel maps the requests.
const REQUESTS_AT: usize = 0x1000_0000;
const SHARED_POPULATE: usize = 0x8001;
const READ_WRITE: usize = 3;

/// See the module.
pub(super) struct Queues {
    /// The ring's index among those registered with this thread.
    index: usize,
    head: &'static AtomicU32,
    tail: &'static AtomicU32,
    requests: *mut Sqe,
    mask: u32,
    done_head: &'static AtomicU32,
    done_tail: &'static AtomicU32,
    done: *const Cqe,
    done_mask: u32,
    /// Requests that the kernel hasn't been told of.
    waiting: u32,
}

impl Queues {
    /// Makes a ring for this thread alone, and tries whether it can wait for `word`.
    pub(super) fn make(word: *const u32) -> Result<Queues, isize> {
        let mut params = RingParams {
            cq_entries: COMPLETIONS,
            flags: CQSIZE | SINGLE_ISSUER | DEFER_TASKRUN | NO_SQARRAY,
            ..RingParams::default()
        };
        // SAFETY: the kernel fills a live structure.
        let fd = unsafe { sys!(nr::__NR_io_uring_setup, ENTRIES, &raw mut params) };
        if is_err(fd) {
            return Err(fd);
        }
        let made = Self::map(fd, &params).and_then(|(rings, requests)| {
            let index = register(fd)?;
            Ok(Self::of(&params, rings, requests, index))
        });
        // SAFETY: our own descriptor; the mappings and the registration keep the ring.
        unsafe { sys!(nr::__NR_close, fd) };
        let mut queues = made?;
        // A wait for a value that the word doesn't have ends at once.
        // SAFETY: the word is live.
        let other = unsafe { AtomicU32::from_ptr(word.cast_mut()) }
            .load(Ordering::Relaxed)
            .wrapping_add(1 << 31);
        queues.push_wait(word, other, 0);
        queues.enter(true);
        match queues.pop() {
            Some((_, EAGAIN)) => Ok(queues),
            _ => Err(err(errno::ENOSYS)),
        }
    }

    fn map(fd: isize, params: &RingParams) -> Result<(usize, usize), isize> {
        let done = params.cq_off.dropped_or_cqes as usize;
        let rings = done + params.cq_entries as usize * size_of::<Cqe>();
        let requests = params.sq_entries as usize * size_of::<Sqe>();
        let map = |len: usize, at: usize| {
            const DONTFORK: usize = 10;
            // SAFETY: fresh mappings of our own descriptor.
            let address = unsafe {
                sys!(
                    nr::__NR_mmap,
                    0usize,
                    len,
                    READ_WRITE,
                    SHARED_POPULATE,
                    fd,
                    at
                )
            };
            if is_err(address) {
                return Err(address);
            }
            // SAFETY: the mapping just made.
            unsafe { sys!(nr::__NR_madvise, address, len, DONTFORK) };
            Ok(address as usize)
        };
        Ok((map(rings, 0)?, map(requests, REQUESTS_AT)?))
    }

    fn of(params: &RingParams, rings: usize, requests: usize, index: usize) -> Queues {
        // SAFETY: the kernel said that these words are there, for as long as the mapping, which is
        // never undone.
        let word = |offset: u32| unsafe {
            &*with_exposed_provenance_mut::<AtomicU32>(rings + offset as usize)
        };
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        Queues {
            index,
            head: word(sq.head),
            tail: word(sq.tail),
            requests: with_exposed_provenance_mut(requests),
            mask: params.sq_entries - 1,
            done_head: word(cq.head),
            done_tail: word(cq.tail),
            done: with_exposed_provenance_mut::<Cqe>(rings + cq.dropped_or_cqes as usize)
                .cast_const(),
            done_mask: params.cq_entries - 1,
            waiting: 0,
        }
    }

    /// Adds a request; the kernel is told of those before if there is no room.
    fn push(&mut self, request: Sqe) {
        let tail = self.tail.load(Ordering::Relaxed);
        while tail.wrapping_sub(self.head.load(Ordering::Acquire)) > self.mask {
            self.enter(false);
        }
        let at = self.requests.wrapping_add((tail & self.mask) as usize);
        // SAFETY: the kernel has taken what was in this place.
        unsafe { at.write(request) };
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        self.waiting += 1;
    }

    pub(super) fn push_work(&mut self, work: &Work, data: u64) {
        let opcode = if work.is_write { WRITE } else { READ };
        self.push(Sqe {
            opcode,
            fd: work.fd as i32,
            offset: work.offset,
            address: work.address as u64,
            len: work.len,
            user_data: data,
            ..Sqe::default()
        });
    }

    /// Adds a wait for a futex that holds `value`.
    pub(super) fn push_wait(&mut self, word: *const u32, value: u32, data: u64) {
        const PRIVATE_U32: i32 = 128 | 2;
        self.push(Sqe {
            opcode: FUTEX_WAIT,
            fd: PRIVATE_U32,
            offset: value.into(),
            address: word.expose_provenance() as u64,
            address3: u32::MAX.into(),
            user_data: data,
            ..Sqe::default()
        });
    }

    /// Tells the kernel of the requests; waits until one is done, or just looks which are.
    pub(super) fn enter(&mut self, wait: bool) {
        let (index, flags) = (self.index, GETEVENTS | REGISTERED);
        let (requests, minimum) = (self.waiting, u32::from(wait));
        // SAFETY: the requests' makers promised that they are valid.
        let taken = unsafe { sys!(nr::__NR_io_uring_enter, index, requests, minimum, flags) };
        if taken > 0 {
            self.waiting -= taken as u32;
        }
    }

    /// Takes what is said of one request: its `user_data` and its result.
    pub(super) fn pop(&mut self) -> Option<(u64, i32)> {
        let head = self.done_head.load(Ordering::Relaxed);
        if head == self.done_tail.load(Ordering::Acquire) {
            return None;
        }
        let at = self.done.wrapping_add((head & self.done_mask) as usize);
        // SAFETY: the kernel has filled this place.
        let cqe = unsafe { at.read() };
        self.done_head
            .store(head.wrapping_add(1), Ordering::Release);
        Some((cqe.user_data, cqe.result))
    }
}

/// Registers the ring's descriptor with this thread; gives its index.
fn register(fd: isize) -> Result<usize, isize> {
    const RING_FDS: usize = 20;
    let mut update = RsrcUpdate {
        offset: u32::MAX, // any
        reserved: 0,
        data: fd as u64,
    };
    let at = &raw mut update;
    // SAFETY: the kernel reads and fills a live structure.
    let count = unsafe { sys!(nr::__NR_io_uring_register, fd, RING_FDS, at, 1usize) };
    match count {
        1 => Ok(update.offset as usize),
        0 => Err(err(errno::EINVAL)),
        errno => Err(errno),
    }
}
