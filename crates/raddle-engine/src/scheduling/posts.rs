//! What becomes runnable enters an engine here, and wakes a carrier for it.

use crate::scheduling::{idle, policies};
use crate::state::carrier::Carrier;
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::{accounting, clock, delays};
use core::sync::atomic::Ordering;
use raddle_sched::TaskRef;
use raddle_sched::policies::{Kind, Reason};

impl Engine {
    /// Appends a thread to the carrier's ring: after everything that waits there.
    #[inline(always)]
    pub fn push_ring(&self, carrier: &Carrier, task: TaskRef) {
        self.push_quietly(carrier, task);
        if self.wanted() > 1 && carrier.queue.ring_len() > 1 {
            self.backlog(carrier);
        }
    }

    /// As [`Engine::push_ring`]; no other carrier is woken to help.
    #[inline(always)]
    pub(crate) fn push_quietly(&self, carrier: &Carrier, task: TaskRef) {
        if let Some(overflow) = carrier.queue.push(task) {
            self.queue.push_all(overflow);
        }
    }

    /// Queues one of its threads, which isn't bound, for whichever carrier comes first, and wakes
    /// one if one sleeps.
    pub(crate) fn post(&self, task: TaskRef, reason: Reason) {
        if self.has_one_queue() {
            return self.submit(task, reason);
        }
        delays::ready(task, clock::now_ns());
        self.queue.push(task);
        self.wake_one_or_sysmon();
    }

    /// Adds a thread that isn't bound to those that the policy orders.
    pub(crate) fn submit(&self, task: TaskRef, reason: Reason) {
        // SAFETY: non-null carriers live for ever, and this one runs here.
        let carrier = unsafe { Carrier::current_or_null().as_ref() };
        if carrier.is_none() && self.queue.kind() == Kind::Plugin {
            self.staged.push(task); // a carrier calls the plug-in
            return self.wake_one_or_sysmon();
        }
        let carrier = carrier.filter(|own| !own.is_bound());
        let stops = matches!(reason, Reason::Yielded | Reason::Preempted);
        let reason = policies::prepare(carrier, task, reason);
        // Another engine's carrier doesn't look at this queue.
        let Some(carrier) = carrier.filter(|own| core::ptr::eq(own.engine(), self)) else {
            self.enqueue(task, reason, None);
            return self.wake_one_or_sysmon();
        };
        let running = carrier.thread_or_none().filter(|_| !stops);
        if let Some(running) = running
            && self.queue.kind() == Kind::Fair
        {
            accounting::charge_running(carrier);
            let ran_ns = running.cpu.charged_ns();
            running.task.policy.terms.set_ran_ns(ran_ns);
        }
        if self.enqueue(task, reason, running.map(Thread::task_ref)) {
            carrier.preempt_here();
        }
        // The carrier that runs reaches one thread by itself, or sysmon sees to it.
        if self.wanted() > 1 && self.queue.len() > 1 {
            self.backlog(carrier);
        }
    }

    /// After a post: if all carriers are awake, sysmon may have to make one of them look. If the
    /// engine is held, sysmon must be awake to let it go on.
    pub(crate) fn wake_one_or_sysmon(&self) {
        if self.is_held() {
            PROCESS.sysmon.wake_up();
        } else if !self.wake_one() {
            PROCESS.sysmon.urge();
        }
    }

    /// Returns true if threads are known to compute: a woken thread then finds carriers held.
    pub(crate) fn has_computing(&self) -> bool {
        !self.ahead.is_empty() || PROCESS.sysmon.is_on_guard()
    }

    /// Returns true if threads wait for whichever carrier comes first.
    #[inline(always)]
    pub fn has_posted(&self) -> bool {
        !self.queue.is_empty() || !self.ahead.is_empty() || !self.staged.is_empty()
    }

    /// Returns true if posted threads may run.
    #[inline(always)]
    pub(crate) fn has_work(&self) -> bool {
        self.has_posted() && !self.is_held()
    }

    /// How many threads wait for whichever carrier comes first.
    pub(crate) fn posted(&self) -> usize {
        self.queue.len() + self.ahead.len() + self.staged.len()
    }

    /// Returns true if a carrier has nothing to do, or another one may be made.
    pub(crate) fn has_help(&self) -> bool {
        !self.idle.is_empty() || self.has_poller() || self.may_grow()
    }

    /// More than one thread waits in the ring while carriers sleep: wake one if the budget allows.
    #[cold]
    pub(crate) fn backlog(&self, carrier: &Carrier) {
        if !self.has_help() {
            return;
        }
        let now_ns = clock::now_ns();
        let mut backlog = carrier.backlog.get();
        if carrier.robbed.swap(0, Ordering::Relaxed) != 0 {
            backlog.useful();
        }
        if backlog.spend(now_ns) {
            carrier.backlog.set(backlog);
            self.wake_one();
        }
    }

    /// Wakes one sleeping carrier, or the poller, or makes a carrier. Returns false if all are
    /// awake.
    pub fn wake_one(&self) -> bool {
        if idle::suffices_poller(self) {
            // Otherwise it has been kicked for something else, or takes what it sees by itself.
            if PROCESS.pump.kick() || self.posted() <= 1 {
                return true;
            }
        }
        if let Some(id) = self.idle.take_one() {
            // SAFETY: ids in the idle set are positions of live carriers.
            PROCESS.wake_carrier(unsafe { PROCESS.by_id(id) });
            return true;
        }
        if self.has_poller() {
            return PROCESS.pump.kick();
        }
        self.may_grow() && self.grow()
    }
}
