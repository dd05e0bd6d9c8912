//! What the tables say at one moment, and what has happened since an earlier one.
//!
//! A *look* reads all threads and carriers. A *frame* is an interval, from one look to a later one:
//! what is shown is of the last look, with what each thread did in the frame. There may be looks
//! within a frame: a lint is only true if it is at each.
//!
//! A thread has *not run since* a look if it has the same count of turns and the same state at that
//! one, the last one, and all between.

use std::collections::HashMap;

use raddle_inspect::{CarrierState, Histogram, ThreadFlags, ThreadRecord, ThreadState};
use raddle_stacks::{CarrierSlot, EngineSlot, KernelTimes, Threads, carriers};

use super::source::{Condition, Source, Stat};

/// The most bound carriers that are read.
const BOUND_MAX: usize = 1 << 12;

/// A thread at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// With all CPU time that was counted, the running slice too.
    pub record: ThreadRecord,
    /// In the frame: CPU time, ends of waits, turns, preemptions.
    pub cpu_ns: u64,
    pub wakes: u64,
    pub turns: u64,
    pub preempts: u64,
    /// It has not run since this time; the time of the last look if it has.
    pub still_since_ns: u64,
}

impl Row {
    pub(super) fn is_bound(&self) -> bool {
        self.record.flags.contains(ThreadFlags::BOUND)
    }

    /// Returns since when the state lasts, as far as the process has measured it or the looks tell;
    /// 0 if that isn't known.
    pub(super) fn since_ns(&self) -> u64 {
        match self.record.state {
            ThreadState::RUNNABLE if self.record.since_ns == 0 => self.still_since_ns,
            _ => self.record.since_ns,
        }
    }
}

/// A carrier at the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct CarrierRow {
    pub slot: CarrierSlot,
    /// In the frame: CPU time of its kernel thread, and for how long that waited for a CPU. `None`
    /// where the kernel doesn't tell.
    pub cpu_ns: Option<u64>,
    pub cpu_wait_ns: Option<u64>,
    pub turns: u64,
    pub steals: u64,
    pub preempts: u64,
    /// Since when another carrier runs in its place, as the looks tell; `None` if none does.
    pub blocked_since_ns: Option<u64>,
}

/// How many threads are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct States {
    pub running: u64,
    pub runnable: u64,
    pub waiting: u64,
    pub exiting: u64,
    /// Of all these.
    pub bound: u64,
}

/// What is shown.
pub(super) struct Frame {
    pub condition: Condition,
    /// The time of the last look, and of the one with which the frame began.
    pub now_ns: u64,
    pub begin_ns: u64,
    pub started_ns: u64,
    pub rows: Vec<Row>,
    pub states: States,
    pub carriers: Vec<CarrierRow>,
    pub engines: Vec<EngineSlot>,
    /// Of delays in the frame: from a wake-up to running, a sample, and from runnable to running.
    pub wake_ups: Histogram,
    pub delays: Histogram,
    /// All wake-ups of the sample so far.
    pub wake_ups_ever: Histogram,
    /// Times that a carrier was replaced because it waited in the kernel: in the frame, and ever.
    pub blocked: u64,
    pub blocked_ever: u64,
    /// CPU time of the whole process in the frame.
    pub process_cpu_ns: u64,
}

impl Frame {
    pub(super) fn interval_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.begin_ns).max(1)
    }

    /// Returns what part of the frame a time is, in percent.
    pub(super) fn percent(&self, ns: u64) -> f64 {
        ns as f64 * 100.0 / self.interval_ns() as f64
    }

    /// Returns how often a second something has happened.
    pub(super) fn per_second(&self, times: u64) -> f64 {
        times as f64 * 1e9 / self.interval_ns() as f64
    }

    /// Returns the carriers that run threads of their engines.
    pub(super) fn pool(&self) -> impl Iterator<Item = &CarrierRow> {
        self.carriers.iter().filter(|it| !it.slot.is_bound)
    }

    /// Returns the CPU time of all threads in the frame.
    pub(super) fn threads_cpu_ns(&self) -> u64 {
        self.rows.iter().map(|row| row.cpu_ns).sum()
    }

    /// Returns how many carriers may be active.
    pub(super) fn wanted(&self) -> u64 {
        let wanted = |engine: &EngineSlot| u64::from(engine.wanted) + u64::from(engine.extra);
        self.engines.iter().map(wanted).sum()
    }
}

/// What is remembered of a slot.
#[derive(Clone, Copy, Default)]
struct Past {
    tid: u32,
    state: u32,
    /// At the last look.
    turns: u64,
    still_since_ns: u64,
    /// At the first look of the frame.
    base: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    cpu_ns: u64,
    turns: u64,
    park: u64,
    preempt: u64,
}

