//! A policy's data in a task, and the attributes that policies use.

use super::{Task, TaskRef};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;

/// A scheduling class, by the numbers of `sched(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u32);

impl Class {
    pub const OTHER: Self = Self(0);
    pub const FIFO: Self = Self(1);
    pub const ROUND_ROBIN: Self = Self(2);
    pub const IDLE: Self = Self(5);
    pub const DEADLINE: Self = Self(6);
}

/// The attributes that a policy uses. Written by the thread that changes a thread's attributes, and
/// by the engine before it queues the task; read by policies. Relaxed: a value that comes late
/// counts next time.
pub struct Terms {
    class: AtomicU32,
    /// 1 to 99 in the real-time classes.
    priority: AtomicU32,
    /// -20 to 19, as the bits of an `i32`.
    nice: AtomicU32,
    /// The group of [`Fair`](crate::policies::Fair); 0 for the rest.
    group: AtomicU32,
    /// Time from becoming runnable to the deadline; 0 for none.
    deadline_ns: AtomicU64,
    /// CPU time so far, if the policy wants it measured.
    ran_ns: AtomicU64,
    tid: AtomicU32,
    /// Microseconds that the task may run while others wait, as a plug-in said when it picked the
    /// task; 0 for the default.
    quantum_us: AtomicU32,
}

impl Terms {
    /// Offset of the group, for readers of the process's memory.
    pub const GROUP: usize = core::mem::offset_of!(Terms, group);

    fn new() -> Self {
        Self {
            class: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            nice: AtomicU32::new(0),
            group: AtomicU32::new(0),
            deadline_ns: AtomicU64::new(0),
            ran_ns: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            quantum_us: AtomicU32::new(0),
        }
    }

    /// Sets class, priority, niceness and relative deadline.
    pub fn set_attributes(&self, class: Class, priority: u32, nice: i32, deadline_ns: u64) {
        self.class.store(class.0, Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.nice.store(nice as u32, Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    /// Sets the niceness alone.
    pub fn set_nice(&self, nice: i32) {
        self.nice.store(nice as u32, Ordering::Relaxed);
    }

    /// Puts the task into a group.
    pub fn set_group(&self, group: u32) {
        self.group.store(group, Ordering::Relaxed);
    }

    /// Sets the CPU time that the task has used.
    pub fn set_ran_ns(&self, ns: u64) {
        self.ran_ns.store(ns, Ordering::Relaxed);
    }

    pub fn class(&self) -> Class {
        Class(self.class.load(Ordering::Relaxed))
    }

    pub fn priority(&self) -> u32 {
        self.priority.load(Ordering::Relaxed)
    }

    pub fn nice(&self) -> i32 {
        self.nice.load(Ordering::Relaxed) as i32
    }

    pub fn group(&self) -> u32 {
        self.group.load(Ordering::Relaxed)
    }

    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Ordering::Relaxed)
    }

    pub fn ran_ns(&self) -> u64 {
        self.ran_ns.load(Ordering::Relaxed)
    }

    pub fn quantum_ns(&self) -> u64 {
        u64::from(self.quantum_us.load(Ordering::Relaxed)) * 1000
    }

    pub(crate) fn set_quantum_ns(&self, ns: u64) {
        let us = u32::try_from(ns.div_ceil(1000)).unwrap_or(u32::MAX);
        self.quantum_us.store(us, Ordering::Relaxed);
    }

    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }
}

/// A task as a plug-in sees it: `struct raddle_policy_thread`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    pub(crate) user: [u64; 4],
    pub(crate) ran_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) tid: u32,
    pub(crate) nice: i32,
    pub(crate) class: u32,
    pub(crate) priority: u32,
}

impl View {
    pub(crate) const EMPTY: Self = Self {
        user: [0; 4],
        ran_ns: 0,
        deadline_ns: 0,
        tid: 0,
        nice: 0,
        class: 0,
        priority: 0,
    };
}

/// A policy's part of a task. The lock around the policy guards all fields but the terms and
/// `is_ahead`.
pub struct Node {
    pub terms: Terms,
    pub(crate) next: Cell<*mut Task>,
    pub(crate) before: Cell<*mut Task>,
    pub(crate) child: Cell<*mut Task>,
    /// A heap orders by this, then by `turn`.
    pub(crate) key: Cell<u64>,
    pub(crate) turn: Cell<u64>,
    /// When the task became runnable, for policies that must not starve it.
    pub(crate) since_ns: Cell<u64>,
    /// True while the task is in the [`AheadQueue`](crate::share::AheadQueue). Guarded by the lock
    /// there.
    pub(crate) is_ahead: Cell<bool>,
    /// True while the task waits after its quantum was over: it computes.
    pub(crate) made_room: Cell<bool>,
    /// True while a plug-in has the task.
    pub(crate) queued: Cell<bool>,
    /// Fair: run time divided by weight; `in_group` is the task's group.
    pub(crate) virtual_ns: Cell<u64>,
    pub(crate) in_group: Cell<u32>,
    /// Fair: run time that is in `virtual_ns`.
    pub(crate) counted_ns: Cell<u64>,
    /// The task as a plug-in sees it.
    pub(crate) view: UnsafeCell<View>,
}

// SAFETY: the links lead to tasks that are reached under the policy's lock only.
unsafe impl Send for Node {}
// SAFETY: as above; every cell is read and written under that lock.
unsafe impl Sync for Node {}

impl Node {
    pub(crate) fn new() -> Self {
        Self {
            terms: Terms::new(),
            next: Cell::new(null_mut()),
            before: Cell::new(null_mut()),
            child: Cell::new(null_mut()),
            key: Cell::new(0),
            turn: Cell::new(0),
            since_ns: Cell::new(0),
            is_ahead: Cell::new(false),
            made_room: Cell::new(false),
            queued: Cell::new(false),
            virtual_ns: Cell::new(0),
            in_group: Cell::new(0),
            counted_ns: Cell::new(0),
            view: UnsafeCell::new(View::EMPTY),
        }
    }

    /// Resets the node for the next thread in a slot, before other threads know that thread.
    pub fn reset(&self, tid: u32) {
        self.terms.set_attributes(Class::OTHER, 0, 0, 0);
        self.terms.set_group(0);
        self.terms.set_ran_ns(0);
        self.terms.tid.store(tid, Ordering::Relaxed);
        self.terms.set_quantum_ns(0);
        self.virtual_ns.set(0);
        self.in_group.set(0);
        self.counted_ns.set(0);
        self.made_room.set(false);
        // SAFETY: the task is in no policy, so no other thread reads its view.
        unsafe { *self.view.get() = View::EMPTY };
    }
}

/// Returns the node of a task that a policy holds.
pub(crate) fn node<'a>(task: *mut Task) -> &'a Node {
    // SAFETY: called with tasks that a policy links, under its lock; tasks live in type-stable
    // memory.
    unsafe { &(*task).policy }
}

/// As [`node`].
pub(crate) fn of<'a>(task: TaskRef) -> &'a Node {
    &task.get().policy
}
