//! The global queue. Under fifo: work from threads that are no carriers, and overflow of full run
//! queues; under any other policy: all runnable tasks.

use crate::order::policies::fair::GROUPS;
use crate::order::policies::{Fault, Host, Kind, Order, Reason, Table};
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::{AtomicU32, AtomicUsize, Ordering};
use crate::task::{TaskList, TaskRef};

/// Runnable tasks, in the order of the policy (without one, first in, first out). Any thread
/// pushes, any carrier takes.
pub struct Injector {
    order: SpinLock<Order>,
    /// Tasks in the queue. Written under the lock, read without it (SeqCst: the idle protocol).
    len: AtomicUsize,
    /// Code of the last [`Fault`], 0 for none. Written under the lock, cleared by `take_fault`.
    fault: AtomicU32,
    /// The policy's [`Kind`]. Written under the lock; read without it by callers that must not wait
    /// for a plug-in.
    kind: AtomicU32,
    /// 1 if [`Order::all_compute`]. Written under the lock; a hint without it.
    all_compute: AtomicU32,
}

impl Injector {
    /// Offset of the word with the number of tasks.
    pub const LEN: usize = core::mem::offset_of!(Injector, len);

    /// An empty queue.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            order: SpinLock::new(Order::new()),
            len: AtomicUsize::new(0),
            fault: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            all_compute: AtomicU32::new(0),
        }
    }

    /// An empty queue.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            order: SpinLock::new(Order::new()),
            len: AtomicUsize::new(0),
            fault: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            all_compute: AtomicU32::new(0),
        }
    }

    /// Returns the number of tasks a moment ago. SeqCst: the idle protocol's last look (see
    /// `idle`).
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Returns true if the queue was empty a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if tasks waited a moment ago under a policy, and each of them had computed
    /// until its quantum was over: the one that is picked next will probably run for as long.
    pub fn all_compute(&self) -> bool {
        self.all_compute.load(Ordering::Relaxed) != 0
    }

    /// Appends a task that was woken.
    pub fn push(&self, task: TaskRef) {
        self.enqueue(task, Reason::Woken, 0, None);
    }

    /// Adds a task. Returns true if the task that is picked next should run instead of `running` at
    /// once.
    pub fn enqueue(
        &self,
        task: TaskRef,
        reason: Reason,
        now_ns: u64,
        running: Option<TaskRef>,
    ) -> bool {
        let mut order = self.order.lock();
        order.enqueue(task, reason, now_ns);
        self.look_after(&mut order);
        running.is_some_and(|running| order.outranks(running))
    }

    /// Appends a list of tasks that were woken.
    pub fn push_all(&self, tasks: TaskList) {
        let mut order = self.order.lock();
        while let Some(task) = tasks.pop() {
            order.enqueue(task, Reason::Woken, 0);
        }
        self.look_after(&mut order);
    }

    /// A running task ends, for a policy that goes by CPU time.
    pub fn ended(&self, task: TaskRef) {
        self.order.lock().ended(task);
    }

    /// Takes the task that runs next.
    pub fn pop(&self) -> Option<TaskRef> {
        self.pick(0)
    }

    /// As [`Injector::pop`], for policies that need the time.
    pub fn pick(&self, now_ns: u64) -> Option<TaskRef> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut order = self.order.lock();
        let task = order.pick(now_ns);
        if self.look_after(&mut order) && task.is_none() {
            let task = order.pick(now_ns);
            self.look_after(&mut order);
            return task;
        }
        task
    }

    /// Takes up to `max` tasks, in the order of the policy.
    pub fn pop_some(&self, max: usize) -> TaskList {
        let taken = TaskList::new();
        if self.len.load(Ordering::Relaxed) == 0 {
            return taken;
        }
        let mut order = self.order.lock();
        while taken.len() < max {
            match order.pick(0) {
                Some(task) => taken.push(task),
                None => break,
            }
        }
        self.look_after(&mut order);
        taken
    }

    /// Publishes the state. Returns true if the policy has failed just now, and is fifo since.
    fn look_after(&self, order: &mut SpinGuard<'_, Order>) -> bool {
        self.len.store(order.len(), Ordering::SeqCst);
        let all_compute = u32::from(order.all_compute());
        self.all_compute.store(all_compute, Ordering::Relaxed);
        let fault = order.take_fault();
        self.kind.store(order.kind() as u32, Ordering::Relaxed);
        if let Some(fault) = fault {
            self.fault.store(fault as u32, Ordering::Relaxed);
        }
        fault.is_some()
    }

    /// Returns what a plug-in did wrong, once.
    pub fn take_fault(&self) -> Option<Fault> {
        if self.fault.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Fault::from_code(self.fault.swap(0, Ordering::Relaxed))
    }

    /// Changes the policy to a built-in one, which gets all tasks that wait. Returns false while a
    /// plug-in's call holds the lock: the caller, which must not wait for the call, tries again.
    pub fn choose(&self, kind: Kind, now_ns: u64) -> bool {
        let Some(mut order) = self.order.try_lock() else {
            return false;
        };
        order.choose(kind, now_ns);
        self.look_after(&mut order);
        true
    }

    /// As [`Injector::choose`], for a plug-in; waits for the lock.
    pub fn choose_foreign(&self, table: &'static Table, host: Host) {
        let mut order = self.order.lock();
        order.choose_foreign(table, host);
        self.look_after(&mut order);
    }

    /// The policy in use.
    pub fn kind(&self) -> Kind {
        Kind::from_code(self.kind.load(Ordering::Relaxed))
    }

    /// See [`crate::policies::Fair::set_shares`].
    pub fn set_shares(&self, weights: &[u32; GROUPS]) {
        self.order.lock().set_shares(weights);
    }

    /// See [`crate::policies::Fair::shares`].
    pub fn shares(&self) -> [u32; GROUPS] {
        self.order.lock().shares()
    }

    /// Returns how long `running` may run while others wait; 0 if it should stop for one of them at
    /// once. Never waits for a plug-in.
    pub fn quantum_ns(&self, running: TaskRef, default_ns: u64) -> u64 {
        if self.kind() == Kind::Plugin {
            let asked_ns = running.get().policy.terms.quantum_ns();
            return if asked_ns == 0 { default_ns } else { asked_ns };
        }
        let mut order = self.order.lock();
        let quantum_ns = if order.outranks(running) {
            0
        } else {
            order.quantum_ns(running, default_ns)
        };
        self.look_after(&mut order);
        quantum_ns
    }

    /// Empties the queue, after its other users have ceased to exist.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    #[inline(always)]
    pub unsafe fn reset(&self) {
        let Self {
            order,
            len,
            fault,
            kind: _,
            all_compute,
        } = self;
        // SAFETY: the caller's promise; what the lock guards is replaced whole.
        let was_changing = unsafe { order.break_lock() };
        // A child writes to as few of its parent's pages as it can.
        if was_changing || len.load(Ordering::SeqCst) != 0 {
            order.lock().forget();
            len.store(0, Ordering::SeqCst);
            all_compute.store(0, Ordering::Relaxed);
        }
        if fault.load(Ordering::Relaxed) != 0 {
            fault.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Injector {
    fn default() -> Self {
        Self::new()
    }
}
