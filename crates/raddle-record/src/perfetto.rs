//! A trace for Perfetto (<https://ui.perfetto.dev>), written as the events come.
//!
//! Carriers are shown as CPUs: their events are those of the kernel's scheduler, `sched_switch` and
//! `sched_waking`, because all of Perfetto's views and tables of threads are made of these: what
//! ran where, how long a thread was runnable, what woke it.
//!
//! | where | what |
//! |---|---|
//! | the thread's track, slices | what it waits for, from the end of a turn to the next |
//! | | its stays in the kernel; the program's own spans |
//! | the same, marks | preemption, moves to another carrier, signals, the program's instants |
//! | tracks of other processes, marks | wake-ups of the process's threads, with arrows to these |
//! | counters | lengths of run queues, runnable threads, carriers that run; the program's own |
//!
//! What is kept grows with the threads that live, and with nothing else.
//!
//! Format: <https://perfetto.dev/docs/reference/trace-packet-proto>. Times are CLOCK_BOOTTIME.

mod counters;
mod encode;
mod messages;
mod names;
mod others;
mod sched;

use std::io::{self, Write};
use std::rc::Rc;

use raddle_inspect::{By, Event, EventKind, WaitKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::rings::Lane;
use counters::Counters;
use encode::{Encoder, TrackKind};
use messages::{
    Clock, ClockSnapshot, CounterDescriptor, Process, ProcessDescriptor, ProcessTree, Thread,
    ThreadDescriptor, TracePacket, TrackDescriptor,
};
use names::{Name, Names};
use others::Others;
pub use others::{OtherProcess, WokenBy};
use sched::Bundles;

/// Linux's clock ids.
const BOOTTIME: u32 = 6;
/// Of a thread that was runnable when it stopped running, as `sched_switch` says.
const RUNNABLE: u64 = 0;
/// Of one that waits.
const SLEEPING: u64 = 1;
/// Of one that has ended.
const DEAD: u64 = 16;
/// The id of the process's track. Those of threads are odd, those of counters have this bit, too.
const PROCESS_TRACK: u64 = 1 << 40;
/// Added to the number of a group: above Linux's greatest process id.
const GROUP_PIDS: i32 = 1 << 23;
/// The greatest number of a group.
const GROUPS_MAX: u32 = (1 << 16) - 1;
/// The most texts of the program that are kept.
const TEXTS_MAX: usize = 1 << 16;

/// Writes a trace.
pub struct PerfettoWriter<W> {
    encoder: Encoder<W>,
    pid: i32,
    threads: FxHashMap<u32, ThreadState>,
    /// Engines and shares that are shown.
    groups: FxHashSet<u32>,
    bundles: Bundles,
    names: Names,
    /// Texts of the program's own events, by their places in its memory.
    texts: FxHashMap<(u64, u8), Box<str>>,
    counters: Counters,
    others: Others,
    counts: Counts,
}

/// What is known of a thread.
#[derive(Default)]
struct ThreadState {
    name: Option<Box<str>>,
    /// The number of its engine or share.
    group: u32,
    /// It has a track.
    is_shown: bool,
    is_waiting: bool,
    /// What ended its wait, as annotations.
    woken_by: Option<Rc<[u8]>>,
    is_in_kernel: bool,
    /// The program's spans that are open.
    spans: u32,
}

/// How many events of each kind were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that a thread began to run.
    pub runs: u64,
    pub wakes: u64,
}

