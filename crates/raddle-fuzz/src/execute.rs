//! Running cases: a server forks a process for each case, several at a time, and stops those that
//! wait for ever. Natively and under raddle it is the same program.
//!
//! 1. [`serve`] reads a file of cases. For each it forks a child, with a [`Slot`](shared::Slot) of
//!    shared memory between them, so that a trace survives whatever the child does to itself.
//! 2. The child prepares memory, descriptors and handlers ([`prepare`]), makes its threads and
//!    performs the steps ([`interpret`]); each agent writes lines to a trace of its own.
//! 3. A call that lasts longer than the limit *waits*: the server notes that in the trace and kills
//!    the child. This is an outcome like any other.
//! 4. After the last step the child describes its state ([`state`]) and ends.
//!
//! Calls of the executor's own, between those of the case, are plain system calls made by
//! instructions of its own text. They take the path of the program's calls; their effects are those
//! that a program can see.

mod board;
mod calling;
mod contain;
mod delays;
mod descriptors;
mod interpret;
mod prepare;
mod server;
mod shared;
mod sites;
mod starts;
mod state;
mod watch;

pub use contain::{NOT_CONTAINED, contain};
pub use server::{Options, serve};
pub use state::describe;

/// The calling process's own system call.
fn system(number: i64, arguments: [usize; 6]) -> isize {
    let arguments = arguments.map(|argument| argument as u64);
    // SAFETY: the executor's helping calls change nothing that Rust relies on.
    let registers = unsafe { sites::call(sites::register_site(), number as u32, &arguments) };
    registers.result as isize
}
