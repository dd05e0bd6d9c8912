//! Timers, readiness of descriptors, and checks of a busy pool: one thread for all three.
//!
//! The watcher starts with the first timer, descriptor or busy moment of a pool of variable size,
//! and sleeps in `epoll_wait` until the next deadline, readiness or wake. It runs no work, but
//! queues it. While no work waits and no worker runs, it has no deadline of its own.

use super::climb::Climber;
use super::counters::Counters;
use super::job::Job;
use super::poll::{Interest, Poll};
use super::shared::{Origin, Phase, Shared, State, Wake};
use super::sync::{lock, quietly};
use super::{Priority, QueueError};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// From this load on the processors count as busy; then waiting work is not stuck.
const BUSY: f64 = 0.85;

/// A pool's watcher, if it has been started.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    poll: Option<Arc<Poll>>,
    /// Timers and descriptors are refused; the pool is still checked.
    closed: bool,
    /// The watcher ends, or has ended.
    ended: bool,
    next_id: u64,
    timers: BTreeMap<(Instant, u64), Timed>,
    descriptors: HashMap<u64, (OwnedFd, Job)>,
    /// Time of the next check, if the pool is busy.
    look_at: Option<Instant>,
}

enum Timed {
    Once(Job),
    Every(Duration, Arc<Periodic>),
}

struct Periodic {
    /// True while the work is queued or runs: a period that ends meanwhile is left out.
    busy: AtomicBool,
    work: Box<dyn Fn() + Send + Sync>,
}

/// A timer or a watched descriptor of a pool. Dropping it has no effect.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// let pool = raddle::pool::Pool::new();
/// let timer = pool.after(Duration::from_secs(3600), || unreachable!())?;
/// assert!(timer.cancel());
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
pub struct Watched {
    shared: Weak<Shared>,
    id: u64,
    /// The due time of a timer that runs once.
    due: Option<Instant>,
}

impl Watched {
    /// Cancels the watch. Returns true if its work will not be queued (again).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let pool = raddle::pool::Pool::new();
    /// let tick = pool.every(Duration::from_millis(1), || ())?;
    /// assert!(tick.cancel());
    /// assert!(!tick.cancel());
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn cancel(&self) -> bool {
        let Some(shared) = self.shared.upgrade().filter(|shared| !shared.is_forked()) else {
            return false;
        };
        let mut state = lock(&shared.watch.state);
        let key = match self.due {
            Some(due) => Some((due, self.id)),
            None => state.timers.keys().copied().find(|key| key.1 == self.id),
        };
        let timer = key.and_then(|key| state.timers.remove(&key));
        let descriptor = state.descriptors.remove(&self.id);
        if let (Some((descriptor, _)), Some(poll)) = (&descriptor, &state.poll) {
            poll.forget(descriptor.as_raw_fd());
        }
        drop(state);
        timer.is_some() || descriptor.is_some()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl Watch {
    pub(super) fn after(
        &self,
        shared: &Shared,
        delay: Duration,
        job: Job,
    ) -> Result<Watched, QueueError> {
        // A deadline beyond the clock's range becomes a century.
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        let due = Instant::now() + delay.min(century);
        let id = self.add(shared, |state, id| {
            state.timers.insert((due, id), Timed::Once(job));
            Ok(())
        })?;
        Ok(watched(shared, id, Some(due)))
    }

    pub(super) fn every(
        &self,
        shared: &Shared,
        period: Duration,
        work: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Watched, QueueError> {
        let Some(due) = Instant::now().checked_add(period) else {
            return self.after(shared, period, Job::new(work));
        };
        if period.is_zero() {
            return Err(QueueError::ZeroPeriod);
        }
        let busy = AtomicBool::new(false);
        let periodic = Arc::new(Periodic { busy, work });
        let id = self.add(shared, |state, id| {
            let timed = Timed::Every(period, periodic);
            state.timers.insert((due, id), timed);
            Ok(())
        })?;
        Ok(watched(shared, id, None))
    }

    pub(super) fn when_ready(
        &self,
        shared: &Shared,
        descriptor: BorrowedFd<'_>,
        interest: Interest,
        job: Job,
    ) -> Result<Watched, QueueError> {
        let descriptor = descriptor.try_clone_to_owned().map_err(QueueError::Watch)?;
        let mut watched_one = Some((descriptor, job)); // outside, to be dropped without the lock
        let id = self.add(shared, |state, id| {
            if let (Some(poll), Some((descriptor, _))) = (&state.poll, &watched_one) {
                let number = descriptor.as_raw_fd();
                poll.watch(number, interest, id)
                    .map_err(QueueError::Watch)?;
            }
            let taken = watched_one.take();
            state.descriptors.extend(taken.map(|one| (id, one)));
            Ok(())
        })?;
        Ok(watched(shared, id, None))
    }

    /// Has the watcher check the pool until it is idle. A pool that can't have a watcher keeps its
    /// size.
    #[cold]
    pub(super) fn arm(&self, shared: &Shared) {
        let look_at = Instant::now() + shared.config.tick;
        let mut state = lock(&self.state);
        if let Ok(poll) = state.watcher(shared) {
            state.look_at = Some(look_at);
            drop(state);
            poll.wake();
        }
    }

    /// Drops timers and descriptors, and refuses further ones.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let timers = std::mem::take(&mut state.timers);
        let descriptors = std::mem::take(&mut state.descriptors);
        drop(state);
        timers
            .into_values()
            .for_each(|timer| quietly(|| drop(timer)));
        descriptors
            .into_values()
            .for_each(|it| quietly(|| drop(it)));
    }

    /// Ends the watcher, since the pool's workers end.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        if let Some(poll) = state.poll.take() {
            poll.wake();
        }
    }

