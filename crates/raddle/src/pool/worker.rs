//! Workers: they find work, run it, and rest.
//!
//! A worker looks for work in this order: urgent work, its own deque (newest first), the shared
//! lanes, the other workers' deques (oldest first). If its work makes more work, the lanes come
//! first every so often: their work might never be run otherwise.

use super::context::Context;
use super::counters::{Counters, bump};
use super::deque::{Owner, Thief};
use super::job::Job;
use super::rest::AfterPark;
use super::shared::{Origin, Phase, Shared};
use super::sync::{lock, quietly};
use super::{Priority, QueueError};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// In one of so many items the lanes come before the worker's own deque.
const LANES_FIRST: u32 = 61;
/// Searches of a worker before it rests. It yields between them: with as many workers as CPUs, a
/// thread that is about to queue work may be waiting for this worker's CPU.
const SEARCHES: u32 = 16;

thread_local! {
    /// The calling worker's own state; null on other threads.
    static CURRENT: Cell<*const Local> = const { Cell::new(null()) };
}

/// A worker's own state.
pub(super) struct Local {
    pub shared: Arc<Shared>,
    pub id: usize,
    owner: Option<Owner>,
    batch: RefCell<Vec<Job>>,
    items: Cell<u32>,
    /// True if the deque holds work that this worker's work has made, which may never end.
    pushed: Cell<bool>,
    random: Cell<u32>,
    /// Regions of [`blocking`](super::blocking) that the worker is in.
    blocked: Cell<u32>,
    /// Jobs that were dropped at the worker's end.
    discarded: Cell<u64>,
    /// True if the worker leaves after the keep-alive time.
    left: Cell<bool>,
}

/// Runs a worker's thread. The deque waits in the slot, and stays there if no thread can be made.
pub(super) fn run(shared: Arc<Shared>, id: usize) {
    let owner = lock(&shared.slots[id].owner).take();
    let local = Local {
        shared,
        id,
        owner,
        batch: RefCell::default(),
        items: Cell::new(0),
        pushed: Cell::new(false),
        random: Cell::new(id as u32 * 2 + 1),
        blocked: Cell::new(0),
        discarded: Cell::new(0),
        left: Cell::new(false),
    };
    CURRENT.set(&raw const local);
    let hooks = &local.shared.config.hooks;
    if let Some(start) = &hooks.start {
        // The panic hook reports a hook's panic; the worker goes on.
        quietly(|| start(id));
    }
    local.dispatch();
    if local.shared.is_forked() {
        return; // the child's only thread
    }
    local.discard();
    if let Some(stop) = &hooks.stop {
        quietly(|| stop(id));
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        crate::fiber::end_fibers(); // a suspended fiber may refer to this
        CURRENT.set(null());
        if self.shared.is_forked() {
            return;
        }
        let owner = self.owner.take();
        let (discarded, left) = (self.discarded.get(), self.left.get());
        self.shared.leave(self.id, owner, discarded, left);
    }
}

/// Runs `job` on the calling thread, like a worker.
pub(super) fn run_here(shared: &Shared, job: Job) {
    let context = Context::default();
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| context.run(|| job.run()))) {
        shared.state().counts.panicked += 1;
        quietly(|| shared.panicked(payload));
    }
}

