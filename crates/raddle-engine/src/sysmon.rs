//! Sysmon: a kernel thread that watches the carriers and answers inspection requests.
//!
//! Sysmon looks at the carriers on an interval from `policy`: 250 us after something was found,
//! doubling to a millisecond, and not at all once everything has been idle for a while (then the
//! first carrier that gets work wakes it), or while only one thread lives ([`beside_one`]); both
//! sleeps have their protocol in [`raddle_sched::wake::SysmonSleep`]. It acts on five things: a
//! backlog that lasts, an idle carrier while none polls, posted work while a carrier sleeps, a
//! carrier that waits in the kernel, and a thread that computes while others wait
//! ([`policy::judge`]).
//!
//! While all carriers are held by threads that don't switch, no carrier looks at timers and
//! descriptors, or takes what helpers and the ring post. Then sysmon is *on guard*: it sleeps on
//! the earliest timer and on the pump's descriptor, takes what is due itself, posts it and sees to
//! a carrier for it; and a poster that finds no carrier to wake wakes sysmon. That wake-up isn't
//! lost: sysmon says that it is on guard and then looks at the injector; a poster does it the other
//! way round, all SeqCst.

mod beside_one;
pub(crate) mod blocking;
mod demands;
mod quotas;
mod reminders;
mod round;
pub(crate) mod stand_in;
mod ticks;

use crate::inspect;
use crate::kernel_events::block_events::{self, Watcher};
use crate::kernel_events::quantum_timer::{self, QuantumTimers};
use crate::kernel_threads::kthread;
use crate::os::cpus;
use crate::scheduling::contention;
use crate::scheduling::page_rings;
use crate::scheduling::plugins;
use crate::scheduling::ums;
use crate::state::carrier::{Carrier, CarrierState, PREEMPT};
pub use crate::state::parts::sysmon::Sysmon;
use crate::state::process::PROCESS;
use crate::state::wakers::Cause;
use crate::state::{accounting, clock, events};
use crate::sysmon::quotas::Quotas;
use crate::sysmon::reminders::Reminders;
use crate::sysmon::round::Round;
use crate::sysmon::ticks::Ticks;
use core::sync::atomic::Ordering;
use demands::{
    Pokes, demand_on, goes_on_since_ns, quantum_beside_others, reduce, see_to_signals, take_due,
};
use raddle_sched::TaskList;
use raddle_sched::policy::{
    self, Act, BLIND_NS, BLOCKED_NS, BUSY_NS, Found, Look, SETTLED_NS, STARVED_NS,
    SYSMON_LINGER_NS, SYSMON_MIN_NS, Seen,
};
use raddle_sched::share::LONG_TURN_NS;
use raddle_sys::abi::{PollFd, Timespec};
use raddle_sys::{err, errno, mem, nr, sys};

/// Sysmon's memory is on its stack, perhaps in three copies while it is made.
pub(crate) const STACK: usize =
    (3 * size_of::<Watch>() + 64 * 1024).next_multiple_of(mem::PAGE_SIZE);
/// How often the CPUs that may be used are counted, while something runs.
const FOLLOW_NS: u64 = 2_000_000_000;
/// Carriers that it looks at: the first ones of the process's list.
pub(crate) const WATCHED: usize = 512;

impl Sysmon {
    /// Starts the thread.
    pub(crate) fn start(&self) -> Result<(), isize> {
        let flags = nr::EFD_CLOEXEC | nr::EFD_NONBLOCK;
        // SAFETY: makes a descriptor.
        let wake = unsafe { sys!(nr::__NR_eventfd2, 0usize, flags) };
        let wake = crate::kernel_threads::descriptor::hide(wake)?;
        self.wake.set(wake as i32);
        // Here and not on the thread: the program must never see a descriptor of the runtime.
        self.listener.set(inspect::listen());
        self.asleep.ends();
        let shares_table = !stand_in::can_empty_a_table();
        self.shares_table
            .store(u32::from(shares_table), Ordering::Relaxed);
        if shares_table {
            return kthread::spawn(sysmon_main, 0, STACK).map(|_| ());
        }
        let needs_stand_in = self.stand_in.prepare();
        // Copied before the program goes on, so what is in it was looked at just now.
        kthread::spawn_with_own_table(sysmon_main, 1, STACK)?;
        if needs_stand_in {
            self.stand_in.start()
        } else {
            self.stand_in.await_sysmon()
        }
        Ok(())
    }

    /// Returns true if it sees to timers and descriptors, because threads compute on all carriers.
    pub(crate) fn is_on_guard(&self) -> bool {
        self.on_guard.is_made()
    }

