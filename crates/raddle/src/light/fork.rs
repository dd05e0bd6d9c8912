//! The child of a fork has one thread: perhaps a host with the light thread that forked, and none
//! of the others, whatever memory says.

use super::group::GROUP;
use super::host::Host;
use super::stack;

/// Has libc call us at each fork from now on; once a process.
pub(super) fn watch() {
    // SAFETY: functions that live for ever. Without the memory to note them, a child that makes
    // light threads of its own would wait for hosts that it doesn't have.
    unsafe { libc::pthread_atfork(Some(stack::hold), Some(stack::let_go), Some(in_child)) };
}

extern "C" fn in_child() {
    stack::let_go();
    // SAFETY: the child of a fork has this one thread.
    unsafe { GROUP.forget_others(Host::current()) };
}
