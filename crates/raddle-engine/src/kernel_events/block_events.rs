//! Block events: the kernel tells sysmon at once that a carrier waits in the kernel.
//!
//! Nouns: a *perf event* belongs to a carrier's kernel thread. Whenever the kernel takes that
//! thread off its CPU, or puts it back, it writes a record into a *ring* that is mapped here, and
//! wakes the thread that polls the event's descriptor. A block event is *armed* if its ring has
//! room for one such record, and *silent* if it has none: then the kernel drops the record and
//! wakes no thread.
//!
//! Room is made and taken by a plain store to the ring's tail, so neither costs a call:
//!
//! 1. Sysmon finds a carrier that waited in the kernel while others wanted to run; or carriers have
//!    run for a while and hardly slept ([`Sleeps`]). From then on sysmon opens the events of
//!    carriers that run, and arms them. An event costs each sleep of its carrier some hundred
//!    nanoseconds, so carriers that sleep often lose their events again, unless one of them has
//!    waited in others' way. The kernel takes some ten milliseconds to make the first event on a
//!    machine: a kernel thread of its own makes that event, leaves it to sysmon and ends.
//! 2. A carrier silences its block event before it sleeps for want of work. It arms the event after
//!    the sleep, and now and then while it switches, if the [`Budget`] that sysmon keeps allows it.
//! 3. A carrier leaves its CPU while it runs a thread. The kernel writes one record, and sysmon
//!    looks. The record of the carrier's return finds no room.
//! 4. Sysmon reads whether the kernel took the CPU away or the thread waits, and from its CPU time
//!    whether it still waits. Sysmon also arms the block events of carriers that compute without
//!    switching.
//!
//! Block events only hasten sysmon's looks. Carriers and sysmon race for the room in the ring and
//! for nothing else: a block event that is missed leaves the carrier to the next look, and one too
//! many costs a look.
//!
//! The descriptors are in sysmon's own table, where the program never sees them, and which a fork
//! doesn't copy. The rings aren't in the child of a fork either. The kernel wipes the table with
//! the rings' addresses there, whichever thread forked.
//!
//! There are no block events without permission (`perf_event_paranoid`, 3 on some systems), nor in
//! a process with a seccomp filter, which may kill a thread for the question.

use crate::kernel_threads::{kthread, roster};
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::parts::block_events::BlockEvents;
use crate::state::process::PROCESS;
use core::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use raddle_sched::block_event::{Advice, Budget, Sleeps};
use raddle_sys::abi::PerfEventAttr;
use raddle_sys::{err, errno, is_err, mem, nr, sys};

/// The most block events. Carriers beyond this number have none.
pub(crate) const MOST: usize = 64;

/// Bytes of a ring's data.
const DATA: u64 = 4096;
/// Bytes of a record: nothing but a header.
const RECORD: u64 = 8;
/// Room for one record and, before it, the record that others were dropped (PERF_RECORD_LOST).
const ROOM: u64 = 24 + RECORD;

/// An event's ring as the kernel maps it: `struct perf_event_mmap_page`, and the data behind it.
#[repr(C)]
struct Ring {
    about: [u64; 128],
    /// Bytes ever written. By the kernel.
    head: AtomicU64,
    /// Bytes ever read, as far as the kernel knows. By the carrier and by sysmon.
    tail: AtomicU64,
    rest: [u64; 382],
    data: [AtomicU64; (DATA / 8) as usize],
}

const _: () = assert!(size_of::<Ring>() == 2 * mem::PAGE_SIZE);

impl Ring {
    /// Returns the free bytes as the kernel counts them: one less than the bytes that aren't
    /// written.
    fn room(&self) -> u64 {
        let (head, tail) = (self.head.load(Ordering::Relaxed), &self.tail);
        tail.load(Ordering::Relaxed)
            .wrapping_sub(head)
            .wrapping_sub(1)
            % DATA
    }

    fn leave_room(&self, bytes: u64) {
        let head = self.head.load(Ordering::Acquire);
        let tail = head.wrapping_add(1).wrapping_add(bytes);
        self.tail.store(tail, Ordering::Release);
    }

