//! The machine: carriers, green threads, the event pump, helpers, sysmon and inspection.
//!
//! One [`Process`], which has [`Engine`]s: groups of carriers (kernel threads made by raw `clone`,
//! found through the GS base) that run green threads (contexts on stacks that glibc allocated).
//! Code here runs on green stacks with the green thread's FS base, or on a carrier's own stack; it
//! calls no libc function, allocates nothing on a scheduling path and has no thread-locals.
//!
//! The modules stand in *rooms*, the folders. From the bottom:
//!
//! | room | module | noun |
//! |---|---|---|
//! | `os` | `chunks` | tables that grow and never move |
//! | | [`cpus`] | how many carriers the machine allows |
//! | | [`shown`] | the CPUs that the program is shown |
//! | | `io_uring` | an io_uring's two queues |
//! | | `kernel_calls` | waits on words, pauses, CPU time |
//! | | `own_descriptor` | a descriptor of the runtime's own |
//! | `state` | [`thread`] | the green thread and the table of all of them |
//! | | `life` | what a thread does, as others see it |
//! | | [`attributes`] | policy, priority, niceness and affinity of a thread |
//! | | [`signals`] | pending signals and masks |
//! | | `turn` | since when a thread that was preempted runs again |
//! | | `compilers` | threads that compile for a managed runtime |
//! | | [`carrier`] | the kernel thread that runs green threads |
//! | | `run_length` | for how long a carrier runs without a pause, and in what pieces |
//! | | [`process`] | what all threads share |
//! | | `parts` | what the parts in the rooms above keep in the process and its carriers |
//! | | [`engine`] | queues, carriers, a policy and settings |
//! | | [`engines`] | the default engine and further ones |
//! | | [`family`] | CPU time of the process and its relatives by forks |
//! | | [`accounting`] | CPU time of threads, counted while it is asked for |
//! | | `delays` | how long runnable threads wait for a carrier |
//! | | [`samples`] | samples of carriers that execute, by the runtime itself |
//! | | [`clock`] | the vDSO clock |
//! | | [`stacks`] | the arena that thread stacks come from |
//! | | [`reusable`] | threads that have ended and begin again as others |
//! | `kernel_threads` | [`kthread`] | kernel threads: making and ending them, their facts |
//! | | [`roster`] | all kernel threads, and calls that all of them must make |
//! | | [`own_signals`] | the runtime's own signals to kernel threads |
//! | | [`filters`] | seccomp filters that come, and calls that they may kill for |
//! | | [`descriptor`] | the runtime's own descriptors |
//! | | [`ending`] | the end of the process, as a debugger sees it |
//! | `kernel_events` | `block_events` | the kernel's word that a carrier waits in the kernel |
//! | | [`quantum_timer`] | a carrier's own timer, which ends turns that are all of one quantum |
//! | `scheduling` | [`switch`] | parking, exiting, the carrier's scheduler loop |
//! | | `wake_ups` | the way of a woken thread to its engine |
//! | | `posts` | what becomes runnable enters an engine, and wakes a carrier |
//! | | [`yields`] | letting others run |
//! | | [`page_rings`] | an io_uring of each carrier, for reads of the page cache that wait |
//! | | [`preemption`] | giving the carrier up before the next wait |
//! | | [`timed`] | carriers that keep accounts of CPU time |
//! | | [`idle`] | what a carrier does without work |
//! | | `slow_rings` | threads of a slow carrier's ring on a faster carrier |
//! | | `policies` | other orders of runnable threads than the carriers' own queues |
//! | | [`plugins`] | calls of a plug-in's policy, and their end |
//! | | `carriers` | how many carriers, where they are, and which are spare |
//! | | `contention` | extra carriers while other processes want the CPUs |
//! | | [`bound`] | carriers that run one thread |
//! | | `hosts` | threads that host light threads of the explicit API |
//! | | [`ums`] | threads that run other threads: user-mode schedulers |
//! | | [`chaos`] | rare schedules made common, for finding bugs |
//! | `io` | [`pump`] | descriptors, one epoll |
//! | | [`helpers`] | kernel threads for calls that only block |
//! | | [`ring`] | one kernel thread and an io_uring, for what waits for a disk |
//! | | `pages` | waits for pages of the page cache, by these rings |
//! | | [`direct`] | reads past the page cache, which need no kernel thread |
//! | [`sysmon`] | | the watcher: lasting backlogs, missing poller, inspection requests |
//! | | `demands` | what sysmon asks about one carrier |
//! | | `beside_one` | sysmon's sleep while the process has one thread |
//! | | `quotas` | how much CPU time an engine may use |
//! | | `blocking` | which threads blocked in the kernel and kept a carrier |
//! | | `round` | what sysmon has seen in one look at all carriers |
//! | | `reminders` | carriers that owe a look at their pages |
//! | | `ticks` | when which carrier is asked for a sample |
//! | | `stand_in` | sysmon's work, while it waits for its own table of descriptors |
//! | [`inspect`] | | the server of snapshots |
//! | `start` | | what the second thread needs |
//! | | [`fork`] | the child of a fork |
#![no_std]

pub mod inspect;
mod io;
mod kernel_events;
mod kernel_threads;
mod os;
mod scheduling;
mod start;
mod state;
pub mod sysmon;

pub use io::{direct, helpers, pump, ring};
pub use kernel_events::quantum_timer;
pub use kernel_threads::{descriptor, ending, filters, kthread, own_signals, roster};
pub use os::{cpus, shown};
pub use scheduling::{
    bound, chaos, idle, page_rings, plugins, preemption, switch, timed, ums, yields,
};
pub use start::fork;
pub use state::{
    accounting, attributes, carrier, clock, engine, engines, events, family, process, reusable,
    samples, signals, stacks, thread,
};

pub use carrier::Carrier;
pub use engine::Engine;
pub use process::{PROCESS, Process};
pub use thread::Thread;
