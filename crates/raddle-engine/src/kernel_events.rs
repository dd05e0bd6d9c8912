//! What the kernel tells of a carrier: that it waits in the kernel, and that a quantum is used up.

pub(crate) mod block_events;
pub mod quantum_timer;
