//! Extra carriers while other processes want the CPUs: sysmon's measurements for
//! [`raddle_sched::contention`].
//!
//! The kernel's account of each carrier (`/proc/PID/task/TID/schedstat`: CPU time, and time on a
//! CPU's queue) is read once a window, while threads wait for a carrier. Where there is no such
//! account, or it may not be read, there are no extra carriers. The CPU time of the family is
//! counted in all windows, because relatives may need it.

use crate::kernel_threads::kthread;
use crate::os::kernel_calls;
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::PROCESS;
use core::sync::atomic::Ordering;
use raddle_sched::contention::{Contention, MOST_EXTRA, WINDOW_NS, Window};

/// The most carriers that are measured.
const MEASURED: usize = 128;
/// A window that lasted longer says nothing: sysmon slept, or the machine did.
const STALE_NS: u64 = 4 * WINDOW_NS;

/// What sysmon remembers.
pub(crate) struct Watch {
    contention: Contention,
    /// When the window began; 0 without one.
    began_ns: u64,
    /// The carriers' accounts at that time, by their places in the engine's list.
    accounts: [Account; MEASURED],
    /// CPU time at that time: the process's and its family's.
    process_ns: u64,
    family_ns: u64,
}

/// What the kernel says of a carrier.
#[derive(Clone, Copy, Default)]
struct Account {
    /// The carrier's kernel thread; 0 for none.
    tid: u32,
    used_ns: u64,
    delayed_ns: u64,
}

impl Watch {
    pub(crate) const fn new() -> Self {
        const NONE: Account = Account {
            tid: 0,
            used_ns: 0,
            delayed_ns: 0,
        };
        Self {
            contention: Contention::new(),
            began_ns: 0,
            accounts: [NONE; MEASURED],
            process_ns: 0,
            family_ns: 0,
        }
    }

    /// While something runs. Ends a window that has lasted for long enough, and begins another.
    pub(crate) fn look(&mut self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.began_ns);
        if elapsed_ns < WINDOW_NS {
            return;
        }
        let family_ns = self.family_used(elapsed_ns);
        let engine = PROCESS.first();
        let most = PROCESS.most_extra();
        let runnable = match most {
            0 => 0,
            _ => engine.runnable() as u32,
        };
        if elapsed_ns > STALE_NS || runnable <= engine.wanted() && self.contention.extra() == 0 {
            self.begin_anew(now_ns, runnable);
            return;
        }
        let window = Window {
            elapsed_ns,
            capacity_thousandths: PROCESS.capacity_thousandths(),
            wanted: engine.wanted(),
            runnable,
            most,
            family_ns,
            ..self.measure()
        };
        self.began_ns = now_ns;
        let extra = self.contention.judge(window);
        engine.set_extra(extra);
    }

    /// Forgets the last window. There is another one if threads wait, or else no extra carriers.
    fn begin_anew(&mut self, now_ns: u64, runnable: u32) {
        let engine = PROCESS.first();
        self.began_ns = now_ns;
        if runnable > engine.wanted() {
            self.measure();
        } else {
            self.contention.rest();
            engine.set_extra(0);
        }
    }

    /// CPU time that the family used in the window, without the part that relatives haven't told
    /// yet. What the process used while sysmon slept isn't told.
    fn family_used(&mut self, elapsed_ns: u64) -> u64 {
        let process_ns = kernel_calls::process_cpu_ns();
        let used_ns = match elapsed_ns {
            ..=STALE_NS => process_ns.saturating_sub(self.process_ns),
            _ => 0,
        };
        let family_ns = PROCESS.family.add(used_ns, process_ns);
        let last_ns = core::mem::replace(&mut self.family_ns, family_ns);
        self.process_ns = process_ns;
        family_ns.saturating_sub(last_ns)
    }

    /// What running carriers used and how long they waited for a CPU since the last measurement.
    fn measure(&mut self) -> Window {
        let mut window = Window::default();
        for (last, carrier) in self.accounts.iter_mut().zip(PROCESS.first().carriers()) {
            let account = match carrier.state() {
                CarrierState::Running => account_of(carrier),
                _ => Account::default(),
            };
            if account.tid != 0 && account.tid == last.tid {
                window.used_ns += account.used_ns.saturating_sub(last.used_ns);
                window.delayed_ns += account.delayed_ns.saturating_sub(last.delayed_ns);
            }
            *last = account;
        }
        window
    }
}

/// The kernel's account of a carrier; zero if there is none.
fn account_of(carrier: &Carrier) -> Account {
    let tid = carrier.kernel_tid.load(Ordering::Relaxed);
    match kthread::schedstat(tid) {
        Some([used_ns, delayed_ns]) => Account {
            tid,
            used_ns,
            delayed_ns,
        },
        None => Account::default(),
    }
}

/// The most extra carriers if no number of them was asked for: none if a number of carriers was
/// asked for.
pub(crate) const fn most_by_default(follows_cpus: bool) -> u32 {
    if follows_cpus { MOST_EXTRA } else { 0 }
}
