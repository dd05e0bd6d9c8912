//! Samples of all carriers of a process while they execute: a perf event of each.
//!
//! A carrier is a kernel thread, and runs many green threads. Which of them a sample belongs to
//! follows from its time, and from what the carrier has recorded.
//!
//! The CPU time between samples is drawn by lot now and then, so that a program with a period of
//! its own is not seen at the same places again and again. A sample stands for the CPU time since
//! the one before, which the event counts.
//!
//! A new distance counts from the moment at which it is set, not from the last sample. That is when
//! this tool gets a CPU, often because the program has begun to wait. If it were set behind each
//! sample, the beginnings of turns that are as long as a period would hardly be seen.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use raddle_inspect::Lots;

use crate::bound::BoundThread;
use crate::capture::Target;
use crate::kernel::KernelThreads;
use crate::modules::MappedCode;
use crate::perf_event::{Event, Sample, Settings, ended};
use crate::sample_rings::{carriers, halves};

/// Bytes of a stack that a sample has; what is further out is read from the process's memory.
const STACK_BYTES: u32 = 16 << 10;
/// Pages for the samples of a carrier: for 30, for 15, for 7 and for one, if the kernel gives no
/// more.
const PAGES: [usize; 4] = [128, 64, 32, 8];
/// The most mappings of code that are kept.
const MAPPED_MAX: usize = 1 << 12;
/// Where samples come faster, there is room for more.
const SLOW_NS: u64 = 5_000_000;

/// See the module.
pub struct Series {
    pid: u32,
    settings: Settings,
    /// The CPU time of a carrier between two samples.
    period_ns: u64,
    /// By the carrier's kernel thread, in the process's own namespace.
    events: HashMap<u32, Carrier>,
    lots: Lots,
    refusal: Option<io::Error>,
    lost: u64,
    /// Code that carriers have mapped.
    mapped: Vec<MappedCode>,
}

struct Carrier {
    id: u32,
    event: Event,
    /// The CPU time at the last sample.
    cpu_ns: u64,
    /// Samples until a new distance is set.
    until_lot: u32,
}

/// So many samples of a carrier have the same distance.
const SAME_DISTANCE: u32 = 16;

/// A carrier that executes, at one instant.
pub struct RunningSample {
    /// The carrier's id.
    pub carrier: u32,
    /// The green thread that it ran, 0 for none, if the sample says it.
    pub thread: Option<u32>,
    /// By CLOCK_BOOTTIME.
    pub boot_ns: u64,
    /// The CPU time for which it stands.
    pub ns: u64,
    pub(crate) sample: Sample,
}

impl RunningSample {
    /// Returns true if the carrier executed a system call or a fault; the stack is that of user
    /// mode all the same.
    pub fn is_in_kernel(&self) -> bool {
        self.sample.is_in_kernel
    }
}

impl Series {
    /// A series without carriers. `period_ns` is the CPU time of a carrier between two samples.
    pub fn new(pid: u32, period_ns: u64) -> Series {
        Series {
            pid,
            period_ns,
            settings: Settings {
                period_ns: Some(period_ns),
                with_kernel: true,
                stack_bytes: STACK_BYTES,
                pages: PAGES[usize::from(period_ns >= SLOW_NS)],
                is_prompt: false,
                with_mappings: true,
            },
            events: HashMap::new(),
            lots: Lots::new(u64::from(pid) << 32),
            refusal: None,
            lost: 0,
            mapped: Vec::new(),
        }
    }

