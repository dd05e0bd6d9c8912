//! Routes: the way of a signal to the thread that takes it.
//!
//! A signal for the process goes to one thread that accepts it, the one that Linux would choose,
//! and waits there for delivery. If that thread ends or blocks the signal first, it *passes the
//! signal on*: to another thread that accepts it, or back to the process, for which the signal then
//! pends.
//!
//! 1. A sender chooses a thread and queues the signal there ([`CommonSignals::pass`]). Then it
//!    reads the thread's mask, its awaited set and its state of life. A thread that accepts the
//!    signal is *notified*; otherwise the sender passes the signal on itself.
//! 2. A sender that finds no thread queues the signal for the process, then looks once more for a
//!    thread that accepts it.
//! 3. A thread that changes its mask, its awaited set or its state of life writes the new value,
//!    then reads what waits there and what pends for the process ([`Routes::pass_on`]).
//! 4. A thread that is about to park announces it ([`Task::prepare_fenced`]), then reads what it
//!    could take. A sender queues, then claims the wait.
//! 5. A sender that can't claim a wait reads `on_cpu`. It interrupts the carrier of a thread that
//!    runs. A thread that doesn't run looks for signals when it begins to. No barrier stands
//!    between its store to `on_cpu` and that look, so sysmon looks at running threads once more.
//!
//! **No signal is lost**: in each of these pairs both sides write first and read then, with SeqCst,
//! so one of the two sees the other's write. A thread that ends waits for the lock of its queue
//! before it reads: a sender that found it alive may pass the signal on too late, when the thread
//! has emptied its queue.
//!
//! **A signal is passed on at most as often as a thread changes**: `take_back` asks under the locks
//! whether the thread still refuses the signal.

use super::held::HeldSignals;
use super::queues::{CommonSignals, Passed, PendingSignals, Records, bit};
use super::records::{Addressee, Details};
use crate::sync::Ordering;
use crate::task::{Task, Wake};

/// Highest signal number.
pub const SIGNALS: u32 = 64;

/// A thread that gets signals.
pub trait Receiver: 'static {
    /// Returns its masks and pending signals.
    fn signals(&self) -> &PendingSignals;

    /// Returns its task.
    fn task(&self) -> &Task;

    /// Returns false once it has begun to end. SeqCst.
    fn is_live(&self) -> bool;

    /// Marks its end: signals don't find it any more. SeqCst.
    fn set_exiting(&self);

    /// Tries to end its wait ([`Task::claim`]).
    fn claim(&self, why: Wake) -> bool {
        self.task().claim(why)
    }

    /// Returns true if it waits for `signal`.
    fn awaits(&self, signal: u32) -> bool {
        self.signals().awaited.load(Ordering::SeqCst) & bit(signal) != 0
    }

    /// Returns true if it blocks `signal`.
    fn blocks(&self, signal: u32) -> bool {
        self.signals().mask.load(Ordering::SeqCst) & bit(signal) != 0
    }

    /// Ends the wait that it has announced if it has a signal to take (step 4). The caller then
    /// doesn't park. A sender that came before the announcement found no wait to end.
    #[inline(always)]
    fn is_interrupted(&self) -> bool {
        self.signals().deliverable() != 0 && self.claim(Wake::Signalled)
    }

    /// Returns true if it would take `signal` now.
    fn accepts(&self, signal: u32) -> bool {
        (self.awaits(signal) || !self.blocks(signal)) && self.is_live()
    }
}

/// The threads of a process and what their signals mean; see the module. The methods without a body
/// are the surroundings.
pub trait Routes {
    /// The threads.
    type Thread: Receiver;
    /// The details of signals.
    type Details: Details;

    /// Returns the records of all queues.
    fn records(&self) -> &Records<Self::Details>;

    /// Returns the signals that pend for the process.
    fn common(&self) -> &CommonSignals;

    /// Returns the threads that aren't gone.
    fn threads(&self) -> impl Iterator<Item = &'static Self::Thread>;

    /// Returns the main thread.
    fn main(&self) -> Option<&'static Self::Thread>;

    /// Returns the calling thread.
    fn running(&self) -> Option<&'static Self::Thread>;

    /// Returns true if the program's action for `signal` does nothing.
    fn does_nothing(&self, signal: u32) -> bool;

    /// Ends the process if this is what `signal` does to `thread` at once. Returns true if it was
    /// tried.
    fn ends_process(&self, thread: &Self::Thread, signal: u32) -> bool;

    /// Returns the signals that the kernel holds for descriptors.
    fn held(&self) -> &HeldSignals;

    /// Makes the calling carrier block what is held.
    fn block_held(&self);

    /// Queues a signal to the process in the kernel. Returns false if the kernel has no room.
    fn queue_in_kernel(&self, info: &Info<Self>) -> bool;

    /// Makes every carrier block what is held and nothing else: this one now, others soon. What
    /// comes to this one arrives before this returns.
    fn tell_carriers(&self);

    /// Returns true if a queued signal was discarded meanwhile.
    fn is_over(&self, info: &Info<Self>) -> bool;

