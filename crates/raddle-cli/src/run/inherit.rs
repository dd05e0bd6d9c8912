//! Changes of Rust's runtime before `main`, recorded before them and undone before `execve`, so
//! that the program inherits exactly its caller's state: the runtime ignores SIGPIPE, and opens
//! `/dev/null` in the place of a standard descriptor that is closed.
//!
//! Rejected: `CommandExt::exec` alone, which resets SIGPIPE to its default and empties the signal
//! mask, whatever they were; a program started below `nohup` or with blocked signals would notice.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether SIGPIPE was ignored. Written by [`record`] while there is one thread, before `main`;
/// read by [`restore`]. Relaxed: threads begin after the writes.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// One bit for each of the descriptors 0 to 2 that was closed; written likewise.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// ld.so calls it before the entry point of the runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    // SAFETY: zero bytes are a valid sigaction; with a null pointer the call only reads.
    let ignored = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    };
    SIGPIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
    for descriptor in 0..3 {
        // SAFETY: F_GETFD reads a flag, and returns EBADF for a descriptor that is closed.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Returns true if a standard descriptor was closed when the command began.
pub(crate) fn was_closed(descriptor: i32) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Undoes the changes. Only `execve` may follow: standard streams may be closed now.
pub(super) fn restore() {
    if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default disposition has no handler that could be called.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let closed = CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3).filter(|descriptor| closed & (1 << descriptor) != 0) {
        // SAFETY: the descriptor is the runtime's `/dev/null`, and is not used any more.
        unsafe { libc::close(descriptor) };
    }
}
