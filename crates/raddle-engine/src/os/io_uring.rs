//! An io_uring's two queues, as the thread that made them uses them.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sys::abi::{Cqe, EventsArg, RingParams, RsrcUpdate, Sqe, Timespec};
use raddle_sys::{err, errno, is_err, mem, nr, sys};

// IORING_SETUP_*
const CQSIZE: u32 = 1 << 3;
const COOP_TASKRUN: u32 = 1 << 8;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_SQARRAY: u32 = 1 << 16;
// IORING_ENTER_*
const GETEVENTS: usize = 1;
const WITH_TIME: usize = 1 << 3;
const REGISTERED: usize = 1 << 4;
// IORING_OP_*
const POLL: u8 = 6;
const READ: u8 = 22;
const WRITE: u8 = 23;
const OP_FUTEX_WAIT: u8 = 51;

/// A futex didn't have the value that was waited for.
pub(crate) const EAGAIN: i32 = err(errno::EAGAIN) as i32;

/// Where the kernel maps the requests.
const REQUESTS_AT: usize = 0x1000_0000;
const SHARED_POPULATE: usize = 0x8001;
const READ_WRITE: usize = 3;

/// What is to be read or written.
#[derive(Clone, Copy)]
pub struct Work {
    pub is_write: bool,
    pub fd: u32,
    pub address: usize,
    pub len: u32,
    /// Not -1, which would mean the file's own position.
    pub offset: u64,
}

/// See the module.
pub(crate) struct Queues {
    /// The ring's index among those registered with this thread.
    index: usize,
    /// What is shared with the kernel: addresses and sizes in bytes.
    mappings: [(usize, usize); 2],
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

/// When the kernel does the rest of what was asked, on the ring's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// In any system call; a call that waits is ended.
    Anywhere,
    /// Where the ring is entered.
    There,
}

/// What came of entering a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The kernel has done what there was to do, or was interrupted.
    Done,
    /// The time has passed.
    Late,
    /// The kernel refuses.
    Refused,
}

impl Entered {
    fn of(result: isize) -> Entered {
        const PASSING: [isize; 3] = [err(errno::EINTR), err(errno::EAGAIN), err(errno::EBUSY)];
        match result {
            r if r == err(errno::ETIME) => Entered::Late,
            r if is_err(r) && !PASSING.contains(&r) => Entered::Refused,
            _ => Entered::Done,
        }
    }
}

impl Queues {
    /// Makes a ring for this thread alone, for so many requests at a time of which the kernel isn't
    /// told, and so many completions that aren't taken.
    pub(crate) fn make(entries: usize, completions: u32, rest: Rest) -> Result<Queues, isize> {
        let when = match rest {
            Rest::Anywhere => COOP_TASKRUN,
            Rest::There => DEFER_TASKRUN,
        };
        let mut params = RingParams {
            cq_entries: completions,
            flags: CQSIZE | SINGLE_ISSUER | NO_SQARRAY | when,
            ..RingParams::default()
        };
        // SAFETY: the kernel fills a live structure.
        let fd = unsafe { sys!(nr::__NR_io_uring_setup, entries, &raw mut params) };
        if is_err(fd) {
            return Err(fd);
        }
        let made = Self::map(fd, &params)
            .and_then(|mappings| Ok(Self::of(&params, mappings, register(fd)?)));
        // SAFETY: the ring's descriptor; the mappings and the registration keep the ring.
        unsafe { sys!(nr::__NR_close, fd) };
        made
    }

    /// Gives the ring back to the kernel, which forgets what it was asked for; by its thread.
    pub(crate) fn unmake(self) {
        unregister(self.index);
        self.unmap();
    }

    /// Lets go of what is shared with the kernel, which keeps the rest until the thread ends.
    pub(crate) fn unmap(self) {
        for (address, len) in self.mappings {
            // SAFETY: the ring's own mappings, which no thread uses any more.
            unsafe { mem::unmap(with_exposed_provenance_mut(address), len) };
        }
    }

    /// Tries whether the ring can wait for `word`. No request is under way.
    pub(crate) fn can_wait_for(&mut self, word: *const u32) -> bool {
        // A wait for a value that the word doesn't have ends at once.
        // SAFETY: the word is live.
        let other = unsafe { AtomicU32::from_ptr(word.cast_mut()) }
            .load(Ordering::Relaxed)
            .wrapping_add(1 << 31);
        self.push_wait(word, other, 0);
        self.enter(true);
        matches!(self.pop(), Some((_, EAGAIN)))
    }

    fn map(fd: isize, params: &RingParams) -> Result<[(usize, usize); 2], isize> {
        let done = params.cq_off.dropped_or_cqes as usize;
        let rings = done + params.cq_entries as usize * size_of::<Cqe>();
        let requests = params.sq_entries as usize * size_of::<Sqe>();
        let map = |len: usize, at: usize| {
            const DONTFORK: usize = nr::MADV_DONTFORK as usize;
            // SAFETY: fresh mappings of the ring's descriptor.
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
            Ok((address as usize, len))
        };
        Ok([map(rings, 0)?, map(requests, REQUESTS_AT)?])
    }

