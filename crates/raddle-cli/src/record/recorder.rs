//! Recording: events, samples of carriers, and stacks of threads that wait, until the end.
//!
//! The process goes on meanwhile, and may map other code. Names hold for what is mapped, so the
//! recording is a row of epochs, in each of which the mappings are the same.
//!
//! One turn of the loop, in each interval:
//!
//! 1. Take the samples: those of perf events, or the runtime's own where the kernel refuses these.
//! 2. Take the events. A sample is of the thread that its carrier ran at that time.
//! 3. Read the frames of the samples.
//! 4. Read the stacks of threads that have begun to wait and wait still.
//!
//! Where many threads wait, several intervals pass between two turns. Steps 1 to 3 are done more
//! often while rings fill up fast, and after each sample if a part of the frames is read from
//! memory that changes.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::{ThreadState, WaitKind};
use raddle_record::clock::Moment;
use raddle_record::history::{History, Position, StackNumber, Unread};
use raddle_record::profile::{Activity, Interner};
use raddle_record::wakers::Wakers;
use raddle_record::weights::OnCpu;
use raddle_stacks::locks::{ObjectKind, Variables, waited_for};
use raddle_stacks::{
    Captured, Kind, ManagedFrame, Module, Modules, OwnSeries, ProcessMemory, RunningSample, Series,
    Stack, StackReader, Symbols, Target, WakeSeries,
};

use super::bound::Bound;
use super::chooser::Chooser;
use super::cpu_clock::CpuClock;
use super::mappings::{Mappings, Root};
use super::names;
use crate::failure::Failure;
use crate::recording::{Recording, command};

/// The runtime samples a wake-up for so many samples of a carrier.
const WAKES_PART: u32 = 2;
/// The least time between two turns of the loop.
const REST: Duration = Duration::from_millis(1);
/// The most time between two turns.
const LONGEST: Duration = Duration::from_millis(50);
/// From so many threads with stacks to read on, looks are so many intervals apart.
const MANY: usize = 128;
const MANY_INTERVALS: u32 = 5;
/// How often new carriers and the names of new threads are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// How often the names of old threads are looked for.
const NAMES: Duration = Duration::from_secs(1);
/// Of the time for names, at most this part is spent.
const NAMES_PART: u32 = 400;
/// The most samples of carriers that are kept.
const ON_CPU_MAX: usize = 1 << 21;
/// The most objects of which names are looked for.
const OBJECTS_MAX: usize = 1 << 13;
/// The most looks at holders of locks that are kept.
const HOLDERS_MAX: usize = 1 << 20;
/// The most descriptors that are waited for.
const DESCRIPTORS_MAX: usize = 1 << 8;

/// See the module.
pub(super) struct Recorder {
    pub pid: u32,
    pub command: Vec<String>,
    recording: Recording,
    pub bound: Bound,
    cpu_clock: Option<CpuClock>,
    /// The most CPU time that the process can have used.
    pub most_cpu_ns: Option<u64>,
    root: Root,
    pub series: Series,
    /// The runtime's own samples of carriers, if the kernel has refused events.
    pub own_series: Option<OwnSeries>,
    /// Carriers are sampled while they execute.
    is_sampled: bool,
    frequency: u32,
    /// The runtime's samples of wake-ups, from the first epoch on.
    pub wake_series: Option<WakeSeries>,
    pub wakers: Wakers,
    pub history: History,
    pub on_cpu: Vec<OnCpu>,
    /// Threads that held what others waited for when these were looked at.
    pub holders: Vec<Holding>,
    pub interner: Interner,
    /// The stacks of the readers, by epochs.
    pub epochs: Vec<Epoch>,
    /// Those of which the names are not read yet.
    unnamed_epochs: Vec<UnnamedEpoch>,
    /// Epochs until now.
    epoch: u32,
    /// The names of objects that threads waited for.
    pub names: HashMap<(WaitKind, u64), String>,
    /// Those without a name yet, which are addresses.
    unnamed: Vec<(WaitKind, u64)>,
    chooser: Chooser,
    pub interval: Duration,
    pub begin: Moment,
    pub end: Moment,
    pub lost_events: u64,
    /// Samples that wait for events.
    pending: VecDeque<RunningSample>,
    looked: Instant,
    named: Instant,
    naming: Duration,
    pub remarks: Vec<String>,
    /// The process has a runtime with locks that no word tells apart: only what ends a wait for
    /// one says which thread held it.
    has_managed_locks: bool,
}

