//! The nouns and their words: the process, its engines, carriers and threads, with what is counted
//! of them.

pub mod accounting;
pub mod attributes;
pub mod carrier;
pub mod clock;
pub(crate) mod compilers;
pub(crate) mod delays;
pub mod engine;
pub mod engines;
pub mod events;
pub mod family;
pub(crate) mod life;
pub(crate) mod parts;
pub mod process;
pub mod reusable;
pub(crate) mod run_length;
pub mod samples;
pub mod signals;
pub mod stacks;
pub mod thread;
pub(crate) mod turn;
pub(crate) mod wakers;
pub(crate) mod word_wakes;
