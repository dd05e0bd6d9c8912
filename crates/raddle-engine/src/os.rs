//! What the engine needs of Linux and of memory without a noun of its own.

pub(crate) mod chunks;
pub mod cpus;
pub mod shown;
