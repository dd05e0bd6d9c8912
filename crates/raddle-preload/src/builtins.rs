//! The memory functions that compiled code calls, without vector registers and without libc.
//!
//! Hidden symbols: the program keeps its own. Vector registers stay untouched because the
//! boundary's plain entry doesn't save them.

raddle_arch::memory_functions!();
