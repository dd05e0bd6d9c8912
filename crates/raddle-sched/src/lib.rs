//! The scheduler's pure half: states, run queues, wait queues, timers and policies.
//!
//! No system call, no assembly, no clock and no allocation: the caller passes the time in
//! nanoseconds, and memory as intrusive links inside its own objects. So one body of code runs in
//! production, under loom and shuttle (`cfg(raddle_loom)`, `cfg(raddle_shuttle)`), and in a
//! simulator.
//!
//! | module | noun | what it answers |
//! |---|---|---|
//! | [`task`] | `Task`, `TaskRef`, `TaskList` | which task waits, and which waker won it |
//! | [`run_queue`] | `RunQueue` | what this carrier runs next; what others may steal |
//! | [`injector`] | `Injector` | work from outside the carriers, and overflow |
//! | [`idle`] | `IdleSet` | which carriers sleep, and which poster must wake them |
//! | [`quota`] | `Bucket` | whether an engine has used up its part of the CPUs |
//! | [`contention`] | `Contention` | how many carriers beside the CPUs, while others want them |
//! | [`wait_table`] | `WaitTable`, `WaitNode` | which tasks wait at this address or descriptor |
//! | [`absence`] | `Absences` | whether a wake-up came while a waiter ran signal handlers |
//! | [`wait_list`] | `WaitList` | which tasks wait behind one lock |
//! | [`timers`] | `Timers` | which deadlines have passed |
//! | [`completion_list`] | `CompletionList`, `Link` | which workers a user-mode scheduler can run |
//! | [`worker_state`] | `WorkerState` | which scheduler executes a worker |
//! | [`policy`] | `Tick`, `Backlog` | when to look elsewhere, when to wake another carrier |
//! | [`rhythm`] | `Rhythm` | whether a timer may end a carrier's turns |
//! | [`share`] | `FairClock`, `Account`, `AheadQueue` | which task has used more than its share |
//! | [`policies`] | `Policy`, `Order` | which runnable task runs next, and how long |
//! | [`signal_gate`] | `SignalGate` | which kernel threads our own signals must not reach |
//! | [`orders`] | `Orders` | whether a kernel thread has to execute a call for the process |
//! | [`event_ring`] | `EventRing` | what happened on a carrier, for tools that read it meanwhile |
//! | [`spin`] | `SpinLock` | the lock: short, never held over a switch |
//! | [`counted_lock`] | `CountedLock` | the same with a count of waiters in its word |
#![cfg_attr(not(any(test, raddle_loom, raddle_shuttle)), no_std)]

pub mod absence;
pub mod block_event;
pub mod chunks;
pub mod completion_list;
pub mod contention;
pub mod counted_lock;
pub mod event_ring;
pub mod idle;
pub mod injector;
pub mod orders;
pub mod policies;
pub mod policy;
pub mod quota;
pub mod rhythm;
pub mod run_queue;
pub mod share;
pub mod signal_gate;
pub mod spin;
pub mod sync;
pub mod task;
pub mod timers;
pub mod version;
pub mod wait_list;
pub mod wait_table;
pub mod worker_state;

pub use absence::Absences;
pub use chunks::Chunks;
pub use completion_list::{CompletionList, Link};
pub use counted_lock::CountedLock;
pub use event_ring::EventRing;
pub use idle::IdleSet;
pub use injector::Injector;
pub use orders::Orders;
pub use run_queue::{Mark, RunQueue};
pub use signal_gate::SignalGate;
pub use spin::SpinLock;
pub use task::{Task, TaskList, TaskRef, Wake};
pub use timers::Timers;
pub use wait_table::{WaitNode, WaitTable};
pub use worker_state::WorkerState;
