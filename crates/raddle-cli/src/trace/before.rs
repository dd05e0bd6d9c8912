//! What carriers and threads do when a trace begins, by earlier events that the trace leaves out.

use std::collections::BTreeMap;

use raddle_inspect::{Event, EventKind, WaitKind};
use raddle_record::perfetto::text_place;
use raddle_record::rings::Lane;

/// See the module. No event may be missing among those that it takes.
#[derive(Default)]
pub(super) struct Before {
    /// The threads that carriers run.
    pub(super) running: BTreeMap<Lane, u32>,
    pub(super) threads: BTreeMap<u32, Doing>,
}

/// What a thread does.
#[derive(Default)]
pub(super) struct Doing {
    pub(super) waits: Option<(WaitKind, u64)>,
    pub(super) is_in_kernel: bool,
    /// The program's spans that are open, by the places of their texts.
    pub(super) spans: Vec<(u64, u8)>,
    /// It runs, and has been woken: its wait is over before it begins.
    is_woken: bool,
    is_running: bool,
}

impl Before {
    pub(super) fn event(&mut self, lane: Lane, event: &Event) {
        let tid = event.thread;
        match event.kind {
            EventKind::START => *self = Before::default(),
            EventKind::SWITCH | EventKind::END => self.switch(lane, event),
            EventKind::WAKE => {
                let thread = self.threads.entry(tid).or_default();
                thread.is_woken = thread.is_running && !thread.is_in_kernel;
            }
            EventKind::BLOCK if tid != 0 => {
                self.threads.entry(tid).or_default().is_in_kernel = true;
            }
            EventKind::RETURN => self.threads.entry(tid).or_default().is_in_kernel = false,
            EventKind::SPAN_BEGIN => {
                let spans = &mut self.threads.entry(tid).or_default().spans;
                spans.extend(text_place(event));
            }
            EventKind::SPAN_END => {
                self.threads.entry(tid).or_default().spans.pop();
            }
            _ => {}
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event) {
        match (event.thread, event.kind) {
            (0, _) => {}
            (tid, EventKind::END) => {
                self.threads.remove(&tid);
            }
            (tid, _) => {
                let thread = self.threads.entry(tid).or_default();
                let is_wait = !matches!(event.wait, WaitKind::YIELD | WaitKind::NONE);
                let waits = is_wait && !std::mem::take(&mut thread.is_woken);
                thread.waits = waits.then_some((event.wait, event.arg));
                (thread.is_running, thread.is_in_kernel) = (false, false);
            }
        }
        if event.other == 0 {
            self.running.remove(&lane);
            return;
        }
        self.running.insert(lane, event.other);
        let thread = self.threads.entry(event.other).or_default();
        (thread.is_running, thread.is_woken, thread.waits) = (true, false, None);
    }
}
