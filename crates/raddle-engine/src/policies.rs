//! The engine under another policy than fifo: every runnable thread goes through the injector,
//! which is in the policy's order, and the carriers' own queues stay empty.
//!
//! So all that is known of the injector holds: a carrier looks at its length last before it sleeps,
//! sysmon wakes a carrier for what waits in it, and preempts for it. A carrier's
//! `Carrier::is_queueless` keeps the paths of fifo as they are: it is looked at where otherwise its
//! being bound would be.
//!
//! A wake-up by a running carrier wakes no other one at once, as long as it is the only thread that
//! waits ([`raddle_sched::policy`]). If the policy says that the woken thread should run instead of
//! the one that woke it, that one gives way at the end of its call.

use crate::carrier::Carrier;
use crate::engine::{ENGINE, Engine};
use crate::switch::look_around_at;
use crate::thread::Thread;
use crate::{accounting, clock, delays, plugins};
use core::sync::atomic::Ordering;
use raddle_sched::TaskRef;
use raddle_sched::policies::{Fault, Host, Kind, Reason, Table};

/// With a policy a carrier looks at timers and descriptors this often.
const LOOK_NS: u64 = 10_000;

impl Engine {
    /// Changes the policy of the first engine to a built-in one, at any time. A policy that is
    /// left doesn't come back.
    ///
    /// The carriers follow one by one ([`Carrier::follow_policy`]): at their next look at the
    /// injector before their own queue, when they look for work, and when sysmon preempts them. One
    /// that hasn't yet keeps its own queue and takes from the injector after that, so no thread is
    /// forgotten meanwhile.
    ///
    /// False, and nothing has changed, if a plug-in is in a call for long.
    pub fn choose_policy(&self, kind: Kind) -> bool {
        const PATIENCE: u32 = 100_000;
        let now_ns = if self.is_started() {
            clock::now_ns()
        } else {
            0
        };
        if self.is_started() && kind == Kind::Fair {
            accounting::switch_on();
        }
        let choose = |_| {
            raddle_arch::pause();
            self.injector.choose(kind, now_ns)
        };
        let is_done = (0..PATIENCE).any(choose);
        if is_done {
            self.kind.store(kind as u32, Ordering::Relaxed);
        }
        is_done
    }

    /// Chooses a plug-in, which is usable. After [`Engine::init`], before [`Engine::start`].
    pub fn choose_plugin(&self, table: &'static Table) {
        let host = Host {
            now_ns: clock::now_ns,
            find,
            call: plugins::call,
        };
        plugins::expect_calls();
        self.injector.choose_foreign(table, host);
        self.kind.store(Kind::Plugin as u32, Ordering::Relaxed);
        Carrier::current().set_queueless(true);
    }

    /// Returns true under another policy than fifo.
    #[inline(always)]
    pub fn has_policy(&self) -> bool {
        self.kind.load(Ordering::Relaxed) != Kind::Fifo as u32
    }

    /// Returns true if the policy gives a meaning to real-time classes and deadlines.
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
        // SAFETY: non-null carriers live for ever, and this one runs here.
        let carrier = unsafe { Carrier::current_or_null().as_ref() };
        if carrier.is_none() && self.injector.kind() == Kind::Plugin {
            self.staged.push(task); // a carrier calls the plug-in
            return self.wake_one_or_sysmon();
        }
        let carrier = carrier.filter(|own| own.bound.load(Ordering::Relaxed).is_null());
        let stops = matches!(reason, Reason::Yielded | Reason::Preempted);
        let reason = prepare(carrier, task, reason);
        // A side engine's carrier doesn't look at this queue.
        let Some(carrier) = carrier.filter(|own| own.side() == 0) else {
            self.enqueue(task, reason, None);
            self.wake_one_or_sysmon();
            return;
        };
        let running = carrier.thread_or_none().filter(|_| !stops);
        if let Some(running) = running
            && self.injector.kind() == Kind::Fair
        {
            accounting::charge_running(carrier);
            let ran_ns = running.cpu.charged_ns();
            running.task.policy.terms.set_ran_ns(ran_ns);
        }
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
        report(self.injector.take_fault());
        urgent
    }

    /// The thread that the policy runs next.
    pub(crate) fn pick_by_policy<'a>(&self, carrier: &Carrier) -> Option<&'a Thread> {
        if !self.staged.is_empty() || !self.ahead.is_empty() {
            self.queue_staged();
        }
        // The picked thread may run for long: wakes the threads that are ready before.
        let now_ns = clock::now_ns();
        if carrier.timing.looks(now_ns, LOOK_NS) {
            look_around_at(carrier, now_ns);
        }
        if self.injector.is_empty() {
            return None;
        }
        let task = self.injector.pick(now_ns);
        report(self.injector.take_fault());
        task.map(Thread::of)
    }

    /// Gives the policy what was pushed past it: by kernel threads that are no carriers, or before
    /// there was one.
    #[cold]
    fn queue_staged(&self) {
        while let Some(task) = self.staged.pop().or_else(|| self.ahead.pop()) {
            self.enqueue(task, Reason::Woken, None);
        }
    }

    /// How long the thread on `carrier` may run while others wait. In sysmon, and on the carrier.
    pub(crate) fn quantum_on(&self, carrier: &Carrier) -> u64 {
        let quantum_ns = self.quantum_ns();
        let Some(running) = carrier.thread_or_none() else {
            return quantum_ns;
        };
        if self.sides.is_misplaced(carrier, running) {
            return 0;
        }
        let queue = match self.sides.of(carrier) {
            Some(side) if side.is_held() => return 0,
            Some(side) => side.queue(),
            None if self.has_policy() => &self.injector,
            None => return quantum_ns,
        };
        let asked_ns = queue.quantum_ns(running.task_ref(), quantum_ns);
        report(queue.take_fault());
        asked_ns
    }
}

/// Before a thread is queued: notes what it has run, and that it was woken. Returns why it is
/// queued; `carrier` is the one that does it.
pub(crate) fn prepare(carrier: Option<&Carrier>, task: TaskRef, reason: Reason) -> Reason {
    let thread = Thread::of(task);
    let stops = matches!(reason, Reason::Yielded | Reason::Preempted);
    if accounting::is_on() {
        if let Some(carrier) = carrier.filter(|_| stops) {
            accounting::charge_running(carrier);
        }
        task.get().policy.terms.set_ran_ns(thread.cpu.charged_ns());
    }
    if let Some(carrier) = carrier.filter(|_| !stops) {
        delays::woken(carrier, task);
    }
    let is_new = reason == Reason::Woken && thread.switches.load(Ordering::Relaxed) == 0;
    if is_new { Reason::New } else { reason }
}

/// Says what a plug-in did wrong, if it did.
pub(crate) fn report(fault: Option<Fault>) {
    let text: &[u8] = match fault {
        None => return,
        Some(Fault::Garbage) => {
            b"raddle: the policy picked what is no runnable thread; fifo from now on\n"
        }
        Some(Fault::Nothing) => {
            b"raddle: the policy picked nothing while threads waited; fifo from now on\n"
        }
        Some(Fault::Stuck) => b"raddle: the policy did not return from a call; fifo from now on\n",
        Some(Fault::Slow) => {
            b"raddle: the policy takes an eighth of the time and more; fifo from now on\n"
        }
    };
    raddle_sys::write_stderr(text);
}

/// The task at this address, if it is a thread's.
fn find(address: usize) -> Option<TaskRef> {
    ENGINE.threads.at(address).map(Thread::task_ref)
}
