//! When to look, and how often: pure arithmetic on times and counters, for carriers and sysmon.

pub mod block_event;
pub mod draw;
pub mod policy;
pub mod rhythm;
