//! Direct reads: past the page cache, many at a time, without a kernel thread of the runtime.
//!
//! A green thread submits its read to an AIO context (`io_submit(2)`) and parks. The disk's
//! interrupt writes the *event* of a read that is done into memory that the context shares with the
//! process, and signals an eventfd that the pump watches. So neither the submitter nor any other
//! kernel thread has to run for that. The first that looks *reaps*: a carrier without work or at
//! its regular look, the poller, sysmon on guard. While several reads are under way, most are
//! reaped without a system call.
//!
//! 1. The submitter has prepared its task; the event's number is the address of the transfer on its
//!    stack.
//! 2. The reaper takes the lock, passes over the events, claims their tasks, and pushes them.
//! 3. No event is missed: the kernel signals the eventfd after it has written one, and the pump
//!    reaps at each of these signals. A look before the signal only takes it sooner.
//!
//! A read that would wait while it is submitted (a lock, dirty pages, a full queue of the device)
//! is refused by the kernel, RWF_NOWAIT, as is one of a file that isn't read past the cache and has
//! nothing there: those are the ring's. Writes are, too: a signal for the file's size limit would
//! come while they are submitted, and once more when the ring's refusal is told.
//!
//! Where the kernel refuses contexts (`aio-max-nr`, seccomp) there are none. A context belongs to
//! its memory: the child of a fork and a program after `execve` have none.

use crate::scheduling::chaos::{self, Point};
use crate::scheduling::switch;
use crate::state::carrier::Carrier;
pub use crate::state::parts::direct::Direct;
use crate::state::parts::direct::NONE;
use crate::state::process::PROCESS;
use core::cell::Cell;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::timestamp;
use raddle_sched::{TaskList, TaskRef, Wake};
use raddle_sys::abi::{AioEvent, Iocb};
use raddle_sys::{is_err, nr, sys};

/// Reads that may be under way at once; what is more goes elsewhere.
const ENTRIES: usize = 512;

const STARTING: u32 = 1;
const READY: u32 = 2;
const REFUSED: u32 = 3;

// IOCB_CMD_*
const PREAD: u16 = 0;
const PREADV: u16 = 7;
/// `IOCB_FLAG_RESFD`.
const SIGNALS: u32 = 1;
/// `RWF_NOWAIT`.
const NOWAIT: u32 = nr::RWF_NOWAIT;

/// `struct aio_ring`: what the kernel keeps at a context's address. Its layout is an ABI: programs
/// reap from it since Linux 2.6.
#[repr(C)]
struct AioRing {
    id: u32,
    /// How many events there is room for.
    count: u32,
    /// Written by the reaper: the next event to take.
    head: AtomicU32,
    /// Written by the kernel: where the next event will be.
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_len: u32,
}

/// The layout that is written here.
const MAGIC: u32 = 0xa10a_10a1;

/// What is to be read, at a place that is named.
#[derive(Clone, Copy)]
pub struct DirectRead {
    pub fd: u32,
    /// A buffer and its bytes; or a `struct iovec` array and its length.
    pub is_vector: bool,
    pub address: usize,
    pub len: usize,
    pub offset: u64,
}

struct Transfer {
    task: TaskRef,
    /// Time stamp at the start, then ticks that it took.
    ticks: Cell<u64>,
    result: Cell<isize>,
    /// Changed under the lock.
    done: Cell<bool>,
}

impl Direct {
    /// Reads; the running thread parks meanwhile, through signals. Gives the result and the time
    /// stamp ticks that it took; `None` if the read can't be submitted.
    ///
    /// # Safety
    /// As for the system call that the read stands for.
    pub unsafe fn read(&self, read: DirectRead) -> Option<(isize, u64)> {
        if Carrier::current().is_apart() {
            return None; // its descriptors may not be those of the process, nor its memory's limits
        }
        let context = self.context()?;
        let thread = Carrier::current().thread();
        let transfer = Transfer {
            task: thread.task_ref(),
            ticks: Cell::new(timestamp()),
            result: Cell::new(0),
            done: Cell::new(false),
        };
        thread.task.prepare();
        // SAFETY: the caller's promise; the transfer lives until its event was reaped.
        let give = || unsafe { submit(context, &read, &transfer) };
        if PROCESS.filters.unless_coming(Carrier::current(), give) != Some(true) {
            if !thread.task.claim(Wake::Retry) {
                let _ = switch::park(); // a signal has pushed it
            }
            return None;
        }
        chaos::stop(Point::Helper);
        PROCESS.pump.begin_wait();
        let mut outcome = switch::park();
        while outcome != Wake::Woken {
            let reaping = self.reaping.lock();
            if transfer.done.get() {
                break;
            }
            // Under the lock, so that the event wakes it.
            transfer.task.get().prepare();
            drop(reaping);
            outcome = switch::park_through_signals();
        }
        PROCESS.pump.end_wait();
        Some((transfer.result.get(), transfer.ticks.get()))
    }