/// A thread that held a lock when a waiter's stack was read.
pub(super) struct Holding {
    pub lock: (WaitKind, u64),
    pub thread: Position,
    /// None while it executes.
    pub stack: Option<StackNumber>,
    /// The number of such waits for which this one stands.
    pub stands_for: f64,
}

/// The stacks that a reader has read.
pub(super) struct Epoch {
    /// Their numbers in the interner.
    pub stacks: Vec<u32>,
    /// What a thread with such a stack waits for on a futex, if that is known.
    pub waits: Vec<Option<ObjectKind>>,
}

/// What a reader has read, and what the names are looked up in.
struct UnnamedEpoch {
    memory: ProcessMemory,
    modules: Modules,
    stacks: Vec<Stack>,
    managed: Vec<ManagedFrame>,
}

/// Why an epoch has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The process has mapped other code.
    OtherCode,
    ByRequest,
    /// The process has ended, or executes another program.
    Process,
}

impl Recorder {
    /// Begins to record. Without `is_sampled`, carriers are not sampled while they execute.
    pub(super) fn start(pid: u32, frequency: u32, is_sampled: bool) -> Result<Recorder> {
        let interval = Duration::from_secs(1) / frequency;
        let mut recording = Recording::start(pid)?;
        let begin = Moment::now();
        let mut history = History::new(begin.boot_ns);
        for record in recording.threads() {
            history.was_there(&record);
            history.name(record.tid, record.name_bytes());
        }
        let cpu_clock = CpuClock::begin(pid);
        let mut bound = Bound::new(pid);
        bound.count_now(recording.bound(), &history);
        let now = Instant::now();
        Ok(Recorder {
            pid,
            command: command(pid),
            recording,
            bound,
            cpu_clock,
            most_cpu_ns: None,
            root: Root::of(pid)?,
            series: Series::new(pid, interval.as_nanos() as u64),
            own_series: None,
            is_sampled,
            frequency,
            wake_series: None,
            wakers: Wakers::default(),
            history,
            on_cpu: Vec::new(),
            holders: Vec::new(),
            interner: Interner::default(),
            epochs: Vec::new(),
            unnamed_epochs: Vec::new(),
            epoch: 0,
            names: HashMap::new(),
            unnamed: Vec::new(),
            chooser: Chooser::new(begin.stamp, frequency),
            interval,
            begin,
            end: begin,
            lost_events: 0,
            pending: VecDeque::new(),
            looked: now,
            named: now,
            naming: Duration::ZERO,
            remarks: Vec::new(),
            has_managed_locks: false,
        })
    }

    /// Records until `ends` says so, or the process ends.
    pub(super) fn record(&mut self, ends: &dyn Fn() -> bool) -> Result<()> {
        while self.epoch(ends)? == Ended::OtherCode {}
        self.end = Moment::now();
        self.most_cpu_ns = self.cpu_clock.as_mut().map(CpuClock::most_ns);
        self.bound.count_now(self.recording.bound(), &self.history);
        self.lost_events = self.recording.lost();
        self.name_all();
        Ok(())
    }

