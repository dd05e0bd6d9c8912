//! Recording: events, samples of carriers, and stacks of threads that wait, until the end.
//!
//! The process goes on meanwhile, and may map other code. Names hold for what is mapped, so the
//! recording is a row of epochs: see `epochs`.
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

mod epochs;
mod objects;
mod pace;
mod waits;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_inspect::{EventKind, WaitKind};
use raddle_record::clock::Moment;
use raddle_record::history::{History, Look, Position, SpanKey, StackNumber, Unread};
use raddle_record::profile::{Activity, Interner};
use raddle_record::wakers::Wakers;
use raddle_record::weights::OnCpu;
use raddle_stacks::{
    Module, MonitorObjects, OwnSeries, ProcessMemory, RunningSample, Series, StackReader, Target,
    WakeSeries,
};

use super::bound::Bound;
use super::chooser::Chooser;
use super::cpu_clock::CpuClock;
use super::idle::Idle;
use super::mappings::Mappings;
use super::sitting::Sitting;
use crate::failure::Failure;
use crate::recording::{Recording, Timed, command};
pub(super) use epochs::Epoch;
use epochs::Epochs;
use objects::Objects;
use pace::{Pace, REST};

/// The runtime samples a wake-up for so many samples of a carrier.
const WAKES_PART: u32 = 2;
/// The kinds of waits that can be for locks.
const LOCK_WAITS: [WaitKind; 3] = [WaitKind::FUTEX, WaitKind::MUTEX, WaitKind::SEMAPHORE];
/// How often new carriers and the names of new threads are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// So many events are told at a time: what they need is fetched for all of them first.
const BATCH: usize = 16;
/// How late the end of a recording may be noticed.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often the names of old threads are looked for.
const NAMES: Duration = Duration::from_secs(1);
/// Of the time for names, at most this part is spent.
const NAMES_PART: u32 = 400;
/// The most samples of carriers that are kept.
const ON_CPU_MAX: usize = 1 << 21;
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
    pub sitting: Sitting,
    cpu_clock: Option<CpuClock>,
    /// The most CPU time that the process can have used.
    pub most_cpu_ns: Option<u64>,
    pub series: Series,
    /// The runtime's own samples of carriers, if the kernel has refused events.
    pub own_series: Option<OwnSeries>,
    /// Carriers are sampled while they execute.
    pub is_sampled: bool,
    frequency: u32,
    /// The runtime's samples of wake-ups, from the first epoch on.
    pub wake_series: Option<WakeSeries>,
    pub wakers: Wakers,
    pub history: History,
    pub on_cpu: Vec<OnCpu>,
    /// Threads that held what others waited for when these were looked at.
    pub holders: Vec<Holding>,
    /// Threads that had entered monitors of Java which others wanted: the numbers of the objects
    /// are in the place of addresses.
    pub monitor_owners: Vec<Holding>,
    /// The objects of monitors, over all epochs.
    pub monitor_objects: MonitorObjects,
    pub interner: Interner,
    pub epochs: Epochs,
    /// The recording is over, and only what was taken is still to be read.
    over: Option<Ended>,
    /// What threads waited for, with names.
    pub objects: Objects,
    chooser: Chooser,
    idle: Idle,
    pub interval: Duration,
    pub begin: Moment,
    pub end: Moment,
    pub lost_events: u64,
    /// Samples that wait for events.
    pending: VecDeque<RunningSample>,
    /// Samples that wait to be read, with their threads.
    found: VecDeque<(RunningSample, (u32, Position))>,
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
    /// None for readers of a read-write lock, which notes only how many they are.
    pub thread: Option<Position>,
    /// None while it executes.
    pub stack: Option<StackNumber>,
    /// The wait of which the stack was read.
    pub wait: SpanKey,
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
            sitting: Sitting::new(pid),
            cpu_clock,
            most_cpu_ns: None,
            series: Series::new(pid, interval.as_nanos() as u64),
            own_series: None,
            is_sampled,
            frequency,
            wake_series: None,
            wakers: Wakers::default(),
            history,
            on_cpu: Vec::new(),
            holders: Vec::new(),
            monitor_owners: Vec::new(),
            monitor_objects: MonitorObjects::default(),
            interner: Interner::default(),
            epochs: Epochs::of(pid)?,
            over: None,
            objects: Objects::new(pid),
            chooser: Chooser::new(begin.stamp, frequency),
            idle: Idle::new(),
            interval,
            begin,
            end: begin,
            lost_events: 0,
            pending: VecDeque::new(),
            found: VecDeque::new(),
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
        let Ok(modules) = self.epochs.modules(self.pid) else {
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
        let pid = self.pid;
        let mut reader = StackReader::new(&target).ok_or_else(|| {
            let what = format!("what process {pid} says of its tables makes no sense");
            Failure::input(what, "use its own raddle")
        })?;
        let has_managed_locks = |module: &Module| {
            let starts = ["libjvm.so", "libpython3", "python"];
            starts.iter().any(|start| module.name().starts_with(start))
        };
        self.has_managed_locks |= modules.modules.iter().any(has_managed_locks);
        reader.know_objects(std::mem::take(&mut self.monitor_objects));
        let ended = self.follow(&target, &mut reader, ends);
        self.monitor_objects = reader.take_objects();
        let ended = ended?;
        let read = reader.into_parts();
        self.bound.begin_epoch();
        self.sitting.begin_epoch();
        self.epochs.end(memory, modules, read);
        Ok(ended)
    }

    fn follow(
        &mut self,
        target: &Target<'_>,
        reader: &mut StackReader<'_>,
        ends: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        let mut mappings = Mappings::new();
        let mut next = Instant::now();
        let mut look = Look {
            mean_ns: self.interval.as_nanos() as u64,
            late_ns: 0,
        };
        let mut looked = next;
        self.series.set_prompt(reader.must_be_prompt());
        self.follow_carriers(target);
        loop {
            self.cpu_clock.as_mut().map(CpuClock::read);
            if self.over.is_none() {
                let is_over = ends();
                let goes_on = self.turn(target, is_over)?;
                self.over = match (is_over, goes_on) {
                    (true, _) => Some(Ended::ByRequest),
                    (false, true) => None,
                    (false, false) => Some(Ended::Process),
                };
            }
            if self.read_samples(target, reader) {
                return Ok(Ended::OtherCode);
            }
            let now = Instant::now();
            if let Some(over) = self.over {
                if over == Ended::ByRequest {
                    self.read_rest(reader, now - looked);
                }
                return Ok(over);
            }
            if now >= next {
                looked = now;
                look.late_ns = (now - next).as_nanos() as u64;
                let fresh = self.history.fresh(look);
                let mean = self.pace().look_after(fresh.len());
                look.mean_ns = mean.as_nanos() as u64;
                next = now + Pace::pause(mean, self.chooser.lot());
                self.read_waits(reader, self.needed(fresh));
                let at_ns = self.recording.told_ns();
                let epoch = self.epochs.number();
                self.bound.look(reader, &mut self.chooser, epoch, at_ns);
                self.sitting
                    .look(reader, &mut self.chooser, &self.history, epoch, at_ns);
            }
            if self.looked.elapsed() >= LOOK {
                self.looked = now;
                self.chooser.set_idle(self.idle.is_there());
                self.series.forget_ended();
                self.series.set_prompt(reader.must_be_prompt());
                self.name_threads();
                self.follow_carriers(target);
                self.bound.count(self.recording.bound(), &self.history);
                self.look_at_objects();
            }
            if mappings.are_others(self.pid, target.modules) {
                return Ok(Ended::OtherCode);
            }
            let pause = next.saturating_duration_since(Instant::now());
            let most = self.pace().longest().min(self.recording.patience());
            self.wait(pause.min(most), ends);
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
        self.sitting.follow(target);
        let bound = self.recording.bound();
        self.series.follow(target, bound);
        if self.own_series.is_none() && self.series.refusal().is_some() {
            self.own_series = Some(OwnSeries::begin(target, bound));
            self.recording.sample(self.frequency);
        }
    }

    /// Waits for so long, or for a sample that has to be read promptly, or until `ends` says so.
    fn wait(&mut self, pause: Duration, ends: &dyn Fn() -> bool) {
        let begun = Instant::now();
        if !self.series.is_prompt() {
            let left = || pause.saturating_sub(begun.elapsed());
            while !left().is_zero() && !ends() {
                std::thread::sleep(left().min(PATIENCE));
                self.cpu_clock.as_mut().map(CpuClock::read);
            }
            return;
        }
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
    fn turn(&mut self, target: &Target<'_>, all: bool) -> Result<bool> {
        let pending = &mut self.pending;
        self.epochs.begin_to_take();
        self.series.take(|sample| pending.push_back(sample));
        self.epochs.map(self.series.take_mapped());
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
        let found = &mut self.found;
        let history = &mut self.history;
        let mut attribute = |history: &History, pending: &mut VecDeque<RunningSample>, up_to| {
            while let Some(sample) = pending.pop_front_if(|it| it.boot_ns < up_to) {
                let thread = match sample.thread {
                    Some(tid) => history.position(tid).map(|position| (tid, position)),
                    None => history.running(sample.carrier),
                };
                if let Some(thread) = thread {
                    found.push_back((sample, thread));
                }
            }
        };
        let (mut loads, mut has_bound) = (Vec::new(), false);
        let (wakers, clock) = (&mut self.wakers, self.recording.clock());
        let mut series = self.wake_series.as_mut();
        let mut tell = |batch: &mut Vec<Timed>| {
            batch.iter().for_each(|timed| history.expect(&timed.event));
            for timed in batch.drain(..) {
                attribute(history, pending, timed.boot_ns);
                if let Some(series) = series.as_mut().filter(|_| wakers.is_due(&timed.event)) {
                    let stamp = Moment::now().stamp;
                    wakers.add(series.take(target), stamp);
                }
                match timed.event.kind {
                    EventKind::CODE => {
                        loads.push((timed.boot_ns, timed.event.arg, timed.event.other));
                    }
                    EventKind::BIND => has_bound = true,
                    _ => {}
                }
                wakers.event(history, &timed.event, timed.boot_ns, &clock);
                history.event(timed.lane, &timed.event, timed.boot_ns);
            }
        };
        let mut batch = Vec::with_capacity(BATCH);
        let goes_on = self.recording.poll(all, |timed, _| {
            batch.push(*timed);
            if batch.len() == BATCH {
                tell(&mut batch);
            }
        })?;
        tell(&mut batch);
        attribute(history, pending, self.recording.told_ns());
        if has_bound {
            self.bound.count_now(self.recording.bound(), &self.history);
            self.follow_carriers(target);
        }
        if !self.is_sampled || self.series.refusal().is_some() {
            let (pid, modules) = (self.pid, target.modules);
            self.epochs.map_by_loader(pid, modules, &loads);
        }
        Ok(goes_on)
    }

    /// Reads the samples that were taken before the process mapped other code. Returns true if it
    /// has mapped some.
    fn read_samples(&mut self, target: &Target<'_>, reader: &mut StackReader<'_>) -> bool {
        let epoch = self.epochs.number();
        let others_ns = self.epochs.other_code_ns(target.modules);
        let up_to_ns = match self.over {
            Some(_) => u64::MAX,
            None => self.epochs.taken_ns(),
        };
        let up_to_ns = others_ns.unwrap_or(u64::MAX).min(up_to_ns);
        // They are of rings that were read one after another.
        let found = self.found.make_contiguous();
        found.sort_by_key(|(sample, _)| sample.boot_ns);
        while let Some((sample, (tid, thread))) =
            self.found.pop_front_if(|it| it.0.boot_ns < up_to_ns)
        {
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
        if others_ns.is_none() {
            self.wakers.read(|sample| {
                let numbers = reader.woken(sample);
                numbers.map(|number| number.map(|number| StackNumber { epoch, number }))
            });
        }
        others_ns.is_some()
    }

    fn pace(&self) -> Pace {
        Pace {
            interval: self.interval,
            samples_kept: self.series.samples_kept(),
            is_prompt: self.series.is_prompt(),
            is_untold: self.is_sampled && self.series.refusal().is_some(),
        }
    }

    /// Returns the spans of which the stacks are needed. If only locks are asked for, and a word in
    /// memory tells each of them apart, no other wait is told.
    fn needed(&self, mut fresh: Vec<Unread>) -> Vec<Unread> {
        if self.tells_locks_alone() {
            fresh.retain(|it| LOCK_WAITS.map(Activity::Waiting).contains(&it.activity));
        }
        fresh
    }

    fn tells_locks_alone(&self) -> bool {
        !self.is_sampled && !self.has_managed_locks
    }

    /// Looks for the names of what threads have begun to wait for.
    fn look_at_objects(&mut self) {
        let mut new = self.history.new_objects();
        if self.tells_locks_alone() {
            new.retain(|(kind, _)| LOCK_WAITS.contains(kind));
        }
        self.objects.look(new);
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
