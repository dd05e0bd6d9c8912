//! What becomes of the events of a trace.

use std::io;
use std::rc::Rc;

use raddle_record::perfetto::{Counts, PerfettoWriter, WokenBy};
use raddle_record::rings::Lane;
use rustc_hash::{FxHashMap, FxHashSet};

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_stacks::Memory;

use super::wakers::{Wakers, is_by_kernel};
use crate::peers::Object;

/// Writes events to a file for Perfetto. An error is kept until the end.
pub(super) struct Tracer<W> {
    writer: PerfettoWriter<W>,
    failure: Option<io::Error>,
    /// Of a trace that begins now: the carriers without a switch so far run the thread that they
    /// ran at the begin.
    begun: Option<Begun>,
    wakers: Source,
}

/// Where the other processes are known from that wake threads.
enum Source {
    /// They were found when the events came, by what they wake threads from.
    Told {
        by: FxHashMap<Object, Rc<WokenBy>>,
        /// The last one that was told: all of a server's clients may be one process.
        last: Option<Rc<WokenBy>>,
    },
    /// They are looked for now.
    Past(Box<Wakers>),
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
            failure: None,
            begun: None,
            wakers: Source::Told {
                by: FxHashMap::default(),
                last: None,
            },
        })
    }

    /// Has the trace name other processes that wake threads, by what is found now.
    pub(super) fn looks_for_processes(&mut self, wakers: Wakers) {
        self.wakers = Source::Past(Box::new(wakers));
    }

    /// Tells the processes that end waits for an object from now on.
    pub(super) fn is_woken_by(&mut self, object: Object, woken_by: Option<WokenBy>) {
        let Source::Told { by, last } = &mut self.wakers else {
            return;
        };
        if woken_by.is_some() && woken_by.as_ref() != last.as_deref() {
            *last = woken_by.map(Rc::new);
        } else if woken_by.is_none() {
            by.remove(&object);
            return;
        }
        by.extend(last.clone().map(|woken_by| (object, woken_by)));
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
        if matches!(event.kind, EventKind::SWITCH | EventKind::END) {
            self.ran_from_begin(lane, event.thread, boot_ns);
        }
        if self.failure.is_none() {
            let written = self.writer.event(lane, event, boot_ns);
            self.failure = written.err();
        }
        let woken_by = match &mut self.wakers {
            Source::Told { by, .. } if is_by_kernel(event) => {
                by.get(&(event.wait, event.arg)).cloned()
            }
            Source::Told { .. } => None,
            Source::Past(wakers) => wakers.event(event, boot_ns),
        };
        if let Some(by) = woken_by.filter(|_| self.failure.is_none()) {
            let written = self.writer.woken_by(event.thread, &by, boot_ns);
            self.failure = written.err();
        }
    }

    /// Tells the names of threads.
    pub(super) fn name_all(&mut self, names: impl IntoIterator<Item = (u32, String, u32)>) {
        for (tid, name, group) in names {
            self.name(tid, &name, group);
        }
    }

    /// Tells the name of a thread, and the number of its engine or share.
    pub(super) fn name(&mut self, tid: u32, name: &str, group: u32) {
        if self.failure.is_none() {
            self.failure = self.writer.name(tid, name, group).err();
        }
    }

    /// Tells the text of events, by its place.
    pub(super) fn text(&mut self, place: (u64, u8), text: &str) {
        self.writer.text(place, text);
    }

    /// Texts that are still needed are told again.
    pub(super) fn forget_texts(&mut self) {
        self.writer.forget_texts();
    }

    /// Returns whether an event could not be written.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Tells which thread a carrier runs at the end.
    pub(super) fn runs_at_end(&mut self, carrier: u32, tid: u32) {
        self.ran_from_begin(Lane::Carrier(carrier), tid, u64::MAX);
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
pub(super) fn text(memory: &dyn Memory, (address, length): (u64, u8)) -> String {
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
