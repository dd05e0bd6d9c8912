//! Threads that have ended and are kept, with their stack and thread block, to begin as others.
//!
//! libc knows nothing of it: to it, the thread goes on. To everybody else it ends as threads do, at
//! [`crate::switch::exit`]'s last step, on the carrier's own stack; only its slot isn't given back.
//!
//! 1. The thread has made itself as good as new, says where its [`Seat`] is, and gives up its
//!    carrier ([`crate::switch::end_to_be_kept`]). From then on nobody finds it by its id.
//! 2. Off its stack, it is retired and goes to the list of its stack's size, under the lock: who
//!    sees that no thread is left finds all that are kept.
//! 3. Who makes a thread takes one, if there is one with such a stack. It gets another id, and all
//!    that a new thread gets from its maker. It continues where it gave up its carrier.
//! 4. If no thread is left, libc must hear of the end of each, so that it ends the process: all are
//!    sent home. So is nobody else: as few are kept as to cost little.

use crate::thread::{Thread, ThreadTable};
use core::ptr::{NonNull, null};
use core::sync::atomic::Ordering;
pub use raddle_interface::Seat;
use raddle_sched::SpinLock;

/// Sizes of stacks that threads are kept with.
const SIZES: usize = 8;
/// Threads that are kept of each.
const EACH: u32 = 64;

/// Threads with stacks of one size.
#[derive(Clone, Copy)]
struct Class {
    stack_size: usize,
    count: u32,
    /// The last one that came, or null; linked by `next_kept`.
    head: *const Thread,
}

/// See the module.
pub struct Kept {
    classes: SpinLock<[Class; SIZES]>,
}

// SAFETY: threads are shared by all carriers; the lock guards who is on a list.
unsafe impl Sync for Kept {}

impl Class {
    fn pop(&mut self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread: type-stable memory.
        let thread = unsafe { self.head.as_ref() }?;
        self.head = thread.next_kept.get();
        self.count -= 1;
        Some(thread)
    }
}

impl Kept {
    pub(crate) const fn new() -> Self {
        let class = Class {
            stack_size: 0,
            count: 0,
            head: null(),
        };
        Self {
            classes: SpinLock::new([class; SIZES]),
        }
    }

    /// True if one more thread with such a stack may be kept. A few that ask at once may each pass
    /// the bound by one.
    pub fn has_room(&self, stack_size: usize) -> bool {
        let mut classes = self.classes.lock();
        let fits = |class: &&mut Class| class.stack_size == stack_size || class.stack_size == 0;
        match classes.iter_mut().find(fits) {
            Some(class) => {
                class.stack_size = stack_size;
                class.count < EACH
            }
            None => false,
        }
    }

    /// Retires `thread`, which is off its stack, and keeps it. Returns how many threads are left.
    pub fn retire(&self, threads: &ThreadTable, thread: &Thread, seat: NonNull<Seat>) -> usize {
        // SAFETY: the seat is on the thread's stack, which it hasn't left for good.
        let stack_size = unsafe { seat.as_ref() }.stack_size;
        let mut classes = self.classes.lock();
        if let Some(class) = classes.iter_mut().find(|own| own.stack_size == stack_size) {
            thread.seat.set(seat.as_ptr());
            thread.next_kept.set(class.head);
            class.head = thread;
            class.count += 1;
        }
        threads.retire(thread)
    }

    /// Takes a thread with such a stack, and makes it one that lives. `None` too if there may be no
    /// other thread.
    pub fn renew(
        &self,
        threads: &ThreadTable,
        stack_size: usize,
    ) -> Option<(&'static Thread, &'static Seat)> {
        if threads.is_full() {
            return None;
        }
        let mut classes = self.classes.lock();
        let class = classes
            .iter_mut()
            .find(|own| own.stack_size == stack_size)?;
        let thread = class.pop()?;
        drop(classes);
        Some((thread, begin(threads, thread)))
    }

    /// Takes any thread, and makes it one that lives, in which no signal is handled.
    pub fn renew_any(&self, threads: &ThreadTable) -> Option<(&'static Thread, &'static Seat)> {
        let thread = self.classes.lock().iter_mut().find_map(Class::pop)?;
        let seat = begin(threads, thread);
        thread.signals.mask.store(u64::MAX, Ordering::Relaxed);
        Some((thread, seat))
    }

    /// Gives back the slots of those that are kept.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn forget(&self, threads: &ThreadTable) {
        // SAFETY: the caller's promise. A list is whole at any moment; one who was on the way to it
        // or from it lives, or is lost with its slot.
        unsafe { self.classes.break_lock() };
        for class in self.classes.lock().iter_mut() {
            while let Some(thread) = class.pop() {
                if thread.life() == crate::thread::Life::Free {
                    // SAFETY: nobody runs on its stack in this process, and it was in no queue.
                    unsafe { threads.recycle(thread) };
                }
            }
            class.count = 0;
        }
    }
}

/// Makes a thread that was taken from a list one that lives, with another id, which libc sees, too.
fn begin(threads: &ThreadTable, thread: &'static Thread) -> &'static Seat {
    let seat = thread.seat.get();
    // SAFETY: who takes it from the list has it; it is off its stack, where its seat stays until it
    // runs. `clear_tid` is in its thread block, as the thread itself has found before.
    unsafe {
        threads.renew(thread);
        if let Some(word) = thread.clear_tid.get().as_ref() {
            word.store(thread.tid(), Ordering::Relaxed);
        }
        &*seat
    }
}
