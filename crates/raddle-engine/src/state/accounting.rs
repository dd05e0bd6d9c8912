//! The CPU time of green threads, counted from the first request on.
//!
//! A switch takes less time than reading a clock, so nothing is counted until a program asks for
//! the CPU time of any of its threads. From then on every switch reads the clock and charges the
//! *slice*, the time since the last switch, to the thread that is leaving. A tool asks for some
//! seconds, and again while it looks: counting ends with the last tool, unless the program or the
//! policy needs it.
//!
//! In a short slice the kernel hardly preempts the carrier: it is charged as it is. At the end of a
//! long one the carrier's own CPU clock is read, and the thread is charged what the kernel has
//! counted since the last such reading, less what was charged since then, and never more than the
//! slice. So time for which the carrier had no CPU isn't charged.
//!
//! Rejected: counting always (a fifth of a hand-off's time); the kernel's clock at each switch (a
//! system call); guessing what threads used before the first question.

use crate::state::carrier::Carrier;
use crate::state::clock;
use crate::state::events;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_sched::version::Version;
use raddle_sys::abi::Timespec;
use raddle_sys::{is_err, nr, sys};

/// Slices of at least this length are measured by a system call.
const LONG_NS: u64 = 50_000;

/// Why switches are not silent: [`CPU_TIME`], [`EVENTS`]. The hot paths ask for either.
pub static ON: AtomicU32 = AtomicU32::new(0);
/// In [`ON`]: CPU time is counted.
const CPU_TIME: u32 = 1;
/// Until when CPU time is counted; [`FOR_EVER`] once the program or a policy has asked. Only grows.
///
/// SeqCst, as are the changes of [`ON`]: sysmon ends the counting and then looks here again, a
/// caller writes here and then looks at [`ON`]. One of them sees the other.
static COUNTS_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
const FOR_EVER: u64 = u64::MAX;
/// In [`ON`]: events are recorded ([`crate::state::events`]).
pub const EVENTS: u32 = 2;

/// A carrier's part. Written by the carrier and by the thread that switches accounting on; others
/// read it.
pub struct Slices {
    /// When the running thread's slice began; 0 without one.
    started_ns: AtomicU64,
    /// The carrier's CPU clock when it was last read.
    read_ns: AtomicU64,
    /// Charged since that reading.
    charged_ns: AtomicU64,
}

impl Slices {
    /// Offsets of the three words.
    pub(crate) const STARTED: usize = offset_of!(Slices, started_ns);
    pub(crate) const READ: usize = offset_of!(Slices, read_ns);
    pub(crate) const CHARGED: usize = offset_of!(Slices, charged_ns);

    /// For a carrier with a new kernel thread.
    pub(crate) fn reset(&self) {
        let Self {
            started_ns,
            read_ns,
            charged_ns,
        } = self;
        started_ns.store(0, Ordering::Relaxed);
        read_ns.store(0, Ordering::Relaxed);
        charged_ns.store(0, Ordering::Relaxed);
    }

    /// A slice has begun at `since_ns`, with the carrier's CPU clock unread since long ago.
    pub(crate) fn begin(&self, since_ns: u64) {
        self.read_ns.store(0, Ordering::Relaxed);
        self.started_ns.store(since_ns, Ordering::Relaxed);
    }

    /// No slice is measured any more.
    pub(crate) fn end(&self) {
        self.started_ns.store(0, Ordering::Relaxed);
    }

    /// Ends the slice at `now_ns` and begins the next one. Returns the CPU time of the one that
    /// ends, exactly if it was `long_ns` or more; 0 if none had begun.
    pub(crate) fn take(&self, now_ns: u64, long_ns: u64) -> u64 {
        let cpu_ns = match self.started_ns.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.measure(now_ns, long_ns),
        };
        self.started_ns.store(now_ns, Ordering::Relaxed);
        cpu_ns
    }

    /// When the slice began; 0 without one.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    /// How long the slice has lasted.
    pub(crate) fn running_ns(&self, now_ns: u64) -> u64 {
        match self.started_ns.load(Ordering::Relaxed) {
            0 => 0,
            started_ns => now_ns.saturating_sub(started_ns),
        }
    }

    /// The CPU time of the slice that lasts until `now_ns`.
    fn measure(&self, now_ns: u64, long_ns: u64) -> u64 {
        let slice_ns = self.running_ns(now_ns);
        let charged_ns = self.charged_ns.load(Ordering::Relaxed);
        match (slice_ns >= long_ns).then(|| kernel_cpu_ns(0)).flatten() {
            Some(read_ns) => {
                let before_ns = self.read_ns.swap(read_ns, Ordering::Relaxed);
                self.charged_ns.store(0, Ordering::Relaxed);
                let since_ns = read_ns.saturating_sub(before_ns);
                since_ns.saturating_sub(charged_ns).min(slice_ns)
            }
            None => {
                let all_ns = charged_ns + slice_ns;
                self.charged_ns.store(all_ns, Ordering::Relaxed);
                slice_ns
            }
        }
    }
}

