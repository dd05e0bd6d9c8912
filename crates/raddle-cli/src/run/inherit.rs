//! Changes of this command's own state at its start, undone before `execve`, so that the program
//! inherits exactly its caller's state: the command ignores SIGPIPE, and opens `/dev/null` in the
//! place of a standard descriptor that is closed.
//!
//! Rust's runtime makes the same changes before its `main`, and ends the process where a filter
//! refuses one or `/dev/null` is missing. So the command has no such `main`: libc calls it, and
//! whatever is refused here is left as it is.
//!
//! Rejected: `CommandExt::exec` alone, which resets SIGPIPE to its default and empties the signal
//! mask, whatever they were; a program started below `nohup` or with blocked signals would notice.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether SIGPIPE had its default action and is ignored now. Written by [`prepare`] while there is
/// one thread; read by [`restore`]. Relaxed: threads begin after the writes.
static IGNORES_SIGPIPE: AtomicBool = AtomicBool::new(false);

/// One bit for each of the descriptors 0 to 2 that was closed; written likewise.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Makes the changes, before anything else of the command.
pub(crate) fn prepare() {
    for descriptor in 0..3 {
        // SAFETY: F_GETFD reads a flag, and returns EBADF for a descriptor that is closed.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1
            && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
        {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
            // SAFETY: a path that lives. The kernel takes the lowest number, which is this one.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        }
    }
    // SAFETY: zero bytes are a valid sigaction; with a null pointer the call only reads. SIG_IGN is
    // no handler that could be called.
    let ignores = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
            && libc::signal(libc::SIGPIPE, libc::SIG_IGN) != libc::SIG_ERR
    };
    IGNORES_SIGPIPE.store(ignores, Ordering::Relaxed);
}

/// Returns true if a standard descriptor was closed when the command began.
pub(crate) fn was_closed(descriptor: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Undoes the changes. Only `execve` may follow: standard streams may be closed now.
pub(super) fn restore() {
    if IGNORES_SIGPIPE.load(Ordering::Relaxed) {
        // SAFETY: the default disposition has no handler that could be called.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    for descriptor in (0..3).filter(|&descriptor| was_closed(descriptor)) {
        // SAFETY: the descriptor is the command's `/dev/null`, and is not used any more.
        unsafe { libc::close(descriptor) };
    }
}
