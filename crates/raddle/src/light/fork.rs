//! Forks. The child has one thread: perhaps a host with the light thread that forked, and none of
//! the others that are still in its memory.

use super::group::GROUP;
use super::host::Host;
use super::stack;

/// Registers the fork handlers with libc; to be called once in a process.
pub(super) fn watch() {
    // SAFETY: functions that live for ever. If libc has no memory to note them, a child that makes
    // light threads of its own waits for hosts that it doesn't have.
    unsafe { libc::pthread_atfork(Some(stack::hold), Some(stack::let_go), Some(in_child)) };
}

extern "C" fn in_child() {
    stack::let_go();
    // SAFETY: the child of a fork has this one thread.
    unsafe { GROUP.forget_others(Host::current()) };
}
