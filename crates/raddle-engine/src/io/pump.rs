//! The event pump: one epoll for every descriptor that a green thread waits on.
//!
//! Each descriptor is registered once, edge-triggered, for both directions, so a wait costs no
//! `epoll_ctl`. A descriptor's *entry* has a sequence number that every event raises. The protocol
//! of a blocking call:
//!
//! 1. Read the entry's sequence number.
//! 2. Try the call without blocking. If it succeeds, done.
//! 3. Link a wait node under the entry's lock if the sequence number is still the same, else go to
//!    1. (Registering for the first time makes the kernel report the present state as an event.)
//! 4. Park. An event wakes the nodes that wait for it; go to 1.
//!
//! No wake-up is lost. An edge after step 1 raises the number, which step 3 sees. An edge before
//! step 1 is seen by the try of step 2. An edge that no thread waits for stays in the epoll until
//! the next look, and costs one fruitless try.
//!
//! [`entry`] has what is known of one descriptor, and when a read may wait without a try. [`sweep`]
//! makes up for registrations that vanished. [`limits`] has the time limits of sockets.
//!
//! A call keeps its file. If the program closes a number on which a call waits, the file gets
//! another number, near the top, for that call alone ([`Thread::take_closed_file`]). A thread that
//! waits for several descriptors tries again, and the closed number may mean another file by then.
//!
//! The pump's own descriptors sit near the top of the descriptor range, where programs don't look,
//! and [`Pump::owns`] hides them from `close`.

pub mod entry;
mod limits;
mod sweep;

use crate::kernel_threads::descriptor::{duplicate_high, hide};

use crate::scheduling::switch;
use crate::state::carrier::Carrier;
use crate::state::clock;
pub use crate::state::parts::pump::Pump;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;

use entry::Looker;
pub use entry::{Entry, Kind, NotPollable};
pub use limits::Limit;

use core::cell::Cell;
use core::sync::atomic::Ordering;
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, WaitNode, Wake};
use raddle_sys::abi::{EpollEvent, Timespec};
use raddle_sys::{err, errno, is_err, nr, sys};

/// Events taken at a time.
const BATCH: usize = 64;

/// `EPOLLIN`.
pub const IN: u32 = 1;
/// `EPOLLPRI`.
pub const PRI: u32 = 2;
/// `EPOLLOUT`.
pub const OUT: u32 = 4;
const ERR: u32 = 8;
const HUP: u32 = 0x10;
/// `EPOLLRDHUP`.
pub const RDHUP: u32 = 0x2000;
const EDGE: u32 = 1 << 31;
const ALL: u32 = IN | PRI | OUT | RDHUP | EDGE;
/// The event bit that marks a wait for one descriptor. epoll never reports it.
const WAITS_FOR_ONE: u32 = 1 << 30;
/// The `data` of the pump's own eventfd.
const KICK: u64 = u64::MAX;
/// The `data` of the eventfd of direct reads.
const DIRECT: u64 = u64::MAX - 1;
/// `EPOLL_CTL_ADD`.
const ADD: usize = nr::EPOLL_CTL_ADD as usize;
/// `EPOLL_CTL_MOD`: arms the edge anew.
const CHANGE: usize = 3;

/// One descriptor of a wait for several.
pub struct FdWait {
    pub node: WaitNode,
    pub fd: u32,
    pub events: u32,
    pub sequence: u32,
    /// The events that have ended the wait, if a question would find the same; else 0. Known for a
    /// wait alone.
    pub told: Cell<u32>,
}

impl FdWait {
    /// Returns a wait that isn't linked yet.
    pub fn new(fd: u32, events: u32) -> Self {
        Self {
            node: WaitNode::new(),
            fd,
            events,
            sequence: 0,
            told: Cell::new(0),
        }
    }
}

