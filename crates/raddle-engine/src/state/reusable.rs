//! Threads that have ended and are kept, with their stack and thread block, to begin as others.
//!
//! libc doesn't hear that the thread ends. To all else it ends as threads do, at
//! [`crate::scheduling::switch::exit`]'s last step, on the carrier's own stack; only its slot isn't
//! given back.
//!
//! 1. The thread has made itself as good as new, says where its [`ReuseControl`] is, and gives up
//!    its carrier ([`crate::scheduling::switch::end`]). From then on no lookup finds it by its id.
//! 2. Off its stack, it is retired and goes to the list of its stack's size, under the lock: the
//!    carrier that sees that no thread is left finds all that are kept.
//! 3. The maker of a thread takes one, if there is one with such a stack. The taken thread gets
//!    another id, and all that a new thread gets from its maker. It continues where it gave up its
//!    carrier.
//! 4. If no thread is left, libc must hear of the end of each, so that it ends the process: all are
//!    sent home. No other is: so few are kept that they cost little.

use crate::state::thread::{Thread, ThreadTable};
use core::cell::Cell;
use core::ptr::{NonNull, null, with_exposed_provenance};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
pub use raddle_interface::ReuseControl;
use raddle_sched::SpinLock;

/// Sizes of stacks that threads are kept with.
const SIZES: usize = 8;
/// Threads that are kept of each.
const EACH: u32 = 64;

/// Threads with stacks of one size. Only the holder of the lock changes anything.
struct Class {
    /// 0: of no size yet; never changes again.
    stack_size: AtomicUsize,
    count: AtomicU32,
    /// The last one that came, or null; linked by `next_reusable`. Under the lock.
    head: Cell<*const Thread>,
}

/// See the module.
pub struct ReusableThreads {
    classes: [Class; SIZES],
    lock: SpinLock<()>,
}

// SAFETY: threads are shared by all carriers; the lock guards the lists.
unsafe impl Sync for ReusableThreads {}

impl Class {
    const fn new() -> Self {
        Self {
            stack_size: AtomicUsize::new(0),
            count: AtomicU32::new(0),
            head: Cell::new(null()),
        }
    }

    fn size(&self) -> usize {
        self.stack_size.load(Ordering::Relaxed)
    }

    fn add(&self, count: i32) {
        let now = self.count.load(Ordering::Relaxed);
        self.count
            .store(now.wrapping_add_signed(count), Ordering::Relaxed);
    }

    /// Under the lock.
    fn push(&self, thread: &Thread) {
        thread.next_reusable.set(self.head.get());
        self.head.set(thread);
        self.add(1);
    }

    /// Under the lock.
    fn pop(&self) -> Option<&'static Thread> {
        // SAFETY: null, or a thread: type-stable memory.
        let thread = unsafe { self.head.get().as_ref() }?;
        self.head.set(thread.next_reusable.get());
        self.add(-1);
        Some(thread)
    }
}

impl ReusableThreads {
    pub(crate) const fn new() -> Self {
        Self {
            classes: [const { Class::new() }; SIZES],
            lock: SpinLock::new(()),
        }
    }

    /// Returns true if one more thread with such a stack may be kept. A few that ask at once may
    /// each pass the bound by one.
    pub fn has_room(&self, stack_size: usize) -> bool {
        let class = self.class(stack_size).or_else(|| self.add(stack_size));
        class.is_some_and(|class| class.count.load(Ordering::Relaxed) < EACH)
    }

    fn class(&self, stack_size: usize) -> Option<&Class> {
        self.classes.iter().find(|class| class.size() == stack_size)
    }

    /// The class of that size, which may be new; `None` if there are too many.
    #[cold]
    fn add(&self, stack_size: usize) -> Option<&Class> {
        let _lock = self.lock.lock();
        let fits = |class: &&Class| class.size() == stack_size || class.size() == 0;
        let class = self.classes.iter().find(fits)?;
        class.stack_size.store(stack_size, Ordering::Relaxed);
        Some(class)
    }

    /// Retires `thread`, which is off its stack, and keeps it. Returns how many threads are left.
    pub fn retire(
        &self,
        threads: &ThreadTable,
        thread: &Thread,
        control: NonNull<ReuseControl>,
    ) -> usize {
        // SAFETY: the reuse control is on the thread's stack, which it hasn't left for good.
        let stack_size = unsafe { control.as_ref() }.stack_size;
        let _lock = self.lock.lock();
        if let Some(class) = self.class(stack_size) {
            thread.reuse.set(control.as_ptr());
            class.push(thread);
        }
        threads.retire(thread)
    }

    /// Takes a thread with such a stack, and makes it one that lives. `None` too if there may be no
    /// other thread.
    pub fn renew(
        &self,
        threads: &ThreadTable,
        stack_size: usize,
    ) -> Option<(&'static Thread, &'static ReuseControl)> {
        if threads.is_full() {
            return None;
        }
        let class = self.class(stack_size)?;
        let lock = self.lock.lock();
        let thread = class.pop()?;
        drop(lock);
        Some((thread, begin(threads, thread)))
    }

    /// Takes any thread, and makes it one that lives, in which no signal is handled.
    pub fn renew_any(
        &self,
        threads: &ThreadTable,
    ) -> Option<(&'static Thread, &'static ReuseControl)> {
        let lock = self.lock.lock();
        let thread = self.classes.iter().find_map(Class::pop)?;
        drop(lock);
        let control = begin(threads, thread);
        thread.signals.mask.store(u64::MAX, Ordering::Relaxed);
        Some((thread, control))
    }

    /// Gives back the slots of those that are kept.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn forget(&self, threads: &ThreadTable) {
        let Self { classes, lock } = self;
        // SAFETY: the caller's promise. A list is whole at any moment; a thread that was on the way
        // to it or from it lives, or is lost with its slot.
        unsafe { lock.break_lock() };
        for class in classes {
            while let Some(thread) = class.pop() {
                if thread.life() == crate::state::thread::Life::Free {
                    // SAFETY: no thread of this process runs on its stack, and it was in no queue.
                    unsafe { threads.recycle(thread) };
                }
            }
            let Class {
                count,
                stack_size: _,
                head: _, // `pop`
            } = class;
            count.store(0, Ordering::Relaxed);
        }
    }
}

/// Makes a thread that was taken from a list one that lives, with another id, which libc sees, too.
fn begin(threads: &ThreadTable, thread: &'static Thread) -> &'static ReuseControl {
    let control = thread.reuse.get();
    // SAFETY: the caller took the thread from the list, and alone has it; it is off its stack,
    // where its reuse control stays until it runs. `clear_tid` is in its thread block, as the
    // thread itself has found before.
    unsafe {
        threads.renew(thread);
        let word = with_exposed_provenance::<AtomicU32>(thread.clear_tid.get());
        if let Some(word) = word.as_ref() {
            word.store(thread.tid(), Ordering::Relaxed);
        }
        &*control
    }
}
