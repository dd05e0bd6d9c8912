//! Makes a [`Profile`] of the parts of a file.

use std::collections::HashMap;

use raddle_inspect::WaitKind;

use super::super::fields::{Budget, ENTRY};
use super::super::messages::{self, Label};
use super::super::tables::origin;
use super::super::values::Columns;
use super::super::wakings;
use super::{Parts, ReadError};
use crate::profile::{Activity, Function, Interner, Profile, Sample, Thread, Wait, Waking};

/// A profile that is being made.
pub(super) struct Builder<'a> {
    parts: &'a Parts<'a>,
    columns: &'a Columns,
    is_own: bool,
    interner: Interner,
    /// The functions of each location, from the outermost inwards.
    locations: HashMap<u64, Vec<u32>>,
    threads: Vec<Thread>,
    /// The positions of threads.
    thread_numbers: HashMap<(u32, String), u32>,
    samples: Vec<Sample>,
    wakings: Vec<Waking>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        parts: &'a Parts<'a>,
        columns: &'a Columns,
        is_own: bool,
        budget: &mut Budget,
    ) -> Result<Builder<'a>, ReadError> {
        let mut builder = Builder {
            parts,
            columns,
            is_own,
            interner: Interner::default(),
            locations: HashMap::new(),
            threads: Vec::new(),
            thread_numbers: HashMap::new(),
            samples: Vec::new(),
            wakings: Vec::new(),
        };
        for message in &parts.threads {
            builder.add_thread(thread(message));
        }
        let mut ids: Vec<&u64> = parts.locations.keys().collect();
        ids.sort_unstable();
        for &id in ids {
            let functions = builder.functions(&parts.locations[&id]);
            budget.take(ENTRY * functions.len() as u64)?;
            builder.locations.insert(id, functions);
        }
        Ok(builder)
    }

    /// Returns the functions of a location, from the outermost inwards.
    fn functions(&mut self, location: &messages::Location) -> Vec<u32> {
        let parts = self.parts;
        let mapping = parts.mappings.get(&location.mapping_id);
        let mapping = mapping.map_or("", |mapping| parts.string(mapping.filename));
        let origin = origin(mapping);
        let module = mapping.rsplit('/').next().filter(|name| !name.is_empty());
        let module = module.filter(|name| !name.starts_with('['));
        let mut numbers = Vec::new();
        for line in location.line.iter().rev() {
            let known = parts.functions.get(&line.function_id);
            let Some(known) = known else {
                continue;
            };
            let name = match parts.string(known.name) {
                "" => parts.string(known.system_name),
                name => name,
            };
            let file = Some(parts.string(known.filename)).filter(|file| !file.is_empty());
            let number = self.interner.function(Function {
                name: name.into(),
                origin,
                file: file.map(Into::into),
                line: u32::try_from(line.line).ok().filter(|&line| line != 0),
                module: module.map(Into::into),
                is_inlined: !numbers.is_empty(),
            });
            numbers.push(number);
        }
        if numbers.is_empty() {
            let name = match module {
                Some(module) => format!("{module}+{:#x}", location.address),
                None => format!("{:#x}", location.address),
            };
            let number = self.interner.function(Function {
                origin,
                module: module.map(Into::into),
                ..Function::note(name)
            });
            numbers.push(number);
        }
        numbers
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, bytes: &[u8], budget: &mut Budget) -> Result<(), ReadError> {
        let message: messages::Sample = budget.entry(bytes)?;
        let stack = self.stack(&message.location_id, budget)?;
        let labels = Labels::of(&message.label, self.parts);
        let thread = self.thread(&labels, budget)?;
        let times = match labels.activity(self.is_own) {
            Some(activity) => vec![(activity, self.columns.wall_ns(&message.value))],
            None => self.columns.times_ns(&message.value),
        };
        for (activity, weight_ns) in times {
            self.samples.push(Sample {
                thread,
                activity,
                object: labels.object(activity),
                stack,
                at_ns: 0,
                weight_ns,
                count: self.columns.count(&message.value).max(1),
            });
        }
        Ok(())
    }

    /// Adds a part of a wait's time, which is Raddle's own.
    pub(super) fn waking(&mut self, bytes: &[u8], budget: &mut Budget) -> Result<(), ReadError> {
        if !self.is_own {
            return Ok(());
        }
        let message: messages::Waking = budget.entry(bytes)?;
        let stack = self.stack(&message.location_id, budget)?;
        let waker_stack = match &message.waker_location_id[..] {
            [] => None,
            ids => Some(self.stack(ids, budget)?),
        };
        self.wakings
            .push(wakings::read(&message, stack, waker_stack));
        Ok(())
    }

    /// Returns the stack with these locations, the innermost first.
    fn stack(&mut self, ids: &[u64], budget: &mut Budget) -> Result<u32, ReadError> {
        let mut stack = Vec::new();
        for id in ids.iter().rev() {
            // A number that stands for nothing is a frame that is left out.
            let functions = self.locations.get(id).map_or(&[][..], |it| it);
            budget.take(functions.len() as u64)?;
            stack.extend_from_slice(functions);
        }
        Ok(self.interner.stack(stack))
    }

    fn thread(&mut self, labels: &Labels<'_>, budget: &mut Budget) -> Result<u32, ReadError> {
        let key = (labels.tid, labels.thread.to_owned());
        if let Some(&number) = self.thread_numbers.get(&key) {
            return Ok(number);
        }
        budget.take(ENTRY)?;
        let number = self.add_thread(Thread {
            tid: labels.tid,
            name: labels.thread.to_owned(),
            ..Thread::default()
        });
        self.thread_numbers.insert(key, number);
        Ok(number)
    }

    fn add_thread(&mut self, thread: Thread) -> u32 {
        let number = self.threads.len() as u32;
        let label = crate::outputs::names::thread(&thread);
        self.thread_numbers
            .entry((thread.tid, label))
            .or_insert(number);
        self.threads.push(thread);
        number
    }

    pub(super) fn finish(self) -> Profile {
        let parts = self.parts;
        let recording = parts.recording.clone().unwrap_or_default();
        let mut profile = Profile {
            pid: recording.pid,
            command: recording.command,
            began_unix_ns: recording.began_unix_ns,
            duration_ns: recording.duration_ns,
            interval_ns: recording.interval_ns,
            functions: self.interner.functions,
            stacks: self.interner.stacks,
            threads: self.threads,
            samples: self.samples,
            waits: parts.waits.iter().map(wait).collect(),
            locks: Vec::new(),
            wakings: self.wakings,
            lost_events: recording.lost_events,
            lost_samples: recording.lost_samples,
            remarks: recording.remarks,
        };
        if !self.is_own || parts.recording.is_none() {
            profile.began_unix_ns = parts.time_nanos.try_into().unwrap_or(0);
            profile.duration_ns = parts.duration_nanos.try_into().unwrap_or(0);
            profile.interval_ns = 0;
            add_threads(&mut profile);
            add_waits(&mut profile);
            let remark = "only the samples of this file are known: raddle did not write it";
            profile.remarks.push(remark.into());
        }
        if !self.is_own && self.columns.is_mixed() {
            let remark = "the file does not say which time was on a CPU: all counts as such";
            profile.remarks.push(remark.into());
        }
        profile
    }
}

