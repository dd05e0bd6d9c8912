//! A plug-in: a policy that is not ours, through the C functions of `raddle_policy.h`.
//!
//! It is not trusted to be right. The tasks that it has are also in a list here, in the order in
//! which they came; so what it returns can be checked, and if it fails, nobody is lost: the list
//! goes on as fifo. It fails if it
//!
//! 1. returns something that is no task which it has,
//! 2. returns nothing while it has tasks, or
//! 3. is slow: calls of more than [`SLOW_NS`] take an eighth of the time, and have taken
//!    [`DEBT_NS`] more than that. One slow call says nothing, because the kernel may have taken the
//!    CPU away meanwhile; so it counts as [`ONE_NS`] at most.
//!
//! What can't be helped: a function that never returns, or that writes where it mustn't.

use super::chain::Chain;
use super::node::{Class, Node, of};
use super::{Policy, Reason};
use crate::task::{Task, TaskRef};
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{NonNull, null_mut};

/// A call that takes longer is slow.
pub const SLOW_NS: u64 = 100_000;
/// What one call counts at most.
pub const ONE_NS: u64 = 1_000_000;
/// What slow calls may take beyond their part of the time.
pub const DEBT_NS: u64 = 20_000_000;
/// The version of the interface.
pub const VERSION: u32 = 1;

/// `struct raddle_policy_thread`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    user: [u64; 4],
    ran_ns: u64,
    deadline_ns: u64,
    tid: u32,
    nice: i32,
    class: u32,
    priority: u32,
}

impl View {
    pub(super) const EMPTY: Self = Self {
        user: [0; 4],
        ran_ns: 0,
        deadline_ns: 0,
        tid: 0,
        nice: 0,
        class: 0,
        priority: 0,
    };
}

/// `struct raddle_policy`.
#[repr(C)]
pub struct Table {
    pub version: u32,
    pub size: u32,
    pub create: Option<extern "C" fn() -> *mut c_void>,
    pub enqueue: Option<extern "C" fn(*mut c_void, *mut View, u32, u64)>,
    pub pick: Option<extern "C" fn(*mut c_void, u64) -> *mut View>,
    pub quantum: Option<extern "C" fn(*mut c_void, *mut View) -> u64>,
    pub destroy: Option<extern "C" fn(*mut c_void)>,
}

impl Table {
    /// True if it has what is needed and is of a version that is known.
    pub fn is_usable(&self) -> bool {
        self.version == VERSION
            && self.size as usize >= size_of::<Self>()
            && self.enqueue.is_some()
            && self.pick.is_some()
    }
}

/// What a plug-in's calls need from the engine.
#[derive(Clone, Copy)]
pub struct Host {
    /// The time.
    pub now_ns: fn() -> u64,
    /// The task at this address, if there is one.
    pub find: fn(usize) -> Option<TaskRef>,
    /// Around every call: nothing may stop the caller inside.
    pub enter: fn(),
    pub leave: fn(),
}

/// What a plug-in did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// It picked something that is no runnable thread.
    Garbage = 1,
    /// It picked nothing while threads waited.
    Nothing = 2,
    /// It took too long.
    Slow = 3,
}

impl Fault {
    pub(crate) const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Garbage),
            2 => Some(Self::Nothing),
            3 => Some(Self::Slow),
            _ => None,
        }
    }
}

/// See the module.
pub struct Foreign {
    parts: Option<(&'static Table, Host)>,
    state: *mut c_void,
    /// The tasks that the plug-in has, as they came.
    waiting: Chain,
    /// What slow calls took, less an eighth of the time since, as of `called_ns`.
    debt_ns: u64,
    called_ns: u64,
    pub(super) fault: Option<Fault>,
}

// SAFETY: the plug-in's state is used under the policy's lock only, as its header demands.
unsafe impl Send for Foreign {}

impl Foreign {
    /// Without a plug-in.
    pub const fn new() -> Self {
        Self {
            parts: None,
            state: null_mut(),
            waiting: Chain::new(),
            debt_ns: 0,
            called_ns: 0,
            fault: None,
        }
    }

