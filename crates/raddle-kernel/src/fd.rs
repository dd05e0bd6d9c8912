//! Calls on descriptors. A call is first made without blocking; a thread that has to wait does so
//! in the event pump ([`waiting`]), or by a helper ([`helped`]) where epoll can't watch.

pub mod connections;
pub mod descriptors;
pub mod files;
pub mod helped;
pub mod io;
pub mod messages;
pub mod poll;
pub mod transfers;
pub mod uring;
pub mod waiting;