    /// Has each sample make a descriptor readable at once, or not.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        if self.settings.is_prompt != is_prompt {
            self.settings.is_prompt = is_prompt;
            self.events.clear();
        }
    }

    /// Returns true if each sample makes a descriptor readable at once.
    pub fn is_prompt(&self) -> bool {
        self.settings.is_prompt
    }

    /// Returns how many samples of a carrier the kernel keeps for certain, until they are taken;
    /// `None` if it samples none.
    pub fn samples_kept(&self) -> Option<u32> {
        const PAGE_BYTES: usize = 4096;
        // Each has its registers and header beside the stack, and some are early.
        let all = self.settings.pages * PAGE_BYTES / STACK_BYTES as usize;
        (!self.events.is_empty()).then_some((all * 3 / 4) as u32)
    }

    /// Begins to sample carriers that have come since the last call, those of bound threads
    /// included.
    pub fn follow(&mut self, target: &Target<'_>, bound: &[BoundThread]) {
        let carriers = carriers(target, &[]);
        let addresses: Vec<u64> = carriers.iter().map(|(carrier, _)| *carrier).collect();
        let own_tids = halves(target.memory, &addresses, target.layout.carrier_kernel_tid);
        let mut kernel_threads = None;
        for ((_, id), own_tid) in carriers.into_iter().zip(own_tids) {
            let Some(own_tid) = own_tid.filter(|&tid| tid != 0) else {
                continue;
            };
            if let Some(known) = self.events.get_mut(&own_tid) {
                known.id = id;
                continue;
            }
            let kernel_threads =
                kernel_threads.get_or_insert_with(|| KernelThreads::of(self.pid, None));
            let tid = kernel_threads.here(own_tid);
            self.begin(own_tid, tid, id);
        }
        for thread in bound {
            match self.events.get_mut(&thread.own_kernel_tid) {
                Some(known) => known.id = thread.id,
                None => self.begin(thread.own_kernel_tid, thread.kernel_tid, thread.id),
            }
        }
    }

    fn begin(&mut self, own_tid: u32, tid: u32, id: u32) {
        // The process says the number: it must be one of its own threads.
        if !Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists() {
            return;
        }
        if let Some(event) = self.open(tid) {
            let cpu_ns = 0;
            let carrier = Carrier {
                id,
                event,
                cpu_ns,
                until_lot: SAME_DISTANCE,
            };
            self.events.insert(own_tid, carrier);
        }
    }

    /// Opens an event with as much as the kernel permits.
    fn open(&mut self, tid: u32) -> Option<Event> {
        loop {
            let error = match Event::open(tid, self.settings) {
                Ok(event) => return Some(event),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return None,
                Err(error) => error,
            };
            if self.settings.with_kernel && self.events.is_empty() {
                self.settings.with_kernel = false;
            } else if let Some(fewer) = PAGES.into_iter().find(|&it| it < self.settings.pages) {
                self.settings.pages = fewer;
            } else {
                self.refusal = Some(error);
                return None;
            }
        }
    }

    /// Calls `each` with the samples since the last call, carrier by carrier.
    pub fn take(&mut self, mut each: impl FnMut(RunningSample)) {
        let period_ns = self.period_ns;
        // Where the kernel is not sampled, its time is no part of the next sample.
        let most_ns = if self.settings.with_kernel {
            u64::MAX
        } else {
            period_ns + period_ns / 2
        };
        for carrier in self.events.values_mut() {
            let (id, cpu_ns) = (carrier.id, &mut carrier.cpu_ns);
            let mut sampled_here = 0;
            let mapped = &mut self.mapped;
            let map = |code| {
                if mapped.len() < MAPPED_MAX {
                    mapped.push(code);
                }
            };
            let sampled = |sample: Sample| {
                sampled_here += 1;
                let ns = sample.cpu_ns.saturating_sub(*cpu_ns).min(most_ns);
                *cpu_ns = sample.cpu_ns;
                each(RunningSample {
                    carrier: id,
                    thread: None,
                    boot_ns: sample.boot_ns,
                    ns,
                    sample,
                });
            };
            self.lost += carrier.event.take(sampled, map);
            carrier.until_lot = carrier.until_lot.saturating_sub(sampled_here);
            if carrier.until_lot == 0 {
                carrier.event.set_period(self.lots.around_ns(period_ns));
                carrier.until_lot = SAME_DISTANCE;
            }
        }
    }

    /// Returns the code that carriers have mapped, as far as [`Series::take`] has found it since
    /// the last call.
    pub fn take_mapped(&mut self) -> Vec<MappedCode> {
        std::mem::take(&mut self.mapped)
    }

    /// Forgets carriers without a kernel thread any more.
    pub fn forget_ended(&mut self) {
        let ended = ended(self.events.values().map(|carrier| &carrier.event));
        if !ended.is_empty() {
            let is_ended = |event: &Event| ended.contains(&event.as_fd().as_raw_fd());
            self.events.retain(|_, carrier| !is_ended(&carrier.event));
        }
    }

    /// Returns the descriptors that are readable when there are samples.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let events = self.events.values();
        events.map(|carrier| carrier.event.as_fd().as_raw_fd())
    }

    /// Returns true if system calls and faults are sampled, too.
    pub fn is_with_kernel(&self) -> bool {
        self.settings.with_kernel
    }

    /// Returns true if a kernel thread has an event, by its number in the process's own namespace.
    pub fn has(&self, own_tid: u32) -> bool {
        self.events.contains_key(&own_tid)
    }

    /// Returns why a carrier could not be sampled, if that happened.
    pub fn refusal(&self) -> Option<&io::Error> {
        self.refusal.as_ref()
    }

    /// Returns how many samples the kernel had no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
