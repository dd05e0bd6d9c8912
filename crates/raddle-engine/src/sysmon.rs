//! Sysmon: a kernel thread that watches the carriers and answers inspection requests.
//!
//! It looks at the carriers on an interval from `policy`: 100 us after something was found,
//! doubling to 10 ms, and not at all once everything has been idle for a while (then whichever
//! carrier gets work first wakes it). It acts on four things: a backlog that lasts, an idle carrier
//! while nobody polls, injected work while a carrier sleeps, and a thread that has used up its
//! quantum while others wait: that one it preempts. While threads hold all carriers and nobody
//! waits for them, sysmon watches timers and descriptors, so that who becomes runnable is seen at
//! once.

use crate::carrier::{Carrier, CarrierState, PREEMPT};
use crate::chaos::{self, Point};
use crate::clock;
use crate::descriptor::OwnDescriptor;
use crate::engine::ENGINE;
use crate::helpers::POKE;
use crate::inspect;
use crate::kthread;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sched::policy::{
    BLOCKED_NS, CROWDED_NS, Found, Look, SYSMON_LINGER_NS, SYSMON_MIN_NS, Seen, sysmon_interval_ns,
};
use raddle_sys::abi::{PollFd, Timespec};
use raddle_sys::{is_err, nr, sys};

const STACK: usize = 128 * 1024;
/// How often the CPUs that may be used are counted, while something runs.
const FOLLOW_NS: u64 = 2_000_000_000;
/// Carriers that it keeps a memory of; more are looked at without one.
const WATCHED: usize = 256;

/// See the module.
pub struct Sysmon {
    /// 1 while it sleeps without a timeout.
    asleep: AtomicU32,
    wake: OwnDescriptor,
    /// The inspection socket.
    listener: OwnDescriptor,
}

impl Sysmon {
    pub(crate) const fn new() -> Self {
        Self {
            asleep: AtomicU32::new(0),
            wake: OwnDescriptor::none(),
            listener: OwnDescriptor::none(),
        }
    }

    /// Starts the thread.
    pub(crate) fn start(&self) -> Result<(), isize> {
        // SAFETY: makes a descriptor (EFD_CLOEXEC | EFD_NONBLOCK).
        let wake = unsafe { sys!(nr::__NR_eventfd2, 0usize, 0o2004000usize) };
        let wake = crate::pump::hide(wake)?;
        self.wake.set(wake as i32);
        // Here and not on the thread: the program must never see a descriptor number of ours.
        self.listener.set(inspect::listen());
        self.asleep.store(0, Ordering::Relaxed);
        kthread::spawn(sysmon_main, 0, STACK).map(|_| ())
    }

    /// A carrier left its sleep: if nobody watches, somebody must.
    pub(crate) fn carrier_awoke(&self) {
        if self.asleep.load(Ordering::Relaxed) != 0 && self.asleep.swap(0, Ordering::AcqRel) != 0 {
            let one = 1u64;
            let wake = self.wake.get();
            // SAFETY: eight bytes of a live value into our own eventfd.
            unsafe { sys!(nr::__NR_write, wake, &raw const one, 8usize) };
        }
    }

    /// Its own descriptors; -1 for none.
    pub fn own_descriptors(&self) -> [i32; 2] {
        [self.wake.get(), self.listener.get()]
    }

    /// True for its own descriptors.
    pub fn owns(&self, fd: usize) -> bool {
        fd as i32 >= 0 && self.own_descriptors().contains(&(fd as i32))
    }

    /// In the child of a fork: closes what the parent shares.
    pub(crate) fn reset(&self) {
        self.wake.close();
        self.listener.close();
        self.asleep.store(0, Ordering::Relaxed);
    }
}

struct Watch {
    seen: [Seen; WATCHED],
    interval_ns: u64,
    busy_ns: u64,
    /// When the CPUs that may be used were counted last.
    followed_ns: u64,
}

/// How to sleep until the next look.
struct Plan {
    /// Until when at most, as a duration; `None` for until woken.
    timeout_ns: Option<u64>,
    /// Wake up when a descriptor that green threads wait for becomes ready.
    watch_events: bool,
}

