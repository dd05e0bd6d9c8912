//! Fair shares under the default order: what each runnable task is entitled to, and what it has
//! used.
//!
//! | noun | what it is |
//! |---|---|
//! | [`FairClock`] | the *fair clock*: CPU time that a task would have used by now if it had been
//! runnable all the time and CPUs were shared evenly |
//! | [`Account`] | CPU time that one task has used, on the same scale |
//! | *ahead* | the account of a task is past the fair clock by more than [`LEAD_NS`]: the task has
//! used more than its share |
//! | *due* | the task is not ahead |
//! | [`JointAccount`] | an account that several tasks have together |
//! | [`AheadQueue`] | runnable tasks that are ahead, by their accounts |
//! | [`Chooser`] | which task a timed carrier runs next |
//! | *timed* | a carrier that reads the clock at each switch and charges accounts |
//!
//! # The order
//!
//! 1. Tasks with short turns need no accounts: first in, first out gives each a turn soon. A
//!    carrier charges no task until a turn lasts for [`LONG_TURN_NS`]. From then on it is timed,
//!    until no turn has been long for [`LINGER_NS`].
//! 2. A timed carrier charges the task that leaves for the CPU time of its turn, and advances the
//!    fair clock by that time divided by the number of runnable tasks. So `n` runnable tasks on `c`
//!    carriers advance the clock by `c / n` of the CPU time that each carrier gets. The last turn
//!    of a task that ends counts, too. A task that lends its turn to the holder of a lock pays for
//!    it, and lends none while it is ahead.
//! 3. A task that is woken or yields is queued first in, first out if it is due, and in the
//!    [`AheadQueue`] otherwise. A task that is preempted is always queued there: a ring gives the
//!    same number of turns to each task, and so less than its share to a task with short slices.
//!    Sleep earns nothing: an account is never behind the fair clock.
//! 4. A carrier takes the first task of the [`AheadQueue`] once that task has become due, but not
//!    twice in a row while other tasks wait. Otherwise it takes tasks that were queued first in,
//!    first out. It takes a task that is ahead only if it finds no other. Tasks that wake each
//!    other have the carrier for [`CHAIN_NS`], whether they were preempted in between or not; then
//!    it is the turn of one that was queued before. Once all tasks of its queue have yielded after
//!    short turns, and no other has run meanwhile, the first task of the [`AheadQueue`] is next.
//! 5. A waker gives way if it has used clearly more [recent](Account::recent_ns) CPU time than the
//!    woken task ([`gives_way`]): at the wake-up, or later as soon as that is true.
//!    A new task begins at the fair clock, with the recent time of its maker; at its end its own is
//!    the maker's, too.
//! 6. A task that is ahead runs for [`slice_ns`] while tasks that are due wait, and for a quantum
//!    while only tasks that are ahead do.
//!
//! # The bounds
//!
//! Let `n` tasks be runnable on `c` carriers. A task enters the [`AheadQueue`] at most one quantum
//! (in virtual time) ahead of the fair clock ([`Account::charge`]), so the clock reaches it after
//! at most `quantum * n / c`, whatever the others do. It runs after the turns that last then, and
//! after those that are due before it. A task behind `k` others in a ring has its turn after `k`
//! turns, and as many of tasks that have become due (rule 4). No turn is longer than a quantum
//! while others wait. So each runnable task runs within a small multiple of `n * quantum / c`, and
//! within [`LATENCY_NS`] of it in practice, since slices shrink while tasks that are due wait (rule
//! 6).
//!
//! A task that computes follows the fair clock, so its share is `c / n`: not less, because it runs
//! as soon as it is due, and more only of time that no other task wants.
//!
//! # Why sleep earns nothing
//!
//! With a credit for sleep, tasks that wake up go before tasks that have begun their work. A server
//! under load then has all its requests in progress at once, `n` is their number, and a compiler
//! thread beside them gets its share among so many: a Java server took three times as long to reach
//! its speed. Linux 6.6 made the same choice (EEVDF keeps the lag over a sleep).
//!
//! # Why a lead is allowed
//!
//! The costs of requests differ at random. An account can't be behind the fair clock, so the
//! accounts of tasks that serve requests in turn drift ahead of it, and further with each request
//! that cost more than the average. A task that waits until the clock has caught up waits for the
//! lead times the number of tasks for each carrier: 2.5 ms for a lead of 100 us among 50 tasks.
//!
//! # Rejected
//!
//! - One queue by accounts for all tasks, as in EEVDF (Stoica and Abdel-Wahab 1995; Linux 6.6):
//!   each switch reads a clock and changes an ordered tree. That costs more than a switch here.
//! - Priorities that are computed from sleep and run time (ULE, Roberson 2003): a score bounds no
//!   wait.
//! - A queue of preempted tasks that runs when no other task does (this project until decision 50):
//!   with load from outside another task always runs.

mod account;
mod ahead;
mod choice;
mod clock;
mod joint;

pub use account::Account;
pub use ahead::AheadQueue;
pub use choice::{Chooser, Sources};
pub use clock::{FairClock, Load};
pub use joint::JointAccount;

/// A turn of this length makes its carrier timed.
pub const LONG_TURN_NS: u64 = 50_000;
/// A timed carrier without a long turn for this time stops reading the clock.
pub const LINGER_NS: u64 = 50_000_000;
/// A timed carrier looks at timers and descriptors this often.
pub const LOOK_NS: u64 = 50_000;
/// Tasks that wake each other run one after the other for this time; then another task has a turn.
pub const CHAIN_NS: u64 = 100_000;
/// How far ahead of the fair clock an account is at most, however long the quantum.
pub const MOST_AHEAD_NS: u64 = 10_000_000;
/// The half-life of recent CPU time: 2 to the power of this, in nanoseconds (0.13 s).
pub const HALF_LIFE: u32 = 27;
/// A difference of CPU time up to this counts as none when decisions compare tasks.
pub const GRANULARITY_NS: u64 = 100_000;
/// How far an account may be past the fair clock before its task counts as ahead. Tasks that serve
/// requests of about the same cost differ by less: they keep the order of their arrival.
pub const LEAD_NS: u64 = 1_000_000;
/// The run time of all runnable tasks together between two turns of one that computes beside them,
/// as far as [`LEAST_SLICE_NS`] allows.
pub const LATENCY_NS: u64 = 12_000_000;
/// The shortest slice. On the only CPU its end costs one of sysmon's looks, too: 20 to 50 us.
pub const LEAST_SLICE_NS: u64 = 1_000_000;

/// A timed carrier counts runnable tasks at intervals of this time for each carrier.
pub const COUNT_NS: u64 = 5_000;

/// Returns true if a waker that has used `own_ns` of [recent](Account::recent_ns) CPU time, its
/// turn so far included, gives way to the task that it has woken: if that task has used clearly
/// less than half as much, `woken_ns`.
pub const fn gives_way(own_ns: u64, woken_ns: u64) -> bool {
    own_ns > woken_ns.saturating_mul(2).saturating_add(GRANULARITY_NS)
}

/// Returns how long a task that is ahead runs while due tasks wait; `quantum_ns` at most.
pub fn slice_ns(load: Load, quantum_ns: u64) -> u64 {
    let each_ns = LATENCY_NS * u64::from(load.carriers.max(1)) / u64::from(load.runnable.max(1));
    each_ns.max(LEAST_SLICE_NS).min(quantum_ns)
}