impl Local {
    /// Calls `f` with the calling worker's state; `None` on other threads.
    #[inline(always)]
    pub(super) fn with<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
        // SAFETY: set by `run` to a value on this thread's stack, and cleared when the value is
        // dropped.
        f(unsafe { CURRENT.get().as_ref() })
    }

    /// Returns whether the calling thread is a worker of `shared`.
    pub(super) fn is_in(shared: &Shared) -> bool {
        Self::with(|local| local.is_some_and(|local| local.belongs_to(shared)))
    }

    /// Queues a job to `shared` from any thread.
    #[inline(always)]
    pub(super) fn submit(shared: &Shared, job: Job, priority: Priority) -> Result<(), QueueError> {
        // SAFETY: as in `with`. Without a closure, into which the job would be copied.
        match unsafe { CURRENT.get().as_ref() } {
            Some(local) if local.belongs_to(shared) => local.queue(job, priority),
            _ => shared.queue(job, priority, Origin::Outside),
        }
    }

    #[inline(always)]
    pub(super) fn belongs_to(&self, shared: &Shared) -> bool {
        std::ptr::eq(&*self.shared, shared)
    }

    fn owner(&self) -> &Owner {
        self.owner
            .as_ref()
            .expect("a worker has its deque until its end")
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.shared.slots[self.id].counters
    }

    /// Queues a job on this worker's own pool.
    #[inline(always)]
    pub(super) fn queue(&self, job: Job, priority: Priority) -> Result<(), QueueError> {
        let shared = &*self.shared;
        if shared.phase() == Phase::Dropping {
            return Err(QueueError::Closed);
        }
        if shared.is_forked() {
            return Err(QueueError::Forked);
        }
        if priority != Priority::Normal || shared.config.capacity != usize::MAX {
            return shared.queue(job, priority, Origin::Worker);
        }
        self.push(job);
        Ok(())
    }

    /// Pushes a job to this worker's deque; if that is full, moves its older half to the lanes.
    #[inline(always)]
    pub(super) fn push(&self, job: Job) {
        bump(&self.counters().queued);
        self.pushed.set(true);
        match self.owner().push(job) {
            Ok(()) => self.shared.tell_of_push(),
            Err(job) => self.spill(job),
        }
    }

    #[cold]
    fn spill(&self, job: Job) {
        let owner = self.owner();
        let older = (0..super::deque::CAPACITY / 2).map_while(|_| owner.pop_oldest());
        self.shared.put_back(older.chain([job]));
    }

    fn dispatch(&self) {
        // A summons started the worker.
        let mut searching = true;
        loop {
            if self.shared.phase() == Phase::Dropping || self.shared.is_forked() {
                return self.stop_searching(searching);
            }
            if self.shared.pulse.surplus.load(Ordering::Relaxed) && !searching {
                let owner = self.owner();
                let all = std::iter::from_fn(|| owner.pop_oldest());
                self.shared.put_back(all);
            } else if let Some(job) = self.find() {
                if std::mem::take(&mut searching) {
                    self.found();
                }
                self.execute(job);
                continue;
            } else {
                let pulse = &self.shared.pulse;
                if !std::mem::replace(&mut searching, true) {
                    pulse.summons.searching.begin();
                }
                if let Some(job) = self.search() {
                    searching = false;
                    self.found();
                    self.execute(job);
                    continue;
                }
                pulse.summons.searching.end();
                searching = false;
            }
            if self.shared.may_rest(self.id) {
                if self.rest() {
                    searching = true
                } else {
                    return;
                }
            }
        }
    }

    fn stop_searching(&self, searching: bool) {
        if searching {
            self.shared.pulse.summons.searching.end();
        }
    }

    /// Drops the jobs in the deque of a worker that ends: there are some only if the pool drops its
    /// work.
    fn discard(&self) {
        while let Some(job) = self.owner().pop() {
            self.discarded.set(self.discarded.get() + 1);
            quietly(|| drop(job));
        }
    }

    /// Looks everywhere for a while: work that comes soon needs no wake-up.
    fn search(&self) -> Option<Job> {
        (0..SEARCHES).find_map(|_| {
            crate::thread::yield_now();
            self.find()
        })
    }

    /// Parks until summoned. Returns false if the worker is to end.
    fn rest(&self) -> bool {
        let shared = &*self.shared;
        loop {
            let deadline = Instant::now().checked_add(shared.config.keep_alive);
            shared.slots[self.id].parker.park(deadline);
            let expired = deadline.is_some_and(|at| at <= Instant::now());
            match shared.after_park(self.id, expired) {
                AfterPark::Search => return true,
                AfterPark::ParkAgain => {}
                AfterPark::Leave => {
                    self.left.set(true);
                    return false;
                }
                AfterPark::End => return false,
            }
        }
    }

    /// Ends the worker's search with success: if it was the last searcher and there is more work,
    /// wakes the next one.
    fn found(&self) {
        let shared = &*self.shared;
        let more = || shared.has_waiting() || shared.has_stealable();
        if shared.pulse.summons.found(more) {
            shared.wake_one();
        }
    }

    /// Takes work from anywhere.
    #[inline(always)]
    pub(super) fn find(&self) -> Option<Job> {
        let items = self.items.get().wrapping_add(1);
        self.items.set(items);
        let urgent = self.shared.pulse.urgent.load(Ordering::Relaxed);
        let turn = self.pushed.get() && items.is_multiple_of(LANES_FIRST);
        if (urgent || turn)
            && let Some(job) = self.take_shared(1)
        {
            return Some(job);
        }
        if let Some(job) = self.owner().pop() {
            return Some(job);
        }
        self.find_elsewhere()
    }

    fn find_elsewhere(&self) -> Option<Job> {
        self.pushed.set(false);
        self.take_shared(usize::MAX).or_else(|| self.steal())
    }

    /// Takes a share of the lanes. Returns the oldest job, to be run now; the others go to the
    /// worker's deque, the oldest on top, where others can steal them.
    fn take_shared(&self, most: usize) -> Option<Job> {
        let mut batch = self.batch.take();
        self.shared.take(most, &mut batch);
        let mut jobs = batch.drain(..);
        let first = jobs.next();
        let mut others = jobs.rev();
        if others.len() > 0 {
            if let Some(homeless) = self.owner().push_all(&mut others) {
                let homeless = [homeless].into_iter().chain(&mut others);
                self.shared.put_back(homeless);
            }
            // A searcher may have gone to rest while the batch was in neither queue.
            self.shared.tell_of_push();
        }
        drop(others);
        self.batch.replace(batch);
        first
    }

    /// Takes the oldest job of some other worker; the first one asked is random.
    fn steal(&self) -> Option<Job> {
        if self.shared.is_forked() {
            return None;
        }
        let slots = self.shared.used();
        // Marsaglia's xorshift: any start will do, if workers start differently.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        let start = random as usize % slots.len().max(1);
        let (before, after) = slots.split_at(start);
        let victims = after.iter().chain(before);
        let job = victims
            .filter_map(|slot| slot.thief.get())
            .find_map(Thief::steal)?;
        bump(&self.counters().stolen);
        Some(job)
    }

    /// Runs a job as this pool's work.
    #[inline(always)]
    pub(super) fn execute(&self, job: Job) {
        let hooks = &self.shared.config.hooks;
        if let Some(before) = &hooks.before {
            self.attempt(before);
        }
        // By reference: otherwise the job would be copied into the closure, word by word.
        let mut job = Some(job);
        self.attempt(|| {
            job.take().into_iter().for_each(Job::run);
            if let Some(after) = &hooks.after {
                after();
            }
        });
        self.attempt(Context::reset);
        bump(&self.counters().executed);
    }

    /// Calls user code, and reports its panic.
    #[inline(always)]
    pub(super) fn attempt(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            self.report(payload);
        }
    }

    #[cold]
    fn report(&self, payload: Box<dyn std::any::Any + Send>) {
        bump(&self.counters().panicked);
        quietly(|| self.shared.panicked(payload));
    }

    /// Enters a region in which the worker blocks.
    fn enter_blocking(&self) {
        let depth = self.blocked.get();
        self.blocked.set(depth + 1);
        if depth == 0 {
            self.shared.enter_blocking();
        }
    }

    fn leave_blocking(&self) {
        let depth = self.blocked.get() - 1;
        self.blocked.set(depth);
        if depth == 0 {
            self.shared.leave_blocking();
        }
    }
}

/// Runs `f`, which may block, and lets another worker run in this one's place meanwhile.
///
/// Work that waits for other work, for a lock that is held for long, or for a device should call
/// this: the pool then keeps its target of running workers, up to
/// [`Builder::max_workers`](super::Builder::max_workers) in all. On a thread that is no worker this
/// only calls `f`. A wait for a [`Task`](super::Task) does all that by itself.
///
/// # Blocking
/// As `f`.
///
/// # Examples
/// ```
/// use raddle::pool::{Pool, blocking};
/// use std::sync::mpsc;
///
/// let pool = Pool::builder().workers(1).max_workers(2).build()?;
/// let (sender, receiver) = mpsc::channel();
/// let waiter = pool.task(move || blocking(|| receiver.recv().unwrap()))?;
/// pool.queue(move || sender.send(7).unwrap())?; // runs on a second worker
/// assert_eq!(waiter.wait().unwrap(), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    struct Region;
    impl Drop for Region {
        fn drop(&mut self) {
            Local::with(|local| local.expect("a worker stays one").leave_blocking());
        }
    }
    let region = Local::with(|local| {
        local.map(|local| {
            local.enter_blocking();
            Region
        })
    });
    let result = f();
    drop(region);
    result
}