    fn is_armed(&self) -> bool {
        self.room() >= ROOM
    }

    /// Returns true if the last record says that the thread left its CPU by itself.
    fn says_waits(&self) -> bool {
        const SWITCH: u64 = 14;
        const OUT: u64 = 0x2000;
        const PREEMPTED: u64 = 0x4000;
        let at = self.head.load(Ordering::Acquire).wrapping_sub(RECORD) % DATA;
        let header = self.data[(at / 8) as usize].load(Ordering::Relaxed);
        let (kind, misc) = (header & 0xffff_ffff, header >> 32 & 0xffff);
        kind == SWITCH && misc & OUT != 0 && misc & PREEMPTED == 0
    }
}

/// A carrier's block event, as the carrier uses it; zero without one.
struct Entry {
    ring: AtomicPtr<Ring>,
    /// The carrier may arm the block event from this time on. Written by sysmon.
    from_ns: AtomicU64,
}

const ENTRIES: usize = mem::PAGE_SIZE / size_of::<Entry>();

impl BlockEvents {
    /// Returns true if carriers have block events once they need them.
    pub(crate) fn are_permitted(&self) -> bool {
        self.permitted.load(Ordering::Relaxed) != 0
    }

    /// Returns true if carriers get block events now.
    fn are_ready(&self) -> bool {
        self.are_permitted() && self.ready.load(Ordering::Acquire) != 0
    }

    fn permit(&self, permitted: bool) {
        self.permitted
            .store(u32::from(permitted), Ordering::Relaxed);
    }

    fn entry(&self, carrier: &Carrier) -> Option<&Entry> {
        let table = self.table.load(Ordering::Acquire);
        let id = carrier.id.get() as usize;
        if table == 0 || id >= ENTRIES {
            return None;
        }
        // SAFETY: the table is a page of entries that stays mapped.
        Some(unsafe { &*with_exposed_provenance::<Entry>(table).add(id) })
    }

    fn find(&self, carrier: &Carrier) -> Option<(&Entry, &Ring)> {
        let entry = self.entry(carrier)?;
        // SAFETY: null or a ring, which stays mapped until the carrier's kernel thread is gone; in
        // the child of a fork, where it isn't, the entry is null.
        let ring = unsafe { entry.ring.load(Ordering::Acquire).as_ref() };
        Some((entry, ring?))
    }

    /// Puts ordinary memory in place of the rings: a carrier may be about to write to its ring.
    fn forget_rings(&self) {
        const PRIVATE_ANONYMOUS_FIXED_NORESERVE: usize = 0x4032;
        for id in 0..ENTRIES {
            let table = self.table.load(Ordering::Relaxed);
            // SAFETY: the table is a page of entries that stays mapped.
            let entry = unsafe { &*with_exposed_provenance::<Entry>(table).add(id) };
            let ring = entry.ring.swap(null_mut(), Ordering::Relaxed);
            if !ring.is_null() {
                // SAFETY: replaces a mapping of the runtime by one of the same size, which stays.
                unsafe {
                    sys!(
                        nr::__NR_mmap,
                        ring,
                        size_of::<Ring>(),
                        READ_WRITE,
                        PRIVATE_ANONYMOUS_FIXED_NORESERVE,
                        usize::MAX,
                        0usize
                    );
                }
            }
        }
    }

    /// Makes the table; false if it can't be.
    fn make_table(&self) -> bool {
        if self.table.load(Ordering::Relaxed) != 0 {
            return true;
        }
        let Ok(page) = mem::map(mem::PAGE_SIZE) else {
            return false;
        };
        // SAFETY: the mapping just made, private and anonymous.
        if unsafe { mem::wipe_on_fork(page, mem::PAGE_SIZE) }.is_err() {
            // SAFETY: mapped above, and not in `table` yet, where carriers would find it.
            unsafe { mem::unmap(page, mem::PAGE_SIZE) };
            return false;
        }
        self.table
            .store(page.expose_provenance(), Ordering::Release);
        true
    }
}

/// Silences the block event of the calling carrier, which is about to sleep for want of work.
#[inline]
pub(crate) fn silence(carrier: &Carrier) {
    if let Some((_, ring)) = PROCESS.block_events.find(carrier) {
        ring.leave_room(0);
    }
}