/// What all carriers together showed.
#[derive(Default)]
struct Sight {
    acted: bool,
    running: bool,
    /// A carrier has switched since the last look.
    progress: bool,
    /// The next look must not come later than this.
    within_ns: Option<u64>,
    watch_events: bool,
}

extern "C" fn sysmon_main(_: usize, _: *mut u8) -> ! {
    // SAFETY: this thread is no carrier; of all signals it takes the one for what every kernel
    // thread must do.
    unsafe {
        raddle_context::set_gs_base(0);
        kthread::accept_only(&[PREEMPT]);
    }
    let listener = ENGINE.sysmon.listener.get();
    let wake = ENGINE.sysmon.wake.get();
    own_table();
    let mut watch = Watch {
        seen: [Seen::default(); WATCHED],
        interval_ns: SYSMON_MIN_NS,
        busy_ns: 0,
        followed_ns: clock::now_ns(),
    };
    let mut ready = false;
    loop {
        let plan = watch.look(ready);
        let events = if plan.watch_events {
            ENGINE.pump.own_descriptors()[0]
        } else {
            -1 // ignored
        };
        let mut fds = [wake, listener, events].map(|fd| PollFd {
            fd,
            events: 1,
            revents: 0,
        });
        wait(&mut fds, plan.timeout_ns);
        if fds[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes into a live value.
            unsafe { sys!(nr::__NR_read, wake, &raw mut count, 8usize) };
            watch.interval_ns = SYSMON_MIN_NS;
        }
        if fds[1].revents != 0 {
            inspect::serve(listener);
        }
        ready = fds[2].revents != 0;
    }
}

/// Gives this kernel thread a table of descriptors of its own, which holds the engine's alone: what
/// it opens, the program never sees, and what the program closes is closed.
fn own_table() {
    const UNSHARE: usize = 2;
    let mut from = 0usize;
    let mut flags = UNSHARE;
    let ends = ENGINE.own_descriptors().map(|fd| fd as usize);
    for own in ends.chain([u32::MAX as usize + 1]) {
        if own > from {
            // SAFETY: no memory is involved; with an own table nobody else's descriptors change.
            let done = unsafe { sys!(nr::__NR_close_range, from, own - 1, flags) };
            if is_err(done) {
                return; // before Linux 5.9: the table stays shared
            }
            flags = 0;
        }
        from = own + 1;
    }
}

fn wait(fds: &mut [PollFd; 3], timeout_ns: Option<u64>) {
    let timeout = Timespec::from_ns(timeout_ns.unwrap_or(0));
    let timeout_ptr = if timeout_ns.is_some() {
        (&raw const timeout).expose_provenance()
    } else {
        0
    };
    // SAFETY: live structures; a negative descriptor is ignored.
    unsafe {
        sys!(
            nr::__NR_ppoll,
            fds.as_mut_ptr(),
            fds.len(),
            timeout_ptr,
            0usize,
            8usize
        )
    };
}

impl Watch {
    /// One look; `ready` says that descriptors were ready just now.
    fn look(&mut self, ready: bool) -> Plan {
        let now_ns = clock::now_ns();
        if now_ns.saturating_sub(self.followed_ns) > FOLLOW_NS {
            self.followed_ns = now_ns;
            ENGINE.follow_cpus();
        }
        let sight = self.act(now_ns, ready);
        if sight.running {
            self.busy_ns = now_ns;
        } else if now_ns.saturating_sub(self.busy_ns) > SYSMON_LINGER_NS {
            ENGINE.sysmon.asleep.store(1, Ordering::SeqCst);
            let still = ENGINE
                .carriers()
                .all(|c| c.state() != CarrierState::Running);
            if still {
                return Plan {
                    timeout_ns: None,
                    watch_events: false,
                };
            }
            ENGINE.sysmon.asleep.store(0, Ordering::SeqCst);
        }
        self.interval_ns = sysmon_interval_ns(self.interval_ns, sight.acted);
        let within_ns = sight.within_ns.unwrap_or(u64::MAX);
        Plan {
            timeout_ns: Some(self.interval_ns.min(within_ns)),
            watch_events: sight.watch_events,
        }
    }

