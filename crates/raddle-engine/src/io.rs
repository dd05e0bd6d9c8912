//! Waits for descriptors, files and calls that only block.

pub mod direct;
pub mod helpers;
mod pages;
pub mod pump;
pub mod ring;