    /// Something was posted, and all carriers are awake: if none is going to look, sysmon must.
    pub(crate) fn urge(&self) {
        if self.on_guard.is_made() && self.on_guard.take() {
            self.write_wake();
        }
    }

    pub(crate) fn write_wake(&self) {
        let one = 1u64;
        let wake = self.wake.get();
        // SAFETY: eight bytes of a live value into the runtime's eventfd.
        unsafe { sys!(nr::__NR_write, wake, &raw const one, 8usize) };
    }

    fn shares_table(&self) -> bool {
        self.shares_table.load(Ordering::Relaxed) != 0
    }

    /// Sysmon's own descriptors in the program's table; -1 for none.
    pub fn own_descriptors(&self) -> [i32; 3] {
        let client = if self.shares_table() {
            self.client.get()
        } else {
            -1
        };
        [self.wake.get(), self.listener.get(), client]
    }

    /// Returns true for its own descriptors.
    pub fn owns(&self, fd: usize) -> bool {
        fd as i32 >= 0 && self.own_descriptors().contains(&(fd as i32))
    }

    /// After a start that has failed.
    pub(crate) fn close(&self) {
        self.wake.close();
        self.listener.close();
        self.reset();
    }

    /// In the child of a fork: what the parent shares is closed, or the parent's alone.
    pub(crate) fn reset(&self) {
        let Self {
            asleep,
            on_guard,
            wake,
            listener,
            client,
            shares_table: _, // written at the start
            stand_in,
        } = self;
        for own in [wake, listener, client] {
            own.set(-1);
        }
        stand_in.reset();
        asleep.ends();
        on_guard.withdraw();
    }
}

struct Watch {
    block_events: Watcher,
    client: inspect::Client,
    quantum_timers: QuantumTimers,
    /// A carrier has waited in the kernel, in others' way: it may happen again.
    is_prompt: bool,
    seen: [Seen; WATCHED],
    found: [Found; WATCHED],
    pokes: [Pokes; WATCHED],
    /// The carrier on which a thread was interrupted last, and when.
    interrupted: (usize, u64),
    quotas: Quotas,
    plugins: plugins::Watch,
    contention: contention::Watch,
    reminders: Reminders,
    ticks: Ticks,
    interval_ns: u64,
    busy_ns: u64,
    /// When the CPUs that may be used were counted last.
    followed_ns: u64,
    /// The process may use one CPU only.
    has_one_cpu: bool,
    /// Looks into the pump that were made before the last look at the carriers.
    polls: u64,
}

/// How to sleep until the next look.
struct Plan {
    /// For how long at most; `None` for until woken.
    timeout_ns: Option<u64>,
    /// See the module.
    on_guard: bool,
}

impl Plan {
    const UNTIL_WOKEN: Self = Self {
        timeout_ns: None,
        on_guard: false,
    };
}

const POLLIN: i16 = raddle_sys::nr::POLLIN as i16;
/// Descriptors that it waits for, besides block events.
const OTHERS: usize = 3;
const IGNORED: PollFd = PollFd {
    fd: -1,
    events: POLLIN,
    revents: 0,
};

extern "C" fn sysmon_main(has_own_table: usize, stack: *mut u8) -> ! {
    // SAFETY: this thread is no carrier, and never forks; of all signals it takes the one for what
    // every kernel thread must do.
    unsafe {
        mem::leave_out_of_forks(stack, STACK);
        raddle_arch::set_gs_base(0);
        kthread::accept_only(&[PREEMPT]);
    }
    if has_own_table != 0 {
        stand_in::empty_table();
        PROCESS.sysmon.stand_in.relieve();
    }
    watch_while(has_own_table != 0, || true);
    raddle_sys::fatal(b"raddle: sysmon has ended\n")
}

/// Looks at the carriers, and sleeps until the next look, as long as it `is_wanted`. `own` is true
/// if the calling thread has a table of descriptors to itself.
pub(crate) fn watch_while(own: bool, is_wanted: impl Fn() -> bool) {
    let mut watch = Watch {
        block_events: Watcher::new(own),
        client: inspect::Client::none(own || PROCESS.sysmon.shares_table()),
        quantum_timers: QuantumTimers::new(),
        is_prompt: false,
        seen: [Seen::default(); WATCHED],
        found: [Found::default(); WATCHED],
        pokes: [Pokes::default(); WATCHED],
        interrupted: (0, 0),
        quotas: Quotas::new(),
        plugins: plugins::Watch::new(),
        contention: contention::Watch::new(),
        reminders: Reminders::new(),
        ticks: Ticks::new(),
        interval_ns: SYSMON_MIN_NS,
        busy_ns: 0,
        followed_ns: clock::now_ns(),
        has_one_cpu: cpus::in_affinity_mask() == 1,
        polls: 0,
    };
    while is_wanted() {
        if PROCESS.roster.is_closed() {
            watch.quantum_timers.stop_all();
            wait(&mut [], None);
        }
        watch.go_round();
    }
    watch.quantum_timers.stop_all();
    watch.client.finish();
}