    /// Records while the process's code is the same.
    fn epoch(&mut self, ends: &dyn Fn() -> bool) -> Result<Ended> {
        let memory = ProcessMemory::of(self.pid);
        let layout = self.recording.layout();
        let Ok((modules, mappings)) = self.root.modules(self.pid) else {
            return Ok(Ended::Process);
        };
        let target = Target {
            pid: self.pid,
            memory: &memory,
            layout: &layout,
            carriers: &[],
            modules: &modules,
            started_ns: self.recording.started_ns(),
            stopped: None,
        };
        let mut reader = StackReader::new(&target).ok_or_else(|| {
            Failure::input(
                format!(
                    "what process {} says of its tables makes no sense",
                    self.pid
                ),
                "use its own raddle",
            )
        })?;
        let has_managed_locks = |module: &Module| {
            let starts = ["libjvm.so", "libpython3", "python"];
            starts.iter().any(|start| module.name().starts_with(start))
        };
        self.has_managed_locks |= modules.modules.iter().any(has_managed_locks);
        let ended = self.follow(&target, &mut reader, mappings, ends)?;
        let (stacks, managed) = reader.into_parts();
        self.epoch += 1;
        self.bound.begin_epoch();
        self.unnamed_epochs.push(UnnamedEpoch {
            memory,
            modules,
            stacks,
            managed,
        });
        Ok(ended)
    }

    /// Names all stacks, which may take a while.
    fn name_all(&mut self) {
        self.name_descriptors();
        let layout = self.recording.layout();
        let code = layout.code.text_start..layout.code.text_end;
        for epoch in std::mem::take(&mut self.unnamed_epochs) {
            let (memory, modules) = (&epoch.memory, &epoch.modules);
            let target = Target {
                pid: self.pid,
                memory,
                layout: &layout,
                carriers: &[],
                modules,
                started_ns: self.recording.started_ns(),
                stopped: None,
            };
            let mut symbols = Symbols::new(memory, modules);
            let (stacks, managed) = (&epoch.stacks, &epoch.managed);
            let code = code.clone();
            let numbers = names::intern(stacks, managed, &mut symbols, code, &mut self.interner);
            let waits = stacks.iter();
            let waits = waits.map(|stack| waited_for(&target, stack, &mut symbols));
            self.epochs.push(Epoch {
                stacks: numbers,
                waits: waits.collect(),
            });
            self.remarks.extend(symbols.shortcoming());
            self.name_variables(&target);
        }
    }

    fn follow(
        &mut self,
        target: &Target<'_>,
        reader: &mut StackReader<'_>,
        mut mappings: Mappings,
        ends: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        let mut next = Instant::now();
        let mut looked = next - self.interval;
        self.series.set_prompt(reader.must_be_prompt());
        self.follow_carriers(target);
        loop {
            let is_over = ends();
            let goes_on = self.turn(target, reader, is_over)?;
            if is_over || !goes_on {
                return Ok(if is_over {
                    Ended::ByRequest
                } else {
                    Ended::Process
                });
            }
            let now = Instant::now();
            if now >= next {
                let look = now - std::mem::replace(&mut looked, now);
                let fresh = self.history.fresh(look.as_nanos() as u64);
                next = now + self.look_after(fresh.len());
                self.read_waits(reader, fresh);
                let at_ns = self.recording.told_ns();
                self.bound
                    .look(reader, &mut self.chooser, self.epoch, at_ns);
            }
            if self.looked.elapsed() >= LOOK {
                self.looked = now;
                self.cpu_clock.as_mut().map(CpuClock::read);
                self.series.forget_ended();
                self.series.set_prompt(reader.must_be_prompt());
                self.name_threads();
                self.follow_carriers(target);
                self.bound.count(self.recording.bound(), &self.history);
                self.name_descriptors();
            }
            if mappings.are_others(self.pid, target.modules) {
                return Ok(Ended::OtherCode);
            }
            let pause = next.saturating_duration_since(Instant::now()).min(LONGEST);
            self.wait(pause.min(self.recording.patience()));
        }
    }

    /// Begins to sample new carriers, if samples are wanted: by perf events, and by the runtime
    /// where there are none.
    fn follow_carriers(&mut self, target: &Target<'_>) {
        if self.wake_series.is_none() && (self.is_sampled || self.has_managed_locks) {
            self.wake_series = Some(WakeSeries::begin(target));
            self.recording.sample_wakes(self.frequency / WAKES_PART);
        }
        if !self.is_sampled {
            return;
        }
        let bound = self.recording.bound();
        self.series.follow(target, bound);
        if self.own_series.is_none() && self.series.refusal().is_some() {
            self.own_series = Some(OwnSeries::begin(target, bound));
            self.recording.sample(self.frequency);
        }
    }