    fn context(&self) -> Option<usize> {
        match self.state.load(Ordering::Acquire) {
            READY => Some(self.context.load(Ordering::Relaxed)),
            NONE => self.start(),
            _ => None,
        }
    }

    #[cold]
    fn start(&self) -> Option<usize> {
        if self.state.swap(STARTING, Ordering::Relaxed) != NONE {
            return None;
        }
        let made = PROCESS
            .filters
            .unless_coming(Carrier::current(), make_context);
        let made = made.flatten();
        self.context.store(made.unwrap_or(0), Ordering::Relaxed);
        let state = if made.is_some() { READY } else { REFUSED };
        self.state.store(state, Ordering::Release);
        made
    }

    fn ring(&self) -> Option<&AioRing> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        let context = self.context.load(Ordering::Relaxed);
        // SAFETY: the kernel maps the structure there for as long as the process has its memory.
        Some(unsafe { &*with_exposed_provenance_mut::<AioRing>(context) })
    }

    /// Returns true if there may be reads, which the pump is signalled for.
    pub(crate) fn is_used(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY
    }

    /// Returns true if reads are done that aren't reaped yet.
    #[inline(always)]
    pub(crate) fn has_events(&self) -> bool {
        self.ring().is_some_and(|ring| {
            ring.head.load(Ordering::Relaxed) != ring.tail.load(Ordering::Relaxed)
        })
    }

    /// Reaps: adds the threads of the reads that are done to `woken`.
    pub(crate) fn reap(&self, woken: &TaskList) {
        let Some(ring) = self.ring() else {
            return;
        };
        let _reaping = self.reaping.lock();
        let events = core::ptr::from_ref(ring)
            .wrapping_byte_add(ring.header_len as usize)
            .cast::<AioEvent>();
        let mut head = ring.head.load(Ordering::Relaxed);
        while head != ring.tail.load(Ordering::Acquire) {
            // SAFETY: the kernel has written the events from head to tail, all within its mapping.
            let event = unsafe { events.wrapping_add(head as usize).read() };
            head = if head + 1 == ring.count { 0 } else { head + 1 };
            ring.head.store(head, Ordering::Release);
            complete(&event, woken);
        }
    }

    /// In the child of a fork: there is no context; its memory isn't in the child either.
    pub(crate) fn reset(&self) {
        let Self {
            state,
            reaping,
            context: _,
        } = self;
        // SAFETY: no other thread exists in the child.
        unsafe { reaping.break_lock() };
        state.store(NONE, Ordering::Relaxed);
    }
}

/// A read is done: its thread is to be pushed, unless a signal has done that. Under the lock.
fn complete(event: &AioEvent, woken: &TaskList) {
    // SAFETY: the transfer stays alive until it is done, which is said here, once.
    let transfer = unsafe { &*with_exposed_provenance_mut::<Transfer>(event.data as usize) };
    let task = transfer.task;
    let took = timestamp().wrapping_sub(transfer.ticks.get());
    transfer.ticks.set(took);
    transfer.result.set(event.result as isize);
    transfer.done.set(true);
    // From here on the transfer may be gone, once the lock is.
    if task.get().claim(Wake::Woken) {
        woken.push(task);
    }
}

/// Makes a context; its address, which is its name.
fn make_context() -> Option<usize> {
    const DONTFORK: usize = nr::MADV_DONTFORK as usize;
    let mut context = 0usize;
    // SAFETY: the kernel fills a live word.
    if is_err(unsafe { sys!(nr::__NR_io_setup, ENTRIES, &raw mut context) }) {
        return None;
    }
    // SAFETY: the kernel has mapped the structure there.
    let ring = unsafe { &*with_exposed_provenance_mut::<AioRing>(context) };
    if ring.magic != MAGIC || ring.incompatible != 0 {
        // SAFETY: the context just made.
        unsafe { sys!(nr::__NR_io_destroy, context) };
        return None;
    }
    let len = ring.header_len as usize + ring.count as usize * size_of::<AioEvent>();
    // SAFETY: the mapping just made.
    unsafe { sys!(nr::__NR_madvise, context, len, DONTFORK) };
    Some(context)
}

/// Gives a read to the kernel; false if it refuses.
///
/// # Safety
/// The read's buffers and the transfer stay until the event was reaped.
unsafe fn submit(context: usize, read: &DirectRead, transfer: &Transfer) -> bool {
    let request = Iocb {
        data: core::ptr::from_ref(transfer).expose_provenance() as u64,
        rw_flags: NOWAIT,
        opcode: if read.is_vector { PREADV } else { PREAD },
        fd: read.fd,
        address: read.address as u64,
        len: read.len as u64,
        offset: read.offset,
        flags: SIGNALS,
        signalled: PROCESS.pump.own_descriptors()[2] as u32,
        ..Iocb::default()
    };
    let list = [(&raw const request).expose_provenance()];
    // SAFETY: the caller's promise; the kernel copies the list and the request.
    unsafe { sys!(nr::__NR_io_submit, context, 1usize, list.as_ptr()) == 1 }
}
