//! What a recording needs of the [`Camera`] beside single stacks.

use std::collections::{HashMap, HashSet};

use raddle_inspect::{ThreadRecord, WaitKind};

use super::{Camera, Captured, Kind, Stack, Target, switched_off};
use crate::java::{Monitor, MonitorObjects};
use crate::managed::ManagedFrame;
use crate::memory::Pages;
use crate::perf_event::Sample;
use crate::sampler::Sampler;
use crate::table::Slot;
use crate::wake_series::WakeSample;

impl Stack {
    /// In [`Stack::monitor`] of a recording: the thread waits there for a notification, or has had
    /// it.
    pub const NOTICED: u64 = 1 << 32;
}

/// What a recording notes of the monitors of Java.
#[derive(Default)]
pub(crate) struct Monitors {
    /// In a recording: the objects by which stacks are told apart, also those of threads that wait
    /// for a notification.
    pub objects: Option<MonitorObjects>,
    /// The monitor that the thread which was taken last wants to enter, and the number of its
    /// object.
    pub entered: Option<(u64, u32)>,
}

/// Samples with a copy of their stack.
#[derive(Default)]
pub(super) struct Samples {
    pub all: u64,
    /// Those of which more of the stack was read, from the process's memory.
    pub deep: u64,
}

/// From so many deep samples on, and from this part of all on, samples have to be read promptly.
const DEEP_LEAST: u64 = 4;
const DEEP_PART: u64 = 8;

impl<'a> Camera<'a> {
    /// One that takes no samples of threads that execute.
    pub(crate) fn without_samples(target: &'a Target<'a>) -> Option<Camera<'a>> {
        Some(Camera {
            sampler: Sampler::none(),
            monitors: Monitors {
                objects: Some(MonitorObjects::default()),
                entered: None,
            },
            ..Camera::new(target)?
        })
    }

    /// Returns a thread with a stack that it has had.
    pub(super) fn captured(&mut self, slot: &Slot, kind: Kind, stack: Option<Stack>) -> Captured {
        self.monitors.entered = None;
        let stack = stack.filter(|stack| !stack.frames.is_empty());
        let number = stack.map(|mut stack| {
            stack.monitor = self.wanted_monitor(slot);
            self.number(stack)
        });
        Captured {
            record: slot.record,
            kind,
            stack: number.or_else(|| self.managed_alone(slot)),
            wait_lock: slot.wait_lock,
        }
    }

    /// Returns the monitor of Java that a thread wants, or 0; in a recording, the number of its
    /// object.
    fn wanted_monitor(&mut self, slot: &Slot) -> u64 {
        // A virtual machine waits so for all of its own.
        if slot.record.wait_kind != WaitKind::CONDVAR {
            return 0;
        }
        let Some(wanted) = self.unwinder.wanted_monitor(slot.record.tid) else {
            return 0;
        };
        let Some(objects) = &mut self.monitors.objects else {
            return if wanted.is_noticed { 0 } else { wanted.address };
        };
        let number = self.unwinder.object_number(objects, wanted.address);
        // The thread may have gone on since its stack was read, and want another one.
        let later = self.table.again(slot);
        if number == 0 || !later.is_some_and(|later| slot.is_unmoved(&later)) {
            return 0;
        }
        self.monitors.entered = (!wanted.is_noticed).then_some((wanted.address, number));
        let noticed = Stack::NOTICED * u64::from(wanted.is_noticed);
        noticed | u64::from(number)
    }

    /// Returns what is known of the monitors of all stacks.
    pub(super) fn monitors(&mut self) -> HashMap<u64, Monitor> {
        let addresses = self.stacks.iter().map(|stack| stack.monitor);
        let addresses: HashSet<u64> = addresses.filter(|&it| it != 0).collect();
        let unwinder = &mut self.unwinder;
        let known = addresses.into_iter();
        let known = known.filter_map(|it| Some((it, unwinder.monitor(it)?)));
        known.collect()
    }

    /// As [`Camera::take`], by one call to the kernel, of a thread that waits as deep in its stack
    /// as when these pages of it were read: its slot, the pages, and its slot again. `None` if the
    /// thread does something else, if its stack has other pages, or if frames of Python have to be
    /// read, too.
    pub(crate) fn take_again(&mut self, known: &Slot, pages: &[u64]) -> Option<Captured> {
        if self.python.is_some() {
            return None;
        }
        let bytes = self.table.slot_bytes();
        self.slots.resize(bytes * 2, 0);
        let (before, after) = self.slots.split_at_mut(bytes);
        if !self
            .pages
            .load_between(pages, known.address, [before, after])
        {
            return None;
        }
        let slots = std::mem::take(&mut self.slots);
        let (before, after) = slots.split_at(bytes);
        let slot = self.table.parse(known.address, before);
        let later = self.table.parse(known.address, after);
        self.slots = slots;
        let is_same = |slot: &Slot| slot.record.tid == known.record.tid && !slot.is_on_cpu;
        let slot = slot.filter(is_same)?;
        if slot.context != known.context || !slot.is_unmoved(&later?) {
            return None;
        }
        let (kind, stack) = self.off_carrier(&slot);
        (self.pages.count() == pages.len()).then(|| self.captured(&slot, kind, stack))
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
    /// out. That of a thread that was in the kernel for a shared word was not copied.
    pub(crate) fn numbers_of_wake(&mut self, sample: &WakeSample) -> [Option<u32>; 2] {
        let python = self.python.take();
        let waker = self.number_of_sample(sample.waker, &sample.by);
        let woken = match python {
            None if sample.word == 0 => self.number_of_woken(sample),
            _ => None,
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
            monitor: 0,
        };
        (!stack.frames.is_empty()).then(|| self.number(stack))
    }

    /// Returns true if samples are read in part from what the thread may have changed since: the
    /// frames of Python, and what is further out on the stack than its copy.
    pub(crate) fn reads_what_changes(&self) -> bool {
        let Samples { all, deep } = self.samples;
        self.python.is_some() || (deep >= DEEP_LEAST && deep * DEEP_PART >= all)
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
