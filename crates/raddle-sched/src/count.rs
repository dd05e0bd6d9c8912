//! How many carriers run, and how much of the CPUs they may use.

pub mod contention;
pub mod quota;