/// Arms the block event of the calling carrier, which runs and has just read the clock, if the
/// budget allows it.
#[inline]
pub(crate) fn arm(carrier: &Carrier) {
    if let Some((entry, ring)) = PROCESS.block_events.find(carrier)
        && entry.from_ns.load(Ordering::Relaxed) <= carrier.now_ns.get()
    {
        ring.leave_room(ROOM);
    }
}

/// Returns true if sysmon is woken when the carrier begins to wait in the kernel.
pub(crate) fn is_armed(carrier: &Carrier) -> bool {
    let ring = PROCESS.block_events.find(carrier);
    ring.is_some_and(|(_, ring)| ring.is_armed())
}

/// Forgets the block event of the calling carrier, which ends its kernel thread: the carrier's next
/// kernel thread has no event yet. The ring stays for sysmon, which unmaps it once the kernel
/// reports that the thread is gone. Under the slots' lock.
pub(crate) fn forget(carrier: &Carrier) {
    let ends = carrier.ends.load(Ordering::Relaxed);
    carrier.ends.store(ends.wrapping_add(1), Ordering::Release);
    carrier.kernel_tid.store(0, Ordering::Release);
    if let Some(entry) = PROCESS.block_events.entry(carrier) {
        entry.ring.store(null_mut(), Ordering::Relaxed);
        entry.from_ns.store(0, Ordering::Relaxed);
    }
}

/// The block events of all carriers, as sysmon watches them.
pub(crate) struct Watcher {
    watches: [Watch; MOST],
    /// The number of watches, from the first on, that may have an event.
    count: usize,
    /// The end of sysmon's planned sleep.
    asleep_until_ns: u64,
    /// True once a carrier has waited in the kernel, in others' way.
    proven: bool,
    /// True once the machine's first event was asked for.
    begun: bool,
    /// True if carriers slept too often for block events.
    given_up: bool,
    sleeps: Sleeps,
}

#[derive(Clone, Copy)]
struct Watch {
    /// The event, or -1.
    event: i32,
    /// The event's ring; only sysmon unmaps it.
    ring: *const Ring,
    /// The number of the carrier's kernel threads that had ended when the event was opened.
    ends: u32,
    /// The ring's head when it was looked at last.
    head: u64,
    /// The carrier's CPU time at the last look.
    cpu_ns: u64,
    /// True if the block event fired, and the carrier hasn't used its CPU since.
    waits: bool,
    budget: Budget,
}

impl Watcher {
    /// Makes a watcher without events. `own_table` is true if sysmon, which calls this, has a table
    /// of descriptors to itself.
    pub(crate) fn new(own_table: bool) -> Self {
        let permitted = own_table && is_permitted() && PROCESS.block_events.make_table();
        PROCESS.block_events.permit(permitted);
        PROCESS.block_events.ready.store(0, Ordering::Relaxed);
        Self {
            watches: [Watch {
                event: -1,
                ring: null(),
                ends: 0,
                head: 0,
                cpu_ns: 0,
                waits: false,
                budget: Budget::new(),
            }; MOST],
            count: 0,
            asleep_until_ns: 0,
            proven: false,
            begun: false,
            given_up: false,
            sleeps: Sleeps::default(),
        }
    }

    /// Returns the descriptors to poll for block events; -1 for a carrier without one.
    pub(crate) fn events(&self) -> impl Iterator<Item = i32> {
        self.watches[..self.count].iter().map(|watch| watch.event)
    }

    /// Notes that sysmon has found a carrier that waits in the kernel, in others' way: carriers get
    /// block events from then on.
    pub(crate) fn prove(&mut self) {
        self.proven = true;
        for watch in &mut self.watches {
            watch.budget.proven();
        }
        self.begin();
    }

    fn begin(&mut self) {
        if core::mem::replace(&mut self.begun, true) || !PROCESS.block_events.are_permitted() {
            return;
        }
        if kthread::spawn(open_first, 0, STACK).is_err() {
            PROCESS.block_events.permit(false);
        }
    }

