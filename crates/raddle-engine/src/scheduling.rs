//! Which thread a carrier runs next, what it does without one, and how many carriers there are.

pub mod bound;
pub(crate) mod carriers;
pub mod chaos;
pub(crate) mod contention;
pub(crate) mod hosts;
pub mod idle;
pub mod page_rings;
pub mod plugins;
pub(crate) mod policies;
pub(crate) mod posts;
pub mod preemption;
pub(crate) mod slow_rings;
pub mod switch;
pub mod timed;
pub mod ums;
pub(crate) mod wake_ups;
pub mod yields;