/// Sums samples as times of threads.
fn add_threads(profile: &mut Profile) {
    for sample in &profile.samples {
        let Some(thread) = profile.threads.get_mut(sample.thread as usize) else {
            continue;
        };
        let time = match sample.activity {
            Activity::Running | Activity::WithoutCpu => &mut thread.running_ns,
            Activity::Runnable => &mut thread.runnable_ns,
            Activity::InKernel => &mut thread.in_kernel_ns,
            Activity::Waiting(_) => &mut thread.waiting_ns,
        };
        *time = time.saturating_add(sample.weight_ns);
    }
}

/// Sums samples as waits.
fn add_waits(profile: &mut Profile) {
    let mut waits: HashMap<(WaitKind, u64), Wait> = HashMap::new();
    for sample in &profile.samples {
        let Activity::Waiting(kind) = sample.activity else {
            continue;
        };
        let wait = waits.entry((kind, sample.object)).or_insert_with(|| Wait {
            kind,
            object: sample.object,
            name: None,
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            threads: 0,
            wakers: Vec::new(),
        });
        wait.count = wait.count.saturating_add(sample.count);
        wait.total_ns = wait.total_ns.saturating_add(sample.weight_ns);
    }
    profile.waits = waits.into_values().collect();
    let order = |wait: &Wait| (std::cmp::Reverse(wait.total_ns), wait.kind.0, wait.object);
    profile.waits.sort_by_key(order);
}

/// The labels of a sample that are understood.
#[derive(Default)]
struct Labels<'a> {
    thread: &'a str,
    tid: u32,
    activity: &'a str,
    object: &'a str,
}

impl<'a> Labels<'a> {
    fn of(labels: &[Label], parts: &Parts<'a>) -> Labels<'a> {
        let mut found = Labels::default();
        for label in labels {
            let text = parts.string(label.str);
            match parts.string(label.key) {
                "thread" | "thread_name" | "thread name" => found.thread = text,
                "tid" | "thread_id" | "thread id" => {
                    let number = text.parse().ok().or(u32::try_from(label.num).ok());
                    found.tid = number.unwrap_or(0);
                }
                "activity" => found.activity = text,
                "object" => found.object = text,
                _ => {}
            }
        }
        found
    }

    /// Returns the activity of a sample of Raddle's own.
    fn activity(&self, is_own: bool) -> Option<Activity> {
        if !is_own {
            return None;
        }
        let simple = [
            Activity::Running,
            Activity::WithoutCpu,
            Activity::Runnable,
            Activity::InKernel,
        ];
        let simple = simple.into_iter().find(|it| it.word() == self.activity);
        let kinds = || WaitKind::ALL.iter().find(|it| it.word() == self.activity);
        Some(simple.unwrap_or_else(|| {
            // A kind that this version does not know is of a later one.
            Activity::Waiting(kinds().copied().unwrap_or(WaitKind(u32::MAX)))
        }))
    }

    /// Returns the number of the object; its name may follow.
    fn object(&self, activity: Activity) -> u64 {
        if !matches!(activity, Activity::Waiting(_)) {
            return 0;
        }
        let number = self.object.split(' ').next().unwrap_or_default();
        let parsed = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => number.parse(),
        };
        parsed.unwrap_or(0)
    }
}

fn thread(message: &messages::Thread) -> Thread {
    Thread {
        tid: message.tid,
        name: message.name.clone(),
        began_ns: message.began_ns,
        ended_ns: message.ended_ns,
        running_ns: message.running_ns,
        runnable_ns: message.runnable_ns,
        in_kernel_ns: message.in_kernel_ns,
        waiting_ns: message.waiting_ns,
        turns: message.turns,
        wakes: message.wakes,
        longest_runnable_ns: message.longest_runnable_ns,
    }
}

fn wait(message: &messages::Wait) -> Wait {
    let pairs = message.wakers.chunks_exact(2);
    Wait {
        kind: WaitKind(message.kind),
        object: message.object,
        name: message.name.clone(),
        count: message.count,
        total_ns: message.total_ns,
        longest_ns: message.longest_ns,
        threads: message.threads,
        wakers: pairs
            .filter_map(|pair| Some((u32::try_from(pair[0]).ok()?, pair[1])))
            .collect(),
    }
}