/// What is remembered of a carrier, at the first look of the frame.
#[derive(Clone, Copy, Default)]
struct CarrierPast {
    times: Option<KernelTimes>,
    turns: u64,
    steal: u64,
    preempt: u64,
}

/// What is remembered of the process, at the first look of the frame.
struct Base {
    at_ns: u64,
    wake_ups: Histogram,
    delays: Histogram,
    blocked: u64,
    cpu_ns: u64,
}

/// Takes looks, and makes frames of them.
#[derive(Default)]
pub(super) struct Looker {
    past: Vec<Past>,
    carriers: HashMap<u64, CarrierPast>,
    blocked_since: HashMap<u64, u64>,
    base: Option<Base>,
    rows: Vec<Row>,
    bound: Vec<u64>,
}

impl Looker {
    /// Takes a look. The frame since the base is returned; the base is the first look, or the last
    /// one with `ends_frame`. If the process is gone, `None`.
    pub(super) fn look(
        &mut self,
        source: &mut Source,
        ends_frame: bool,
    ) -> Result<Frame, Condition> {
        let condition = source.begin_look();
        if !condition.is_there() {
            return Err(condition);
        }
        if self.base.is_none() {
            self.find_bound(source);
        }
        let frame = self.read(source, condition, ends_frame);
        source.end_look();
        // What was read of a process that ended or became another meanwhile is nothing.
        match source.condition() {
            gone if !gone.is_there() => Err(gone),
            _ => frame.ok_or(Condition::Ended),
        }
    }

    /// Returns true once a look was taken.
    pub(super) fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Takes back a frame's memory.
    pub(super) fn recycle(&mut self, frame: Frame) {
        self.rows = frame.rows;
    }

    /// Finds the carriers of bound threads, which are in no list, for the first look.
    fn find_bound(&mut self, source: &Source) {
        let bound = &mut self.bound;
        if let Some(mut threads) = Threads::of(&source.target()) {
            threads.for_each(|slot| note_bound(bound, slot.bound));
        }
    }

    fn read(&mut self, source: &Source, condition: Condition, ends_frame: bool) -> Option<Frame> {
        let found = carriers(source.memory(), source.layout(), &self.bound);
        let now_ns = source.now_ns();
        let cpu_ns = Stat::of(source.pid)?.cpu_ns;
        let is_first = self.base.is_none();
        let base = self.base.get_or_insert(Base {
            at_ns: now_ns,
            wake_ups: found.wake_ups,
            delays: found.delays,
            blocked: found.blocked,
            cpu_ns,
        });
        let mut frame = Frame {
            condition,
            now_ns,
            begin_ns: base.at_ns,
            started_ns: source.header().started_ns,
            rows: Vec::new(),
            states: States::default(),
            carriers: Vec::new(),
            engines: found.engines,
            wake_ups: difference(&found.wake_ups, &base.wake_ups),
            delays: difference(&found.delays, &base.delays),
            wake_ups_ever: found.wake_ups,
            blocked: found.blocked.saturating_sub(base.blocked),
            blocked_ever: found.blocked,
            process_cpu_ns: cpu_ns.saturating_sub(base.cpu_ns),
        };
        if ends_frame {
            *base = Base {
                at_ns: now_ns,
                wake_ups: found.wake_ups,
                delays: found.delays,
                blocked: found.blocked,
                cpu_ns,
            };
        }
        let running = self.read_carriers(source, &found.carriers, &mut frame, ends_frame);
        self.read_threads(source, &running, &mut frame, (is_first, ends_frame))?;
        Some(frame)
    }