/// Waits for one of `fds`, of which the first can be read without waiting, or `timeout_ns`.
fn wait(fds: &mut [PollFd], timeout_ns: Option<u64>) {
    /// How long it sleeps where it can't be woken.
    const DEAF_NS: u64 = 1_000_000;
    let timeout = Timespec::from_ns(timeout_ns.unwrap_or(0));
    let timeout_ptr = if timeout_ns.is_some() {
        (&raw const timeout).expose_provenance()
    } else {
        0
    };
    // SAFETY: live structures; a negative descriptor is ignored.
    let result = unsafe {
        sys!(
            nr::__NR_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout_ptr,
            0usize,
            8usize
        )
    };
    // There are more `fds` than the program's limit on descriptors.
    if result == err(errno::EINVAL) {
        kthread::nap(timeout_ns.unwrap_or(DEAF_NS).min(DEAF_NS));
        if let Some(wake) = fds.first_mut() {
            wake.revents = POLLIN;
        }
    }
}

impl Watch {
    /// Looks, sleeps, and sees to what woke it.
    fn go_round(&mut self) {
        let listener = PROCESS.sysmon.listener.get();
        let wake = PROCESS.sysmon.wake.get();
        let plan = self.look();
        let events = if plan.on_guard && PROCESS.pump.has_waiters() {
            PROCESS.pump.own_descriptors()[0]
        } else {
            -1 // ignored
        };
        let mut fds = [IGNORED; OTHERS + block_events::MOST];
        let (asked, asked_events) = self.client.polled(listener);
        let all = [wake, asked, events].into_iter();
        let mut count = 0;
        for (slot, fd) in fds.iter_mut().zip(all.chain(self.block_events.events())) {
            slot.fd = fd;
            count += 1;
        }
        fds[1].events = asked_events;
        let fds = &mut fds[..count];
        let sleep_ns = plan.timeout_ns.unwrap_or(u64::MAX);
        self.block_events
            .sleeps_until(clock::now_ns().saturating_add(sleep_ns));
        let timeout_ns = match self.client.deadline_ns() {
            Some(at_ns) => Some(sleep_ns.min(at_ns.saturating_sub(clock::now_ns()))),
            None => plan.timeout_ns,
        };
        wait(fds, timeout_ns);
        for (at, event) in fds[OTHERS..].iter().enumerate() {
            if event.revents & !POLLIN != 0 {
                self.block_events.failed(at);
            }
        }
        if plan.timeout_ns.is_none() {
            PROCESS.sysmon.asleep.ends();
        }
        PROCESS.sysmon.on_guard.withdraw();
        if fds[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes into a live value.
            unsafe { sys!(nr::__NR_read, wake, &raw mut count, 8usize) };
            // If what woke it needs more looks soon, they find that out.
            self.interval_ns = BUSY_NS / 2;
            self.busy_ns = clock::now_ns();
        }
        let is_ready = fds[1].revents != 0;
        self.client.serve(listener, is_ready);
    }

    fn look(&mut self) -> Plan {
        let now_ns = clock::now_ns();
        if now_ns.saturating_sub(self.followed_ns) > FOLLOW_NS {
            self.followed_ns = now_ns;
            self.has_one_cpu = cpus::in_affinity_mask() == 1;
            PROCESS.follow_cpus();
        }
        events::look(now_ns);
        if !events::is_on() {
            inspect::tracer::recorder_leaves();
        }
        accounting::look(now_ns);
        let round = self.act(now_ns);
        if !round.acted && self.sleeps_beside_one() {
            return Plan::UNTIL_WOKEN;
        }
        if round.running {
            self.busy_ns = now_ns;
        } else if now_ns.saturating_sub(self.busy_ns) > SYSMON_LINGER_NS {
            let is_idle = || {
                PROCESS
                    .carriers()
                    .all(|carrier| carrier.state() != CarrierState::Running)
            };
            if PROCESS.sysmon.asleep.begins_while_idle(is_idle) {
                return Plan::UNTIL_WOKEN;
            }
        }
        self.interval_ns = policy::sysmon_interval_ns(self.interval_ns, round.acted);
        let longest_ns = match PROCESS.block_events.are_permitted() {
            // On guard no look is needed before something happens.
            _ if round.watch => u64::MAX,
            // The next thread that runs may be stuck at once, though none runs now.
            true if !self.block_events.is_undecided() => BUSY_NS,
            _ => BLIND_NS,
        };
        let mut timeout_ns = self.interval_ns.min(longest_ns);
        if let Some(within_ns) = round.within_ns {
            timeout_ns = timeout_ns.min(within_ns);
        }
        if round.watch {
            PROCESS.sysmon.on_guard.make();
            if !PROCESS.first().queue.is_empty() {
                timeout_ns = timeout_ns.min(BLOCKED_NS); // it was already when this look began
            }
        }
        Plan {
            timeout_ns: Some(timeout_ns),
            on_guard: round.watch,
        }
    }