    /// Makes the calling thread look at its signals, at the end of its call.
    fn look_here(&self);

    /// Makes a thread runnable, after its wait was claimed.
    fn unpark(&self, thread: &Self::Thread);

    /// Interrupts the carrier on which a thread runs. Returns false if it has none.
    fn interrupt(&self, thread: &Self::Thread) -> bool;

    /// Makes sysmon look at the running threads.
    fn wake_sysmon(&self);

    /// Returns the main thread if it takes `signal`, as in Linux, after the thread that the signal
    /// names; else a thread that waits for the signal, the calling one, or any that doesn't block
    /// it.
    fn accepting(
        &self,
        signal: u32,
        named: Option<&'static Self::Thread>,
    ) -> Option<&'static Self::Thread> {
        let open = |thread: &&Self::Thread| thread.is_live() && !thread.blocks(signal);
        let waits = |thread: &&Self::Thread| thread.awaits(signal) && thread.is_live();
        let takes = |thread: &&Self::Thread| open(thread) || waits(thread);
        named
            .filter(takes)
            .or_else(|| self.main().filter(takes))
            .or_else(|| self.threads().find(waits))
            .or_else(|| self.running().filter(open))
            .or_else(|| self.threads().find(open))
    }

    /// Returns true if the program ignores `signal`, and the thread neither awaits nor blocks it.
    fn drops(&self, thread: &Self::Thread, signal: u32) -> bool {
        self.does_nothing(signal) && !thread.awaits(signal) && !thread.blocks(signal)
    }

    /// Queues a signal that was sent to one thread, and tells the thread.
    fn to_thread(&self, thread: &Self::Thread, info: &Info<Self>) {
        let signal = Self::Details::signal(info);
        if self.ends_process(thread, signal) {
            return;
        }
        let is_refused = thread.blocks(signal) && !thread.awaits(signal);
        if is_refused && self.held().is_read(signal) && self.accepting(signal, None).is_none() {
            return self.hold(info);
        }
        let (form, to) = (Self::Details::form(info), Addressee::Thread);
        let is_live = || thread.is_live();
        if thread
            .signals()
            .post(self.records(), info, form, to, is_live)
            && thread.accepts(signal)
        {
            self.notify(thread);
        }
    }

    /// Routes a signal for the process, which names a thread perhaps, to one that accepts it; else
    /// the signal stays pending.
    fn to_process(&self, info: &Info<Self>, named: Option<&'static Self::Thread>) {
        let signal = Self::Details::signal(info);
        // A thread that ends refuses the signal, and isn't found again.
        while let Some(thread) = self.accepting(signal, named) {
            if self.drops(thread, signal) || self.ends_process(thread, signal) {
                return;
            }
            let is_live = || thread.is_live();
            let common = self.common();
            match common.pass(self.records(), thread.signals(), info, is_live) {
                Passed::Given => return self.tell(thread, signal),
                Passed::Refused => {}
                Passed::Late => return self.hold_here(info),
            }
        }
        self.hold(info);
    }

    /// Gives a signal that no thread accepts back to the kernel. Returns false if no descriptor
    /// reads it, or the kernel has no room.
    fn return_to_kernel(&self, info: &Info<Self>) -> bool {
        let signal = Self::Details::signal(info);
        if !self.held().is_read(signal) {
            return false;
        }
        self.held().add(bit(signal));
        self.block_held();
        let is_queued = self.queue_in_kernel(info);
        if self.accepting(signal, None).is_some() {
            self.fetch_from_kernel(bit(signal));
        }
        is_queued
    }

    /// Takes signals of `set`, which a thread accepts from now on or for a moment, from the kernel.
    #[inline(always)]
    fn fetch_from_kernel(&self, set: u64) {
        if self.held().remove(set) {
            self.tell_carriers();
        }
    }

    /// Keeps a signal that no thread accepts.
    fn hold(&self, info: &Info<Self>) {
        if !self.return_to_kernel(info) {
            self.hold_here(info);
        }
    }

    /// As [`Routes::hold`], in user space.
    fn hold_here(&self, info: &Info<Self>) {
        self.common().post(self.records(), info);
        // A thread that has opened its mask since the last look has found nothing pending.
        self.give_pending(Self::Details::signal(info));
    }

    /// Gives the first instance that pends for the process to a thread that accepts it, if there is
    /// one. A thread that waits for a carrier looks only at its own signals when it runs; after
    /// that it looks at the process's, or passes its own on. So does a thread at which older
    /// instances wait.
    fn give_pending(&self, signal: u32) {
        let common = self.common();
        while common.pending() & bit(signal) != 0
            && let Some(thread) = self.accepting(signal, None)
        {
            if self.drops(thread, signal) {
                common.drop_first(self.records(), signal);
                continue;
            }
            let is_live = || thread.is_live();
            match common.give(self.records(), thread.signals(), signal, is_live) {
                Passed::Given => return self.tell(thread, signal),
                Passed::Refused => {}
                Passed::Late => return,
            }
        }
    }

    /// Tells a thread that a signal for the process was queued there, or passes the signal on.
    fn tell(&self, thread: &Self::Thread, signal: u32) {
        if thread.accepts(signal) {
            self.notify(thread);
        } else {
            self.pass_on(thread, bit(signal));
        }
    }

    /// Gives the running thread its mask (step 3). Returns the mask that it had.
    fn set_mask(&self, thread: &Self::Thread, mask: u64) -> u64 {
        let before = thread.signals().mask.swap(mask, Ordering::SeqCst);
        self.fetch_from_kernel(!mask);
        self.pass_on(thread, mask);
        before
    }

    /// Begins a wait of the running thread for signals of `set`.
    fn await_set(&self, thread: &Self::Thread, set: u64) {
        thread.signals().awaited.store(set, Ordering::SeqCst);
        self.fetch_from_kernel(set);
    }

    /// Ends the wait for signals of `set` (step 3).
    fn await_none(&self, thread: &Self::Thread, set: u64) {
        let signals = thread.signals();
        signals.awaited.store(0, Ordering::SeqCst);
        self.pass_on(thread, set & signals.mask.load(Ordering::Relaxed));
    }

    /// Announces that the running thread is going to wait for a signal of `wanted` (step 4).
    /// Returns true if it parks then; false if it looks for signals again.
    fn prepare(&self, thread: &Self::Thread, wanted: u64) -> bool {
        thread.task().prepare_fenced();
        let due = thread.signals().pending.load(Ordering::SeqCst) | self.common().pending();
        due & wanted == 0 || !thread.task().claim(Wake::Retry)
    }

    /// Begins the end of the running thread (step 3).
    fn end(&self, thread: &Self::Thread) {
        thread.set_exiting();
        thread.signals().close();
        self.pass_on(thread, u64::MAX);
    }

    /// Passes on the process's signals of `set` that wait at `thread`, which doesn't take them any
    /// more.
    #[inline(always)]
    fn pass_on(&self, thread: &Self::Thread, set: u64) {
        let shared = thread.signals().shared.load(Ordering::SeqCst);
        let left = (shared | self.common().pending()) & set;
        if left != 0 {
            self.pass_on_some(thread, left);
        }
    }

    /// As [`Routes::pass_on`], if there are any.
    #[cold]
    fn pass_on_some(&self, thread: &Self::Thread, left: u64) {
        for signal in (1..=SIGNALS).filter(|&signal| left & bit(signal) != 0) {
            let (signals, records) = (thread.signals(), self.records());
            if self.held().is_read(signal) {
                while !thread.accepts(signal)
                    && let Some(info) = signals.take_shared(records, signal)
                {
                    self.to_process(&info, None);
                }
            } else {
                let is_refused = || !thread.accepts(signal);
                self.common()
                    .take_back(records, signals, signal, is_refused);
            }
            if thread.accepts(signal) {
                self.notify(thread); // it has opened its mask again
            }
            self.give_pending(signal); // the thread may have been about to take it
        }
    }

    /// Makes a thread look at its pending signals.
    fn notify(&self, thread: &Self::Thread) {
        if self.running().is_some_and(|own| core::ptr::eq(own, thread)) {
            self.look_here();
        } else if thread.claim(Wake::Signalled) {
            self.unpark(thread);
        } else if thread.task().on_cpu.load(Ordering::SeqCst) == 0 || !self.interrupt(thread) {
            // The thread is runnable. It looks for signals when it runs; if it has done so just
            // before, sysmon sees that.
            self.wake_sysmon();
        }
    }

    /// Takes one pending signal of `wanted` for `thread`: its own first, then the process's.
    fn take(&self, thread: &Self::Thread, wanted: u64) -> Option<Info<Self>> {
        let signals = thread.signals();
        loop {
            let taken = match signals.pending.load(Ordering::SeqCst) & wanted {
                0 => match self.common().pending() & wanted {
                    0 => return None,
                    hits => self.common().take(self.records(), signals, first(hits)),
                },
                hits => signals.take(self.records(), first(hits)),
            };
            // Without a result, another thread was faster, or the signal was discarded.
            if taken.is_some_and(|info| !self.is_over(&info)) {
                return taken;
            }
        }
    }

    /// Drops the pending instances of `signal` that fit, for the process and for threads.
    fn discard(&self, signal: u32, fits: impl Fn(&Info<Self>) -> bool + Copy) {
        self.common().discard(self.records(), signal, fits);
        for thread in self.threads() {
            thread.signals().discard(self.records(), signal, fits);
        }
        // One that came behind those of a thread may be left.
        self.give_pending(signal);
    }
}

type Info<R> = <<R as Routes>::Details as Details>::Info;

/// Returns the signal of `set` that the kernel would dequeue first: a fault, then the lowest
/// number.
fn first(set: u64) -> u32 {
    const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);
    let set = if set & FAULTS != 0 { set & FAULTS } else { set };
    set.trailing_zeros() + 1
}