    /// Returns what the running threads have used of their slices, by their ids.
    fn read_carriers(
        &mut self,
        source: &Source,
        found: &[CarrierSlot],
        frame: &mut Frame,
        ends_frame: bool,
    ) -> HashMap<u32, u64> {
        let mut running = HashMap::new();
        let mut blocked = HashMap::new();
        let mut bases = HashMap::new();
        for slot in found {
            let record = &slot.record;
            // Of bound carriers, of which there may be many, only those that run.
            let is_asked = !slot.is_bound || record.current_tid != 0;
            let times = if is_asked && record.kernel_tid != 0 {
                KernelTimes::of(source.pid, source.here(record.kernel_tid))
            } else {
                None
            };
            if record.current_tid != 0 {
                let cpu_ns = times.map(|it| it.cpu_ns);
                let used_ns = slot.slice.used_ns(frame.now_ns, cpu_ns);
                running.insert(record.current_tid, used_ns);
            }
            let blocked_since_ns = (record.state == CarrierState::BLOCKED).then(|| {
                let since = self.blocked_since.get(&slot.address);
                *blocked
                    .entry(slot.address)
                    .or_insert(since.copied().unwrap_or(frame.now_ns))
            });
            let now = CarrierPast {
                times,
                turns: record.switches,
                steal: record.steal,
                preempt: record.preempt,
            };
            let past = *self.carriers.get(&slot.address).unwrap_or(&now);
            let part = |of: fn(KernelTimes) -> u64| {
                Some(of(times?).saturating_sub(of(past.times.or(times)?)))
            };
            frame.carriers.push(CarrierRow {
                slot: *slot,
                cpu_ns: part(|it| it.cpu_ns),
                cpu_wait_ns: part(|it| it.delay_ns),
                turns: record.switches.saturating_sub(past.turns),
                steals: record.steal.saturating_sub(past.steal),
                preempts: record.preempt.saturating_sub(past.preempt),
                blocked_since_ns,
            });
            bases.insert(slot.address, if ends_frame { now } else { past });
        }
        self.carriers = bases;
        self.blocked_since = blocked;
        running
    }

    fn read_threads(
        &mut self,
        source: &Source,
        running: &HashMap<u32, u64>,
        frame: &mut Frame,
        (is_first, ends_frame): (bool, bool),
    ) -> Option<()> {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        self.bound.clear();
        let (past, bound, states) = (&mut self.past, &mut self.bound, &mut frame.states);
        let mut threads = Threads::of(&source.target())?;
        let now_ns = frame.now_ns;
        let is_read = threads.for_each(|slot| {
            let number = slot.number as usize;
            if past.len() <= number {
                past.resize(number + 1, Past::default());
            }
            let past = &mut past[number];
            let mut record = slot.record;
            if record.state == ThreadState::RUNNING {
                let used_ns = running.get(&record.tid).copied().unwrap_or(0);
                record.cpu_ns = record.cpu_ns.saturating_add(used_ns);
            }
            states.count(&record);
            note_bound(bound, slot.bound);
            rows.push(past.goes_on(record, now_ns, is_first, ends_frame));
        });
        frame.rows = rows;
        is_read.then_some(())
    }
}

impl States {
    fn count(&mut self, record: &ThreadRecord) {
        match record.state {
            ThreadState::RUNNING => self.running += 1,
            ThreadState::RUNNABLE => self.runnable += 1,
            ThreadState::WAITING => self.waiting += 1,
            _ => self.exiting += 1,
        }
        self.bound += u64::from(record.flags.contains(ThreadFlags::BOUND));
    }

    pub(super) fn all(&self) -> u64 {
        self.running + self.runnable + self.waiting + self.exiting
    }
}

impl Past {
    /// Returns the row of a thread that is in this slot now, and remembers it.
    fn goes_on(
        &mut self,
        mut record: ThreadRecord,
        now_ns: u64,
        is_first: bool,
        ends_frame: bool,
    ) -> Row {
        if self.tid != record.tid {
            // A new thread has done all that it did in the frame, unless this is the first look.
            *self = Past {
                tid: record.tid,
                state: u32::MAX,
                ..Past::default()
            };
            if is_first {
                self.base = Counts::of(&record);
            }
        }
        // A slice and a charge are of two moments: time doesn't go backwards.
        record.cpu_ns = record.cpu_ns.max(self.base.cpu_ns);
        if self.state != record.state.0 || self.turns != record.switches {
            self.still_since_ns = now_ns;
        }
        (self.state, self.turns) = (record.state.0, record.switches);
        let now = Counts::of(&record);
        let base = self.base;
        if ends_frame {
            self.base = now;
        }
        Row {
            record,
            cpu_ns: now.cpu_ns.saturating_sub(base.cpu_ns),
            wakes: now.park.saturating_sub(base.park),
            turns: now.turns.saturating_sub(base.turns),
            preempts: now.preempt.saturating_sub(base.preempt),
            still_since_ns: self.still_since_ns,
        }
    }
}

impl Counts {
    fn of(record: &ThreadRecord) -> Counts {
        Counts {
            cpu_ns: record.cpu_ns,
            turns: record.switches,
            park: record.park,
            preempt: record.preempt,
        }
    }
}

fn note_bound(bound: &mut Vec<u64>, carrier: u64) {
    if carrier != 0 && bound.len() < BOUND_MAX {
        bound.push(carrier);
    }
}

fn difference(now: &Histogram, before: &Histogram) -> Histogram {
    let mut difference = *now;
    for (count, before) in difference.counts.iter_mut().zip(before.counts) {
        *count = count.saturating_sub(before);
    }
    difference
}
