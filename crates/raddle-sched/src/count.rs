//! How many carriers run, and how much of the CPUs they may use.

pub mod carriers;
pub mod contention;
pub mod quota;

pub use carriers::CarrierCount;
