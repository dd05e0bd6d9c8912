//! What the parts of the engine keep in the process and in its carriers.
//!
//! A part's fields are used by its own module alone, which stands in a room above: the names are
//! the same. They are here because the process is one static with a layout of its own
//! ([`Process`](crate::state::process::Process)), and names no room above.

pub(crate) mod block_events;
pub(crate) mod blocking;
pub(crate) mod direct;
pub(crate) mod filters;
pub(crate) mod helpers;
pub(crate) mod pages;
pub(crate) mod pump;
pub(crate) mod quantum_timer;
pub(crate) mod recorder;
pub(crate) mod ring;
pub(crate) mod roster;
pub(crate) mod slow_rings;
pub(crate) mod sysmon;
pub(crate) mod timing;
