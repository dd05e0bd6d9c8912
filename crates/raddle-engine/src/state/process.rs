//! The process: what all threads share, whichever engine runs them; start-up.
//!
//! Until the program makes its second thread the process isn't *started*: the main thread is a
//! green thread on carrier 0, every system call passes, and nothing but a few tables exists.
//! [`Process::start`] makes the epoll, sysmon and carrier 0's own stack; further carriers are made
//! when a backlog lasts.

use crate::os::chunks::Chunks;
use crate::os::kernel_calls;
use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::engine::Engine;
use crate::state::engines::Engines;
use crate::state::family::Family;
use crate::state::parts::block_events::BlockEvents;
use crate::state::parts::blocking::BlockingLog;
use crate::state::parts::direct::Direct;
use crate::state::parts::filters::Filters;
use crate::state::parts::helpers::Helpers;
use crate::state::parts::pages::Pages;
use crate::state::parts::pump::{Pump, Rows};
use crate::state::parts::recorder::Recorder;
use crate::state::parts::ring::Ring;
use crate::state::parts::roster::Roster;
use crate::state::parts::sysmon::Sysmon;
use crate::state::reusable::ReusableThreads;
use crate::state::stacks::Stacks;
use crate::state::thread::{Life, MAX_THREADS, Thread, ThreadTable};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use raddle_inspect::CodePlaces;
use raddle_sched::{SignalGate, SpinLock, Timers, WaitTable};
use raddle_sys::{mem, nr, sys};

/// The most carriers of the process, bound threads' carriers included.
pub const MAX_CARRIERS: usize = 2048;
/// Slots of carriers mapped at a time.
const CARRIERS_EACH: usize = 8;
/// The most carriers that can be asked for.
pub const MAX_WANTED: u32 = raddle_inspect::settings::CARRIERS_MAX;
/// Rows of the futex table.
const FUTEX_ROWS: usize = 16384;

/// The table of futexes, and of what else waits by address.
pub type Futexes = WaitTable<FUTEX_ROWS>;

/// The functions of the user-mode kernel that carriers call.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// On the carrier's own stack, before it runs its first green thread.
    pub carrier_starts: fn(&Carrier),
    /// On the carrier's own stack, after a green thread has left for good; wakes its joiner.
    pub thread_exited: fn(&Thread),
    /// On the carrier's own stack, when signals were recorded that no green thread has taken yet.
    pub route_signals: fn(),
    /// On any thread: returns the parts of the user-mode kernel's code that a reader of stacks must
    /// know, and the size of a save area in bytes.
    pub code_places: fn() -> (CodePlaces, usize),
}

/// See the module.
///
/// `repr(C)`: the words that parent and child write after a fork are on one page, from the counts
/// of [`ThreadTable`] to the words of the default [`Engine`], because the kernel copies each page
/// that either of them writes. All is zero before [`Process::init`]: the static takes no room in
/// the file, and a fork copies no entries of page tables for pages that were never touched.
#[repr(C, align(4096))]
pub struct Process {
    pub threads: ThreadTable,
    /// Id + 1 of the carrier that waits in the pump, or 0.
    pub poller: AtomicU32,
    /// When the poller wakes by itself; `u64::MAX` for never. Meaningful while there is one.
    pub poller_deadline_ns: AtomicU64,
    /// Process id; the main thread's id.
    pub pid: AtomicU32,
    pub main: AtomicPtr<Thread>,
    /// 0 with one thread, then 1, or 2 under chaos.
    pub(crate) started: AtomicU32,
    /// Not 0 in the child of a fork while some of the state is still the parent's
    /// ([`crate::start::fork`]).
    pub(crate) unsettled: AtomicU32,
    /// 1 if threads are green on request only. Set at start-up.
    pub(crate) explicit: AtomicU32,
    /// See [`Process::set_max_runnable`]; 0 for no limit.
    pub(crate) max_runnable: AtomicU32,
    /// 1 if the default engine's carriers follow the CPUs that may be used.
    pub(crate) follows_cpus: AtomicU32,
    /// One more than the most extra carriers that were asked for; 0 for the default. Set at
    /// start-up.
    pub(crate) most_extra: AtomicU32,
    /// CPUs that the process may use, in thousandths. Written by sysmon and at the start.
    pub(crate) capacity_thousandths: AtomicU32,
    /// See [`Process::quantum_ns`].
    pub(crate) quantum_ns: AtomicU64,
    /// Carriers that are listed, the first ones of the list.
    pub(crate) listed: AtomicU32,
    pub started_ns: AtomicU64,
    /// Guards the list's growth, too.
    pub(crate) slots: SpinLock<Slots>,
    /// Set by [`Process::init`], for ever.
    pub(crate) hooks: AtomicPtr<Hooks>,
    pub sysmon: Sysmon,
    pub(crate) signal_gate: SignalGate,
    pub filters: Filters,
    pub timers: Timers,
    pub reusable: ReusableThreads,
    pub pump: Pump,
    pub engines: Engines,
    pub(crate) pump_rows: Rows,
    pub futexes: Futexes,
    pub helpers: Helpers,
    pub ring: Ring,
    pub direct: Direct,
    pub pages: Pages,
    pub roster: Roster,
    pub family: Family,
    pub(crate) blocking: BlockingLog,
    pub(crate) recorder: Recorder,
    pub(crate) block_events: BlockEvents,
    pub stacks: Stacks,
    /// The carriers of all engines.
    pub(crate) list: [AtomicPtr<Carrier>; MAX_CARRIERS],
    /// The carriers' slots.
    pub(crate) memory: Chunks<Carrier, { MAX_CARRIERS / CARRIERS_EACH }, CARRIERS_EACH>,
}

