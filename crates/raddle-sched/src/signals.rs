//! Signals that pend for threads and for the process, and their way from thread to thread.

pub mod held;
pub mod queues;
pub mod records;
pub mod routes;