    /// Wakes a carrier where work waits, and preempts or replaces what is in its way.
    fn act(&mut self, now_ns: u64) -> Round {
        self.quantum_timers.tend();
        let mut round = self.see(now_ns);
        PROCESS.ring.announce();
        if self.plugins.look(now_ns) {
            round.running = true;
            round.look_within(BUSY_NS);
        }
        let polled = self.carriers_poll();
        let unattended = PROCESS.poller.load(Ordering::SeqCst) == 0 && !polled;
        if unattended && round.running && !round.progress {
            take_due(now_ns);
            self.polls = PROCESS.pump.polls();
        }
        if let Some(within_ns) = self.quotas.act(now_ns) {
            round.running = true;
            round.look_within(within_ns);
        }
        self.judge_all(&mut round, now_ns, unattended);
        if let Some(within_ns) = self.ticks.look(now_ns).filter(|_| round.running) {
            round.look_within(within_ns);
        }
        if round.stuck && !core::mem::replace(&mut self.is_prompt, true) {
            kthread::become_prompt();
            self.block_events.prove();
        }
        if round.running {
            self.block_events.follow(now_ns);
            self.contention.look(now_ns);
        }
        // A carrier that switches polls by itself, sooner than one that would have to wake up.
        let first = PROCESS.first();
        let idle = unattended && round.running && !round.progress && !first.idle.is_empty();
        if idle && round.has_to_poll(now_ns) && !first.has_work() {
            round.acted |= first.wake_one();
        }
        for engine in PROCESS.engines.each() {
            if round.running && engine.has_work() {
                round.acted |= engine.wake_one();
            }
            reduce(engine);
        }
        if round.watch {
            let left_ns = PROCESS.timers.earliest_ns().saturating_sub(now_ns);
            round.look_within(left_ns.max(1));
        }
        round
    }

    /// Returns true if carriers have looked into the pump since the last call. A thread that makes
    /// calls without a switch does so in between.
    fn carriers_poll(&mut self) -> bool {
        let polls = PROCESS.pump.polls();
        core::mem::replace(&mut self.polls, polls) != polls
    }

    /// Looks at every running carrier.
    fn see(&mut self, now_ns: u64) -> Round {
        let mut round = Round::default();
        let relieved = TaskList::new();
        // No look is needed to hear soon that a carrier waits in the kernel; or a look can't tell,
        // because on the only CPU no carrier runs while sysmon does.
        let has_one_cpu = self.has_one_cpu;
        let is_told = |carrier| has_one_cpu || block_events::is_armed(carrier);
        for (at, carrier) in watched() {
            let (seen, found) = (&mut self.seen[at], &mut self.found[at]);
            if carrier.state() != CarrierState::Running {
                continue;
            }
            round.running = true;
            let tid = carrier.kernel_tid.load(Ordering::Relaxed);
            let cpu_ns = kthread::cpu_ns(tid);
            self.quotas.note(at, carrier, cpu_ns);
            *found = seen.look(Look {
                now_ns,
                cpu_ns,
                switches: carrier.switches.load(Ordering::Relaxed),
                queued: !carrier.queue.is_empty(),
                ring_len: carrier.queue.ring_len(),
            });
            let goes_on_ns = goes_on_since_ns(carrier, found.switches);
            if self.block_events.look(at, carrier, now_ns, cpu_ns) {
                *found = found.waiting();
            } else if found.held_ns == 0 && (found.again_ns == BUSY_NS || goes_on_ns.is_some()) {
                match (kthread::cpu_ns(tid) != cpu_ns, goes_on_ns) {
                    (true, Some(since_ns)) => *found = seen.goes_on(since_ns, *found),
                    (true, None) => {}
                    (false, _) if found.again_ns == BUSY_NS && !is_told(carrier) => {
                        found.again_ns = seen.suspect();
                    }
                    (false, _) => {}
                }
            }
            round.progress |= found.switches_on() && carrier.engine().is_first();
            if !found.switches_on() {
                page_rings::relieve(carrier, &relieved);
            }
            if let Some(within_ns) = self.reminders.look(at, carrier, *found, now_ns) {
                round.look_within(within_ns);
            }
            if found.backlog_lasts && !page_rings::is_exempt_from_stealing(carrier)
                || page_rings::is_held_up(carrier)
            {
                round.acted |= carrier.engine().wake_one();
            }
        }
        PROCESS.inject_all(relieved, Cause::Kernel);
        round
    }