/// The slots of carriers.
pub(crate) struct Slots {
    /// The number of slots that were ever in use.
    pub(crate) committed: usize,
    /// Slots that were given back, linked through [`Carrier::next_free`]; 0 ends the list, else
    /// slot + 1.
    pub(crate) free: u32,
    /// Listed carriers that have no kernel thread any more, linked in the same way.
    pub(crate) ended: u32,
}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self {
            committed: 0,
            free: 0,
            ended: 0,
        }
    }
}

/// See [`Process`].
const _: () = {
    let from = core::mem::offset_of!(Process, threads) + ThreadTable::COUNTS;
    let to = core::mem::offset_of!(Process, engines) + Engines::WORDS_SIZE;
    assert!(from / mem::PAGE_SIZE == (to - 1) / mem::PAGE_SIZE);
};

/// This process.
pub static PROCESS: Process = Process::new();

impl Process {
    const fn new() -> Self {
        Self {
            threads: ThreadTable::new(),
            poller: AtomicU32::new(0),
            poller_deadline_ns: AtomicU64::new(0),
            pid: AtomicU32::new(0),
            main: AtomicPtr::new(null_mut()),
            started: AtomicU32::new(0),
            unsettled: AtomicU32::new(0),
            explicit: AtomicU32::new(0),
            max_runnable: AtomicU32::new(0),
            follows_cpus: AtomicU32::new(0),
            most_extra: AtomicU32::new(0),
            capacity_thousandths: AtomicU32::new(0),
            quantum_ns: AtomicU64::new(0),
            listed: AtomicU32::new(0),
            started_ns: AtomicU64::new(0),
            slots: SpinLock::new(Slots::new()),
            hooks: AtomicPtr::new(null_mut()),
            sysmon: Sysmon::new(),
            signal_gate: SignalGate::new(),
            filters: Filters::new(),
            timers: Timers::new(),
            reusable: ReusableThreads::new(),
            pump: Pump::new(),
            engines: Engines::new(),
            pump_rows: Rows::new(),
            futexes: WaitTable::new(),
            helpers: Helpers::new(),
            ring: Ring::new(),
            direct: Direct::new(),
            pages: Pages::new(),
            roster: Roster::new(),
            family: Family::new(),
            blocking: BlockingLog::new(),
            recorder: Recorder::new(),
            block_events: BlockEvents::new(),
            stacks: Stacks::new(),
            list: [const { AtomicPtr::new(null_mut()) }; MAX_CARRIERS],
            memory: Chunks::new(),
        }
    }

    /// Returns the default engine.
    #[inline(always)]
    pub fn first(&self) -> &Engine {
        &self.engines.first
    }