    /// Waits for so long, or for a sample that has to be read promptly.
    fn wait(&self, pause: Duration) {
        if !self.series.is_prompt() {
            return std::thread::sleep(pause);
        }
        let begun = Instant::now();
        std::thread::sleep(REST.min(pause));
        let left = pause.saturating_sub(begun.elapsed());
        let mut polled: Vec<libc::pollfd> = self
            .series
            .descriptors()
            .take(DESCRIPTORS_MAX)
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let left = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        };
        // SAFETY: so many live structures, and a time.
        unsafe {
            let count = polled.len() as libc::nfds_t;
            libc::ppoll(
                polled.as_mut_ptr(),
                count,
                &raw const left,
                std::ptr::null(),
            )
        };
    }

    /// Takes samples and events. Returns false if the process has ended.
    fn turn(
        &mut self,
        target: &Target<'_>,
        reader: &mut StackReader<'_>,
        all: bool,
    ) -> Result<bool> {
        let pending = &mut self.pending;
        self.series.take(|sample| pending.push_back(sample));
        if let Some(own) = &mut self.own_series {
            let boot_ns = |stamp| self.recording.boot_ns(stamp);
            let has_event = |tid| self.series.has(tid);
            own.take(
                target,
                self.recording.bound(),
                &boot_ns,
                &has_event,
                |sample| {
                    pending.push_back(sample);
                },
            );
        }
        pending
            .make_contiguous()
            .sort_by_key(|sample| sample.boot_ns);
        let mut found: Vec<(RunningSample, (u32, Position))> = Vec::new();
        let history = &mut self.history;
        let mut attribute = |history: &History, pending: &mut VecDeque<RunningSample>, up_to| {
            while let Some(sample) = pending.pop_front_if(|it| it.boot_ns < up_to) {
                let thread = match sample.thread {
                    Some(tid) => history.position(tid).map(|position| (tid, position)),
                    None => history.running(sample.carrier),
                };
                if let Some(thread) = thread {
                    found.push((sample, thread));
                }
            }
        };
        let (wakers, clock) = (&mut self.wakers, self.recording.clock());
        let mut series = self.wake_series.as_mut();
        let goes_on = self.recording.poll(all, |timed, _| {
            attribute(history, pending, timed.boot_ns);
            if let Some(series) = series.as_mut().filter(|_| wakers.is_due(&timed.event)) {
                let stamp = Moment::now().stamp;
                wakers.add(series.take(target), stamp);
            }
            wakers.event(history, &timed.event, timed.boot_ns, &clock);
            history.event(timed.lane, &timed.event, timed.boot_ns);
        })?;
        attribute(history, pending, self.recording.told_ns());
        let epoch = self.epoch;
        self.wakers.read(|sample| {
            let numbers = reader.woken(sample);
            numbers.map(|number| number.map(|number| StackNumber { epoch, number }))
        });
        for (sample, (tid, thread)) in found {
            if self.on_cpu.len() < ON_CPU_MAX
                && let Some(number) = reader.sampled(tid, &sample)
            {
                self.on_cpu.push(OnCpu {
                    thread,
                    stack: StackNumber { epoch, number },
                    at_ns: sample.boot_ns,
                    ns: sample.ns,
                });
            }
        }
        Ok(goes_on)
    }

    /// Returns the time until the next look, after one that found so many threads with stacks to
    /// read. Where only some of them are read, looks needn't be as many: what is known of threads
    /// has left the CPU's caches at each.
    fn look_after(&self, found: usize) -> Duration {
        let usual = self.interval.max(REST);
        if found < MANY || self.series.is_prompt() {
            return usual;
        }
        usual.max(LONGEST.min(usual * MANY_INTERVALS))
    }

    /// Reads stacks of threads that wait or are runnable: first of those that have begun to since
    /// the last call, then of those that were not chosen before.
    fn read_waits(&mut self, reader: &mut StackReader<'_>, fresh: Vec<Unread>) {
        let mut missed = Vec::new();
        let chance = self.chooser.chance(fresh.len());
        for unread in fresh {
            if !(self.chooser.draws(chance) && self.read_wait(reader, unread, chance)) {
                missed.push(unread);
            }
        }
        while self.chooser.can_afford_one()
            && let Some(unread) = self.history.put_back_before()
        {
            if !self.read_wait(reader, unread, 1.0) {
                missed.push(unread);
            }
        }
        for unread in missed {
            self.history.put_back(unread);
        }
    }

    /// Returns false if the thread was not found, or not in this span: a later look may find it.
    fn read_wait(&mut self, reader: &mut StackReader<'_>, unread: Unread, chance: f64) -> bool {
        let begun = Instant::now();
        let captured = reader.read(unread.tid);
        if let Activity::Waiting(kind @ (WaitKind::FUTEX | WaitKind::MUTEX)) = unread.activity {
            self.read_holder(reader, (kind, unread.object), chance);
        }
        self.chooser.spent(begun.elapsed());
        let epoch = self.epoch;
        let Some(captured) = captured.filter(|it| is_still(it, &unread)) else {
            return false;
        };
        if let Some(number) = captured.stack {
            let stack = StackNumber { epoch, number };
            self.history.mark(&unread, stack, chance);
        }
        true
    }

    /// Reads what the holder of a lock does.
    fn read_holder(&mut self, reader: &mut StackReader<'_>, lock: (WaitKind, u64), chance: f64) {
        let Some(tid) = reader.holder(lock.1) else {
            return;
        };
        let Some(thread) = self.history.position(tid) else {
            return;
        };
        let epoch = self.epoch;
        let stack = reader.read(tid).and_then(|captured| captured.stack);
        if self.holders.len() < HOLDERS_MAX {
            self.holders.push(Holding {
                lock,
                thread,
                stack: stack.map(|number| StackNumber { epoch, number }),
                stands_for: 1.0 / chance,
            });
        }
    }

    /// Looks for the names of what threads wait for: descriptors now, before they are closed.
    fn name_descriptors(&mut self) {
        for (kind, object) in self.history.new_objects() {
            if self.names.len() + self.unnamed.len() >= OBJECTS_MAX {
                return;
            }
            if kind.is_address() {
                self.unnamed.push((kind, object));
            } else if kind.is_descriptor() {
                let path = fs::read_link(format!("/proc/{}/fd/{object}", self.pid));
                let name = path.ok().map(|path| path.to_string_lossy().into_owned());
                self.names.extend(name.map(|name| ((kind, object), name)));
            }
        }
    }

    /// Looks for the names of static variables.
    fn name_variables(&mut self, target: &Target<'_>) {
        let mut variables = Variables::new(target.memory, target.modules);
        let names = &mut self.names;
        self.unnamed.retain(|&(kind, object)| {
            let name = variables.name(object);
            let is_unnamed = name.is_none();
            names.extend(name.map(|name| ((kind, object), name)));
            is_unnamed
        });
    }

    /// Looks for the names of threads, unless that costs too much.
    fn name_threads(&mut self) {
        let since = self.named.elapsed();
        if since < self.naming * NAMES_PART || (since < NAMES && !self.history.has_new_threads()) {
            return;
        }
        let begun = Instant::now();
        for record in self.recording.threads() {
            self.history.name(record.tid, record.name_bytes());
        }
        self.named = Instant::now();
        self.naming = begun.elapsed();
    }
}

/// Returns true if a thread was still in the span when it was read.
fn is_still(captured: &Captured, unread: &Unread) -> bool {
    let record = &captured.record;
    match unread.activity {
        Activity::Waiting(WaitKind::SLEEP) => record.wait_kind == WaitKind::SLEEP,
        Activity::Waiting(kind) => {
            record.wait_kind == kind && (unread.object == 0 || record.wait_arg == unread.object)
        }
        Activity::Runnable => record.state == ThreadState::RUNNABLE,
        Activity::InKernel => matches!(captured.kind, Kind::InKernel(_) | Kind::LentToChild),
        Activity::Running | Activity::WithoutCpu => false,
    }
}