    /// Changes the state, and wakes the watcher, which is started if there is none.
    fn add(
        &self,
        shared: &Shared,
        change: impl FnOnce(&mut WatchState, u64) -> Result<(), QueueError>,
    ) -> Result<u64, QueueError> {
        if shared.is_forked() {
            return Err(QueueError::Forked);
        }
        let mut state = lock(&self.state);
        if state.closed {
            return Err(QueueError::Closed);
        }
        let poll = state.watcher(shared)?;
        state.next_id += 1;
        let id = state.next_id;
        change(&mut state, id)?;
        drop(state);
        poll.wake();
        Ok(id)
    }

    /// Takes the due jobs. Returns them, the next due time, and whether to check the pool; `None`
    /// after the end.
    fn due(&self, now: Instant) -> Option<(Vec<Job>, Option<Instant>, bool)> {
        let mut state = lock(&self.state);
        if state.ended {
            return None;
        }
        let later = state.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.timers, later);
        let mut jobs = Vec::new();
        for ((at, id), timed) in due {
            match timed {
                Timed::Once(job) => jobs.push(job),
                Timed::Every(period, periodic) => {
                    jobs.extend(periodic.begin());
                    // A late watcher leaves periods out instead of catching up.
                    let next = (at + period).max(now);
                    state
                        .timers
                        .insert((next, id), Timed::Every(period, periodic));
                }
            }
        }
        let look = state.look_at.is_some_and(|at| at <= now);
        if look {
            state.look_at = None;
        }
        let first = state.timers.keys().next().map(|key| key.0);
        let next = first.into_iter().chain(state.look_at).min();
        Some((jobs, next, look))
    }

    fn look_again(&self, at: Instant) {
        lock(&self.state).look_at = Some(at);
    }

    fn take_ready(&self, ids: &[u64]) -> Vec<Job> {
        let mut state = lock(&self.state);
        let mut jobs = Vec::new();
        for id in ids {
            if let Some((descriptor, job)) = state.descriptors.remove(id) {
                if let Some(poll) = &state.poll {
                    poll.forget(descriptor.as_raw_fd());
                }
                jobs.push(job);
            }
        }
        jobs
    }
}

impl WatchState {
    /// Returns the watcher's [`Poll`], after starting the watcher if there is none.
    fn watcher(&mut self, shared: &Shared) -> Result<Arc<Poll>, QueueError> {
        if self.ended {
            return Err(QueueError::Closed);
        }
        if let Some(poll) = &self.poll {
            return Ok(poll.clone());
        }
        let poll = Arc::new(Poll::new().map_err(QueueError::Watch)?);
        start(shared, poll.clone())?;
        Ok(self.poll.insert(poll).clone())
    }
}

fn watched(shared: &Shared, id: u64, due: Option<Instant>) -> Watched {
    let shared = shared.me.clone();
    Watched { shared, id, due }
}

impl Periodic {
    /// Returns the work as a job, unless the last one is not over.
    fn begin(self: &Arc<Self>) -> Option<Job> {
        struct Over(Arc<Periodic>);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.busy.store(false, Ordering::Release);
            }
        }
        if self.busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let over = Over(self.clone());
        Some(Job::new(move || (over.0.work)()))
    }
}

