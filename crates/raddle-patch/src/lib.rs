//! Finds the `syscall` instructions of a loaded library and turns the wanted ones into jumps to our
//! stubs.
//!
//! It runs inside the program's process, from the initializer of a preloaded library: one thread
//! exists, ld.so has relocated everything, and this code must not call libc. So it never allocates
//! (the caller lends an array of [`Site`]), has no thread-local, and doesn't panic on foreign
//! bytes.
//!
//! Nouns:
//!
//! - *image*: a loaded ELF file, read through bounds checks ([`Image`]).
//! - *site*: one `syscall` instruction on an instruction boundary ([`Site`]).
//! - *window*: the whole instructions around a site, at least five bytes, that a jump replaces.
//!   They move into the stub, so they mean the same there, and no jump leads into their middle.
//! - *number*: the system call's, if a constant in eax reaches the site; otherwise known at run
//!   time.
//! - *stub*: the code that the window's jump leads to ([`stub`]).
//! - *island*: the target of a window's jump if no stub is near: an indirect jump to one.
//! - *vector-free*: no instruction of the site's function touches a vector register, so that its
//!   stub may call an entry that saves none. In a *narrow* function none touches more than xmm0 to
//!   xmm15. Its callers expect nothing in any vector register, by the ABI.
//!
//! Protocol:
//!
//! 1. [`modules`] lists what is loaded; the caller picks libc and ld.so. [`Image::at`] reads the
//!    program headers.
//! 2. [`plan`] scans the text for the two bytes `0f 05`, marks where jumps lead from anywhere in
//!    the text, and decodes the functions around the sites, and only those. It changes nothing.
//! 3. [`apply`] proves on a scratch page that text may be changed, writes the stubs, then the
//!    jumps. Text is writable or executable, never both. A failed step is undone, which leaves the
//!    process unchanged.
//!
//! Rejected:
//!
//! - *Tables of offsets for each libc build*: each update of a distribution would need one.
//! - *Decoding all text*: six times slower than the functions that have sites.
//! - *A `call` in place of the window*: it would overwrite the red zone of leaf functions.
//! - *Stubs in fresh memory near the text*: no unwind information covers them, so exceptions,
//!   cancellation and debuggers would stop there.
#![no_std]

#[cfg(test)]
extern crate std;

mod apply;
pub mod decode;
mod flow;
mod holders;
mod image;
mod memory;
pub mod modules;
mod plan;
mod refusal;
mod scan;
mod site;
pub mod stub;
pub mod tripwire;
mod unwind;
mod window;
pub mod wrapper;

pub use apply::{Report, Targets, apply, join_texts};
pub use image::Image;
pub use memory::{Linux, Memory, Protection};
pub use plan::{Plan, plan};
pub use refusal::Refusal;
pub use site::{Cause, EntryKind, Number, Site, State};