/// A thread's part.
///
/// A thread that reads another's time must see what is charged and the slice at one moment: what
/// moves from the slice into the charge would otherwise count twice or not at all.
pub struct CpuTime {
    /// The version of `charged_ns` and the carrier's slice. Changed by the thread's carrier.
    version: Version,
    /// Charged so far. Written by the thread's carrier.
    charged_ns: AtomicU64,
    /// The largest value returned so far: a clock doesn't go backwards.
    told_ns: AtomicU64,
}

impl CpuTime {
    /// Offset of the time charged so far.
    pub(crate) const CHARGED: usize = offset_of!(CpuTime, charged_ns);

    /// For a new thread; the main thread starts with what the process has used.
    pub fn reset(&self, used_ns: u64) {
        self.charged_ns.store(used_ns, Ordering::Relaxed);
        self.told_ns.store(0, Ordering::Relaxed);
    }

    /// Charged so far.
    pub(crate) fn charged_ns(&self) -> u64 {
        self.charged_ns.load(Ordering::Relaxed)
    }

    fn tell(&self, ns: u64) -> u64 {
        self.told_ns.fetch_max(ns, Ordering::Relaxed).max(ns)
    }
}

/// Returns true if switches have to be told.
#[inline(always)]
pub(crate) fn is_told() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// Returns true once time is counted.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed) & CPU_TIME != 0
}

/// The clock id of a kernel thread's CPU time (`CPUCLOCK_SCHED` of a thread).
pub const fn clock_of(kernel_tid: u32) -> u32 {
    const THREAD_SCHED: u32 = 6;
    !kernel_tid << 3 | THREAD_SCHED
}

/// CPU time of a kernel thread; 0 is the calling one.
pub fn kernel_cpu_ns(kernel_tid: u32) -> Option<u64> {
    let mut time = Timespec::default();
    // SAFETY: the kernel fills a live structure.
    let result = unsafe { sys!(nr::__NR_clock_gettime, clock_of(kernel_tid), &raw mut time) };
    if is_err(result) { None } else { time.to_ns() }
}

/// `carrier` is about to run `next`, or its own loop: charges the thread that leaves, if one does,
/// and begins a slice if one enters. Records the event.
#[cold]
pub(crate) fn switched(carrier: &Carrier, next: Option<&Thread>) {
    let on = ON.load(Ordering::Relaxed);
    if on & EVENTS != 0 {
        events::switched(carrier, next);
    }
    if on & CPU_TIME != 0 {
        let now_ns = clock::now_ns();
        charge(carrier, now_ns, LONG_NS, next.map_or(0, |_| now_ns));
    }
}

/// Charges the thread that runs on `carrier` and is about to be queued.
pub(crate) fn charge_running(carrier: &Carrier) {
    let now_ns = clock::now_ns();
    charge(carrier, now_ns, LONG_NS, now_ns);
}

/// Charges the running thread of this carrier, slices from `long_ns` on exactly; the next slice
/// begins at `next_ns`.
fn charge(carrier: &Carrier, now_ns: u64, long_ns: u64, next_ns: u64) {
    let slices = &carrier.slices;
    let begin_next = || slices.started_ns.store(next_ns, Ordering::Relaxed);
    let runs = slices.started_ns.load(Ordering::Relaxed) != 0;
    let Some(thread) = carrier.thread_or_none().filter(|_| runs) else {
        return begin_next();
    };
    thread.cpu.version.change(|| {
        let due_ns = slices.measure(now_ns, long_ns);
        let before_ns = thread.cpu.charged_ns.load(Ordering::Relaxed);
        let after_ns = before_ns + due_ns;
        thread.cpu.charged_ns.store(after_ns, Ordering::Relaxed);
        begin_next();
    });
}

/// Counts from now on, for the program or a policy.
pub(crate) fn switch_on() {
    if COUNTS_UNTIL_NS.load(Ordering::SeqCst) != FOR_EVER {
        COUNTS_UNTIL_NS.store(FOR_EVER, Ordering::SeqCst);
    }
    begin();
}

