//! The explicit API of Raddle: green threads for programs that ask for them, on the engine that
//! `raddle run` puts beneath unmodified programs.
//!
//! - [`thread`]: green threads in the shape of `std::thread`. A call that blocks in std or libc
//!   (`Mutex`, channels, `std::net`, `std::fs`, `println!`, `sleep`) parks a green thread, and its
//!   kernel thread, the *carrier*, runs others.
//! - [`light`]: threads of one page each, for programs with a million of them.
//! - [`completion`]: a value that one thread computes and another one waits for.
//! - [`handles`]: a lock-free table of small names for values.
//! - [`pool`]: thread pools. Their workers are green threads.
//! - [`engine`]: groups of carriers with a policy and a share of the CPUs of their own.
//! - [`ums`]: threads that run other threads by a policy of their own.
//! - [`fiber`]: stacks that one thread switches between by name.
//! - [`trace`]: annotations for `raddle trace`.
//! - [`runtime`]: whether the engine is present, and how many carriers it has.
//!
//! Threads made in other ways, by `std::thread` or by libraries, stay kernel threads; both kinds
//! may share every lock and channel. A process that `raddle run` has started has green threads
//! only.
//!
//! ```
//! let lines: Vec<_> = (0..1000)
//!     .map(|i| raddle::spawn(move || i * 2))
//!     .collect();
//! let sum: u64 = lines.into_iter().map(|line| line.join().unwrap()).sum();
//! assert_eq!(sum, 999_000);
//! ```

pub mod completion;
// Models need completions only; thread-making modules need real threads.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod light;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod pool;
/// The lock-free parts of pools, for their models.
#[cfg(raddle_loom)]
pub mod pool {
    pub mod deque;
    pub mod job;
    pub mod summons;
}
/// The lock-free parts of light threads, for their models.
#[cfg(raddle_loom)]
pub mod light {
    pub mod follower;
    pub mod inbox;
    pub mod token;
}
/// The lock-free part of a thread's end, for its models.
#[cfg(raddle_loom)]
pub mod thread {
    pub mod ends;
}
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod engine;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod fiber;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
mod futex;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod runtime;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod thread;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod trace;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub mod ums;

#[doc(inline)]
pub use raddle_handles as handles;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub use thread::{Builder, is_green_thread, run_as_green_thread, scope, spawn, yield_now};
