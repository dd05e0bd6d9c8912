//! An engine with one queue: each runnable thread goes through that queue, in the order of the
//! policy, and the carriers' own queues stay empty.
//!
//! So all that is known of posted threads holds: a carrier looks for them last before it sleeps,
//! sysmon wakes a carrier for those that wait, and preempts for them. A carrier's
//! [`Source`](crate::state::carrier) keeps the paths of fifo as they are: it is looked at where
//! otherwise its being bound would be.
//!
//! A wake-up by a running carrier wakes no other one at once, as long as it is the only thread that
//! waits ([`raddle_sched::policy`]). If the policy says that the woken thread should run instead of
//! its waker, the waker gives way at the end of its call.

use crate::scheduling::plugins;
use crate::scheduling::switch::look_around_at;
use crate::state::carrier::{Carrier, Source};
use crate::state::engine::Engine;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::{accounting, clock, delays};
use core::sync::atomic::Ordering;
use raddle_sched::TaskRef;
use raddle_sched::policies::{Fault, Host, Kind, Reason, Table};

/// With a policy a carrier looks at timers and descriptors this often.
const LOOK_NS: u64 = 10_000;

impl Engine {
    /// Changes the engine's policy to a built-in one, at any time. A policy that is left doesn't
    /// come back.
    ///
    /// The carriers follow one by one ([`Carrier::follow_policy`]): at their next look at the
    /// injector before their own queue, when they look for work, and when sysmon preempts them. One
    /// that hasn't yet keeps its own queue and takes from the injector after that, so no thread is
    /// forgotten meanwhile.
    ///
    /// False, and nothing has changed, if a plug-in is in a call for long.
    pub fn choose_policy(&self, kind: Kind) -> bool {
        const PATIENCE: u32 = 100_000;
        let now_ns = if PROCESS.is_started() {
            clock::now_ns()
        } else {
            0
        };
        if PROCESS.is_started() && kind == Kind::Fair {
            accounting::switch_on();
        }
        let choose = |_| {
            raddle_arch::pause();
            self.queue.choose(kind, now_ns)
        };
        let is_done = (0..PATIENCE).any(choose);
        if is_done {
            self.kind.store(kind as u32, Ordering::Relaxed);
        }
        is_done
    }

    /// Chooses a plug-in, which is usable, for the default engine. After
    /// [`Process::init`](crate::state::process::Process::init), before
    /// [`Process::start`](crate::state::process::Process::start).
    pub fn choose_plugin(&self, table: &'static Table) {
        let host = Host {
            now_ns: clock::now_ns,
            find,
            call: plugins::call,
        };
        plugins::expect_calls();
        self.queue.choose_foreign(table, host);
        self.kind.store(Kind::Plugin as u32, Ordering::Relaxed);
        Carrier::current().set_source(Source::Engine);
    }

    /// The policy, a [`Kind`].
    #[inline(always)]
    pub fn kind(&self) -> u32 {
        self.kind.load(Ordering::Relaxed)
    }

    /// Returns true under another policy than fifo.
    #[inline(always)]
    pub fn has_policy(&self) -> bool {
        self.kind() != Kind::Fifo as u32
    }

    /// Returns true if the policy gives a meaning to real-time classes and deadlines.
    pub fn has_classes(&self) -> bool {
        let kind = self.kind();
        [Kind::Priority, Kind::Deadline]
            .map(|kind| kind as u32)
            .contains(&kind)
    }

    /// Policies that go by measured CPU time have it measured from the start.
    pub(crate) fn start_policy(&self) {
        let kind = self.kind();
        if kind == Kind::Fair as u32 || kind == Kind::Plugin as u32 {
            accounting::switch_on();
        }
    }

    /// The time, for a policy that goes by it.
    fn ordered_at_ns(&self) -> u64 {
        if self.has_policy() {
            clock::now_ns()
        } else {
            0
        }
    }

    /// Adds a thread to the queue. Returns true if the thread that is picked next should run
    /// instead of `running` at once.
    pub(crate) fn enqueue(&self, task: TaskRef, reason: Reason, running: Option<TaskRef>) -> bool {
        let urgent = self
            .queue
            .enqueue(task, reason, self.ordered_at_ns(), running);
        report(self.queue.take_fault());
        urgent
    }

    /// The thread that the policy runs next.
    pub(crate) fn pick_by_policy<'a>(&self, carrier: &Carrier) -> Option<&'a Thread> {
        if !self.staged.is_empty() || !self.ahead.is_empty() {
            self.queue_staged();
        }
        // The picked thread may run for long: wakes the threads that are ready before.
        let now_ns = self.ordered_at_ns();
        if now_ns != 0 && self.looks_before_pick(carrier, now_ns) {
            look_around_at(carrier, now_ns);
        }
        if !self.has_work() {
            return None;
        }
        let task = self.queue.pick(now_ns);
        report(self.queue.take_fault());
        task.map(Thread::of)
    }

    /// Returns true if `carrier` looks at timers and descriptors before it picks: after a while,
    /// and if only threads wait that compute, unless it has looked since the last switch. Threads
    /// with turns that are shorter than that while would else wait for a quantum each time they
    /// have waited for a descriptor.
    fn looks_before_pick(&self, carrier: &Carrier, now_ns: u64) -> bool {
        let has_looked = carrier.looked.get() == carrier.switches.load(Ordering::Relaxed);
        carrier.timing.looks(now_ns, LOOK_NS) || self.queue.all_compute() && !has_looked
    }

    /// Gives the policy what was pushed past it: by kernel threads that are no carriers, or before
    /// there was one.
    #[cold]
    fn queue_staged(&self) {
        while let Some(task) = self.staged.pop().or_else(|| self.ahead.pop()) {
            self.enqueue(task, Reason::Woken, None);
        }
    }
}

/// How long the thread on `carrier` may run while others wait. In sysmon, and on the carrier.
pub(crate) fn quantum_on(carrier: &Carrier) -> u64 {
    let quantum_ns = PROCESS.quantum_ns();
    let Some(running) = carrier.thread_or_none() else {
        return quantum_ns;
    };
    let engine = carrier.engine();
    if engine.is_held() || carrier.is_strange_to(running) {
        return 0;
    }
    if !engine.has_one_queue() {
        return quantum_ns;
    }
    let asked_ns = engine.queue.quantum_ns(running.task_ref(), quantum_ns);
    report(engine.queue.take_fault());
    asked_ns
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

/// The running thread of `carrier`, which isn't bound, ends.
#[cold]
pub(crate) fn ends(carrier: &Carrier, thread: &Thread) {
    let queue = &carrier.engine().queue;
    if accounting::is_on() && queue.kind() == Kind::Fair {
        accounting::charge_running(carrier);
        let task = thread.task_ref();
        task.get().policy.terms.set_ran_ns(thread.cpu.charged_ns());
        queue.ended(task);
    }
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
    PROCESS.threads.at(address).map(Thread::task_ref)
}
