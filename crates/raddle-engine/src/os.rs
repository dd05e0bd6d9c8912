//! What the engine needs of Linux and of memory without a noun of its own.

pub(crate) mod chunks;
pub mod cpus;
pub(crate) mod io_uring;
pub(crate) mod kernel_calls;
pub(crate) mod own_descriptor;
pub mod shown;