/// Counts for `seconds` more, for a tool. For sysmon.
pub(crate) fn count_for(seconds: u32) {
    let until_ns = clock::now_ns().saturating_add(u64::from(seconds) * 1_000_000_000);
    COUNTS_UNTIL_NS.fetch_max(until_ns, Ordering::SeqCst);
    begin();
}

/// Ends the counting if its time is over. For sysmon, at any look: while nothing runs, nothing is
/// counted.
pub(crate) fn look(now_ns: u64) {
    if is_on() && COUNTS_UNTIL_NS.load(Ordering::Relaxed) <= now_ns {
        ON.fetch_and(!CPU_TIME, Ordering::SeqCst);
        if COUNTS_UNTIL_NS.load(Ordering::SeqCst) > now_ns {
            begin();
        }
    }
}

/// Starts counting, unless time is counted already.
///
/// What is left in the slices of an earlier counting would be charged at the next switch, so it is
/// replaced before a carrier can see that time is counted. A carrier that gets a thread meanwhile
/// has no slice; the second pass begins one.
fn begin() {
    if is_on() {
        return;
    }
    let now_ns = clock::now_ns();
    for carrier in PROCESS.all_carriers() {
        let kernel_tid = carrier.kernel_tid.load(Ordering::Acquire);
        let read_ns = kernel_cpu_ns(kernel_tid).filter(|_| kernel_tid != 0);
        let has_thread = carrier.thread_or_none().is_some();
        let slices = &carrier.slices;
        slices
            .read_ns
            .store(read_ns.unwrap_or(0), Ordering::Relaxed);
        slices.charged_ns.store(0, Ordering::Relaxed);
        let started_ns = if has_thread { now_ns } else { 0 };
        slices.started_ns.store(started_ns, Ordering::Relaxed);
    }
    if ON.fetch_or(CPU_TIME, Ordering::SeqCst) & CPU_TIME != 0 {
        return;
    }
    let has_none = |it: &&Carrier| it.slices.started_ns() == 0 && it.thread_or_none().is_some();
    for carrier in PROCESS.all_carriers().filter(has_none) {
        carrier.slices.started_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// CPU time of a thread in nanoseconds, counted from the first call of this function on.
pub fn cpu_ns(thread: &Thread) -> u64 {
    switch_on();
    let carrier = Carrier::current();
    if core::ptr::eq(carrier.thread(), thread) {
        let now_ns = clock::now_ns();
        charge(carrier, now_ns, 0, now_ns);
        return thread
            .cpu
            .tell(thread.cpu.charged_ns.load(Ordering::Relaxed));
    }
    other_cpu_ns(thread)
}

/// As [`cpu_ns`], of a thread that isn't the calling one. 0 while time isn't counted.
pub(crate) fn other_cpu_ns(thread: &Thread) -> u64 {
    if !is_on() {
        return 0;
    }
    let so_far_ns = thread.cpu.version.read(|| {
        // SAFETY: null or a carrier, which lives for ever.
        let on = unsafe { thread.carrier.load(Ordering::Relaxed).as_ref() };
        let running_ns = on.map_or(0, |on| running_ns(on, thread, clock::now_ns()));
        thread.cpu.charged_ns.load(Ordering::Relaxed) + running_ns
    });
    thread.cpu.tell(so_far_ns)
}

/// What `thread` would be charged if it left `carrier` now.
fn running_ns(carrier: &Carrier, thread: &Thread, now_ns: u64) -> u64 {
    let is_on_it = |on: &Thread| core::ptr::eq(on, thread);
    let slices = &carrier.slices;
    let started_ns = slices.started_ns.load(Ordering::Relaxed);
    if started_ns == 0 || !carrier.thread_or_none().is_some_and(is_on_it) {
        return 0;
    }
    let slice_ns = now_ns.saturating_sub(started_ns);
    let counted_ns =
        slices.read_ns.load(Ordering::Relaxed) + slices.charged_ns.load(Ordering::Relaxed);
    match kernel_cpu_ns(carrier.kernel_tid.load(Ordering::Relaxed)) {
        Some(cpu_ns) => cpu_ns.saturating_sub(counted_ns).min(slice_ns),
        None => slice_ns,
    }
}

/// In the child of a fork: CPU clocks start at 0, and counting is off.
pub(crate) fn in_child(carrier: &Carrier, thread: &Thread) {
    if ON.load(Ordering::Relaxed) != 0 {
        ON.store(0, Ordering::Relaxed);
    }
    if COUNTS_UNTIL_NS.load(Ordering::Relaxed) != 0 {
        COUNTS_UNTIL_NS.store(0, Ordering::Relaxed);
    }
    thread.cpu.reset(0);
    carrier.slices.reset();
}
