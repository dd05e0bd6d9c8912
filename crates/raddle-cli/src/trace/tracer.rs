//! What becomes of the events of a trace.

use std::io;
use std::time::Instant;

use raddle_record::perfetto::{Counts, PerfettoWriter};
use raddle_record::rings::Lane;
use rustc_hash::FxHashSet;

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_stacks::Memory;

use super::wakers::Wakers;

/// Writes events to a file for Perfetto. An error is kept until the end.
pub(super) struct Tracer<W> {
    writer: PerfettoWriter<W>,
    /// When names were read last.
    pub named: Instant,
    /// A thread has begun since then.
    pub has_new: bool,
    failure: Option<io::Error>,
    /// Of a trace that begins now: the carriers without a switch so far run the thread that they
    /// ran at the begin.
    begun: Option<Begun>,
    /// Other processes that wake threads; without it none is named.
    wakers: Option<Wakers>,
}

/// See [`Tracer::begins_now`].
struct Begun {
    boot_ns: u64,
    /// The carriers that have switched.
    switched: FxHashSet<Lane>,
}

impl<W: io::Write> Tracer<W> {
    /// Begins a trace that starts at `boot_ns`.
    pub(super) fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        Ok(Tracer {
            writer: PerfettoWriter::new(output, pid, command, boot_ns)?,
            named: Instant::now(),
            has_new: false,
            failure: None,
            begun: None,
            wakers: None,
        })
    }

    /// Has the trace name other processes that wake threads.
    pub(super) fn names_processes(&mut self, wakers: Wakers) {
        self.wakers = Some(wakers);
    }

    /// Looks for other processes, unless that costs too much.
    pub(super) fn look(&mut self, boot_ns: u64) {
        if let Some(wakers) = &mut self.wakers {
            wakers.look(boot_ns);
        }
    }

    /// Has the trace show what carriers run at its begin: the thread that their first switch
    /// leaves. All events from `boot_ns` on must follow.
    pub(super) fn begins_now(&mut self, boot_ns: u64) {
        self.begun = Some(Begun {
            boot_ns,
            switched: FxHashSet::default(),
        });
    }

    /// Shows what a carrier has run since the begin, if that is not known yet.
    fn ran_from_begin(&mut self, lane: Lane, tid: u32, until_ns: u64) {
        let Some(begun) = &mut self.begun else {
            return;
        };
        if begun.switched.insert(lane) && tid != 0 && self.failure.is_none() {
            let event = Event {
                stamp: 0,
                kind: EventKind::SWITCH,
                thread: 0,
                other: tid,
                wait: WaitKind::NONE,
                arg: 0,
            };
            let boot_ns = begun.boot_ns.min(until_ns);
            self.failure = self.writer.event(lane, &event, boot_ns).err();
        }
    }

    /// Writes an event; its text is in `memory`.
    pub(super) fn take(&mut self, memory: &dyn Memory, lane: Lane, event: &Event, boot_ns: u64) {
        if let Some(place) = self.writer.wants_text(event) {
            self.writer.text(place, &text(memory, place));
        }
        self.has_new |= event.kind == EventKind::CREATE;
        if matches!(event.kind, EventKind::SWITCH | EventKind::END) {
            self.ran_from_begin(lane, event.thread, boot_ns);
        }
        if self.failure.is_none() {
            let written = self.writer.event(lane, event, boot_ns);
            self.failure = written.err();
        }
        let wakers = self.wakers.as_mut();
        let woken_by = wakers.and_then(|wakers| wakers.event(event, boot_ns));
        if let Some(by) = woken_by.filter(|_| self.failure.is_none()) {
            let written = self.writer.woken_by(event.thread, &by, boot_ns);
            self.failure = written.err();
        }
    }

    /// Tells the names of threads.
    pub(super) fn name_all(&mut self, names: impl IntoIterator<Item = (u32, String, u32)>) {
        self.named = Instant::now();
        self.has_new = false;
        for (tid, name, group) in names {
            if self.failure.is_none() {
                self.failure = self.writer.name(tid, &name, group).err();
            }
        }
    }

    /// Returns whether an event could not be written.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Tells which threads carriers run at the end.
    pub(super) fn run_at_end(&mut self, running: impl IntoIterator<Item = (u32, u32)>) {
        for (carrier, tid) in running {
            self.ran_from_begin(Lane::Carrier(carrier), tid, u64::MAX);
        }
    }

    /// Ends the trace at `boot_ns`. An error that was met before is that of the trace.
    pub(super) fn finish(self, boot_ns: u64) -> io::Result<Counts> {
        match self.failure {
            Some(error) => Err(error),
            None => self.writer.finish(boot_ns),
        }
    }
}

/// Returns the text at a place, or its address.
fn text(memory: &dyn Memory, (address, length): (u64, u8)) -> String {
    let mut bytes = [0; Event::TEXT_MAX];
    let most = if length == 0 {
        bytes.len()
    } else {
        length.into()
    };
    let got = memory.read(address, &mut bytes[..most]);
    let text = bytes[..got].split(|&byte| byte == 0).next();
    match text {
        Some(text) if !text.is_empty() => String::from_utf8_lossy(text).into_owned(),
        _ => format!("{address:#x}"),
    }
}
