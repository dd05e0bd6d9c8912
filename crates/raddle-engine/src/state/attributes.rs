//! What `sched(7)` and `setpriority(2)` say of a thread; the user-mode kernel gives it meaning.

use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sched::SpinLock;

/// CPUs that an affinity mask can name, in words of 64.
pub const CPU_WORDS: usize = 16;

/// The scheduling attributes of one green thread. All zero is what a thread has by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// `SCHED_OTHER` and its like.
    pub policy: u32,
    /// 1 to 99 in the real-time classes, else 0.
    pub priority: u32,
    /// -20 to 19.
    pub nice: i32,
    /// `SCHED_RESET_ON_FORK`: new threads start with the default.
    pub resets_on_fork: bool,
    /// Run time (a slice for the fair classes), deadline and period, in nanoseconds; 0 is the
    /// kernel's own choice.
    pub times_ns: [u64; 3],
    /// The affinity mask, or no CPU at all if none was set: then the process's mask holds.
    pub cpus: [u64; CPU_WORDS],
    /// How late the thread's time limits may be (`PR_SET_TIMERSLACK`), and the value that 0 sets
    /// there; in nanoseconds. 0 for [`Attributes::USUAL_SLACK_NS`].
    pub slack_ns: usize,
    pub default_slack_ns: usize,
}

impl Attributes {
    /// What Linux lets timers be late by.
    pub const USUAL_SLACK_NS: usize = 50_000;

    /// `SCHED_OTHER`, nice 0, no affinity of its own.
    pub const DEFAULT: Self = Self {
        policy: 0,
        priority: 0,
        nice: 0,
        resets_on_fork: false,
        times_ns: [0; 3],
        cpus: [0; CPU_WORDS],
        slack_ns: 0,
        default_slack_ns: 0,
    };
}

/// A thread's attributes, which any thread may change. Most threads keep the default, which is
/// known without the lock.
pub struct Shared {
    attributes: SpinLock<Attributes>,
    /// 0 while they are the default. Stored under the lock (release), read without it (acquire).
    differ: AtomicU32,
}

impl Shared {
    /// The default.
    pub const fn new() -> Self {
        Self {
            attributes: SpinLock::new(Attributes::DEFAULT),
            differ: AtomicU32::new(0),
        }
    }

    /// Returns true if they are the default.
    #[inline(always)]
    pub fn are_default(&self) -> bool {
        self.differ.load(Ordering::Acquire) == 0
    }

    /// A copy.
    pub fn get(&self) -> Attributes {
        if self.are_default() {
            Attributes::DEFAULT
        } else {
            *self.attributes.lock()
        }
    }

    /// A copy of the CPUs that the thread has chosen, if it has chosen any.
    pub fn cpus(&self) -> Option<[u64; CPU_WORDS]> {
        if self.are_default() {
            return None; // without a look at each word: runtimes ask often
        }
        let cpus = self.attributes.lock().cpus;
        cpus.iter().any(|&word| word != 0).then_some(cpus)
    }

    /// Changes them; others see all of the change or nothing.
    pub fn change<R>(&self, change: impl FnOnce(&mut Attributes) -> R) -> R {
        let mut attributes = self.attributes.lock();
        let result = change(&mut attributes);
        let differ = u32::from(*attributes != Attributes::DEFAULT);
        self.differ.store(differ, Ordering::Release);
        result
    }

    /// Calls `act` under the lock, so that no other thread changes the attributes meanwhile.
    pub fn with_lock<R>(&self, act: impl FnOnce() -> R) -> R {
        let _guard = self.attributes.lock();
        act()
    }

    /// For the next thread in a slot.
    pub(crate) fn reset(&self) {
        if !self.are_default() {
            self.change(|attributes| *attributes = Attributes::DEFAULT);
        }
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn break_lock(&self) {
        let Self {
            attributes,
            differ: _,
        } = self;
        // SAFETY: the caller's promise; a copy that was half made is one of plain numbers.
        unsafe { attributes.break_lock() };
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}
