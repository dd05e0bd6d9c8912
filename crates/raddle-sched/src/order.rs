//! Which runnable task runs next, and for how long.
//!
//! Decisions only: a policy and a fair clock are told the time, and hold tasks by the nodes in
//! them. The queues that carriers and posters share stand above, in `queue`.

pub mod policies;
pub mod share;
