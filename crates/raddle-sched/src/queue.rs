//! Queues of runnable tasks: each carrier's own, and the one that an engine's carriers share.

pub mod injector;
pub mod run_queue;
