//! A differential fuzzer of system calls: the same calls natively and under raddle.
//!
//! Nouns: a *case* is a process of one to four threads, some *resources* (descriptors, handlers,
//! pages of memory with known protections) and up to twenty *steps*; a step is one call by one of
//! the threads, called *agents*; an *event* is a call that another agent makes while the step's
//! call waits. A *trace* is what a case did: results, changed memory, handlers that ran, the state
//! afterwards. A *campaign* generates cases by seed, runs each twice natively and once with each
//! number of carriers, and compares the traces. A *difference* is a place where the native traces
//! agree and another trace doesn't; an *explanation* allows one, by rule and with a reason.
//!
//! 1. [`generate`] makes a case from a seed and the tables in [`calls`].
//! 2. [`execute`] runs cases: a server forks a process for each and stops those that wait for ever.
//! 3. [`campaign`] compares, repeats what differs, shrinks it and reports.
//!
//! Rejected: strace's output as the trace (what is emulated isn't there); one process for many
//! cases (one fault spoils the rest, and a process that is new costs less than a millisecond);
//! generated C programs (a compiler's run costs more than the case).

pub mod calls;
pub mod campaign;
pub mod case;
pub mod execute;
pub mod generate;
mod random;
