//! Green threads knowingly: the explicit front door to the engine that `raddle run` puts beneath
//! unmodified programs.
//!
//! - [`handles`]: a lock-free table of small names for values.
//! - [`thread`]: green threads in the shape of `std::thread`.

pub mod thread;

#[doc(inline)]
pub use raddle_handles as handles;