    /// Sees to it that no thread keeps others from running for longer than `policy` allows. Of the
    /// threads that could make room for a woken one, the one that has run for longest does.
    fn judge_all(&mut self, round: &mut Round, now_ns: u64, unattended: bool) {
        let mut longest: Option<(&Carrier, usize)> = None;
        for (at, carrier) in watched() {
            // A carrier that began to run since it was looked at will be looked at next time.
            if carrier.state() != CarrierState::Running || !self.seen[at].is_of(now_ns) {
                continue;
            }
            let found = self.found[at];
            match self.judge(round, now_ns, (at, carrier), unattended) {
                Act::Leave => {}
                Act::Preempt => {
                    carrier.preempt(found.switches);
                    self.seen[at].told();
                    self.quantum_timers
                        .preempted(at, carrier, found.switches, now_ns);
                }
                Act::Replace => {
                    let is_there = round.replace(&mut self.seen[at], carrier, found);
                    let is_of_use = is_there && !carrier.engine().is_stranded();
                    if !is_of_use && found.held_ns > STARVED_NS {
                        carrier.preempt(found.switches);
                        self.seen[at].told();
                        // Its threads take turns in the kernel.
                        round.look_within(STARVED_NS);
                    }
                }
                Act::Interrupt => {
                    let held_ns = |&(_, at): &(_, usize)| self.found[at].held_ns;
                    if longest
                        .as_ref()
                        .is_none_or(|it| held_ns(it) < found.held_ns)
                    {
                        longest = Some((carrier, at));
                    }
                }
            }
        }
        self.interrupt(round, longest, now_ns);
    }

    /// Says what is to be done about the thread on the carrier at this place. Sees to its signals,
    /// and makes the carrier timed if the turn is long.
    fn judge(
        &mut self,
        round: &mut Round,
        now_ns: u64,
        (at, carrier): (usize, &Carrier),
        unattended: bool,
    ) -> Act {
        let found = self.found[at];
        see_to_signals(carrier, found, &mut self.pokes[at], now_ns);
        let worker_quantum_ns = ums::quantum_on(carrier);
        let demand = demand_on(carrier, found, worker_quantum_ns, unattended);
        if found.computes && found.held_ns >= LONG_TURN_NS {
            carrier.begin_timing(now_ns - found.held_ns);
        }
        let quantum_ns = if demand.waits {
            quantum_beside_others(carrier, found, worker_quantum_ns)
        } else {
            PROCESS.quantum_ns()
        };
        let timed = self.quantum_timers.runs(at);
        let verdict = policy::judge(found, demand, policy::Terms { quantum_ns, timed });
        round.look_within(verdict.within_ns);
        if timed {
            round.look_within(quantum_timer::rest_ns(carrier, quantum_ns, self.is_prompt));
        }
        if verdict.watch && !round.progress && !round.watch {
            round.watch = found.computes || round.asks(&mut self.seen[at], carrier, found);
        }
        if found.waits && (verdict.watch || verdict.act == Act::Replace) {
            self.block_events.helped(at, carrier);
        }
        verdict.act
    }

    /// Interrupts the thread on the carrier at this place.
    fn interrupt(&mut self, round: &mut Round, whom: Option<(&Carrier, usize)>, now_ns: u64) {
        // If a carrier switches, it takes what was posted by itself.
        if let Some((carrier, at)) = whom.filter(|_| !round.progress) {
            carrier.preempt(self.found[at].switches);
            self.seen[at].told();
            round.acted = true;
            self.interrupted = (at, now_ns);
        }
        // Once the interrupted one goes on, others may want to interrupt it again.
        let (at, since_ns) = self.interrupted;
        if now_ns.saturating_sub(since_ns) < BUSY_NS && self.found[at].switches_on() {
            round.look_within(SETTLED_NS);
        }
    }
}

/// The carriers that are watched, with their places in the memory of that.
fn watched() -> impl Iterator<Item = (usize, &'static Carrier)> {
    PROCESS.carriers().enumerate().take(WATCHED)
}