    /// Wakes a carrier where work waits, and preempts who is in its way.
    fn act(&mut self, now_ns: u64, ready: bool) -> Sight {
        let mut sight = Sight::default();
        let unattended = ENGINE.poller.load(Ordering::SeqCst) == 0;
        let due = unattended && (ready || ENGINE.timers.earliest_ns() <= now_ns);
        for (carrier, seen) in ENGINE.carriers().zip(&mut self.seen) {
            if carrier.state() != CarrierState::Running {
                continue;
            }
            sight.running = true;
            let look = Look {
                now_ns,
                cpu_ns: kthread::cpu_ns(carrier.kernel_tid.load(Ordering::Relaxed)),
                switches: carrier.switches.load(Ordering::Relaxed),
                queued: !carrier.queue.is_empty(),
                ring_len: carrier.queue.ring_len(),
            };
            let found = seen.look(look);
            sight.progress |= found.held_ns == 0;
            if found.backlog_lasts {
                sight.acted |= ENGINE.wake_one();
            }
            let wanted = look.queued || due || ENGINE.has_posted();
            if sight.consider(carrier, found, wanted, !unattended) {
                seen.told();
            }
        }
        // A carrier that switches polls by itself, sooner than one that would have to wake up.
        let neglected = unattended && sight.running && !sight.progress && !ENGINE.idle.is_empty();
        if neglected || sight.running && ENGINE.has_posted() {
            sight.acted |= ENGINE.wake_one();
        }
        if ENGINE.has_surplus() {
            // Fewer carriers are wanted than before. Who is idle becomes spare by itself.
            let busy = ENGINE
                .carriers()
                .filter(|carrier| carrier.state() == CarrierState::Running)
                .last();
            if let Some(carrier) = busy {
                ENGINE.mark(carrier);
            }
        }
        if sight.watch_events {
            let left_ns = ENGINE.timers.earliest_ns().saturating_sub(now_ns);
            sight.look_within(left_ns.max(1));
        }
        sight
    }
}

impl Sight {
    /// Sees to it that the thread on `carrier` doesn't keep others from running for longer than its
    /// quantum if it computes, or than an instant if it waits in the kernel. True if it acted.
    fn consider(&mut self, carrier: &Carrier, found: Found, wanted: bool, polled: bool) -> bool {
        if found.computes && carrier.handed_off.load(Ordering::Relaxed) != 0 {
            carrier.preempt(found.switches); // it came back, and doesn't call anything
        } else if found.computes && carrier.attention.load(Ordering::Relaxed) != 0 {
            // A signal came between the last look of a call and its end.
            carrier.send(POKE);
        }
        if found.computes && chaos::strikes(Point::Preempt) {
            carrier.preempt(found.switches);
        }
        if chaos::strikes(Point::HandOff) {
            ENGINE.hand_off(carrier);
        }
        let limit_ns = match (found.held_ns, found.computes) {
            (0, _) if wanted => CROWDED_NS,
            (0, _) => ENGINE.quantum_ns(),
            (_, true) => ENGINE.quantum_on(carrier),
            _ => BLOCKED_NS,
        };
        let left_ns = limit_ns.saturating_sub(found.held_ns);
        if left_ns != 0 {
            // Whoever waits runs then; and if nobody polls, it's time to look at who might.
            if wanted || !polled {
                self.look_within(left_ns);
            }
            return false;
        }
        if !wanted {
            self.watch_events |= !polled;
            return false;
        }
        if found.computes {
            carrier.preempt(found.switches);
        } else if kthread::is_waiting(carrier.kernel_tid.load(Ordering::Relaxed)) {
            ENGINE.hand_off(carrier);
        }
        self.look_within(limit_ns);
        true
    }

    fn look_within(&mut self, ns: u64) {
        self.within_ns = Some(self.within_ns.map_or(ns, |within| within.min(ns)));
    }
}
