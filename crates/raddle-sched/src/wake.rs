//! Carriers that sleep, and posters of work that wake them.

pub mod idle;