impl<W: Write> PerfettoWriter<W> {
    /// Begins a trace of the process `pid`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        let mut writer = PerfettoWriter {
            encoder: Encoder::new(output),
            pid: pid as i32,
            threads: FxHashMap::default(),
            groups: FxHashSet::default(),
            bundles: Bundles::default(),
            names: Names::default(),
            texts: FxHashMap::default(),
            counters: Counters::default(),
            others: Others::default(),
            counts: Counts::default(),
        };
        writer.encoder.packet(&TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![Clock {
                    clock_id: Some(BOOTTIME),
                    timestamp: Some(boot_ns),
                }],
                primary_trace_clock: Some(BOOTTIME),
            }),
            ..TracePacket::default()
        })?;
        writer.encoder.begin_names()?;
        writer.encoder.packet(&TracePacket {
            timestamp: Some(boot_ns),
            process_tree: Some(ProcessTree {
                processes: vec![Process {
                    pid: Some(writer.pid),
                    cmdline: command,
                }],
                threads: Vec::new(),
            }),
            ..TracePacket::default()
        })?;
        writer.encoder.track(TrackDescriptor {
            uuid: Some(PROCESS_TRACK),
            process: Some(ProcessDescriptor {
                pid: Some(writer.pid),
            }),
            ..TrackDescriptor::default()
        })?;
        Ok(writer)
    }

    /// Tells a thread's name, and the number of the engine or share that it belongs to, 0 for none.
    /// The threads of each are shown together, as those of a process with a number that no process
    /// has.
    ///
    /// # Errors
    /// Those of the output.
    pub fn name(&mut self, tid: u32, name: &str, group: u32) -> io::Result<()> {
        let thread = self.threads.entry(tid).or_default();
        if thread.name.as_deref() == Some(name) {
            return Ok(());
        }
        thread.name = Some(name.into());
        if !thread.is_shown {
            thread.group = group.min(GROUPS_MAX); // a track has one process
        }
        let group = thread.group;
        if group != 0 && self.groups.insert(group) {
            self.encoder.packet(&TracePacket {
                process_tree: Some(ProcessTree {
                    processes: vec![Process {
                        pid: Some(self.pid_of(group)),
                        cmdline: vec![format!("engine or share {group}")],
                    }],
                    threads: Vec::new(),
                }),
                ..TracePacket::default()
            })?;
        }
        self.encoder.packet(&TracePacket {
            process_tree: Some(ProcessTree {
                processes: Vec::new(),
                threads: vec![Thread {
                    tid: Some(tid as i32),
                    name: Some(name.to_owned()),
                    tgid: Some(self.pid_of(group)),
                }],
            }),
            ..TracePacket::default()
        })
    }

    fn pid_of(&self, group: u32) -> i32 {
        if group == 0 {
            self.pid
        } else {
            GROUP_PIDS | group as i32
        }
    }

    /// Returns true if the thread has a name here.
    pub fn knows(&self, tid: u32) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| thread.name.is_some())
    }

    /// Returns the place of an event's text in the process's memory, and its length or 0, if the
    /// text isn't known here yet.
    pub fn wants_text(&self, event: &Event) -> Option<(u64, u8)> {
        let place = text_of(event)?;
        (!self.texts.contains_key(&place)).then_some(place)
    }

    /// Tells the text at a place.
    pub fn text(&mut self, place: (u64, u8), text: &str) {
        if self.texts.len() == TEXTS_MAX {
            self.texts.clear();
        }
        self.texts.insert(place, text.into());
    }

    /// Writes an event that happened at `boot_ns`. Events come in the order of time.
    ///
    /// # Errors
    /// Those of the output.
    pub fn event(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        let tid = event.thread;
        match event.kind {
            EventKind::SWITCH | EventKind::END => self.switch(lane, event, boot_ns),
            EventKind::WAKE | EventKind::CREATE => self.wake(lane, event, boot_ns),
            EventKind::PREEMPT => self.mark(tid, Name::Preempted, boot_ns),
            EventKind::STEAL => self.mark(tid, Name::MovedFrom(event.other), boot_ns),
            EventKind::SIGNAL => self.mark(tid, Name::Signal(event.other), boot_ns),
            EventKind::BLOCK => self.enter_kernel(tid, boot_ns),
            EventKind::RETURN => self.leave_kernel(tid, boot_ns),
            EventKind::QUEUE => {
                self.counters.queues(lane, event);
                self.count(boot_ns)
            }
            EventKind::SPAN_BEGIN => self.begin_span(event, boot_ns),
            EventKind::SPAN_END => self.end_span(tid, boot_ns),
            EventKind::INSTANT => self.mark_text(event, boot_ns),
            EventKind::COUNTER => self.count_text(event, boot_ns),
            _ => Ok(()),
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        let is_end = event.kind == EventKind::END;
        let is_runnable = matches!(event.wait, WaitKind::YIELD | WaitKind::NONE);
        let state = match (is_end, is_runnable) {
            (true, _) => DEAD,
            (_, true) => RUNNABLE,
            _ => SLEEPING,
        };
        let mut name = None;
        let mut waited = None;
        if event.other != 0 {
            self.counts.runs += 1;
            let next = self.threads.entry(event.other).or_default();
            if std::mem::take(&mut next.is_waiting) {
                waited = Some(next.woken_by.take());
            }
            name = next.name.as_deref();
        }
        let bundle = self.bundles.of(cpu_of(lane));
        bundle.switch(event.other, name, state, boot_ns);
        if bundle.is_full() {
            self.encoder.encoded(&bundle.take(cpu_of(lane)))?;
        }
        if event.thread != 0 {
            self.leave(event, state, boot_ns)?;
        }
        if let Some(woken_by) = waited {
            let track = self.track(event.other)?;
            let annotations = woken_by.as_deref().unwrap_or_default();
            self.encoder.end(track, annotations, boot_ns)?;
        }
        if self.counters.runs(lane, event.other != 0, boot_ns) {
            self.count(boot_ns)?;
        }
        Ok(())
    }

    /// The thread of a switch stops running.
    fn leave(&mut self, event: &Event, state: u64, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.entry(event.thread).or_default();
        if thread.is_in_kernel {
            self.leave_kernel(event.thread, boot_ns)?;
        }
        match state {
            SLEEPING => self.begin_wait(event, boot_ns),
            DEAD => {
                while self
                    .threads
                    .get(&event.thread)
                    .is_some_and(|it| it.spans != 0)
                {
                    self.end_span(event.thread, boot_ns)?;
                }
                self.threads.remove(&event.thread);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wake(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        self.counts.wakes += 1;
        let thread = self.threads.get(&event.thread);
        let name = thread.and_then(|thread| thread.name.as_deref());
        let cpu = cpu_of(lane);
        let bundle = self.bundles.of(cpu);
        let is_by_thread = matches!(Event::by(event.other), By::Thread(_));
        bundle.wake(event.thread, name, (cpu, is_by_thread), boot_ns);
        if bundle.is_full() {
            self.encoder.encoded(&bundle.take(cpu))?;
        }
        Ok(())
    }

    fn begin_wait(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.entry(event.thread).or_default();
        if std::mem::replace(&mut thread.is_waiting, true) {
            return Ok(());
        }
        self.begin(event.thread, Name::Wait(event.wait, event.arg), boot_ns)
    }

    fn enter_kernel(&mut self, tid: u32, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.entry(tid).or_default();
        if tid == 0 || thread.is_waiting || std::mem::replace(&mut thread.is_in_kernel, true) {
            return Ok(());
        }
        self.begin(tid, Name::InKernel, boot_ns)
    }

    fn leave_kernel(&mut self, tid: u32, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.entry(tid).or_default();
        if !std::mem::take(&mut thread.is_in_kernel) {
            return Ok(());
        }
        let track = self.track(tid)?;
        self.encoder.end(track, &[], boot_ns)
    }

    fn begin_span(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        self.threads.entry(event.thread).or_default().spans += 1;
        let name = self.text_name(event);
        self.begin(event.thread, name, boot_ns)
    }

    fn end_span(&mut self, tid: u32, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.entry(tid).or_default();
        if thread.spans == 0 {
            return Ok(()); // it began before the trace
        }
        thread.spans -= 1;
        let track = self.track(tid)?;
        self.encoder.end(track, &[], boot_ns)
    }

    fn begin(&mut self, tid: u32, name: Name, boot_ns: u64) -> io::Result<()> {
        let track = self.track(tid)?;
        self.on_track(track, TrackKind::Begin, name, &[], boot_ns)
    }

    fn mark(&mut self, tid: u32, name: Name, boot_ns: u64) -> io::Result<()> {
        if tid == 0 {
            return Ok(());
        }
        let track = self.track(tid)?;
        self.on_track(track, TrackKind::Instant, name, &[], boot_ns)
    }

    fn mark_text(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        let name = self.text_name(event);
        self.mark(event.thread, name, boot_ns)
    }

    /// Writes a slice or a mark; `fields` are more fields of the event, encoded.
    fn on_track(
        &mut self,
        track: u64,
        kind: TrackKind,
        name: Name,
        fields: &[u8],
        boot_ns: u64,
    ) -> io::Result<()> {
        if self.names.are_full() {
            self.names = Names::default();
            self.encoder.begin_names()?;
        }
        let (iid, is_new) = self.names.number(name);
        let texts = &self.texts;
        let text = is_new.then(|| name.text(|place| texts.get(&place).map(|it| &**it)));
        let category = name.category();
        self.encoder
            .named((kind, track), (category, iid), text, fields, boot_ns)
    }

    fn text_name(&self, event: &Event) -> Name {
        let (address, length) = text_of(event).unwrap_or_default();
        Name::Text(address, length)
    }

    /// A value of a counter of the program's.
    fn count_text(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        let place = text_of(event).unwrap_or_default();
        let value = u64::from(event.thread) | u64::from(event.other) << 32;
        let text = self.texts.get(&place).map_or("?", |text| text);
        let (track, is_new) = self.counters.own(text);
        if is_new {
            let name = text.to_owned();
            self.counter_track(track, name)?;
        }
        self.encoder
            .value(track | PROCESS_TRACK, value as i64, boot_ns)
    }

    /// Writes the runtime's counters that have changed.
    fn count(&mut self, boot_ns: u64) -> io::Result<()> {
        for change in self.counters.take_changes(boot_ns) {
            if let Some(name) = change.new_name {
                self.counter_track(change.track, name)?;
            }
            let track = change.track | PROCESS_TRACK;
            self.encoder.value(track, change.value, boot_ns)?;
        }
        Ok(())
    }

    fn counter_track(&mut self, track: u64, name: String) -> io::Result<()> {
        self.encoder.track(TrackDescriptor {
            uuid: Some(track | PROCESS_TRACK),
            name: Some(name),
            parent_uuid: Some(PROCESS_TRACK),
            counter: Some(CounterDescriptor {}),
            ..TrackDescriptor::default()
        })
    }

    /// Returns the id of a thread's track.
    fn track(&mut self, tid: u32) -> io::Result<u64> {
        let uuid = u64::from(tid) << 1 | 1;
        let thread = self.threads.entry(tid).or_default();
        if !std::mem::replace(&mut thread.is_shown, true) {
            let pid = match thread.group {
                0 => self.pid,
                group => GROUP_PIDS | group as i32,
            };
            let descriptor = ThreadDescriptor {
                pid: Some(pid),
                tid: Some(i64::from(tid)),
                thread_name: thread.name.as_deref().map(str::to_owned),
            };
            self.encoder.track(TrackDescriptor {
                uuid: Some(uuid),
                thread: Some(descriptor),
                ..TrackDescriptor::default()
            })?;
        }
        Ok(uuid)
    }

    /// Writes what is left, ends the slices that are open, and returns how many events there were.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self, boot_ns: u64) -> io::Result<Counts> {
        let open = |thread: &ThreadState| {
            u32::from(thread.is_waiting) + u32::from(thread.is_in_kernel) + thread.spans
        };
        let threads = self.threads.iter();
        let mut open: Vec<_> = threads.map(|(&tid, thread)| (tid, open(thread))).collect();
        open.sort_unstable();
        for (tid, count) in open {
            for _ in 0..count {
                let track = self.track(tid)?;
                self.encoder.end(track, &[], boot_ns)?;
            }
        }
        self.counters.all_are_due();
        self.count(boot_ns)?;
        for packet in self.bundles.drain() {
            self.encoder.encoded(&packet)?;
        }
        self.encoder.flush()?;
        Ok(self.counts)
    }
}

/// The CPU as which a lane is shown. Kernel threads that are no carriers share one behind all.
fn cpu_of(lane: Lane) -> u32 {
    match lane {
        Lane::Carrier(id) | Lane::Bound(id) => id,
        Lane::Other => OTHERS,
    }
}

/// Perfetto refuses numbers of CPUs from 4096 on.
const OTHERS: u32 = 4095;

/// Returns the place of an event's text and its length, if it has one.
fn text_of(event: &Event) -> Option<(u64, u8)> {
    let has_text = matches!(
        event.kind,
        EventKind::SPAN_BEGIN | EventKind::INSTANT | EventKind::COUNTER
    );
    has_text.then_some((event.arg, event.wait.0 as u8))
}

#[cfg(test)]
mod tests;
