//! What the kernel threads of a process agree on, partly from handlers of signals.

pub mod arrivals;
pub mod call_gate;
pub mod left_signals;
pub mod members;
pub mod orders;
pub mod signal_gate;
pub mod transfers;
