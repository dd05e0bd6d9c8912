//! What becomes of the events of a trace.

use std::io;
use std::rc::Rc;

use raddle_record::perfetto::{Counts, PerfettoWriter, WokenBy};
use raddle_record::rings::Lane;
use rustc_hash::{FxHashMap, FxHashSet};

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_stacks::Memory;

use super::before::Before;
use super::texts::text;
use super::wakers::{Wakers, is_by_kernel};
use crate::peers::Object;

/// Writes events to a file for Perfetto. An error is kept until the end.
pub(super) struct Tracer<W> {
    writer: PerfettoWriter<W>,
    failure: Option<io::Error>,
    /// The carriers without a switch so far run the thread that they ran at the begin.
    begun: Begun,
    /// What was there before, if the first events are left out.
    past: Option<Past>,
    /// The time of the first event, and that of the first one without room.
    first_ns: Option<u64>,
    full_ns: Option<u64>,
    /// The bytes that the trace can have.
    room: u64,
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

/// The begin of a trace, or of what follows a pause of the recording.
struct Begun {
    boot_ns: u64,
    /// The carriers that have switched.
    switched: FxHashSet<Lane>,
}

/// See [`Tracer::of_the_past`].
struct Past {
    /// No event is missing from then on.
    whole_ns: u64,
    before: Before,
}

impl<W: io::Write> Tracer<W> {
    /// Begins a trace that starts at `boot_ns`. It shows what carriers run at its begin: the thread
    /// that their first switch leaves; and what threads wait for: by their first wake-up. All
    /// events from `boot_ns` on must follow.
    pub(super) fn new(output: W, pid: u32, command: Vec<String>, boot_ns: u64) -> io::Result<Self> {
        let mut writer = PerfettoWriter::new(output, pid, command, boot_ns)?;
        writer.begins(boot_ns);
        Ok(Tracer {
            writer,
            failure: None,
            begun: Begun {
                boot_ns,
                switched: FxHashSet::default(),
            },
            past: None,
            first_ns: None,
            full_ns: None,
            room: u64::MAX,
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

    /// As [`Tracer::new`], of events that were kept. Those before `boot_ns` only tell what carriers
    /// and threads do then. No event is missing from `whole_ns` on, and earlier ones are left out.
    pub(super) fn of_the_past(
        output: W,
        (pid, command): (u32, Vec<String>),
        boot_ns: u64,
        whole_ns: u64,
    ) -> io::Result<Self> {
        let mut tracer = Tracer::new(output, pid, command, boot_ns.max(whole_ns))?;
        tracer.past = Some(Past {
            whole_ns,
            before: Before::default(),
        });
        Ok(tracer)
    }

    /// Returns the time of the first event that was written.
    pub(super) fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// Tells how many bytes the trace can have. It ends before it has more.
    pub(super) fn set_room(&mut self, bytes: u64) {
        self.room = bytes;
    }

    /// Returns the time at which the trace has ended for want of room.
    pub(super) fn full_ns(&self) -> Option<u64> {
        self.full_ns
    }

    /// Shows what a carrier has run since the begin, if that is not known yet.
    fn ran_from_begin(&mut self, lane: Lane, tid: u32, until_ns: u64) {
        let is_new = self.begun.switched.insert(lane) && tid != 0;
        if is_new && !self.has_ended() {
            let event = event_of(EventKind::SWITCH, 0, tid);
            let boot_ns = self.begun.boot_ns.min(until_ns);
            self.failure = self.writer.event(lane, &event, boot_ns).err();
        }
    }

    /// Shows what was there before, at the begin.
    fn begin(&mut self, before: Before) -> io::Result<()> {
        let begin_ns = self.begun.boot_ns;
        for (lane, tid) in before.running {
            self.begun.switched.insert(lane);
            let runs = event_of(EventKind::SWITCH, 0, tid);
            self.writer.event(lane, &runs, begin_ns)?;
        }
        for (tid, doing) in before.threads {
            for (address, length) in doing.spans {
                let mut span = event_of(EventKind::SPAN_BEGIN, tid, 0);
                (span.arg, span.wait) = (address, WaitKind(length.into()));
                self.writer.event(Lane::Other, &span, begin_ns)?;
            }
            if let Some(wait) = doing.waits {
                self.writer.waits(tid, wait, begin_ns)?;
            }
            if doing.is_in_kernel {
                let stays = event_of(EventKind::BLOCK, tid, 0);
                self.writer.event(Lane::Other, &stays, begin_ns)?;
            }
        }
        Ok(())
    }

    /// Recording goes on after a pause, or begins. Nothing is known of what happened before.
    fn starts(&mut self, boot_ns: u64) {
        if boot_ns <= self.begun.boot_ns || self.failure.is_some() {
            return;
        }
        self.failure = self.writer.pauses().err();
        self.writer.begins(boot_ns);
        self.begun.boot_ns = boot_ns;
        self.begun.switched.clear();
    }

    /// Writes an event; its text is in `memory`.
    pub(super) fn take(&mut self, memory: &dyn Memory, lane: Lane, event: &Event, boot_ns: u64) {
        if self.writer.bytes() > self.room {
            self.full_ns.get_or_insert(boot_ns);
        }
        if self.full_ns.is_some() {
            return;
        }
        if let Some(past) = &mut self.past {
            if boot_ns < self.begun.boot_ns {
                if boot_ns >= past.whole_ns {
                    past.before.event(lane, event);
                    self.know_text(memory, event);
                }
                return;
            }
            let before = std::mem::take(&mut past.before);
            self.past = None;
            self.failure = self.begin(before).err();
        }
        if event.kind == EventKind::START {
            return self.starts(boot_ns);
        }
        self.first_ns.get_or_insert(boot_ns);
        self.write(memory, lane, event, boot_ns);
    }

    /// Has the writer know the text of an event.
    fn know_text(&mut self, memory: &dyn Memory, event: &Event) {
        if let Some(place) = self.writer.wants_text(event) {
            self.writer.text(place, &text(memory, place));
        }
    }

    fn write(&mut self, memory: &dyn Memory, lane: Lane, event: &Event, boot_ns: u64) {
        self.know_text(memory, event);
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
        if self.failure.is_none() && self.full_ns.is_none() {
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
    pub(super) fn has_ended(&self) -> bool {
        self.failure.is_some() || self.full_ns.is_some()
    }

    /// Tells which thread a carrier runs at the end.
    pub(super) fn runs_at_end(&mut self, lane: Lane, tid: u32) {
        self.ran_from_begin(lane, tid, u64::MAX);
    }

    /// Tells which percentage of its time a bound thread has spent in the kernel from then on.
    pub(super) fn kernel_share(&mut self, tid: u32, percent: u8, boot_ns: u64) {
        if !self.has_ended() {
            self.failure = self.writer.kernel_share(tid, percent, boot_ns).err();
        }
    }

    /// Ends the trace at `boot_ns`. An error that was met before is that of the trace.
    pub(super) fn finish(self, boot_ns: u64) -> io::Result<Counts> {
        match self.failure {
            Some(error) => Err(error),
            None => self.writer.finish(self.full_ns.unwrap_or(boot_ns)),
        }
    }
}

/// An event of a thread, made here.
fn event_of(kind: EventKind, thread: u32, other: u32) -> Event {
    Event {
        stamp: 0,
        kind,
        thread,
        other,
        wait: WaitKind::NONE,
        arg: 0,
    }
}
