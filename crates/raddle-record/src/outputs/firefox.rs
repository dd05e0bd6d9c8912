//! A profile for the Firefox Profiler (<https://profiler.firefox.com>), in its processed format.
//!
//! | there | is |
//! |---|---|
//! | a track | a thread; the [`TRACKS`] heaviest have one each, the rest one together |
//! | a sample's weight | its time in milliseconds |
//! | a sample's CPU time | its time, if the thread ran |
//! | the innermost frame of a thread that did not run | what it did: `[waiting: mutex 0x55d0]` |
//! | a category, and its color | running, runnable, in the kernel, waiting |
//! | a marker | a wait: its kind, its object, and for how long and how often |
//!
//! The format's weights are integers. What is lost when one is rounded is added to the next one of
//! the same stack, so that sums are right.

mod tracks;

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo,
    MarkerFieldFlags, MarkerFieldFormat, MarkerTiming, Profile as Document, ReferenceTimestamp,
    SamplingInterval, StackHandle, StaticSchemaMarker, StaticSchemaMarkerField, StringHandle,
    ThreadHandle, Timestamp, WeightType,
};

use super::names::{self, ObjectNames};
use crate::profile::{Activity, Profile, Sample};
use tracks::Tracks;

/// Threads with a track of their own.
pub const TRACKS: usize = 200;
/// The most markers, those of the longest waits.
const MARKERS: usize = 100_000;

/// Writes the profile as JSON.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(out, &document(profile)).map_err(io::Error::from)
}

fn document(profile: &Profile) -> Document {
    let tracks = Tracks::of(profile);
    let mut writer = Writer::new(profile, &tracks);
    let mut lengths: Vec<u64> = profile.samples.iter().map(|it| it.weight_ns).collect();
    lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
    let shortest_ns = lengths
        .get(MARKERS)
        .map_or(0, |&length| length.saturating_add(1));
    let names = ObjectNames::of(profile);
    for sample in &profile.samples {
        let track = tracks.of_thread(sample.thread);
        let pause = names.pause(sample);
        writer.sample(track, sample, pause.as_deref());
        if let Activity::Waiting(_) = sample.activity
            && sample.weight_ns >= shortest_ns
        {
            writer.marker(track, sample, &names);
        }
    }
    writer.document
}

/// The categories of what threads did.
struct Categories {
    running: CategoryHandle,
    runnable: CategoryHandle,
    in_kernel: CategoryHandle,
    waiting: CategoryHandle,
}

impl Categories {
    fn new(document: &mut Document) -> Categories {
        Categories {
            running: document.add_category("Running", CategoryColor::Green),
            runnable: document.add_category("Runnable", CategoryColor::Orange),
            in_kernel: document.add_category("In kernel", CategoryColor::Blue),
            waiting: document.add_category("Waiting", CategoryColor::Gray),
        }
    }

    fn get(&self, activity: Activity) -> CategoryHandle {
        match activity {
            Activity::Running => self.running,
            // The thread could run, and had no CPU.
            Activity::WithoutCpu => self.runnable,
            Activity::Runnable => self.runnable,
            Activity::InKernel => self.in_kernel,
            Activity::Waiting(_) => self.waiting,
        }
    }
}

/// A stack of a track, by its position and what stands at its inner end.
type StackKey = (usize, u32, Option<StringHandle>);

/// A document that is being made.
struct Writer<'a> {
    profile: &'a Profile,
    document: Document,
    categories: Categories,
    threads: Vec<ThreadHandle>,
    functions: Vec<StringHandle>,
    stacks: HashMap<StackKey, Option<StackHandle>>,
    /// Of each stack, the time that its weights don't have yet.
    left_ns: HashMap<StackKey, u64>,
}

