//! The kernel threads of the process: their making, their common calls and their end.

pub mod descriptor;
pub mod ending;
pub mod filters;
pub mod kthread;
pub mod own_signals;
pub mod roster;