    /// Uses `table`, which is usable, from now on.
    pub fn set(&mut self, table: &'static Table, host: Host) {
        self.parts = Some((table, host));
        self.begin();
    }

    /// A fresh state without tasks: what was before belongs to another process.
    pub(super) fn begin(&mut self) {
        self.waiting = Chain::new();
        self.debt_ns = 0;
        self.state = self
            .call(|table, _| table.create.map(|create| create()))
            .flatten()
            .unwrap_or(null_mut());
    }

    /// Calls the plug-in and looks at the clock.
    fn call<R>(&mut self, call: impl FnOnce(&Table, *mut c_void) -> R) -> Option<R> {
        let (table, host) = self.parts?;
        let before_ns = (host.now_ns)();
        (host.enter)();
        let result = call(table, self.state);
        (host.leave)();
        self.charge(before_ns, (host.now_ns)());
        Some(result)
    }

    fn charge(&mut self, before_ns: u64, now_ns: u64) {
        let since_ns = before_ns.saturating_sub(self.called_ns);
        let took_ns = now_ns.saturating_sub(before_ns);
        self.called_ns = now_ns;
        self.debt_ns = self.debt_ns.saturating_sub(since_ns / 8);
        if took_ns > SLOW_NS {
            self.debt_ns += took_ns.min(ONE_NS);
        }
        if self.debt_ns > DEBT_NS {
            self.fault = Some(Fault::Slow);
        }
    }

    /// The task whose view this is, if the plug-in has it.
    fn owner(&self, view: *mut View) -> Option<TaskRef> {
        const OFFSET: usize = offset_of!(Task, policy) + offset_of!(Node, view);
        let (_, host) = self.parts?;
        let task = (host.find)(view.addr().checked_sub(OFFSET)?)?;
        of(task).queued.get().then_some(task)
    }

    /// Ends the plug-in, and gives back the tasks that it had, oldest first, one a call.
    pub(super) fn give_up(&mut self) -> Option<TaskRef> {
        if let Some((table, host)) = self.parts.take()
            && let Some(destroy) = table.destroy
        {
            (host.enter)();
            destroy(self.state);
            (host.leave)();
        }
        let task = self.waiting.pop_front()?;
        of(task).queued.set(false);
        Some(task)
    }
}

impl Default for Foreign {
    fn default() -> Self {
        Self::new()
    }
}

/// The task's view, up to date.
fn view(task: TaskRef) -> *mut View {
    let Node { terms, view, .. } = of(task);
    let at = view.get();
    let Class(class) = terms.class();
    // SAFETY: views are written and read under the policy's lock only.
    unsafe {
        *at = View {
            user: (*at).user,
            ran_ns: terms.ran_ns(),
            deadline_ns: terms.deadline_ns(),
            tid: terms.tid(),
            nice: terms.nice(),
            class,
            priority: terms.priority(),
        };
    }
    at
}

impl Policy for Foreign {
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64) {
        self.waiting.push_back(task);
        of(task).queued.set(true);
        self.call(|table, state| {
            let enqueue = table.enqueue?;
            enqueue(state, view(task), reason as u32, now_ns);
            Some(())
        });
    }

    fn pick(&mut self, now_ns: u64) -> Option<TaskRef> {
        if self.waiting.is_empty() {
            return None;
        }
        let picked = self.call(|table, state| table.pick.map(|pick| pick(state, now_ns)));
        let picked = NonNull::new(picked.flatten().unwrap_or(null_mut()));
        let Some(task) = picked.and_then(|view| self.owner(view.as_ptr())) else {
            self.fault = Some(match picked {
                Some(_) => Fault::Garbage,
                None => Fault::Nothing,
            });
            return None;
        };
        self.waiting.remove(task);
        of(task).queued.set(false);
        Some(task)
    }

    fn quantum_ns(&mut self, running: TaskRef, default_ns: u64) -> u64 {
        let asked = self.call(|table, state| table.quantum.map(|ask| ask(state, view(running))));
        match asked.flatten() {
            None | Some(0) => default_ns,
            Some(ns) => ns,
        }
    }
}
