//! A light thread's begin and end, as tools see them.

use super::{GROUP, Light};
use raddle_interface::LightOffsets;
use raddle_sched::Task;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

impl Light {
    /// Where tools find what they show.
    pub(in crate::light) const OFFSETS: LightOffsets = LightOffsets {
        on_cpu: (offset_of!(Light, task) + offset_of!(Task, on_cpu)) as u32,
        claim: (offset_of!(Light, task) + Task::CLAIM) as u32,
        context: offset_of!(Light, context) as u32,
        host: offset_of!(Light, host) as u32,
        life: offset_of!(Light, life) as u32,
        epoch: offset_of!(Light, epoch) as u32,
        deadline_ns: (offset_of!(Light, task) + Task::DEADLINE) as u32,
        has_deadline: (offset_of!(Light, task) + Task::HAS_DEADLINE) as u32,
    };

    /// Returns the number of the stack's current light thread.
    pub(in crate::light) fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    /// Counts a begin, which makes the number odd, or an end. Called by the maker of the light
    /// thread, and by the light thread itself.
    #[inline(always)]
    pub(super) fn count_life(&self) {
        self.life.store(self.life() + 1, Ordering::Relaxed);
    }

    /// Notes that the light thread belongs to this process, and not to one that has forked it.
    #[inline(always)]
    pub(in crate::light) fn belong_here(&self) {
        self.epoch.set(GROUP.epoch.load(Ordering::Relaxed));
    }
}
