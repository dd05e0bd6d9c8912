//! The stacks of single threads, read one after another for as long as a recording lasts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::capture::{Camera, Captured, Kind, Stack, Target};
use crate::locks::holder;
use crate::managed::ManagedFrame;
use crate::series::RunningSample;
use crate::table::Slot;
use crate::wake_series::WakeSample;

/// After how long a thread that is not known is looked for in the whole table again.
const WALK: Duration = Duration::from_millis(100);
/// After how long what is limited for one reading begins anew.
const RENEW: Duration = Duration::from_secs(1);

/// See the module.
pub struct StackReader<'a> {
    camera: Camera<'a>,
    slots: HashMap<u32, Slot>,
    walked: Option<Instant>,
    renewed: Instant,
}

impl<'a> StackReader<'a> {
    /// `None` if the layout makes no sense.
    pub fn new(target: &'a Target<'a>) -> Option<StackReader<'a>> {
        Some(StackReader {
            camera: Camera::without_samples(target)?,
            slots: HashMap::new(),
            walked: None,
            renewed: Instant::now(),
        })
    }

    /// Reads the stack of a thread; `None` if there is no such thread. One that executes has none.
    pub fn read(&mut self, tid: u32) -> Option<Captured> {
        self.renew();
        let slot = self.slot(tid)?;
        let captured = self.camera.take(&slot);
        (captured.kind != Kind::Ended).then_some(captured)
    }

    /// Returns the thread that has the lock with this word; see [`holder`](crate::locks::holder).
    pub fn holder(&self, word: u64) -> Option<u32> {
        holder(self.camera.target.memory, word)
    }

    /// Returns the number of a sample's stack, which is that of this thread.
    pub fn sampled(&mut self, tid: u32, sample: &RunningSample) -> Option<u32> {
        self.renew();
        self.camera.number_of_sample(tid, &sample.sample)
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
        if self.renewed.elapsed() >= RENEW {
            self.renewed = Instant::now();
            self.camera.renew();
        }
    }

    /// Returns the slot of a thread as it is now.
    fn slot(&mut self, tid: u32) -> Option<Slot> {
        if let Some(known) = self.slots.get(&tid)
            && let Some(slot) = self.camera.table.again(known)
            && slot.record.tid == tid
        {
            return Some(slot);
        }
        if self.walked.is_some_and(|walked| walked.elapsed() < WALK) {
            return None;
        }
        self.slots.clear();
        for slot in self.camera.slots(&|_| true) {
            self.slots.insert(slot.record.tid, slot);
        }
        self.walked = Some(Instant::now());
        self.slots.get(&tid).copied()
    }
}
