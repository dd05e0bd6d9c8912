//! Sysmon: a kernel thread that watches the carriers and answers inspection requests.
//!
//! It looks at the carriers on an interval from `policy`: 100 us after something was found,
//! doubling to 10 ms, and not at all once everything has been idle for a while (then whichever
//! carrier gets work first wakes it) or when only one carrier may exist. It acts on three things: a
//! backlog that lasts, an idle carrier while nobody polls, and injected work while a carrier
//! sleeps.

use crate::carrier::CarrierState;
use crate::clock;
use crate::engine::ENGINE;
use crate::inspect;
use crate::kthread;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use raddle_sched::policy::{SYSMON_LINGER_NS, SYSMON_MIN_NS, Seen, sysmon_interval_ns};
use raddle_sys::abi::{PollFd, Timespec};
use raddle_sys::{nr, sys};

const STACK: usize = 128 * 1024;
/// Carriers that it keeps a memory of; more are looked at without one.
const WATCHED: usize = 256;

/// See the module.
pub struct Sysmon {
    /// 1 while it sleeps without a timeout.
    asleep: AtomicU32,
    wake: AtomicI32,
    /// The inspection socket.
    listener: AtomicI32,
}

impl Sysmon {
    pub(crate) const fn new() -> Self {
        Self {
            asleep: AtomicU32::new(0),
            wake: AtomicI32::new(-1),
            listener: AtomicI32::new(-1),
        }
    }

    /// Starts the thread.
    pub(crate) fn start(&self) -> Result<(), isize> {
        // SAFETY: makes a descriptor (EFD_CLOEXEC | EFD_NONBLOCK).
        let wake = unsafe { sys!(nr::__NR_eventfd2, 0usize, 0o2004000usize) };
        let wake = crate::pump::hide(wake)?;
        self.wake.store(wake as i32, Ordering::Relaxed);
        // Here and not on the thread: the program must never see a descriptor number of ours.
        self.listener.store(inspect::listen(), Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
        kthread::spawn(sysmon_main, 0, STACK).map(|_| ())
    }

    /// A carrier left its sleep: if nobody watches, somebody must.
    pub(crate) fn carrier_awoke(&self) {
        if ENGINE.wanted() > 1
            && self.asleep.load(Ordering::Relaxed) != 0
            && self.asleep.swap(0, Ordering::AcqRel) != 0
        {
            let one = 1u64;
            let wake = self.wake.load(Ordering::Relaxed);
            // SAFETY: eight bytes of a live value into our own eventfd.
            unsafe { sys!(nr::__NR_write, wake, &raw const one, 8usize) };
        }
    }

    /// Its own descriptors; -1 for none.
    pub fn own_descriptors(&self) -> [i32; 2] {
        [
            self.wake.load(Ordering::Relaxed),
            self.listener.load(Ordering::Relaxed),
        ]
    }

    /// True for its own descriptors.
    pub fn owns(&self, fd: usize) -> bool {
        fd as i32 >= 0 && self.own_descriptors().contains(&(fd as i32))
    }

    /// In the child of a fork: closes what the parent shares.
    pub(crate) fn reset(&self) {
        for own in [&self.wake, &self.listener] {
            let fd = own.swap(-1, Ordering::Relaxed);
            if fd >= 0 {
                // SAFETY: our own descriptor.
                unsafe { sys!(nr::__NR_close, fd) };
            }
        }
        self.asleep.store(0, Ordering::Relaxed);
    }
}

struct Watch {
    seen: [Seen; WATCHED],
    interval_ns: u64,
    busy_ns: u64,
}

extern "C" fn sysmon_main(_: usize) -> ! {
    // SAFETY: this thread is no carrier.
    unsafe { raddle_context::set_gs_base(0) };
    let listener = ENGINE.sysmon.listener.load(Ordering::Relaxed);
    let wake = ENGINE.sysmon.wake.load(Ordering::Relaxed);
    let mut watch = Watch {
        seen: [Seen::default(); WATCHED],
        interval_ns: SYSMON_MIN_NS,
        busy_ns: 0,
    };
    loop {
        let timeout_ns = watch.look();
        let mut fds = [
            PollFd {
                fd: wake,
                events: 1,
                revents: 0,
            },
            PollFd {
                fd: listener,
                events: 1,
                revents: 0,
            },
        ];
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
                2usize,
                timeout_ptr,
                0usize,
                8usize
            )
        };
        if fds[0].revents != 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes into a live value.
            unsafe { sys!(nr::__NR_read, wake, &raw mut count, 8usize) };
            watch.interval_ns = SYSMON_MIN_NS;
        }
        if fds[1].revents != 0 {
            inspect::serve(listener);
        }
    }
}

impl Watch {
    /// One look. Returns how long to sleep, or `None` for until woken.
    fn look(&mut self) -> Option<u64> {
        if ENGINE.wanted() < 2 {
            return None;
        }
        let (acted, running) = self.act();
        let now_ns = clock::now_ns();
        if running {
            self.busy_ns = now_ns;
        } else if now_ns.saturating_sub(self.busy_ns) > SYSMON_LINGER_NS {
            ENGINE.sysmon.asleep.store(1, Ordering::SeqCst);
            let still = ENGINE
                .carriers()
                .all(|c| c.state() != CarrierState::Running);
            if still {
                return None;
            }
            ENGINE.sysmon.asleep.store(0, Ordering::SeqCst);
        }
        self.interval_ns = sysmon_interval_ns(self.interval_ns, acted);
        Some(self.interval_ns)
    }

    /// Wakes a carrier where work waits; says whether it did, and whether any carrier runs.
    fn act(&mut self) -> (bool, bool) {
        let (mut acted, mut running) = (false, false);
        for (index, carrier) in ENGINE.carriers().enumerate() {
            if carrier.state() != CarrierState::Running {
                continue;
            }
            running = true;
            let Some(seen) = self.seen.get_mut(index) else {
                continue;
            };
            let switches = carrier.switches.load(Ordering::Relaxed);
            let queued = !carrier.queue.is_empty();
            if seen.backlog_lasts(switches, queued, carrier.queue.ring_len()) {
                acted |= ENGINE.wake_one();
            }
        }
        let unattended = ENGINE.poller.load(Ordering::SeqCst) == 0 || !ENGINE.injector.is_empty();
        let asleep = !ENGINE.idle.is_empty() || !ENGINE.injector.is_empty();
        if running && unattended && asleep {
            acted |= ENGINE.wake_one();
        }
        (acted, running)
    }
}