    /// Opens or closes the block events of carriers that run, before any has waited in the kernel.
    pub(crate) fn follow(&mut self, now_ns: u64) {
        if self.proven || self.given_up || !PROCESS.block_events.are_permitted() {
            return;
        }
        let all = PROCESS.carriers();
        let count = all.map(|it| it.park.load(Ordering::Relaxed)).sum();
        match self.sleeps.look(now_ns, count, self.begun) {
            Advice::Wait => {}
            Advice::Open => self.begin(),
            Advice::Close if PROCESS.block_events.are_ready() => self.give_up(),
            Advice::Close => {}
        }
    }

    /// Returns true until it is decided whether carriers have block events.
    pub(crate) fn is_undecided(&self) -> bool {
        !self.begun && !self.given_up
    }

    /// Closes all events. Carriers may still write to rings: these are ordinary memory from then
    /// on.
    #[cold]
    fn give_up(&mut self) {
        self.given_up = true;
        self.begun = false;
        PROCESS.block_events.ready.store(0, Ordering::Relaxed);
        PROCESS.block_events.forget_rings();
        for watch in &mut self.watches[..self.count] {
            if watch.event >= 0 {
                // SAFETY: a descriptor of this kernel thread's own.
                unsafe { sys!(nr::__NR_close, watch.event) };
                watch.event = -1;
            }
        }
    }

    /// Notes that sysmon is about to sleep until `ns`. A block event after `ns` doesn't count
    /// against the budget, since sysmon would look then without block events, too.
    pub(crate) fn sleeps_until(&mut self, ns: u64) {
        self.asleep_until_ns = ns;
    }

    /// Closes the `at`th event, which has failed: the kernel thread is gone.
    pub(crate) fn failed(&mut self, at: usize) {
        let watch = &mut self.watches[at];
        // SAFETY: a descriptor of this kernel thread's own, and a ring that no carrier uses: the
        // one that did has forgotten it, or was killed.
        unsafe {
            sys!(nr::__NR_close, watch.event);
            mem::unmap(watch.ring.cast_mut().cast(), size_of::<Ring>());
        }
        watch.event = -1;
        watch.waits = false;
        let carrier = PROCESS.carriers().nth(at);
        if carrier.is_none_or(|it| it.ends.load(Ordering::Acquire) == watch.ends) {
            PROCESS.block_events.permit(false); // it has not ended as carriers do
        }
    }

    /// Looks at the `at`th carrier, which runs; its kernel thread has used `cpu_ns`. Returns true
    /// if the carrier left its CPU to wait in the kernel, and still waits.
    pub(crate) fn look(&mut self, at: usize, carrier: &Carrier, now_ns: u64, cpu_ns: u64) -> bool {
        let Some(watch) = self.watches.get_mut(at) else {
            return false;
        };
        if watch.event < 0 {
            if PROCESS.block_events.are_ready() {
                self.open(at, carrier, cpu_ns);
            }
            return false;
        }
        let Some(entry) = PROCESS.block_events.entry(carrier) else {
            return false;
        };
        // SAFETY: mapped for as long as there is the event.
        let ring = unsafe { &*watch.ring };
        let ran = cpu_ns != core::mem::replace(&mut watch.cpu_ns, cpu_ns);
        watch.waits &= !ran;
        let head = ring.head.load(Ordering::Acquire);
        if head != core::mem::replace(&mut watch.head, head) {
            if now_ns < self.asleep_until_ns {
                watch.budget.rang(now_ns);
                let from_ns = watch.budget.from_ns();
                entry.from_ns.store(from_ns, Ordering::Relaxed);
            }
            let tid = carrier.kernel_tid.load(Ordering::Relaxed);
            watch.waits = ring.says_waits() && kthread::cpu_ns(tid) == cpu_ns;
        } else if ran && !ring.is_armed() && watch.budget.from_ns() <= now_ns {
            ring.leave_room(ROOM);
        }
        watch.waits
    }

    /// Notes that a thread runs sooner because of this carrier's block event.
    pub(crate) fn helped(&mut self, at: usize, carrier: &Carrier) {
        let budget = &mut self.watches[at].budget;
        budget.helped();
        if let Some(entry) = PROCESS.block_events.entry(carrier) {
            entry.from_ns.store(budget.from_ns(), Ordering::Relaxed);
        }
    }

