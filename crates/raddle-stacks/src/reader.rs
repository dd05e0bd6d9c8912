//! The stacks of single threads, read one after another for as long as a recording lasts.
//!
//! A thread often waits where it has waited before, with as much on its stack. So what was read of
//! it last is read again by one call to the kernel ([`Camera::take_again`]), and page by page only
//! if that is not what its stack has now.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::capture::{Camera, Captured, Kind, Stack, Target};
use crate::java::MonitorObjects;
use crate::locks::{has_readers, holder};
use crate::managed::ManagedFrame;
use crate::series::RunningSample;
use crate::table::Slot;
use crate::wake_series::WakeSample;

/// After how long a thread that is not known is looked for in the whole table again.
const WALK: Duration = Duration::from_millis(100);
/// After how long what is limited for one reading begins anew; while a virtual machine starts.
const RENEW: Duration = Duration::from_secs(1);
/// The most pages of a stack that are read again at once.
const PAGES_MAX: usize = 6;
const RENEW_AT_START: Duration = Duration::from_millis(100);

/// See the module.
pub struct StackReader<'a> {
    camera: Camera<'a>,
    known: FxHashMap<u32, Known>,
    walked: Option<Instant>,
    renewed: Instant,
}

/// A thread, as it was last.
struct Known {
    slot: Slot,
    /// The pages of its stack that were needed; none if there were too many.
    pages: Box<[u64]>,
}

impl<'a> StackReader<'a> {
    /// `None` if the layout makes no sense.
    pub fn new(target: &'a Target<'a>) -> Option<StackReader<'a>> {
        Some(StackReader {
            camera: Camera::without_samples(target)?,
            known: FxHashMap::default(),
            walked: None,
            renewed: Instant::now(),
        })
    }

    /// Reads the stack of a thread; `None` if there is no such thread. One that executes has none.
    pub fn read(&mut self, tid: u32) -> Option<Captured> {
        self.renew();
        if let Some(known) = self.known.get(&tid)
            && !known.pages.is_empty()
            && let Some(captured) = self.camera.take_again(&known.slot, &known.pages)
        {
            return Some(captured);
        }
        let slot = self.slot(tid)?;
        let captured = self.camera.take(&slot);
        if captured.kind == Kind::Ended {
            return None;
        }
        let pages: Box<[u64]> = self.camera.pages.whole().collect();
        let is_short = pages.len() <= PAGES_MAX && pages.len() == self.camera.pages.count();
        let pages = if is_short { pages } else { Box::default() };
        self.known.insert(tid, Known { slot, pages });
        Some(captured)
    }

    /// Returns the thread that has the lock with this word; see [`holder`](crate::locks::holder).
    pub fn holder(&self, word: u64) -> Option<u32> {
        holder(self.camera.target.memory, word)
    }

    /// Returns true if threads read what the read-write lock with this word protects.
    pub fn has_readers(&self, word: u64) -> bool {
        has_readers(self.camera.target.memory, word)
    }

    /// Goes on with objects of monitors that an earlier reader has numbered.
    pub fn know_objects(&mut self, objects: MonitorObjects) {
        self.camera.monitors.objects = Some(objects);
    }

    /// Returns the objects of monitors that were seen.
    pub fn take_objects(&mut self) -> MonitorObjects {
        self.camera.monitors.objects.take().unwrap_or_default()
    }

    /// Returns the monitor that the thread which was read last wants to enter, and the number of
    /// its object.
    pub fn entered(&self) -> Option<(u64, u32)> {
        self.camera.monitors.entered
    }

    /// Returns the thread that has entered the monitor at an address.
    pub fn monitor_owner(&mut self, monitor: u64) -> Option<u32> {
        self.camera.unwinder.monitor_owner(monitor)
    }

    /// Returns the number of a sample's stack, which is that of this thread.
    pub fn sampled(&mut self, tid: u32, sample: &RunningSample) -> Option<u32> {
        self.renew();
        self.camera.number_of_sample(tid, &sample.sample)
    }

    /// Returns true if samples have to be read as soon as they are taken: a part of their frames is
    /// read from memory that changes.
    pub fn must_be_prompt(&self) -> bool {
        self.camera.reads_what_changes()
    }

    /// Returns the numbers of the stacks of a wake-up: that of the waker, and that of the thread
    /// that it woke.
    pub fn woken(&mut self, sample: &WakeSample) -> [Option<u32>; 2] {
        self.renew();
        self.camera.numbers_of_wake(sample)
    }

    /// Returns all different stacks that were read, and all different managed frames.
    pub fn into_parts(self) -> (Vec<Stack>, Vec<ManagedFrame>) {
        self.camera.into_parts()
    }

    fn renew(&mut self) {
        let pause = if self.camera.unwinder.expects_java() {
            RENEW_AT_START
        } else {
            RENEW
        };
        if self.renewed.elapsed() >= pause {
            self.renewed = Instant::now();
            self.camera.renew();
        }
    }

    /// Returns the slot of a thread as it is now.
    fn slot(&mut self, tid: u32) -> Option<Slot> {
        if let Some(known) = self.known.get(&tid)
            && let Some(slot) = self.camera.table.again(&known.slot)
            && slot.record.tid == tid
        {
            return Some(slot);
        }
        if self.walked.is_some_and(|walked| walked.elapsed() < WALK) {
            return None;
        }
        let mut before = std::mem::take(&mut self.known);
        for slot in self.camera.slots(&|_| true) {
            let tid = slot.record.tid;
            let known = before
                .remove(&tid)
                .filter(|it| it.slot.address == slot.address);
            let new = || Known {
                slot,
                pages: Box::default(),
            };
            self.known.insert(tid, known.unwrap_or_else(new));
        }
        self.walked = Some(Instant::now());
        Some(self.known.get(&tid)?.slot)
    }
}
