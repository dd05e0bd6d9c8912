//! The way of a woken thread to its engine.

use crate::os::kernel_calls;
use crate::scheduling::chaos::{self, Point};
use crate::scheduling::{timed, ums};
use crate::state::carrier::Carrier;
use crate::state::process::Process;
use crate::state::thread::Thread;
use crate::state::wakers::{self, Cause};
use crate::state::{clock, delays, events};
use core::sync::atomic::Ordering;
use raddle_sched::policies::Reason;
use raddle_sched::{TaskList, TaskRef};

impl Process {
    /// Makes a claimed thread runnable, from anywhere in the runtime.
    #[inline(always)]
    pub fn unpark(&self, task: TaskRef) {
        let carrier = Carrier::current_or_null();
        // SAFETY: non-null carriers live for ever, and this one runs here.
        match unsafe { carrier.as_ref() } {
            Some(carrier) => self.unpark_on(carrier, task),
            None => {
                if Thread::of(task).takes_detour() {
                    events::woken(None, task);
                }
                self.inject(task)
            }
        }
    }

    /// As [`Process::unpark`], from the carrier `carrier`: the thread runs next there.
    #[inline(always)]
    pub fn unpark_on(&self, carrier: &Carrier, task: TaskRef) {
        if Thread::of(task).takes_detour() || carrier.takes_detour() {
            return self.unpark_by_detour(carrier, task);
        }
        Self::unpark_here(carrier, task);
    }

    #[inline(always)]
    fn unpark_here(carrier: &Carrier, task: TaskRef) {
        delays::woken(carrier, task);
        if let Some(displaced) = carrier.queue.push_lifo(task) {
            carrier.engine().push_ring(carrier, displaced);
        }
    }

    #[cold]
    fn unpark_by_detour(&self, carrier: &Carrier, task: TaskRef) {
        let thread = Thread::of(task);
        if thread.takes_detour() {
            events::woken(Some(carrier), task);
        }
        if thread.is_woken_elsewhere() || !carrier.has_queue() {
            self.inject(task)
        } else if carrier.is_timed() {
            timed::unpark(carrier, task)
        } else {
            Self::unpark_here(carrier, task)
        }
    }

    /// Makes a list of claimed threads runnable.
    pub fn unpark_all(&self, woken: TaskList) {
        self.unpark_list(woken, true);
    }

    /// As [`Process::unpark_all`], for threads of which the waits are over for this cause.
    pub(crate) fn unpark_due(&self, woken: TaskList, cause: Cause) {
        if woken.is_empty() {
            return;
        }
        // SAFETY: non-null carriers live for ever, and this one runs here.
        let carrier = unsafe { Carrier::current_or_null().as_ref() };
        wakers::for_cause(carrier, cause, || self.unpark_list(woken, true));
    }

    /// As [`Process::unpark_all`]; on a carrier, no other is woken to help unless `calls`.
    pub(crate) fn unpark_list(&self, woken: TaskList, calls: bool) {
        if woken.is_empty() {
            return;
        }
        let carrier = Carrier::current_or_null();
        // SAFETY: non-null carriers live for ever, and this one runs here.
        let carrier = unsafe { carrier.as_ref() };
        let mut first = None;
        while let Some(task) = woken.pop() {
            if Thread::of(task).takes_detour() {
                events::woken(carrier, task);
            }
            let own = carrier.filter(|own| own.has_queue());
            let Some(own) = own.filter(|_| !Thread::of(task).is_woken_elsewhere()) else {
                self.inject(task);
                continue;
            };
            let queue = |task| {
                if calls {
                    own.engine().push_ring(own, task)
                } else {
                    own.engine().push_quietly(own, task)
                }
            };
            if own.is_timed() {
                let (_, _, now_ns) = *first.get_or_insert_with(|| (own, task, clock::now_ns()));
                delays::ready_by_wake_up(own, task, now_ns);
                timed::place(own, task, queue);
            } else {
                delays::woken(own, task);
                queue(task);
            }
        }
        if let Some((carrier, task, now_ns)) = first {
            timed::woke(carrier, task, now_ns);
        }
    }

    /// Gives a claimed thread to its own carrier if it is bound, to its completion list if it is a
    /// UMS worker, else to whichever carrier comes first.
    #[cold]
    pub fn inject(&self, task: TaskRef) {
        if !ums::woken(task) {
            self.post(task);
        }
    }

    /// Gives a thread to its own carrier if it is bound, else to whichever of its engine comes
    /// first, and wakes one if one sleeps.
    #[cold]
    pub(crate) fn post(&self, task: TaskRef) {
        self.post_as(task, Reason::Woken);
    }

    /// As [`Process::post`], for this reason.
    pub(crate) fn post_as(&self, task: TaskRef, reason: Reason) {
        let thread = Thread::of(task);
        // SAFETY: non-null carriers live for ever.
        match unsafe { thread.bound.load(Ordering::Acquire).as_ref() } {
            Some(own) => {
                delays::ready(task, clock::now_ns());
                own.mailbox.store(task.as_ptr().cast(), Ordering::Release);
                self.wake_carrier(own);
            }
            None => thread.engine().post(task, reason),
        }
    }

    /// As [`Process::inject`] for many, but wakes one carrier only: it takes its share, and others
    /// are woken if the rest lasts. For kernel threads that aren't carriers.
    pub(crate) fn inject_all(&self, woken: TaskList, cause: Cause) {
        let ours = TaskList::new();
        while let Some(task) = woken.pop() {
            if Thread::of(task).takes_detour() {
                events::woken_elsewhere(task, cause);
            }
            if !ums::woken(task) {
                ours.push(task);
            }
        }
        self.post_all(ours);
    }

    /// As [`Process::post`] for many; see [`Process::inject_all`].
    pub(crate) fn post_all(&self, posted: TaskList) {
        let engine = self.first();
        let common = TaskList::new();
        while let Some(task) = posted.pop() {
            if Thread::of(task).is_woken_elsewhere() || engine.has_one_queue() {
                self.post(task)
            } else {
                common.push(task)
            }
        }
        if !common.is_empty() {
            engine.queue.push_all(common);
            engine.wake_one_or_sysmon();
        }
    }

    /// Queues the running thread of `carrier`, which makes room for others.
    pub(crate) fn push_preempted(&self, carrier: &Carrier, thread: &Thread, now_ns: u64) {
        let engine = thread.engine();
        if engine.has_one_queue() || !core::ptr::eq(engine, carrier.engine()) {
            engine.post(thread.task_ref(), Reason::Preempted)
        } else {
            timed::preempted(carrier, thread, now_ns)
        }
    }

    pub(crate) fn wake_carrier(&self, carrier: &Carrier) {
        chaos::stop(Point::Wake);
        if carrier.wake_word.set() {
            // All: the carrier itself, or a request of its ring's (`pages`).
            kernel_calls::futex_wake(carrier.wake_word.futex().as_ptr(), u32::MAX >> 1);
        }
    }
}
