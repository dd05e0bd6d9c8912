//! A plug-in: a policy that is not ours, through the C functions of `raddle_policy.h`.
//!
//! A plug-in may be wrong. Its tasks are also in a list here, in the order in which they came; so
//! its results can be checked, and if it fails, no task is lost: the tasks of the list go on under
//! fifo. It fails if it
//!
//! 1. returns something that is none of its tasks,
//! 2. returns nothing while it has tasks,
//! 3. is slow: calls of more than [`SLOW_NS`] have taken [`DEBT_NS`] more than an eighth of the
//!    time. One slow call proves nothing, because the kernel may have taken the CPU away meanwhile;
//!    so it counts as [`ONE_NS`] at most; or
//! 4. doesn't return from a call, which the host has abandoned.
//!
//! Not detected: a function that writes where it mustn't.

use super::chain::Chain;
use super::{Policy, Reason};
pub use crate::task::View;
use crate::task::{Class, Node, Task, TaskRef, of};
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::{NonNull, null_mut, with_exposed_provenance_mut};

/// A call that takes longer is slow.
pub const SLOW_NS: u64 = 100_000;
/// The most time that one call counts.
pub const ONE_NS: u64 = 1_000_000;
/// The time that slow calls may take beyond their part.
pub const DEBT_NS: u64 = 20_000_000;
/// The version of the interface.
pub const VERSION: u32 = 1;

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
    /// Returns true if the table has the required functions and is of a known version.
    pub fn is_usable(&self) -> bool {
        self.version == VERSION
            && self.size as usize >= size_of::<Self>()
            && self.enqueue.is_some()
            && self.pick.is_some()
    }
}

/// Functions that a plug-in's calls need from the engine.
#[derive(Clone, Copy)]
pub struct Host {
    /// Returns the time.
    pub now_ns: fn() -> u64,
    /// Returns the task at this address, if there is one.
    pub find: fn(usize) -> Option<TaskRef>,
    /// Makes a call; the caller isn't stopped inside. Returns `None` if the call was abandoned.
    pub call: fn(Call) -> Option<usize>,
}

/// A call of a plug-in's function. All of them take integers and pointers, and return at most one.
#[derive(Clone, Copy)]
pub struct Call {
    function: usize,
    arguments: [usize; 4],
}

impl Call {
    fn new(function: *const (), arguments: [usize; 4]) -> Self {
        Self {
            function: function.expose_provenance(),
            arguments,
        }
    }

    /// Calls the function, and returns its result, if any.
    pub fn make(self) -> usize {
        let at = core::ptr::with_exposed_provenance::<()>(self.function);
        let [a, b, c, d] = self.arguments;
        // SAFETY: a function of the plug-in's table. In the C ABI it may be given more integers
        // than it takes, and one that returns nothing leaves any value in the register for it.
        unsafe {
            let function: extern "C" fn(usize, usize, usize, usize) -> usize =
                core::mem::transmute(at);
            function(a, b, c, d)
        }
    }
}

/// What a plug-in did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// The plug-in picked a value that is no runnable thread of its own.
    Garbage = 1,
    /// The plug-in picked no thread while threads waited.
    Nothing = 2,
    /// The plug-in's calls took too long.
    Slow = 3,
    /// A call of the plug-in didn't return.
    Stuck = 4,
}

impl Fault {
    pub(crate) const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Garbage),
            2 => Some(Self::Nothing),
            3 => Some(Self::Slow),
            4 => Some(Self::Stuck),
            _ => None,
        }
    }
}

/// See the module.
pub struct Foreign {
    parts: Option<(&'static Table, Host)>,
    state: *mut c_void,
    /// The tasks that the plug-in has, in the order in which they came.
    waiting: Chain,
    /// What slow calls took, less an eighth of the time since, as of `called_ns`.
    debt_ns: u64,
    called_ns: u64,
    pub(super) fault: Option<Fault>,
    /// True after a call was abandoned or the policy was changed: no further call is made.
    is_over: bool,
}

// SAFETY: the plug-in's state is used under the policy's lock only, as its header demands.
unsafe impl Send for Foreign {}

impl Foreign {
    /// No plug-in.
    pub const fn new() -> Self {
        Self {
            parts: None,
            state: null_mut(),
            waiting: Chain::new(),
            debt_ns: 0,
            called_ns: 0,
            fault: None,
            is_over: false,
        }
    }

