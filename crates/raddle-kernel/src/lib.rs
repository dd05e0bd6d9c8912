//! The user-mode kernel: what Linux's thread services do, for green threads.
//!
//! A system call enters at [`entry`] (from a stub that replaced libc's `syscall` instruction),
//! which looks its number up in [`table`]; the handler answers it, parks the green thread, or lets
//! it pass to the kernel as it is.
//!
//! Each module with a folder is a *room*. A room uses rooms further down in this list only; `cargo
//! xtask tidy` has the arrows.
//!
//! | room | what is there |
//! |---|---|
//! | [`entry`] | the entries that stubs call |
//! | [`table`] | the handlers by number |
//! | [`fd`] | calls on descriptors: transfers, readiness, helpers |
//! | [`procfs`] | `/proc` as threads see it |
//! | [`task`] | threads and processes: creation, end, ids, credentials, names |
//! | [`memory`] | mappings, and the libraries that come and go with them |
//! | [`time`] | sleeps and yields |
//! | [`futex`] | `futex(2)` and `futex_waitv(2)` |
//! | [`signal`] | masks, queues, actions, delivery; children, which end by a signal |
//! | [`scheduling`] | classes, niceness, affinity |
//! | [`words`] | waits on words of memory, their owners, robust lists; delivers no signal |
//! | [`rules`] | the user's rules about threads: exclusions, shares |
//! | [`clocks`] | CPU clocks, deadlines |
//! | [`kernel_threads`], [`callers`] | the kernel thread of a green one; the code that calls |
//! | [`frame`], [`user`], [`mode`], [`line`] | a call and its outcome, the program's memory, text |
#![no_std]

pub mod callers;
pub mod clocks;
pub mod entry;
pub mod fd;
pub mod frame;
pub mod futex;
pub mod kernel_threads;
mod line;
pub mod memory;
pub mod mode;
pub mod procfs;
pub mod rules;
pub mod scheduling;
pub mod signal;
pub mod table;
pub mod task;
pub mod time;
pub mod user;
pub mod words;
