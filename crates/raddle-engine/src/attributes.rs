//! What `sched(7)` and `setpriority(2)` say of a thread; the user-mode kernel gives it meaning.

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
    /// The affinity mask, or no CPU at all if nobody has set one: then it is the process's.
    pub cpus: [u64; CPU_WORDS],
}

impl Attributes {
    /// `SCHED_OTHER`, nice 0, no affinity of its own.
    pub const DEFAULT: Self = Self {
        policy: 0,
        priority: 0,
        nice: 0,
        resets_on_fork: false,
        times_ns: [0; 3],
        cpus: [0; CPU_WORDS],
    };
}
