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
//! | `table` | the table of threads |
//! | `capture` | the stacks of all threads, each one that the thread had |
//! | `symbols` | names, lines, inlined functions |
//! | `exports` | the symbols that a mapped file exports |
//! | `managed` | frames of Python and Java between native ones |
//! | `python` | the Python frames of a thread |
//! | `perf_map` | names that a compiler at run time writes to a file |
//! | `java` | the Java frames and locks of a process, as its virtual machine says them |
//!
//! The process says where its tables are ([`Layout`](raddle_inspect::Layout)). Everything that is
//! read may be wrong on purpose: nothing here trusts a count, an offset or a table, and all that is
//! kept has a limit.

mod capture;
mod elf;
mod exports;
mod java;
mod kernel;
mod managed;
mod memory;
mod modules;
mod perf_map;
mod python;
mod rules;
mod symbols;
mod table;
mod unwind;

pub use capture::{Captured, Kind, Stack, Stacks, Target, capture, capture_with};
pub use java::{Java, JavaLock, JavaThread};
pub use managed::{Language, ManagedAt, ManagedFrame};
pub use memory::{Memory, ProcessMemory, Refusal};
pub use modules::{Module, Modules};
pub use symbols::{Function, Named, Symbols};
pub use unwind::{End, FRAMES_MAX, Frame};