    #[cold]
    fn open(&mut self, at: usize, carrier: &Carrier, cpu_ns: u64) {
        let ends = carrier.ends.load(Ordering::Acquire);
        let opened = open(carrier.kernel_tid.load(Ordering::Acquire));
        let has_ended = || carrier.ends.load(Ordering::Acquire) != ends;
        let (Some(entry), Some((event, ring))) = (PROCESS.block_events.entry(carrier), opened)
        else {
            if !has_ended() {
                PROCESS.block_events.permit(false);
            }
            return;
        };
        let watch = &mut self.watches[at];
        (watch.event, watch.ring, watch.ends) = (event, ring, ends);
        (watch.head, watch.cpu_ns) = (0, cpu_ns);
        self.count = self.count.max(at + 1);
        // SAFETY: just mapped, and unmapped here alone.
        unsafe { (*ring).leave_room(ROOM) };
        // A kernel thread that has ended gets no ring: the carrier's next one would use it.
        let _slots = PROCESS.slots.lock();
        if !has_ended() {
            entry.ring.store(ring, Ordering::Release);
        }
    }
}

/// Opens the machine's first event, of the calling kernel thread, in sysmon's table of descriptors,
/// which keeps it. The thread then ends.
extern "C" fn open_first(_: usize, stack: *mut u8) -> ! {
    // SAFETY: this thread is no carrier; of all signals it takes the one for what every kernel
    // thread must do.
    unsafe {
        raddle_arch::set_gs_base(0);
        kthread::accept_only(&[PREEMPT]);
    }
    if is_err(open_event(roster::own_tid(), NO_GROUP)) {
        PROCESS.block_events.permit(false)
    } else {
        PROCESS.block_events.ready.store(1, Ordering::Release)
    }
    PROCESS.roster.leave();
    // SAFETY: it has left the roster, so no signal is sent to it any more; the stack is its own.
    unsafe {
        kthread::accept_only(&[]);
        kthread::end([(stack, STACK), (null_mut(), 0)])
    }
}

const STACK: usize = 16 * 1024;
const NO_GROUP: usize = usize::MAX;
/// PROT_READ | PROT_WRITE.
const READ_WRITE: usize = 3;

/// Returns true if the kernel allows such an event: of a call with a bad group, it refuses nothing
/// but the group.
fn is_permitted() -> bool {
    const NO_DESCRIPTOR: usize = i32::MAX as usize;
    let answer = open_event(roster::own_tid(), NO_DESCRIPTOR);
    answer == err(errno::EBADF)
}

/// Opens an event. Returns its descriptor, or a negated errno.
fn open_event(tid: u32, group: usize) -> isize {
    const CLOEXEC: usize = 8;
    const ANY_CPU: usize = usize::MAX;
    let attributes = PerfEventAttr::switches();
    let attributes = &raw const attributes;
    // SAFETY: the kernel reads a live structure.
    let open = || unsafe {
        sys!(
            nr::__NR_perf_event_open,
            attributes,
            tid,
            ANY_CPU,
            group,
            CLOEXEC
        )
    };
    let opened = (tid != 0).then(|| PROCESS.filters.unless_any(open));
    opened.flatten().unwrap_or(err(errno::EPERM))
}

/// Opens the event of a kernel thread. Returns its descriptor and its ring.
fn open(tid: u32) -> Option<(i32, *mut Ring)> {
    const SHARED: usize = nr::MAP_SHARED as usize;
    let event = open_event(tid, NO_GROUP);
    if is_err(event) {
        return None;
    }
    let bytes = size_of::<Ring>();
    // SAFETY: the kernel maps its memory where nothing is.
    unsafe {
        let at = sys!(
            nr::__NR_mmap,
            0usize,
            bytes,
            READ_WRITE,
            SHARED,
            event,
            0usize
        );
        if is_err(at) {
            sys!(nr::__NR_close, event);
            return None;
        }
        Some((event as i32, with_exposed_provenance_mut(at as usize)))
    }
}
