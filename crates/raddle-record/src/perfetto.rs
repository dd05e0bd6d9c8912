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

mod begins;
mod counters;
mod encode;
mod messages;
mod named;
mod names;
mod others;
mod sched;
mod threads;

use std::io::{self, Write};

use raddle_inspect::{By, Event, EventKind, WaitKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::name_parts::NameParts;
use crate::rings::Lane;
use counters::Counters;
use encode::{Encoder, Flow, TrackKind};
use messages::{
    Clock, ClockSnapshot, CounterDescriptor, Process, ProcessDescriptor, ProcessTree,
    ThreadDescriptor, TracePacket, TrackDescriptor,
};
use names::{Known, Name, Names};
use others::Others;
pub use others::{OtherProcess, WokenBy};
use sched::Bundles;
use threads::{Place, Threads};

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
pub const TEXTS_MAX: usize = 1 << 16;

/// Writes a trace.
pub struct PerfettoWriter<W> {
    encoder: Encoder<W>,
    pid: i32,
    threads: Threads,
    /// Engines and shares that are shown.
    groups: FxHashSet<u32>,
    bundles: Bundles,
    names: Names,
    /// Texts of the program's own events, by their places in its memory.
    texts: FxHashMap<(u64, u8), Box<str>>,
    counters: Counters,
    others: Others,
    counts: Counts,
    /// From this time on all events were told, if that is known.
    begin_ns: Option<u64>,
    /// The time of the last event.
    last_ns: u64,
    /// The thread of the last event with the rest of a name, and the rest.
    name_parts: NameParts,
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
            threads: Threads::default(),
            groups: FxHashSet::default(),
            bundles: Bundles::default(),
            names: Names::default(),
            texts: FxHashMap::default(),
            counters: Counters::default(),
            others: Others::default(),
            counts: Counts::default(),
            begin_ns: None,
            last_ns: boot_ns,
            name_parts: NameParts::default(),
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

    /// Returns true if the thread has a name here.
    pub fn knows(&self, tid: u32) -> bool {
        let place = self.threads.find(tid);
        place.is_some_and(|place| self.threads.at(place).name.is_some())
    }

    /// Returns the place of an event's text in the process's memory, and its length or 0, if the
    /// text isn't known here yet.
    pub fn wants_text(&self, event: &Event) -> Option<(u64, u8)> {
        let place = text_place(event)?;
        (!self.texts.contains_key(&place)).then_some(place)
    }

    /// Tells the text at a place.
    pub fn text(&mut self, place: (u64, u8), text: &str) {
        if self.texts.len() == TEXTS_MAX {
            self.texts.clear();
        }
        self.texts.insert(place, text.into());
    }

    /// Forgets all texts.
    pub fn forget_texts(&mut self) {
        self.texts.clear();
    }

    /// Writes an event that happened at `boot_ns`. Events come in the order of time.
    ///
    /// # Errors
    /// Those of the output.
    pub fn event(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        let tid = event.thread;
        self.last_ns = self.last_ns.max(boot_ns);
        match event.kind {
            EventKind::SWITCH | EventKind::END => self.switch(lane, event, boot_ns),
            EventKind::WAKE => self.wake(lane, event, boot_ns),
            EventKind::CREATE => {
                self.inherit_name(event)?;
                self.wake(lane, event, boot_ns)
            }
            EventKind::NAME | EventKind::NAME_REST => self.take_name(event),
            EventKind::PREEMPT => self.mark(tid, Name::Preempted, boot_ns),
            EventKind::STEAL => self.mark(tid, Name::MovedFrom(event.other), boot_ns),
            EventKind::SIGNAL => self.mark(tid, Name::Signal(event.other), boot_ns),
            EventKind::BLOCK => self.enter_kernel(tid, boot_ns),
            EventKind::RETURN => match self.threads.find(tid) {
                Some(place) => self.leave_kernel(place, boot_ns),
                None => Ok(()),
            },
            EventKind::QUEUE => {
                self.counters.queues(lane, event);
                self.count(boot_ns)
            }
            EventKind::SPAN_BEGIN => self.begin_span(event, boot_ns),
            EventKind::SPAN_END => match self.threads.find(tid) {
                Some(place) => self.end_span(place, boot_ns),
                None => Ok(()),
            },
            EventKind::INSTANT => self.mark(tid, text_name(event), boot_ns),
            EventKind::COUNTER => self.count_text(event, boot_ns),
            _ => Ok(()),
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        let runs = event.other != 0;
        let next = runs.then(|| self.threads.add(event.other));
        let bundle = self.bundles.of(cpu_of(lane));
        let before = std::mem::replace(&mut bundle.running, next);
        let left = event.thread != 0;
        let left = left.then(|| self.threads.add_at(before, event.thread));
        let is_woken = left.is_some_and(|place| self.threads.at_mut(place).stop_running());
        let is_runnable = is_woken || matches!(event.wait, WaitKind::YIELD | WaitKind::NONE);
        let state = match event.kind {
            EventKind::END => DEAD,
            _ if is_runnable => RUNNABLE,
            _ => SLEEPING,
        };
        let mut waited = None;
        match next {
            Some(place) => {
                self.counts.runs += 1;
                let thread = self.threads.at_mut(place);
                (thread.is_running, thread.is_woken) = (true, false);
                thread.is_seen = true;
                if std::mem::take(&mut thread.is_waiting) {
                    waited = Some(thread.woken_by.take());
                }
                bundle.switch(Some(thread), state, boot_ns);
            }
            None => bundle.switch(None, state, boot_ns),
        }
        // Carriers of bound threads don't count.
        let is_counted = !matches!(lane, Lane::Bound(_));
        let is_change = is_counted && std::mem::replace(&mut bundle.runs, runs) != runs;
        if bundle.is_full() {
            self.encoder.encoded(&bundle.take())?;
        }
        if let Some(place) = left {
            self.leave(place, event, state, boot_ns)?;
        }
        if let Some(woken_by) = waited {
            // It may be the thread that has ended.
            let place = self.threads.add_at(next, event.other);
            let track = self.track(place)?;
            let annotations = woken_by.as_deref().unwrap_or_default();
            self.encoder.end(track, annotations, boot_ns)?;
        }
        if is_change && self.counters.runs(runs, boot_ns) {
            self.count(boot_ns)?;
        }
        Ok(())
    }

    /// The thread of a switch stops running.
    fn leave(&mut self, place: Place, event: &Event, state: u64, boot_ns: u64) -> io::Result<()> {
        if self.threads.at(place).is_in_kernel {
            self.leave_kernel(place, boot_ns)?;
        }
        match state {
            SLEEPING => self.begin_wait(place, (event.wait, event.arg), boot_ns),
            DEAD => {
                while self.threads.at(place).spans != 0 {
                    self.end_span(place, boot_ns)?;
                }
                self.threads.remove(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn wake(&mut self, lane: Lane, event: &Event, boot_ns: u64) -> io::Result<()> {
        self.counts.wakes += 1;
        let place = match self.begin_ns {
            Some(begin_ns) => Some(self.wake_since(begin_ns, event)?),
            None => self.threads.find(event.thread),
        };
        let mut woken = place.map(|place| self.threads.at_mut(place));
        if let Some(thread) = &mut woken {
            thread.is_woken |= thread.is_running && !thread.is_in_kernel;
        }
        let bundle = self.bundles.of(cpu_of(lane));
        // Perfetto takes what the carrier runs for the waker. One that has woken a word of shared
        // memory is not there: a helper tells of it.
        let is_by_thread = lane != Lane::Other && matches!(Event::by(event.other), By::Thread(_));
        bundle.wake(event.thread, woken, is_by_thread, boot_ns);
        if bundle.is_full() {
            self.encoder.encoded(&bundle.take())?;
        }
        Ok(())
    }

    fn begin_wait(
        &mut self,
        place: Place,
        (wait, arg): (WaitKind, u64),
        boot_ns: u64,
    ) -> io::Result<()> {
        let thread = self.threads.at_mut(place);
        if std::mem::replace(&mut thread.is_waiting, true) {
            return Ok(());
        }
        let mut known = thread.waited;
        let track = self.track(place)?;
        let name = Name::Wait(wait, arg);
        self.on_track((TrackKind::Begin, track), name, &mut known, None, boot_ns)?;
        self.threads.at_mut(place).waited = known;
        Ok(())
    }

    fn enter_kernel(&mut self, tid: u32, boot_ns: u64) -> io::Result<()> {
        if tid == 0 {
            return Ok(());
        }
        let place = self.threads.add(tid);
        let thread = self.threads.at_mut(place);
        if thread.is_waiting || std::mem::replace(&mut thread.is_in_kernel, true) {
            return Ok(());
        }
        self.begin(place, Name::InKernel, boot_ns)
    }

    fn leave_kernel(&mut self, place: Place, boot_ns: u64) -> io::Result<()> {
        if !std::mem::take(&mut self.threads.at_mut(place).is_in_kernel) {
            return Ok(());
        }
        let track = self.track(place)?;
        self.encoder.end(track, &[], boot_ns)
    }

    fn begin_span(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        let place = self.threads.add(event.thread);
        self.threads.at_mut(place).spans += 1;
        self.begin(place, text_name(event), boot_ns)
    }

    fn end_span(&mut self, place: Place, boot_ns: u64) -> io::Result<()> {
        let thread = self.threads.at_mut(place);
        if thread.spans == 0 {
            return Ok(()); // it began before the trace
        }
        thread.spans -= 1;
        let track = self.track(place)?;
        self.encoder.end(track, &[], boot_ns)
    }

    fn begin(&mut self, place: Place, name: Name, boot_ns: u64) -> io::Result<()> {
        let track = self.track(place)?;
        let kind = (TrackKind::Begin, track);
        self.on_track(kind, name, &mut Known::default(), None, boot_ns)
    }

    fn mark(&mut self, tid: u32, name: Name, boot_ns: u64) -> io::Result<()> {
        if tid == 0 {
            return Ok(());
        }
        let place = self.threads.add(tid);
        let track = self.track(place)?;
        let kind = (TrackKind::Instant, track);
        self.on_track(kind, name, &mut Known::default(), None, boot_ns)
    }

    /// Writes a slice or a mark, with an arrow; `known` is likely its name.
    #[inline]
    fn on_track(
        &mut self,
        (kind, track): (TrackKind, u64),
        name: Name,
        known: &mut Known,
        flow: Option<Flow>,
        boot_ns: u64,
    ) -> io::Result<()> {
        if self.names.are_full() {
            self.names.restart();
            self.encoder.begin_names()?;
        }
        let (iid, is_new) = self.names.number(name, known);
        let texts = &self.texts;
        let text = is_new.then(|| name.text(|place| texts.get(&place).map(|it| &**it)));
        let category = name.category();
        self.encoder
            .named((kind, track), (category, iid), text, flow, boot_ns)
    }

    /// A value of a counter of the program's.
    fn count_text(&mut self, event: &Event, boot_ns: u64) -> io::Result<()> {
        let place = text_place(event).unwrap_or_default();
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
    #[inline]
    fn track(&mut self, place: Place) -> io::Result<u64> {
        let thread = self.threads.at_mut(place);
        thread.is_seen = true;
        if !thread.is_shown {
            self.show(place)?;
        }
        Ok(track_of(self.threads.at(place).tid))
    }

    /// Gives a thread a track.
    #[cold]
    fn show(&mut self, place: Place) -> io::Result<()> {
        let thread = self.threads.at_mut(place);
        thread.is_shown = true;
        let pid = match thread.group {
            0 => self.pid,
            group => GROUP_PIDS | group as i32,
        };
        let descriptor = ThreadDescriptor {
            pid: Some(pid),
            tid: Some(i64::from(thread.tid)),
            thread_name: thread.name.as_deref().map(str::to_owned),
        };
        self.encoder.track(TrackDescriptor {
            uuid: Some(track_of(thread.tid)),
            thread: Some(descriptor),
            ..TrackDescriptor::default()
        })
    }

    /// Writes what is left, ends the slices that are open, and returns how many events there were.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self, boot_ns: u64) -> io::Result<Counts> {
        let boot_ns = boot_ns.max(self.last_ns); // some events may have come later
        self.end_slices(boot_ns)?;
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

fn track_of(tid: u32) -> u64 {
    u64::from(tid) << 1 | 1
}

fn text_name(event: &Event) -> Name {
    let (address, length) = text_place(event).unwrap_or_default();
    Name::Text(address, length)
}

/// Returns the place of an event's text in the process's memory and its length or 0, if it has one.
pub fn text_place(event: &Event) -> Option<(u64, u8)> {
    let has_text = matches!(
        event.kind,
        EventKind::SPAN_BEGIN | EventKind::INSTANT | EventKind::COUNTER
    );
    has_text.then_some((event.arg, event.wait.0 as u8))
}

#[cfg(test)]
mod tests;
