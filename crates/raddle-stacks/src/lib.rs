//! The stacks of all green threads of another process, read from outside: the process neither helps
//! nor stops.
//!
//! | module | noun |
//! |---|---|
//! | `memory` | the process's memory, and the pages of one stack |
//! | `modules`, `elf` | the code that is mapped, and its unwind tables |
//! | `rules` | what the tables say of one instruction |
//! | `unwind` | the frames of a stack |
//! | `kernel` | what the kernel says of kernel threads |
//! | `perf_event` | samples of a kernel thread that executes |
//! | `sampler` | one such sample, for a dump |
//! | `series` | the samples of all carriers, for a recording |
//! | `own_series` | likewise, taken by the runtime |
//! | `wake_series` | wake-ups, taken by the runtime |
//! | `sample_rings` | the rings of both |
//! | `reader` | the stacks of single threads, for a recording |
//! | [`corefile`] | core files: written, read, completed |
//! | `registers` | the registers of all threads, for debuggers |
//! | `stop` | a process that stands still for a moment |
//! | `table` | the table of threads |
//! | `tables` | where the tables are, if the process doesn't say it |
//! | `carriers` | the carriers and engines |
//! | `bound` | threads with kernel threads of their own, and what the kernel counts of these |
//! | `slots` | what each thread has counted, for metrics: some slots at a time |
//! | `light` | the light threads of the explicit API |
//! | `capture` | the stacks of all threads, each one that the thread had |
//! | `symbols` | names, lines, inlined functions |
//! | `names` | the child process that reads them from files |
//! | `locks` | what threads wait for, and which thread has to act before they go on |
//! | `exports` | the symbols that a mapped file exports |
//! | `managed` | frames of Python and Java between native ones |
//! | `python` | the Python frames of a thread |
//! | `perf_map` | names that a compiler at run time writes to a file |
//! | `java` | the Java frames and locks of a process, as its virtual machine says them |
//!
//! The process says where its tables are ([`Layout`](raddle_inspect::Layout)). Everything that is
//! read may be wrong on purpose: nothing here trusts a count, an offset or a table, and all that is
//! kept has a limit.

mod bound;
mod capture;
mod carrier_threads;
mod carriers;
pub mod corefile;
mod elf;
mod exports;
#[cfg(test)]
mod hostile;
mod java;
mod kernel;
mod light;
pub mod locks;
mod managed;
mod memory;
mod modules;
mod names;
mod own_series;
mod perf_event;
mod perf_map;
mod python;
mod reader;
mod registers;
mod rules;
mod sample_rings;
mod sampler;
mod series;
mod slots;
mod stop;
mod symbols;
mod table;
mod tables;
mod unwind;
mod wake_series;

pub use bound::{
    BoundThread, KernelTimes, kernel_thread_began_ns, kernel_waits, threads_and_bound,
    waits_in_kernel,
};
pub use capture::{Captured, Kind, Stack, Stacks, Target, capture, capture_with};
pub use carrier_threads::{CarrierThread, CarrierThreads};
pub use carriers::{CarrierSlice, CarrierSlot, Carriers, EngineSlot, carriers};
pub use java::{Java, JavaLock, JavaThread, Monitor, MonitorObjects};
pub use kernel::{StoppedThreads, UserRegisters, kernel_numbers};
pub use managed::{Language, ManagedAt, ManagedFrame};
pub use memory::{Memory, ProcessMemory, Refusal};
pub use modules::{MappedCode, Module, Modules};
pub use names::{Function, SERVE_NAMES, serve_names};
pub use own_series::OwnSeries;
pub use reader::StackReader;
pub use registers::{ThreadRegisters, parked, read_registers};
pub use series::{RunningSample, Series};
pub use slots::{Counters, Slots};
pub use stop::StoppedProcess;
pub use symbols::{NameReader, Named, Symbols};
pub use table::{ThreadSlot, Threads};
pub use tables::{Tables, TablesError};
pub use unwind::{End, FRAMES_MAX, Frame};
pub use wake_series::{WakeSample, WakeSeries};