fn start(shared: &Shared, poll: Arc<Poll>) -> Result<(), QueueError> {
    let pool = shared.me.clone();
    let builder = crate::thread::Builder::new().name(format!("{}-watch", shared.config.name));
    let thread = builder.spawn(move || watch(&pool, &poll));
    thread.map(drop).map_err(QueueError::NoThread)
}

/// The watcher's thread. It holds no reference to the pool while it sleeps, so that an unused pool
/// is freed.
fn watch(pool: &Weak<Shared>, poll: &Poll) {
    let mut monitor = None;
    let mut ready = Vec::new();
    loop {
        let now = Instant::now();
        let next = {
            let Some(shared) = pool.upgrade() else {
                return;
            };
            let jobs = shared.watch.take_ready(&ready);
            let Some((due, next, look)) = shared.watch.due(now) else {
                return;
            };
            for job in jobs.into_iter().chain(due) {
                // A closed pool has dropped the job.
                let _ = shared.queue(job, Priority::Normal, Origin::Exempt);
            }
            if !look {
                next
            } else {
                let monitor = monitor.get_or_insert_with(|| Monitor::new(&shared));
                let again = monitor.look(&shared, now).then(|| now + shared.config.tick);
                again.into_iter().for_each(|at| shared.watch.look_again(at));
                next.into_iter().chain(again).min()
            }
        };
        poll.wait(next, &mut ready);
    }
}

/// Checks of a busy pool: is work stuck, and would another number of workers do more?
struct Monitor {
    climber: Climber,
    at: Instant,
    executed: u64,
    cpu: Duration,
}

impl Monitor {
    fn new(shared: &Shared) -> Self {
        let config = &shared.config;
        Self {
            climber: Climber::new(config.min_workers..=config.max_workers),
            at: Instant::now(),
            executed: executed(shared),
            cpu: super::poll::cpu_time(),
        }
    }

    /// Adjusts the target. Returns whether the pool is still busy.
    fn look(&mut self, shared: &Shared, now: Instant) -> bool {
        let executed = executed(shared);
        let cpu = super::poll::cpu_time();
        let passed = now.duration_since(self.at);
        let done = executed - self.executed;
        let used = cpu.saturating_sub(self.cpu);
        (self.at, self.executed, self.cpu) = (now, executed, cpu);
        let stealable = shared.has_stealable();
        let memory = shared.memory_allows();
        let mut state = shared.state();
        let pending = state.lanes.len() > 0 || stealable;
        if state.phase == Phase::Dropping || !pending && state.running() == 0 {
            state.monitored = false;
            state.target = shared.config.min_workers;
            shared.publish(&state);
            return false;
        }
        // A time before the pool was busy, or in which this thread was kept waiting, says nothing
        // about the current load.
        if passed < 4 * shared.config.tick {
            let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            let busy = used.as_secs_f64() / passed.as_secs_f64() / cpus;
            let stuck = pending && busy < BUSY;
            let before = state.target;
            self.adjust(
                shared,
                &mut state,
                done as f64 / passed.as_secs_f64(),
                stuck,
            );
            if state.target > before {
                if memory || !state.idle.is_empty() {
                    state.counts.injected += 1
                } else {
                    state.target = before
                }
            }
            let wake = if pending {
                shared.summon(&mut state)
            } else {
                Wake::Nobody
            };
            shared.publish(&state);
            drop(state);
            // Without a thread the next check tries again.
            let _ = shared.act(wake);
        }
        true
    }

    /// Sets the target after a tick with `throughput` items a second.
    fn adjust(&mut self, shared: &Shared, state: &mut State, throughput: f64, stuck: bool) {
        if throughput > 0.0 {
            self.climber.stand_at(state.target);
            state.target = self.climber.tick(throughput);
        } else if stuck && state.running() >= state.target {
            state.target = (state.target + 1).min(shared.config.max_workers);
        }
    }
}

fn executed(shared: &Shared) -> u64 {
    let count = |counters: &Counters, get: fn(&Counters) -> &AtomicU64| {
        get(counters).load(Ordering::Relaxed)
    };
    let slots = shared.used().iter();
    slots
        .map(|slot| count(&slot.counters, |counters| &counters.executed))
        .sum()
}