impl<'a> Writer<'a> {
    fn new(profile: &'a Profile, tracks: &Tracks) -> Writer<'a> {
        let name = names::program(profile);
        let began = Duration::from_nanos(profile.began_unix_ns);
        let mut document = Document::new(
            &name,
            ReferenceTimestamp::from_duration_since_unix_epoch(began),
            SamplingInterval::from_nanos(profile.interval_ns.max(1)),
        );
        document.set_os_name("Linux");
        document.set_symbolicated(true);
        let begin = Timestamp::from_nanos_since_reference(0);
        let process = document.add_process(&name, profile.pid, begin);
        let categories = Categories::new(&mut document);
        let mut threads = Vec::new();
        for track in &tracks.all {
            let is_main = track.tid == profile.pid;
            let begin = Timestamp::from_nanos_since_reference(track.began_ns);
            let thread = document.add_thread(process, track.tid, begin, is_main);
            document.set_thread_name(thread, &track.name);
            document.set_thread_samples_weight_type(thread, WeightType::TracingMs);
            if let Some(ended_ns) = track.ended_ns {
                let end = Timestamp::from_nanos_since_reference(ended_ns.max(track.began_ns));
                document.set_thread_end_time(thread, end);
            }
            threads.push(thread);
        }
        if let Some(&first) = threads.first() {
            document.add_initial_selected_thread(first);
        }
        let functions = profile.functions.iter().map(names::frame);
        let functions = functions.map(|name| document.intern_string(&name));
        Writer {
            profile,
            functions: functions.collect(),
            document,
            categories,
            threads,
            stacks: HashMap::new(),
            left_ns: HashMap::new(),
        }
    }

    fn sample(&mut self, track: usize, sample: &Sample, pause: Option<&str>) {
        let pause = pause.map(|text| self.document.intern_string(&format!("[{text}]")));
        let key = (track, sample.stack, pause);
        let stack = self.stack(key, sample.activity);
        let left_ns = self.left_ns.entry(key).or_default();
        *left_ns = left_ns.saturating_add(sample.weight_ns);
        let weight_ms = i32::try_from(*left_ns / 1_000_000).unwrap_or(i32::MAX);
        *left_ns %= 1_000_000;
        let cpu = match sample.activity {
            Activity::Running => CpuDelta::from_nanos(sample.weight_ns),
            _ => CpuDelta::ZERO,
        };
        let at = Timestamp::from_nanos_since_reference(sample.at_ns);
        let thread = self.threads[track];
        self.document.add_sample(thread, at, stack, cpu, weight_ms);
    }

    fn stack(&mut self, key: StackKey, activity: Activity) -> Option<StackHandle> {
        if let Some(&known) = self.stacks.get(&key) {
            return known;
        }
        let (track, stack, pause) = key;
        let category = CategoryPairHandle::from(self.categories.get(activity));
        let functions = self.profile.stacks.get(stack as usize);
        let names = functions.into_iter().flatten();
        let names = names.filter_map(|&function| self.functions.get(function as usize));
        let frames = names.copied().chain(pause).map(|name| FrameInfo {
            frame: Frame::Label(name),
            category_pair: category,
            flags: FrameFlags::empty(),
        });
        let thread = self.threads[track];
        let stack = self.document.intern_stack_frames(thread, frames);
        self.stacks.insert(key, stack);
        stack
    }

    fn marker(&mut self, track: usize, sample: &Sample, names: &ObjectNames<'_>) {
        let Activity::Waiting(kind) = sample.activity else {
            return;
        };
        let object = names.object(kind, sample.object).unwrap_or_default();
        let marker = Wait {
            name: self.document.intern_string(kind.word()),
            object: self.document.intern_string(&object),
            category: self.categories.waiting,
            total_ms: sample.weight_ns as f64 / 1e6,
            count: sample.count as f64,
        };
        let at = Timestamp::from_nanos_since_reference(sample.at_ns);
        let thread = self.threads[track];
        let added = self
            .document
            .add_marker(thread, MarkerTiming::Instant(at), marker);
        let pause = names.pause(sample).map(|text| format!("[{text}]"));
        let pause = pause.map(|text| self.document.intern_string(&text));
        let stack = self.stack((track, sample.stack, pause), sample.activity);
        self.document.set_marker_stack(thread, added, stack);
    }
}

/// The waits for which a sample stands.
struct Wait {
    /// The kind.
    name: StringHandle,
    object: StringHandle,
    category: CategoryHandle,
    total_ms: f64,
    count: f64,
}

const fn field(
    key: &'static str,
    label: &'static str,
    format: MarkerFieldFormat,
) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField {
        key,
        label,
        format,
        flags: MarkerFieldFlags::SEARCHABLE,
    }
}

impl StaticSchemaMarker for Wait {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Wait";
    const DESCRIPTION: Option<&'static str> =
        Some("Waits of one kind, by the time at which the stack was read");
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.object}");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.data.object}: {marker.data.total}, {marker.data.count} waits");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("object", "Object", MarkerFieldFormat::String),
        field("total", "Time together", MarkerFieldFormat::Milliseconds),
        field("count", "Waits", MarkerFieldFormat::Integer),
    ];

    fn name(&self, _profile: &mut Document) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Document) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _field: u32) -> StringHandle {
        self.object
    }

    fn number_field_value(&self, field: u32) -> f64 {
        match field {
            1 => self.total_ms,
            _ => self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;
    use serde_json::Value;

    fn json(profile: &Profile) -> Value {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    fn sum(values: &Value) -> f64 {
        let values = values.as_array().unwrap();
        values.iter().map(|it| it.as_f64().unwrap()).sum()
    }

    #[test]
    fn each_thread_has_a_track_with_its_times() {
        let document = json(&samples::small());
        let threads = document["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 10);
        // The format gives a main thread the process's name.
        assert_eq!(threads[0]["name"], "server");
        assert_eq!(threads[0]["isMainThread"], true);
        let samples = &threads[0]["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        assert_eq!(sum(&samples["weight"]), 90.0);
        assert_eq!(sum(&samples["threadCPUDelta"]), 30_000.0);
        let worker = &threads[2];
        assert_eq!(sum(&worker["samples"]["weight"]), 1100.0);
        assert_eq!(worker["markers"]["length"], 1);
        assert_eq!(worker["markers"]["data"][0]["total"], 1100.0);
        assert_eq!(worker["markers"]["data"][0]["count"], 11.0);
        let text = document.to_string();
        for name in ["pthread_mutex_lock", "0x5510 (table_lock)", "ksys_read_[k]"] {
            assert!(text.contains(name), "{name}");
        }
        assert_eq!(document["meta"]["symbolicated"], true);
    }

    #[test]
    fn rounded_weights_have_the_right_sum() {
        let mut profile = samples::small();
        profile.samples = vec![samples::running(0, 0, 400_000); 1000];
        let document = json(&profile);
        assert_eq!(sum(&document["threads"][0]["samples"]["weight"]), 400.0);
    }

    #[test]
    fn hostile_profiles_are_json() {
        for profile in samples::hostile() {
            let document = json(&profile);
            let threads = document["threads"].as_array().unwrap();
            assert!(threads.len() <= TRACKS + 1);
        }
    }
}
