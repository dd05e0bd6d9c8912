//! What a recording needs of the [`Camera`] beside single stacks.

use raddle_inspect::ThreadRecord;

use super::{Camera, Stack, Target};
use crate::managed::ManagedFrame;
use crate::perf_event::Sample;
use crate::sampler::Sampler;

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
        let record = ThreadRecord {
            tid,
            ..ThreadRecord::default()
        };
        let stack = self.stack_of_sample(&record, sample);
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
