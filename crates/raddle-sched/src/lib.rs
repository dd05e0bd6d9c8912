//! The scheduler's pure half: states, run queues, wait queues, timers and policies.
//!
//! No system call, no assembly, no clock and no allocation: the caller passes the time in
//! nanoseconds, and memory as intrusive links inside its own objects. So one body of code runs in
//! production, under loom and shuttle (`cfg(raddle_loom)`, `cfg(raddle_shuttle)`), and in a
//! simulator.
//!
//! The modules stand in *rooms*, the folders; a room names only rooms above it in this table. Users
//! of the crate name a module without its room.
//!
//! | room | module | noun | what it answers |
//! |---|---|---|---|
//! | [`sync`] | | atomics | where they come from, so that model checkers can replace them |
//! | | [`spin`] | `SpinLock` | the lock: short, never held over a switch |
//! | | [`counted_lock`] | `CountedLock` | the same with a count of waiters in its word |
//! | | [`version`] | `Version` | whether a reader saw a change half done |
//! | | [`chunks`] | `Chunks` | where entry `n` of a table is that grows and never moves |
//! | | [`event_ring`] | `EventRing` | what happened on a carrier, for tools that read meanwhile |
//! | | [`sample_ring`] | `SampleRing` | where a carrier was, likewise |
//! | [`task`] | | `Task`, `TaskRef`, `TaskList` | which task waits, and which waker won it |
//! | [`order`] | [`policies`] | `Policy`, `Order` | which runnable task runs next, and how long |
//! | | [`share`] | `FairClock`, `Account`, `AheadQueue` | which task has used more than its share |
//! | [`queue`] | [`run_queue`] | `RunQueue` | what this carrier runs next; what others may steal |
//! | | [`injector`] | `Injector` | work from outside the carriers, and overflow |
//! | [`wait`] | [`wait_table`] | `WaitTable`, `WaitNode` | which tasks wait here |
//! | | [`absence`] | `Absences` | whether a wake-up came while a waiter ran signal handlers |
//! | | [`wait_list`] | `WaitList` | which tasks wait behind one lock |
//! | | [`requests`] | `Requests`, `Wait` | which task waits for a request that the kernel has |
//! | | [`helper_queue`] | `HelperQueue`, `Request` | which task waits for a helper's call |
//! | | [`timers`] | `Timers` | which deadlines have passed |
//! | | [`completion_list`] | `CompletionList`, `Link` | which workers a scheduler can run |
//! | | [`worker_state`] | `WorkerState` | which scheduler executes a worker |
//! | [`wake`] | | `Announce`, `Word` | how a sleeper and a poster of work never miss each other |
//! | | | `WakeWord`, `SharedWakeWord` | whether a sleeper waits, or was woken |
//! | | | `Announcement`, `Sign`, `ActiveCount` | whether there is a sleeper to wake |
//! | | | `SysmonSleep` | whether sysmon sleeps for good, and what wakes it |
//! | | | `Searchers` | whether a thread still looks, so that none needs to be woken |
//! | | [`idle`] | `IdleSet` | which carriers sleep, and which poster must wake them |
//! | [`pace`] | [`policy`] | `Tick`, `Backlog` | when to look elsewhere, or wake |
//! | | [`rhythm`] | `Rhythm` | whether a timer may end a carrier's turns |
//! | | [`block_event`] | `Budget` | how often the kernel may say that a carrier waits in it |
//! | | [`draw`] | `Draw` | which wake-ups are samples for a tool |
//! | [`count`] | [`carriers`](count::carriers) | `CarrierCount` | how many carriers are active |
//! | | [`contention`] | `Contention` | how many carriers beside the CPUs, while others want them |
//! | | [`quota`] | `Bucket` | whether an engine has used up its part of the CPUs |
//! | [`kernel_threads`] | [`arrivals`] | `Arrivals` | what a handler of signals has left |
//! | | [`call_gate`] | `CallGate` | whether a call may be made, or is forbidden soon |
//! | | [`signal_gate`] | `SignalGate` | which kernel threads our own signals must not reach |
//! | | [`left_signals`] | `LeftSignals` | which signals the first kernel thread has to queue |
//! | | [`members`] | `Members` | which kernel threads there are, that a change must reach |
//! | | [`orders`] | `Orders` | whether a kernel thread has to execute a call for the process |
//! | | [`transfers`] | `Transfers`, `Transfer` | which task waits for a transfer of the ring |
//! | [`signals`] | [`queues`] | `PendingSignals`, `CommonSignals` | which signals pend, and where |
//! | | [`routes`] | `Routes`, `Receiver` | which thread gets a signal, and how it comes to look |
//! | | [`held`] | `HeldSignals` | which signals the kernel holds for descriptors |
//! | | [`records`] | `Pool`, `List` | what is known of a pending signal |
#![cfg_attr(not(any(test, raddle_loom, raddle_shuttle)), no_std)]

pub mod count;
pub mod kernel_threads;
pub mod order;
pub mod pace;
pub mod queue;
pub mod signals;
pub mod sync;
pub mod task;
pub mod wait;
pub mod wake;

pub use count::{contention, quota};
pub use kernel_threads::{arrivals, call_gate, left_signals, members, orders};
pub use kernel_threads::{signal_gate, transfers};
pub use order::{policies, share};
pub use pace::{block_event, draw, policy, rhythm};
pub use queue::{injector, run_queue};
pub use signals::{held, queues, records, routes};
pub use sync::{chunks, counted_lock, event_ring, sample_ring, spin, version};
pub use wait::{absence, completion_list, helper_queue, requests, timers};
pub use wait::{wait_list, wait_table, worker_state};
pub use wake::idle;

pub use absence::Absences;
pub use chunks::Chunks;
pub use completion_list::{CompletionList, Link};
pub use counted_lock::CountedLock;
pub use event_ring::EventRing;
pub use idle::IdleSet;
pub use injector::Injector;
pub use left_signals::LeftSignals;
pub use members::Members;
pub use orders::Orders;
pub use run_queue::{Mark, RunQueue};
pub use sample_ring::SampleRing;
pub use signal_gate::SignalGate;
pub use spin::SpinLock;
pub use task::{Task, TaskList, TaskRef, Wake};
pub use timers::Timers;
pub use wait_table::{WaitNode, WaitTable};
pub use worker_state::WorkerState;
