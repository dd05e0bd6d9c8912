//! What a recording needs of the [`Camera`] beside single stacks.

use raddle_inspect::ThreadRecord;

use super::{Camera, Stack, Target, switched_off};
use crate::managed::ManagedFrame;
use crate::memory::Pages;
use crate::perf_event::Sample;
use crate::sampler::Sampler;
use crate::wake_series::WakeSample;

impl<'a> Camera<'a> {
    /// One that takes no samples of threads that execute.
    pub(crate) fn without_samples(target: &'a Target<'a>) -> Option<Camera<'a>> {
        Some(Camera {
            sampler: Sampler::none(),
            ..Camera::new(target)?
        })
    }

    /// Returns the number of a sample's stack; `None` if it has no frame.
    pub(crate) fn number_of_sample(&mut self, tid: u32, sample: &Sample) -> Option<u32> {
        let stack = self.stack_of_sample(&of(tid), sample);
        (!stack.frames.is_empty()).then(|| self.number(stack))
    }

    /// Returns the numbers of the stacks of a wake-up: that of the waker, and that of the thread
    /// that it woke.
    ///
    /// Python's frames are not on the stack, and both threads have gone on since. So the waker's
    /// stack has none, and the other one, which is told from others by its Python frames, is left
    /// out.
    pub(crate) fn numbers_of_wake(&mut self, sample: &WakeSample) -> [Option<u32>; 2] {
        let python = self.python.take();
        let waker = self.number_of_sample(sample.waker, &sample.by);
        let woken = match python {
            Some(_) => None,
            None => self.number_of_woken(sample),
        };
        self.python = python;
        [waker, woken]
    }

    fn number_of_woken(&mut self, sample: &WakeSample) -> Option<u32> {
        let memory = sample.woken.stack.and(self.target.memory);
        let mut pages = Pages::new(&memory);
        let (registers, _) = switched_off(self.target, &mut pages, sample.woken.context)?;
        let (frames, end) = self.unwinder.frames(registers, &mut pages);
        let managed = self.managed(&of(sample.thread), &frames);
        let stack = Stack {
            frames: frames.into(),
            end,
            managed: managed.into(),
        };
        (!stack.frames.is_empty()).then(|| self.number(stack))
    }

    /// Has what is limited for one reading begin anew.
    pub(crate) fn renew(&mut self) {
        if let Some(python) = &mut self.python {
            python.renew();
        }
        self.map.renew(self.target.pid);
        self.unwinder.renew();
        self.kernel_threads.renew();
    }

    /// Returns all different stacks that were read, and all different managed frames.
    pub(crate) fn into_parts(self) -> (Vec<Stack>, Vec<ManagedFrame>) {
        (self.stacks, self.managed.all)
    }
}

fn of(tid: u32) -> ThreadRecord {
    ThreadRecord {
        tid,
        ..ThreadRecord::default()
    }
}
