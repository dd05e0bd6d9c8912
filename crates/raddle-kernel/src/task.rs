//! Threads and processes: how they begin and end, and what the kernel keeps of each.

pub mod clones;
pub mod credentials;
pub mod ids;
pub mod process;
pub mod reuse;
pub mod threads;
