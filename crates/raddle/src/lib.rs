//! Green threads knowingly: the explicit front door to the engine that `raddle run` puts beneath
//! unmodified programs.
//!
//! - [`completion`]: a value that one thread computes and another one waits for.
//! - [`handles`]: a lock-free table of small names for values.
//! - [`thread`]: green threads in the shape of `std::thread`.

pub mod completion;
pub mod thread;

#[doc(inline)]
pub use raddle_handles as handles;
