//! Files and texts that are made of a [`Profile`](crate::profile::Profile).
//!
//! | module | output |
//! |---|---|
//! | [`comparison`] | what differs between two profiles |
//! | [`columns`] | tables for a terminal |
//! | [`document`] | a profile's facts as JSON |
//! | [`firefox`] | a file for the Firefox Profiler |
//! | [`folded`] | a line for each stack, for scripts that draw flame graphs |
//! | [`locks`] | locks that threads waited for, for a terminal |
//! | [`html`] | a page with the profile and a viewer |
//! | [`pprof`] | pprof's format, written and read |
//! | [`speedscope`] | a file for speedscope |
//! | [`summary`] | a text for a terminal |
//! | [`totals`] | the time of each function |
//! | [`wakers`] | waits by what ended them |
//!
//! Names come from the program: no output lets them end a field, a line or a tag. A profile's
//! positions may be out of range; such a function, stack or thread is left out or shown as unknown.

pub mod columns;
pub mod comparison;
pub mod document;
pub mod firefox;
pub mod folded;
pub mod html;
pub mod locks;
pub mod pprof;
pub mod speedscope;
pub mod summary;
pub mod totals;
pub mod wakers;

mod names;
#[cfg(test)]
mod samples;
