//! What was there before the first event: at the begin of a trace, and where recording goes on
//! after a pause.

use std::io::{self, Write};

use raddle_inspect::{Event, EventKind, WaitKind};

use super::threads::Place;
use super::{PROCESS_TRACK, PerfettoWriter, SLEEPING};

impl<W: Write> PerfettoWriter<W> {
    /// Tells that all events from `boot_ns` on follow. If the first event of a thread is a wake-up,
    /// the thread has waited since then.
    pub fn begins(&mut self, boot_ns: u64) {
        self.begin_ns = Some(boot_ns);
    }

    /// Returns how many bytes the trace has if it ends now; it may be less.
    #[inline]
    pub fn bytes(&self) -> u64 {
        /// Of a thread's end: two slices, and a track if it has none.
        const END_BYTES: u64 = 128;
        let ends = (self.threads.len() as u64 + 1) * END_BYTES;
        self.encoder.bytes() + self.bundles.bytes() + ends
    }

    /// Shows that a thread waits since `boot_ns` at least, which is before its first event.
    ///
    /// # Errors
    /// Those of the output.
    pub fn waits(&mut self, tid: u32, wait: (WaitKind, u64), boot_ns: u64) -> io::Result<()> {
        let place = self.threads.add(tid);
        self.begin_wait(place, wait, boot_ns)
    }

    /// Takes a wake-up of a trace that begins at `begin_ns`: if it is the thread's first event, the
    /// thread has waited since then. Returns the thread's place.
    pub(super) fn wake_since(&mut self, begin_ns: u64, event: &Event) -> io::Result<Place> {
        let place = self.threads.add(event.thread);
        let is_seen = std::mem::replace(&mut self.threads.at_mut(place).is_seen, true);
        let is_wait = event.kind == EventKind::WAKE
            && !matches!(event.wait, WaitKind::NONE | WaitKind::YIELD);
        if is_wait && !is_seen {
            self.begin_wait(place, (event.wait, event.arg), begin_ns)?;
        }
        Ok(place)
    }

    /// Tells which percentage of its time a bound thread has spent in the kernel from then on: in
    /// stays that are too short for slices, too.
    ///
    /// # Errors
    /// Those of the output.
    pub fn kernel_share(&mut self, tid: u32, percent: u8, boot_ns: u64) -> io::Result<()> {
        let Some(place) = self.threads.find(tid) else {
            return Ok(()); // it has ended
        };
        let thread = self.threads.at_mut(place);
        let (mut track, before) = thread.kernel_share;
        if track != 0 && before == percent {
            return Ok(());
        }
        if track == 0 {
            let name = thread.name.as_deref().unwrap_or_default();
            let name = format!("in the kernel, percent: {name} {tid}");
            let (new, is_new) = self.counters.own(&name);
            track = new;
            if is_new {
                self.counter_track(track, name)?;
            }
        }
        self.threads.at_mut(place).kernel_share = (track, percent);
        self.encoder
            .value(track | PROCESS_TRACK, percent.into(), boot_ns)
    }

    /// Recording has paused since the last event: what is open ends there, and nothing is known of
    /// threads and carriers.
    ///
    /// # Errors
    /// Those of the output.
    pub fn pauses(&mut self) -> io::Result<()> {
        let at_ns = self.last_ns;
        self.end_slices(at_ns)?;
        let mut full = Vec::new();
        for bundle in self.bundles.all_mut() {
            if bundle.running.take().is_some() {
                bundle.switch(None, SLEEPING, at_ns);
            }
            if std::mem::take(&mut bundle.runs) {
                self.counters.runs(false, at_ns);
            }
            if bundle.is_full() {
                full.push(bundle.take());
            }
        }
        for packet in full {
            self.encoder.encoded(&packet)?;
        }
        self.count(at_ns)?;
        for place in self.threads.in_order() {
            self.threads.at_mut(place).forget();
        }
        Ok(())
    }

    /// Ends the slices of all threads that are open.
    pub(super) fn end_slices(&mut self, boot_ns: u64) -> io::Result<()> {
        for place in self.threads.in_order() {
            let thread = self.threads.at_mut(place);
            let waits = std::mem::take(&mut thread.is_waiting);
            let is_in_kernel = std::mem::take(&mut thread.is_in_kernel);
            let spans = std::mem::take(&mut thread.spans);
            for _ in 0..u32::from(waits) + u32::from(is_in_kernel) + spans {
                let track = self.track(place)?;
                self.encoder.end(track, &[], boot_ns)?;
            }
        }
        Ok(())
    }
}
