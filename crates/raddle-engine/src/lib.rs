//! The machine: carriers, green threads, the event pump, helpers, sysmon and inspection.
//!
//! One [`Process`], which has [`Engine`]s: groups of carriers (kernel threads made by raw `clone`,
//! found through the GS base) that run green threads (contexts on stacks that glibc allocated).
//! Code here runs on green stacks with the green thread's FS base, or on a carrier's own stack; it
//! calls no libc function, allocates nothing on a scheduling path and has no thread-locals.
//!
//! | module | noun |
//! |---|---|
//! | [`thread`] | the green thread and the table of all of them |
//! | `life` | what a thread does, as others see it |
//! | [`accounting`] | CPU time of threads, counted from the first request on |
//! | [`attributes`] | policy, priority, niceness and affinity of a thread |
//! | [`carrier`] | the kernel thread that runs green threads |
//! | `arrivals` | the signals that a carrier has received |
//! | [`process`] | what all threads share; start-up; the way of a woken thread to its engine |
//! | [`engine`] | queues, carriers, a policy and settings: pushing work, waking carriers |
//! | [`engines`] | the default engine and further ones |
//! | `starting` | what the second thread needs |
//! | [`switch`] | parking, exiting, the carrier's scheduler loop |
//! | [`yields`] | letting others run |
//! | [`room`] | giving the carrier up before the next wait |
//! | [`idle`] | what a carrier does without work |
//! | `policies` | other orders of runnable threads than the carriers' own queues |
//! | `quotas` | how much CPU time an engine may use |
//! | [`plugins`] | calls of a plug-in's policy, and their end |
//! | `chunks` | tables that grow and never move |
//! | `places` | how many carriers, where they are, and which are spare |
//! | `bound` | carriers that run one thread |
//! | [`pump`] | descriptors, one epoll |
//! | [`roster`] | all kernel threads, and calls that all of them must make |
//! | [`helpers`] | kernel threads for calls that only block |
//! | [`ring`] | one kernel thread and an io_uring, for what waits for a disk |
//! | [`pages`] | an io_uring of each carrier, for reads of the page cache that wait |
//! | `contention` | extra carriers while other processes want the CPUs |
//! | `timed` | carriers that keep accounts of CPU time |
//! | `stretch` | for how long a carrier runs without a pause, and in what pieces |
//! | [`direct`] | reads past the page cache, which need no kernel thread |
//! | `alarms` | the kernel's word that a carrier waits in the kernel |
//! | [`metronome`] | a carrier's own timer, which ends turns that are all of one quantum |
//! | [`filters`] | seccomp filters that come, and calls that they may kill for |
//! | [`sysmon`] | the watcher: lasting backlogs, missing poller, inspection requests |
//! | `stand_in` | sysmon's work, while it waits for its own table of descriptors |
//! | `descriptor` | the runtime's own descriptors |
//! | [`kept`] | threads that have ended and begin again as others |
//! | [`stacks`] | the arena that thread stacks come from |
//! | [`chaos`] | rare schedules made common, for finding bugs |
//! | [`ums`] | threads that run other threads: user-mode schedulers |
//! | [`clock`] | the vDSO clock |
//! | [`cpus`] | how many carriers the machine allows |
#![no_std]

pub mod accounting;
mod alarms;
mod arrivals;
pub mod attributes;
pub mod bound;
pub mod carrier;
pub mod chaos;
mod chunks;
pub mod clock;
mod compilers;
mod contention;
pub mod cpus;
mod delays;
pub mod descriptor;
pub mod direct;
pub mod ending;
pub mod engine;
pub mod engines;
pub mod filters;
pub mod fork;
pub mod helpers;
mod hosts;
pub mod idle;
pub mod inspect;
pub mod kept;
pub mod kthread;
mod life;
pub mod metronome;
pub mod own_signals;
pub mod pages;
mod pins;
mod places;
pub mod plugins;
mod policies;
pub mod process;
pub mod pump;
mod quotas;
mod relief;
mod reminders;
pub mod ring;
pub mod room;
pub mod roster;
pub mod shown;
mod sight;
pub mod signals;
pub mod stacks;
mod stand_in;
mod starting;
mod stretch;
pub mod switch;
pub mod sysmon;
pub mod thread;
pub mod timed;
mod turn;
pub mod ums;
pub mod yields;

pub use carrier::Carrier;
pub use engine::Engine;
pub use process::{PROCESS, Process};
pub use thread::Thread;
