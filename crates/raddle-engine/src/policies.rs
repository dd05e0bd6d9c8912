//! The engine under another policy than fifo: every runnable thread goes through the injector,
//! which is in the policy's order, and the carriers' own queues stay empty.
//!
//! So all that is known of the injector holds: who sleeps looks at its length last, sysmon wakes a
//! carrier for what waits in it, and preempts for it. A carrier's [`Carrier::queueless`] keeps the
//! paths of fifo as they are: it is looked at where otherwise its being bound would be.
//!
//! A wake-up by a running carrier wakes no other one at once, as long as it is the only thread that
//! waits ([`raddle_sched::policy`]). If the policy says that the woken thread should run instead of
//! the one that woke it, that one gives way at the end of its call.

use crate::carrier::Carrier;
use crate::engine::{ENGINE, Engine};
use crate::thread::Thread;
use crate::{accounting, clock, latency};
use core::sync::atomic::Ordering;
use raddle_sched::TaskRef;
use raddle_sched::policies::{Fault, Host, Kind, Reason, Table};

impl Engine {
    /// Chooses a built-in policy. Before [`Engine::init`].
    pub fn choose_policy(&self, kind: Kind) {
        self.injector.choose(kind);
        self.kind.store(kind as u32, Ordering::Relaxed);
    }

    /// Chooses a plug-in, which is usable. After [`Engine::init`], before [`Engine::start`].
    pub fn choose_plugin(&self, table: &'static Table) {
        let host = Host {
            now_ns: clock::now_ns,
            find,
            enter: || set_in_clock(1),
            leave: || set_in_clock(0),
        };
        self.injector.choose_foreign(table, host);
        self.kind.store(Kind::Plugin as u32, Ordering::Relaxed);
        Carrier::current().queueless.set(1);
    }

    /// True under another policy than fifo.
    #[inline(always)]
    pub fn has_policy(&self) -> bool {
        self.kind.load(Ordering::Relaxed) != Kind::Fifo as u32
    }

    /// True if the policy gives a meaning to real-time classes and deadlines.
    pub fn has_classes(&self) -> bool {
        let kind = self.kind.load(Ordering::Relaxed);
        [Kind::Priority, Kind::Deadline]
            .map(|kind| kind as u32)
            .contains(&kind)
    }

    /// Policies that go by measured CPU time have it measured from the start.
    pub(crate) fn start_policy(&self) {
        let kind = self.kind.load(Ordering::Relaxed);
        if kind == Kind::Fair as u32 || kind == Kind::Plugin as u32 {
            accounting::switch_on();
        }
    }

    /// Adds a thread that isn't bound to those that the policy orders.
    pub(crate) fn submit(&self, task: TaskRef, reason: Reason) {
        let thread = Thread::of(task);
        // SAFETY: non-null carriers live for ever, and this is ours.
        let carrier = unsafe { Carrier::current_or_null().as_ref() };
        let carrier = carrier.filter(|own| own.bound.load(Ordering::Relaxed).is_null());
        let is_new = reason == Reason::Woken && thread.switches.load(Ordering::Relaxed) == 0;
        let stops = matches!(reason, Reason::Yielded | Reason::Preempted);
        if accounting::is_on() {
            if let Some(carrier) = carrier.filter(|_| stops) {
                accounting::charge_running(carrier);
            }
            task.get().policy.terms.set_ran_ns(thread.cpu.charged_ns());
        }
        let Some(carrier) = carrier else {
            self.enqueue(task, reason, None);
            self.wake_one_or_sysmon();
            return;
        };
        if !stops {
            latency::woken(carrier, task);
        }
        let running = carrier.thread_or_none().filter(|_| !stops);
        let reason = if is_new { Reason::New } else { reason };
        if self.enqueue(task, reason, running.map(Thread::task_ref)) {
            carrier.preempt_here();
        }
        if self.wanted() > 1 && self.injector.len() > 1 {
            self.backlog(carrier);
        }
    }

    fn enqueue(&self, task: TaskRef, reason: Reason, running: Option<TaskRef>) -> bool {
        let urgent = self
            .injector
            .enqueue(task, reason, clock::now_ns(), running);
        self.report_fault();
        urgent
    }

    /// The thread that the policy runs next.
    pub(crate) fn pick_by_policy<'a>(&self) -> Option<&'a Thread> {
        if self.injector.is_empty() {
            return None;
        }
        let task = self.injector.pick(clock::now_ns());
        self.report_fault();
        task.map(Thread::of)
    }

    /// How long the thread on `carrier` may run while others wait. In sysmon.
    pub(crate) fn quantum_on(&self, carrier: &Carrier) -> u64 {
        let quantum_ns = self.quantum_ns();
        match carrier.thread_or_none() {
            Some(running) if self.has_policy() => {
                let running = running.task_ref();
                let asked_ns = self.injector.quantum_ns(running, quantum_ns);
                self.report_fault();
                asked_ns
            }
            _ => quantum_ns,
        }
    }

    /// Says once what a plug-in did wrong.
    fn report_fault(&self) {
        let text: &[u8] = match self.injector.take_fault() {
            None => return,
            Some(Fault::Garbage) => {
                b"raddle: the policy picked what is no runnable thread; fifo from now on\n"
            }
            Some(Fault::Nothing) => {
                b"raddle: the policy picked nothing while threads waited; fifo from now on\n"
            }
            Some(Fault::Slow) => {
                b"raddle: the policy takes an eighth of the time and more; fifo from now on\n"
            }
        };
        raddle_sys::write_stderr(text);
    }
}

/// The task at this address, if it is a thread's.
fn find(address: usize) -> Option<TaskRef> {
    ENGINE.threads.at(address).map(Thread::task_ref)
}

/// No signal is delivered, and nobody preempted, in a plug-in's code, which isn't in our text.
fn set_in_clock(value: u32) {
    // SAFETY: non-null carriers live for ever, and this is ours.
    if let Some(carrier) = unsafe { Carrier::current_or_null().as_ref() } {
        carrier.in_clock.set(value);
    }
}