    /// Makes the calling thread the main green thread, on carrier 0.
    ///
    /// `carriers` is how many to use, or 0 for as many as CPUs are allowed; `vdso` is
    /// AT_SYSINFO_EHDR's value.
    ///
    /// # Safety
    /// Once a process, on its only thread; the CPU must have FSGSBASE enabled.
    ///
    /// # Errors
    /// ENOMEM.
    pub unsafe fn init(
        &self,
        carriers: u32,
        vdso: usize,
        hooks: &'static Hooks,
    ) -> Result<(), isize> {
        // SAFETY: one thread exists; `vdso` comes from the kernel.
        unsafe {
            raddle_sched::spin::set_relax(kernel_calls::give_cpu_away);
            clock::init(vdso);
        }
        let hooks = core::ptr::from_ref(hooks).cast_mut();
        self.hooks.store(hooks, Ordering::Release);
        self.threads.draw_salt();
        let engine = self.first();
        let wanted = carriers.min(MAX_WANTED);
        engine.wanted.store(wanted, Ordering::Relaxed);
        let carrier = self.new_carrier(engine)?;
        self.list[0].store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Release);
        carrier.is_listed.set(true);
        self.listed.store(1, Ordering::Release);
        engine.count.reset(1);
        engine.made.store(1, Ordering::Relaxed);
        let main = self.threads.allocate()?;
        // SAFETY: plain queries about the calling thread.
        let (pid, tid) = unsafe { (sys!(nr::__NR_getpid), sys!(nr::__NR_gettid)) };
        self.pid.store(pid as u32, Ordering::Relaxed);
        main.tid.store(pid as u32, Ordering::Relaxed);
        main.task.policy.reset(pid as u32);
        main.fs.set(raddle_arch::fs_base());
        // Where the kernel was told to clear the main thread's id at its end: joiners wait there.
        let mut clear_tid = 0usize;
        // SAFETY: PR_GET_TID_ADDRESS fills a word.
        unsafe { sys!(nr::__NR_prctl, 40usize, &raw mut clear_tid) };
        main.clear_tid.set(clear_tid);
        let mut name = [0u8; 16];
        // SAFETY: PR_GET_NAME fills 16 bytes.
        unsafe { sys!(nr::__NR_prctl, 16usize, name.as_mut_ptr()) };
        main.set_name(&name[..15]);
        main.task.on_cpu.store(1, Ordering::Relaxed);
        main.carrier
            .store(core::ptr::from_ref(carrier).cast_mut(), Ordering::Relaxed);
        self.main.store(main.as_ptr(), Ordering::Release);
        carrier.kernel_tid.store(tid as u32, Ordering::Relaxed);
        carrier.set_thread(main.as_ptr());
        // SAFETY: this kernel thread becomes carrier 0 here.
        unsafe { raddle_arch::set_gs_base(core::ptr::from_ref(carrier).addr() as u64) };
        Ok(())
    }

    /// Returns true once the program has made a second thread.
    #[inline(always)]
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed) != 0
    }

    /// As [`Process::is_started`]; false under chaos too.
    #[inline(always)]
    pub fn is_calm(&self) -> bool {
        self.started.load(Ordering::Relaxed) == 1
    }

    /// Returns true if the running thread is the only one that lives: no other can want its carrier
    /// before it makes one.
    #[inline]
    pub fn is_single(&self) -> bool {
        self.threads.live() == 1
    }

    /// Returns true if only threads that are asked for by name are green, and others bound: the
    /// program uses the explicit API.
    pub fn is_explicit(&self) -> bool {
        self.explicit.load(Ordering::Relaxed) != 0
    }

    /// See [`Process::is_explicit`]. Before [`Process::start`].
    pub fn set_explicit(&self) {
        self.explicit.store(1, Ordering::Relaxed);
    }

    /// Returns how long a thread may run while others wait, in nanoseconds; `u64::MAX` for no
    /// limit.
    pub fn quantum_ns(&self) -> u64 {
        self.quantum_ns.load(Ordering::Relaxed)
    }

    /// Changes the quantum.
    pub fn set_quantum_ns(&self, ns: u64) {
        self.quantum_ns.store(ns, Ordering::Relaxed);
    }

    /// Returns the listed carriers of all engines: all but those of bound threads.
    pub fn carriers(&self) -> impl Iterator<Item = &Carrier> {
        (0..self.listed.load(Ordering::Acquire) as usize)
            // SAFETY: the first `listed` entries are carriers, which are never freed.
            .map(|i| unsafe { &*self.list[i].load(Ordering::Acquire) })
    }

    /// Returns the functions of the user-mode kernel.
    pub(crate) fn hooks(&self) -> &'static Hooks {
        // SAFETY: null or what lives for ever.
        match unsafe { self.hooks.load(Ordering::Acquire).as_ref() } {
            Some(hooks) => hooks,
            None => raddle_sys::fatal(b"raddle: the engine was used before it was initialised\n"),
        }
    }

    /// Returns the live thread with the bits of `tid` in its id, as far as `mask` has them; `mask`
    /// has at least the bits of the slot.
    pub fn find_by_low_bits(&self, tid: u32, mask: u32) -> Option<&Thread> {
        if tid == self.pid.load(Ordering::Relaxed) & mask {
            return self.find(self.pid.load(Ordering::Relaxed));
        }
        self.threads.find_by_low_bits(tid, mask)
    }

    /// Returns the slot of the thread with this id, which may have ended since.
    pub fn slot_of(&self, tid: u32) -> Option<&Thread> {
        if tid == self.pid.load(Ordering::Relaxed) {
            // SAFETY: set at start-up; threads live in type-stable memory.
            return Some(unsafe { &*self.main.load(Ordering::Acquire) });
        }
        self.threads.slot_of(tid)
    }

    /// Returns the live thread with this id.
    pub fn find(&self, tid: u32) -> Option<&Thread> {
        self.slot_of(tid)
            .filter(|thread| thread.life() == Life::Live)
    }
}

const _: () = assert!(MAX_THREADS <= u32::MAX as usize);
