//! A lock-free table of handles: small copyable names for values, which are checked at each use.
//!
//! A *handle* names a *slot*; a slot holds a *target*, the value's address. There are three kinds:
//!
//! | kind | the value lives | its address |
//! |---|---|---|
//! | [`Kind::Normal`] | at least until the handle is removed | is private to the table |
//! | [`Kind::Pinned`] | at least until the handle is removed | stays, and may be given away |
//! | [`Kind::Weak`] | as long as others keep it; the handle may *expire* before it is removed | |
//!
//! A weak handle may have an [`Owner`] (an engine, a pool, a session), and all weak handles of an
//! owner can be expired at once. A *generation* distinguishes a removed handle from its slot's next
//! one, and never comes back: use after removal is an error, [`HandleError::Stale`].
//!
//! [`Table`] is the safe table of [`Arc`](std::sync::Arc)s. [`raw::RawTable`] beneath it is
//! `no_std`: its [`raw::Host`] provides memory and defines what the end of a target means.
//!
//! The idea is that of Mono's garbage collection handles (tagged slots which are claimed by
//! compare-and-swap, in buckets each twice as large as the last). Without a collector something
//! else must keep a target alive during a use: here the slot counts its users.
#![cfg_attr(not(any(feature = "std", test, raddle_loom, raddle_shuttle)), no_std)]
#![warn(missing_docs)]

mod error;
pub mod raw;
#[cfg(feature = "std")]
mod table;

pub use error::{HandleError, InsertError, OwnerError};
pub use raw::{Kind, Owner};
#[cfg(feature = "std")]
pub use table::{Handle, Table};