impl Pump {
    /// Makes the epoll and its eventfd.
    pub(crate) fn start(&self) -> Result<(), isize> {
        const CLOEXEC: usize = nr::EPOLL_CLOEXEC as usize;
        const NONBLOCK: usize = 0o4000;
        // SAFETY: plain calls that make descriptors.
        unsafe {
            let epoll = hide(sys!(nr::__NR_epoll_create1, CLOEXEC))?;
            self.epoll.set(epoll as i32);
            let own = [(&self.kick, KICK, IN), (&self.direct, DIRECT, IN | EDGE)];
            for (descriptor, data, events) in own {
                let fd = hide(sys!(nr::__NR_eventfd2, 0usize, CLOEXEC | NONBLOCK))?;
                descriptor.set(fd as i32);
                let event = EpollEvent { events, data };
                sys!(nr::__NR_epoll_ctl, epoll, ADD, fd, &raw const event);
            }
        }
        self.limits.start();
        self.epoch.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Forgets the pump's descriptors, in the child of a fork: there they are closed, or the
    /// parent's.
    pub(crate) fn forget_descriptors(&self) {
        for own in [&self.epoll, &self.kick, &self.direct] {
            own.set(-1);
        }
    }

    /// Closes the pump's descriptors.
    pub(crate) fn close(&self) {
        self.epoll.close();
        self.kick.close();
        self.direct.close();
    }

    /// Forgets all waits, in the child of a fork.
    pub(crate) fn reset(&self) {
        let Self {
            waiters,
            asleep,
            sweep,
            high,
            epoll: _,
            kick: _,
            direct: _, // see `forget_descriptors`
            epoch: _,  // raised at the next start
            limits: _,
            // Counts that go on, as those of carriers do:
            polls: _,
            poll_events: _,
        } = self;
        waiters.store(0, Ordering::Relaxed);
        asleep.withdraw();
        sweep.reset();
        for fd in 0..high.load(Ordering::Relaxed) {
            if let Some(entry) = self.known(fd as u32) {
                // SAFETY: no other thread exists in the child.
                unsafe { entry.reset() };
            }
        }
    }

    /// Returns true for the pump's own descriptors.
    pub fn owns(&self, fd: usize) -> bool {
        fd as i32 >= 0 && self.own_descriptors().contains(&(fd as i32))
    }

    /// Returns the descriptor's entry; `None` beyond the table, or without memory.
    #[inline(always)]
    pub fn entry(&self, fd: u32) -> Option<&Entry> {
        PROCESS.pump_rows.make(fd as usize).ok()
    }

    /// Returns the descriptor's entry, if its part of the table exists.
    #[inline(always)]
    fn known(&self, fd: u32) -> Option<&Entry> {
        PROCESS.pump_rows.get(fd as usize)
    }

    /// Returns true if any thread waits for a descriptor.
    #[inline(always)]
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Forgets what is known of a descriptor: it was closed or replaced.
    pub fn forget(&self, fd: u32) {
        if let Some(entry) = self.known(fd) {
            let is_waited_for = match entry.kind() {
                Kind::Disk => !entry.list.lock().is_empty(),
                _ => self.has_waiters() && entry.epoch.load(Ordering::Relaxed) != 0,
            };
            if is_waited_for {
                keep_for_waiters(entry, fd);
            }
            entry.forget();
        }
    }

    /// Notes the kind of a new descriptor, and the thread that made it.
    pub fn mark(&self, fd: u32, kind: Kind, tid: u32) {
        if let Some(entry) = self.entry(fd) {
            self.high.fetch_max(fd as usize + 1, Ordering::Relaxed);
            entry.tid.store(tid, Ordering::Relaxed);
            entry.set_kind(kind, false);
        }
    }

    /// Makes the next wait for a descriptor see its present state as an event, as the first wait
    /// does.
    pub fn rearm(&self, fd: u32) {
        if let Some(entry) = self.known(fd) {
            entry.epoch.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets a range of descriptors, `first..=last`.
    pub fn forget_range(&self, first: u32, last: u32) {
        let end = (last as usize)
            .saturating_add(1)
            .min(self.high.load(Ordering::Relaxed));
        for fd in first as usize..end {
            self.forget(fd as u32);
        }
    }

    /// Waits for `events` on one descriptor; the sequence number was read before the try.
    ///
    /// # Errors
    /// [`NotPollable`] if epoll refuses the descriptor.
    pub fn wait_one(
        &self,
        fd: u32,
        events: u32,
        sequence: u32,
        deadline_ns: u64,
    ) -> Result<Wake, NotPollable> {
        let thread = Carrier::current().thread();
        let Some(entry) = self.entry(fd) else {
            return Err(NotPollable::Refused);
        };
        thread.task.prepare();
        // SAFETY: the thread's own node; it is unlinked below unless an event did it.
        let linked =
            unsafe { self.link(entry, &thread.node, fd, events | WAITS_FOR_ONE, sequence) };
        if linked != Ok(true) && thread.task.claim(Wake::Retry) {
            return linked.map(|_| Wake::Retry);
        }
        // The node is linked, or a signal has claimed the thread and pushed it: it must park in
        // both cases.
        let outcome = self.park_until(deadline_ns);
        if outcome != Wake::Woken {
            // SAFETY: the node is in this entry's list or in none.
            unsafe { entry.list.lock().unlink(&thread.node) };
        }
        Ok(outcome)
    }

    /// Waits until any of `waits` has an event; sequence numbers were read before the try. A
    /// descriptor without events doesn't end the wait.
    ///
    /// # Errors
    /// [`NotPollable::Refused`] if epoll refuses one of the descriptors.
    pub fn wait_any(&self, waits: &[FdWait], deadline_ns: u64) -> Result<Wake, NotPollable> {
        let carrier = Carrier::current();
        let looker = Looker::of(Some(carrier));
        let thread = carrier.thread();
        thread.task.prepare();
        let mut verdict = Ok(());
        for wait in waits {
            let Some(entry) = self.entry(wait.fd) else {
                continue;
            };
            // SAFETY: every node is unlinked below, before `waits` can go away.
            match unsafe { self.link(entry, &wait.node, wait.fd, wait.events, wait.sequence) } {
                Ok(true) | Err(NotPollable::NoEvents) => {}
                Ok(false) => {
                    let _ = thread.task.claim(Wake::Retry);
                    break;
                }
                Err(refusal) => {
                    verdict = Err(refusal);
                    let _ = thread.task.claim(Wake::Retry);
                    break;
                }
            }
        }
        // A thread that has claimed its own wait isn't pushed, and doesn't park. One that an event
        // has claimed meanwhile was pushed, and must park so that a carrier can pop it.
        let parks = thread.task.is_waiting() || thread.task.outcome() != Wake::Retry;
        let outcome = if parks {
            self.park_until(deadline_ns)
        } else {
            Wake::Retry
        };
        for wait in waits {
            if let Some(entry) = self.entry(wait.fd) {
                let mut list = entry.list.lock();
                // SAFETY: the node is in this entry's list or in none.
                unsafe { list.unlink(&wait.node) };
                if let [_] = waits {
                    wait.told.set(entry.told_since(wait.sequence, looker));
                }
            }
        }
        verdict.map(|()| outcome)
    }

    /// Counts a thread that waits for the pump, until [`Pump::end_wait`].
    #[inline(always)]
    pub(crate) fn begin_wait(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// See [`Pump::begin_wait`].
    #[inline(always)]
    pub(crate) fn end_wait(&self) {
        self.waiters.fetch_sub(1, Ordering::Relaxed);
    }

    /// Links the running thread, which waits for something else about the file behind a number,
    /// until [`Pump::let_go`]. If the program closes the number, the thread is woken, and has kept
    /// the file.
    pub(crate) fn hold(&self, entry: &Entry, fd: u32) {
        self.high.fetch_max(fd as usize + 1, Ordering::Relaxed);
        let thread = Carrier::current().thread();
        let mut list = entry.list.lock();
        // SAFETY: the thread's own node, which is unlinked before it is used again.
        unsafe { list.link(&thread.node, thread.task_ref(), fd as usize, WAITS_FOR_ONE) };
    }

    /// See [`Pump::hold`].
    pub(crate) fn let_go(&self, entry: &Entry) {
        let thread = Carrier::current().thread();
        // SAFETY: the node is in this entry's list or in none.
        unsafe { entry.list.lock().unlink(&thread.node) };
    }

    #[inline(always)]
    fn park_until(&self, deadline_ns: u64) -> Wake {
        self.begin_wait();
        self.expect_sweep();
        let outcome = if deadline_ns == NEVER {
            switch::park()
        } else {
            switch::park_until(deadline_ns)
        };
        self.end_wait();
        outcome
    }

    /// Links a node if no event has come since `sequence`; registers the descriptor if need be.
    unsafe fn link(
        &self,
        entry: &Entry,
        node: &WaitNode,
        fd: u32,
        events: u32,
        sequence: u32,
    ) -> Result<bool, NotPollable> {
        let task = Carrier::current().thread().task_ref();
        let mut list = entry.list.lock();
        if entry.sequence.load(Ordering::Relaxed) != sequence {
            return Ok(false);
        }
        self.register(entry, fd)?;
        // SAFETY: the callers unlink the node before it goes away.
        unsafe { list.link(node, task, fd as usize, events) };
        Ok(true)
    }

    fn register(&self, entry: &Entry, fd: u32) -> Result<(), NotPollable> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if entry.epoch.load(Ordering::Relaxed) == epoch {
            return Ok(());
        }
        let result = match self.control(ADD, fd) {
            r if r == err(errno::EEXIST) => self.control(CHANGE, fd),
            r => r,
        };
        if result == err(errno::EPERM) {
            return Err(NotPollable::NoEvents);
        }
        if is_err(result) {
            return Err(NotPollable::Refused);
        }
        self.high.fetch_max(fd as usize + 1, Ordering::Relaxed);
        entry.epoch.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    /// Adds a descriptor or changes it; both report its present state as an event.
    fn control(&self, operation: usize, fd: u32) -> isize {
        let event = EpollEvent {
            events: ALL,
            data: u64::from(fd),
        };
        let epoll = self.epoll.get();
        // SAFETY: the kernel reads a live structure.
        unsafe { sys!(nr::__NR_epoll_ctl, epoll, operation, fd, &raw const event) }
    }

    /// Returns true if epoll takes the descriptor; it is registered then.
    pub fn accepts(&self, fd: u32) -> bool {
        self.entry(fd).is_some_and(|entry| {
            let _list = entry.list.lock();
            self.register(entry, fd).is_ok()
        })
    }

    /// Returns the pump's own descriptors: the epoll, and the eventfds of kicks and of direct
    /// reads; -1 for none.
    pub fn own_descriptors(&self) -> [i32; 3] {
        [self.epoll.get(), self.kick.get(), self.direct.get()]
    }

    /// How often the pump was looked into.
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Takes the events that are there, without waiting.
    pub(crate) fn poll_now(&self, looker: Option<&Carrier>) -> TaskList {
        let mut events = [EpollEvent::default(); BATCH];
        let epoll = self.epoll.get();
        // SAFETY: the kernel fills at most BATCH entries.
        let count = unsafe {
            sys!(
                nr::__NR_epoll_wait,
                epoll,
                events.as_mut_ptr(),
                BATCH,
                0usize
            )
        };
        self.dispatch(&events, count, looker)
    }

    /// Announces that the caller is about to sleep in [`Pump::wait_until`]. The caller must look
    /// for work once more after that.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.make();
    }

    /// As [`Pump::wait_until`], after a wait elsewhere, which brought no events.
    pub(crate) fn awake(&self) -> TaskList {
        self.asleep.withdraw();
        TaskList::new()
    }

    /// Waits for events until `deadline_ns` (`NEVER`: for ever; in the past: not at all).
    pub(crate) fn wait_until(&self, looker: &Carrier, deadline_ns: u64) -> TaskList {
        let mut events = [EpollEvent::default(); BATCH];
        let epoll = self.epoll.get();
        let left = match deadline_ns {
            0 => 0,
            _ => deadline_ns.saturating_sub(clock::now_ns()),
        };
        let timeout = Timespec::from_ns(left);
        let timeout_ptr = if deadline_ns == NEVER {
            0
        } else {
            (&raw const timeout).expose_provenance()
        };
        // SAFETY: the kernel fills at most BATCH entries and reads a live timespec.
        let count = unsafe {
            let events = events.as_mut_ptr();
            match sys!(
                nr::__NR_epoll_pwait2,
                epoll,
                events,
                BATCH,
                timeout_ptr,
                0usize,
                8usize
            ) {
                r if r == err(errno::ENOSYS) => {
                    let ms = if deadline_ns == NEVER {
                        -1
                    } else {
                        left.div_ceil(1_000_000) as isize
                    };
                    sys!(
                        nr::__NR_epoll_wait,
                        epoll,
                        events,
                        BATCH,
                        ms.min(i32::MAX as isize)
                    )
                }
                r => r,
            }
        };
        self.asleep.withdraw();
        self.take_kick(&events, count);
        self.dispatch(&events, count, Some(looker))
    }

    /// Takes a kick, if there is one among the events. Only the poller calls this. A kick is
    /// level-triggered: a carrier that looks at the pump between the kick and the poller's sleep
    /// sees the kick, too, and must leave it.
    fn take_kick(&self, events: &[EpollEvent; BATCH], count: isize) {
        let kicked = |event: &EpollEvent| { event.data } == KICK;
        if events.iter().take(count.max(0) as usize).any(kicked) {
            let mut times = 0u64;
            let kick = self.kick.get();
            // SAFETY: eight bytes into a live value.
            unsafe { sys!(nr::__NR_read, kick, &raw mut times, 8usize) };
        }
    }

    /// Wakes the poller, if there is one that sleeps or is about to. Returns true if there was.
    pub fn kick(&self) -> bool {
        if !self.asleep.take() {
            return false;
        }
        self.write_kick();
        true
    }

    /// Wakes the poller whatever it does: from a signal handler.
    pub fn write_kick(&self) {
        let one = 1u64;
        let kick = self.kick.get();
        // SAFETY: eight bytes of a live value into the runtime's eventfd.
        unsafe { sys!(nr::__NR_write, kick, &raw const one, 8usize) };
    }

    fn dispatch(
        &self,
        events: &[EpollEvent; BATCH],
        count: isize,
        looker: Option<&Carrier>,
    ) -> TaskList {
        let looker = Looker::of(looker);
        self.polls.fetch_add(1, Ordering::Relaxed);
        if count > 0 {
            self.poll_events.fetch_add(count as u64, Ordering::Relaxed);
        }
        let woken = TaskList::new();
        for event in events.iter().take(count.max(0) as usize) {
            let (data, mut ready) = (event.data, event.events);
            if data == KICK {
                continue;
            }
            if data == DIRECT {
                PROCESS.direct.reap(&woken);
                continue;
            }
            let Some(entry) = self.known(data as u32) else {
                continue;
            };
            if ready & (ERR | HUP) != 0 {
                ready = u32::MAX;
            }
            entry.event(ready, looker, &woken);
        }
        woken
    }
}

/// Gives each call that waits on a number, which is about to be closed, another number of its own.
#[cold]
fn keep_for_waiters(entry: &Entry, fd: u32) {
    let woken = TaskList::new();
    let is_alone = |_, wanted| wanted & WAITS_FOR_ONE != 0;
    entry.list.lock().wake(usize::MAX, &woken, is_alone);
    while let Some(task) = woken.pop() {
        let kept = duplicate_high(fd as isize);
        if !is_err(kept) {
            let thread = Thread::of(task);
            thread.closed_file.store(kept as u32 + 1, Ordering::Relaxed);
        }
        PROCESS.unpark(task);
    }
}
