//! Threads that host light threads of the explicit API.

use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::Ordering;
use raddle_interface::HostControl;
use raddle_sched::TaskList;

const ANY: u32 = u32::MAX;

/// `thread` is about to park. If it lends itself to a light thread, others may be waiting for it:
/// another host takes its place.
#[cold]
pub(crate) fn parks(thread: &Thread) {
    // SAFETY: hosts live for ever.
    let host: &HostControl = unsafe { &*thread.host.get() };
    let group = host.group;
    if host.lends.load(Ordering::Relaxed) == 0 {
        return;
    }
    // The host may have left before and not have counted itself in again, but have filled its
    // queue.
    if host.left.swap(1, Ordering::Relaxed) == 0 {
        group.count.leave();
    }
    let strands = !host.queue.is_empty();
    if strands {
        group.stranded.store(1, Ordering::SeqCst);
    }
    if (strands || !group.injector.is_empty()) && group.count.has_sleepers() {
        group.word.change();
        let woken = TaskList::new();
        let word = group.word.futex().as_ptr().expose_provenance();
        PROCESS.futexes.wake(word, 1, ANY, &woken);
        PROCESS.unpark_all(woken);
    }
}
