//! Green threads knowingly: the explicit front door to the engine that `raddle run` puts beneath
//! unmodified programs.
//!
//! - [`thread`]: green threads in the shape of `std::thread`.
//! - [`pool`]: thread pools.

pub mod pool;
pub mod thread;