    /// Uses `table`, which is usable, from now on.
    pub fn set(&mut self, table: &'static Table, host: Host) {
        self.parts = Some((table, host));
        self.begin();
    }

    /// Begins with a fresh state and no tasks: the state before belongs to another process.
    pub(super) fn begin(&mut self) {
        self.waiting = Chain::new();
        self.debt_ns = 0;
        self.state = null_mut();
        let create = self.parts.and_then(|(table, _)| table.create);
        let state = create.and_then(|create| self.call(create as *const (), [0; 3]));
        self.state = with_exposed_provenance_mut(state.unwrap_or(0));
    }

    /// Calls a function of the plug-in with its state, and measures the time.
    fn call(&mut self, function: *const (), [a, b, c]: [usize; 3]) -> Option<usize> {
        let (_, host) = self.parts?;
        let state = self.state.expose_provenance();
        let before_ns = (host.now_ns)();
        let result = (host.call)(Call::new(function, [state, a, b, c]));
        self.charge(before_ns, (host.now_ns)());
        if result.is_none() {
            self.fault = Some(Fault::Stuck);
            self.is_over = true;
        }
        result
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
            self.fault.get_or_insert(Fault::Slow);
        }
    }

    /// Returns the task of this view, if the plug-in has that task.
    fn owner(&self, view: *mut View) -> Option<TaskRef> {
        const OFFSET: usize = offset_of!(Task, policy) + offset_of!(Node, view);
        let (_, host) = self.parts?;
        let task = (host.find)(view.addr().checked_sub(OFFSET)?)?;
        of(task).queued.get().then_some(task)
    }

    /// Another policy was chosen, perhaps by a thread that must not make a call: makes no further
    /// call.
    pub(super) fn leave(&mut self) {
        self.is_over = true;
        self.fault = None;
    }

    /// Ends the plug-in, and returns one of its tasks at each call, oldest first.
    pub(super) fn give_up(&mut self) -> Option<TaskRef> {
        if let Some((table, _)) = self.parts
            && let Some(destroy) = table.destroy.filter(|_| !self.is_over)
        {
            self.call(destroy as *const (), [0; 3]);
            self.fault = None; // the last fault was taken
        }
        self.parts = None;
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

/// Returns the task's view, up to date.
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
        let enqueue = self.parts.and_then(|(table, _)| table.enqueue);
        if let Some(enqueue) = enqueue.filter(|_| !self.is_over) {
            let view = view(task).expose_provenance();
            let words = [view, reason as usize, now_ns as usize];
            self.call(enqueue as *const (), words);
        }
    }

    fn pick(&mut self, now_ns: u64) -> Option<TaskRef> {
        if self.waiting.is_empty() {
            return None;
        }
        let pick = self.parts.and_then(|(table, _)| table.pick)?;
        let picked = self.call(pick as *const (), [now_ns as usize, 0, 0])?;
        let picked = NonNull::new(with_exposed_provenance_mut::<View>(picked));
        let Some(task) = picked.and_then(|view| self.owner(view.as_ptr())) else {
            self.fault = Some(match picked {
                Some(_) => Fault::Garbage,
                None => Fault::Nothing,
            });
            return None;
        };
        self.waiting.remove(task);
        of(task).queued.set(false);
        let quantum = self.parts.and_then(|(table, _)| table.quantum);
        let asked = quantum.and_then(|ask| {
            let view = view(task).expose_provenance();
            self.call(ask as *const (), [view, 0, 0])
        });
        of(task).terms.set_quantum_ns(asked.unwrap_or(0) as u64);
        Some(task)
    }

    /// Returns what the plug-in said when it picked the task: the caller must not call it.
    fn quantum_ns(&mut self, running: TaskRef, default_ns: u64) -> u64 {
        match of(running).terms.quantum_ns() {
            0 => default_ns,
            ns => ns,
        }
    }
}