    fn of(params: &RingParams, mappings: [(usize, usize); 2], index: usize) -> Queues {
        let [(rings, _), (requests, _)] = mappings;
        // SAFETY: the kernel said that these words are there, for as long as the mapping, which
        // outlives this.
        let word = |offset: u32| unsafe {
            &*with_exposed_provenance_mut::<AtomicU32>(rings + offset as usize)
        };
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        Queues {
            index,
            mappings,
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

    pub(crate) fn push_work(&mut self, work: &Work, data: u64) {
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
    pub(crate) fn push_wait(&mut self, word: *const u32, value: u32, data: u64) {
        const PRIVATE_U32: i32 = 128 | 2;
        self.push(Sqe {
            opcode: OP_FUTEX_WAIT,
            fd: PRIVATE_U32,
            offset: value.into(),
            address: word.expose_provenance() as u64,
            address3: u32::MAX.into(),
            user_data: data,
            ..Sqe::default()
        });
    }

    /// Adds a wait until a descriptor can be read.
    pub(crate) fn push_poll(&mut self, fd: i32, data: u64) {
        const IN: u32 = 1;
        self.push(Sqe {
            opcode: POLL,
            fd,
            operation_flags: IN,
            user_data: data,
            ..Sqe::default()
        });
    }

    /// Tells the kernel of the requests; waits until one is done, or just looks which are.
    pub(crate) fn enter(&mut self, wait: bool) -> Entered {
        Entered::of(self.call(u32::from(wait), GETEVENTS, 0, 0))
    }

    /// As [`Queues::enter`], and waits for at most so long.
    pub(crate) fn enter_for(&mut self, ns: u64) -> Entered {
        let time = Timespec::from_ns(ns);
        let arg = EventsArg {
            time: (&raw const time).expose_provenance() as u64,
            ..EventsArg::default()
        };
        let at = (&raw const arg).expose_provenance();
        Entered::of(self.call(1, GETEVENTS | WITH_TIME, at, size_of::<EventsArg>()))
    }

    /// Tells the kernel of the only request that it doesn't know; false if it refuses that.
    pub(crate) fn submit_one(&mut self) -> bool {
        self.call(0, 0, 0, 0);
        self.waiting = 0;
        let tail = self.tail.load(Ordering::Relaxed);
        let is_taken = self.head.load(Ordering::Acquire) == tail;
        if !is_taken {
            self.tail.store(tail.wrapping_sub(1), Ordering::Release);
        }
        is_taken
    }

    /// Takes back a request that the kernel doesn't know: its `user_data`.
    pub(crate) fn take_back(&mut self) -> Option<u64> {
        let tail = self.tail.load(Ordering::Relaxed);
        if self.head.load(Ordering::Acquire) == tail {
            return None;
        }
        let last = tail.wrapping_sub(1);
        self.tail.store(last, Ordering::Release);
        let at = self.requests.wrapping_add((last & self.mask) as usize);
        // SAFETY: written by `push`, and not taken by the kernel since.
        Some(unsafe { at.read() }.user_data)
    }

    /// Returns true if the kernel has taken all requests.
    pub(crate) fn is_told(&self) -> bool {
        self.waiting == 0
    }

    fn call(&mut self, minimum: u32, flags: usize, arg: usize, len: usize) -> isize {
        let (index, requests) = (self.index, self.waiting);
        let flags = flags | REGISTERED;
        // SAFETY: the requests' makers promised that they are valid.
        let taken = unsafe {
            sys!(
                nr::__NR_io_uring_enter,
                index,
                requests,
                minimum,
                flags,
                arg,
                len
            )
        };
        if taken > 0 {
            self.waiting -= taken as u32;
        }
        taken
    }

    /// Waits until `requests` requests with `user_data` below `below` are done, for at most `ns`,
    /// and takes none. Returns true if they are done.
    ///
    /// # Signal safety
    /// For a handler on the ring's thread that interrupts anything but a call for the ring.
    pub(crate) fn finish(&self, requests: u32, below: u64, ns: u64) -> bool {
        let (count, done) = self.done_below(below);
        if done < requests {
            self.wait_for(count + requests - done, ns);
        }
        self.done_below(below).1 >= requests
    }

    /// Returns how many done requests aren't taken, and how many of them are below `below`.
    fn done_below(&self, below: u64) -> (u32, u32) {
        let head = self.done_head.load(Ordering::Relaxed);
        let count = self.done_tail.load(Ordering::Acquire).wrapping_sub(head);
        let is_below = |&at: &u32| {
            let at = head.wrapping_add(at) & self.done_mask;
            // SAFETY: the kernel has filled this place.
            unsafe { self.done.wrapping_add(at as usize).read() }.user_data < below
        };
        (count, (0..count).filter(is_below).count() as u32)
    }

    fn wait_for(&self, minimum: u32, ns: u64) {
        let (index, flags) = (self.index, GETEVENTS | WITH_TIME | REGISTERED);
        let time = Timespec::from_ns(ns);
        let arg = EventsArg {
            time: (&raw const time).expose_provenance() as u64,
            ..EventsArg::default()
        };
        let (at, len) = (&raw const arg, size_of::<EventsArg>());
        // SAFETY: nothing is submitted; the kernel reads live structures.
        unsafe {
            sys!(
                nr::__NR_io_uring_enter,
                index,
                0usize,
                minimum,
                flags,
                at,
                len
            )
        };
    }

    /// Takes what is said of one request: its `user_data` and its result.
    pub(crate) fn pop(&mut self) -> Option<(u64, i32)> {
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

/// Gives the index back; the thread's own.
fn unregister(index: usize) {
    const UNREGISTER_FDS: usize = 21;
    const BY_INDEX: usize = 1 << 31;
    let update = RsrcUpdate {
        offset: index as u32,
        ..RsrcUpdate::default()
    };
    let at = &raw const update;
    // SAFETY: the kernel reads a live structure.
    unsafe {
        sys!(
            nr::__NR_io_uring_register,
            index,
            UNREGISTER_FDS | BY_INDEX,
            at,
            1usize
        )
    };
}
