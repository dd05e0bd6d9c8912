//! Core files: written of a running process, read, and completed.
//!
//! A core file has a note with registers for each thread. The kernel writes those of kernel
//! threads, of which few exist here. This module writes one for each green thread, so that every
//! debugger shows them without a script, and reads cores as if they were processes.
//!
//! | module | noun |
//! |---|---|
//! | `format` | headers and notes, as bytes |
//! | `regions` | the memory of a process, and how much of each part belongs into a core |
//! | `write` | a core file that grows |
//! | `file` | a core file as memory |
//! | `carried` | where the library of a program that carries its runtime is |
//!
//! Formats: System V ABI (ELF, AMD64 supplement), core(5), and the structures of the kernel's
//! `elfcore.h` and `user_64.h`.

mod carried;
mod file;
mod format;
mod regions;
mod write;

pub use file::{CoreError, CoreFile};
pub use format::{Identity, NoteWriter, ThreadNote};
pub use regions::{PresentPages, Region, regions};
pub use write::{Copied, CoreWriter, complete};
