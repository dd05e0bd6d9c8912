//! A profile in speedscope's format (<https://www.speedscope.app>), in several views.
//!
//! | view | its stacks begin with | and end with |
//! |---|---|---|
//! | wall | the thread | what it did, if it did not run |
//! | on CPU | the thread | the function that ran |
//! | off CPU | the thread | what it did |
//! | waits by object | the object | the function that waited |
//! | waits by waker | the thread | what it did, and the waker's stack upside down |
//! | a thread | | what it did; in the order of time |
//!
//! A view without a sample is left out. In views of sums, threads with names that differ in
//! numbers only are one, `worker-*`. The heaviest threads have views of their own, as groups from
//! 65 names on. Of a stack of more than 500 frames the middle is left out, because the viewer calls
//! itself for each frame.

mod frames;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;

use super::names::{self, ObjectNames, ThreadNames};
use super::wakers;
use crate::profile::{Activity, Profile, Sample};
pub(super) use frames::Texts;
use frames::{DEPTH, Frame, Frames};

/// Threads with a view of their own.
const THREADS: usize = 50;
/// Positions in stacks of all threads' views together.
const TIME_LINES: usize = 4 << 20;

/// Writes the profile as JSON.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(out, &file(profile)).map_err(io::Error::from)
}

/// A file in speedscope's format.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    active_profile_index: u32,
    shared: Shared,
    profiles: Vec<View>,
}

impl File {
    /// A file with those views that have a sample.
    pub(super) fn of(name: String, frames: Vec<Frame>, mut views: Vec<View>) -> File {
        views.retain(|view| !view.samples.is_empty());
        File {
            schema: "https://www.speedscope.app/file-format-schema.json",
            exporter: concat!("raddle ", env!("CARGO_PKG_VERSION")),
            name,
            active_profile_index: 0,
            shared: Shared { frames },
            profiles: views,
        }
    }

    /// True if there is anything to show.
    pub(super) fn has_views(&self) -> bool {
        !self.profiles.is_empty()
    }
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

/// A view of the profile.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Positions of frames, the outermost first.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

impl View {
    pub(super) fn new(name: impl Into<String>) -> View {
        View {
            r#type: "sampled",
            name: name.into(),
            unit: "nanoseconds",
            start_value: 0,
            end_value: 0,
            samples: Vec::new(),
            weights: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, stack: Vec<u32>, weight_ns: u128) {
        let weight_ns = u64::try_from(weight_ns).unwrap_or(u64::MAX);
        self.end_value = self.end_value.saturating_add(weight_ns);
        self.samples.push(stack);
        self.weights.push(weight_ns);
    }
}

pub(super) fn file(profile: &Profile) -> File {
    let mut frames = Frames::of(profile);
    let threads = ThreadNames::groups(profile);
    let objects = ObjectNames::of(profile);
    let mut views = vec![
        sums(
            profile,
            &mut frames,
            "wall: all threads",
            |sample, frames| {
                let pause = objects.pause(sample).map(|text| format!("[{text}]"));
                Some((threads.get(sample.thread).to_owned(), frames.named(pause)))
            },
        ),
        sums(profile, &mut frames, "on CPU", |sample, _| {
            let is_on_cpu = sample.activity.is_on_cpu();
            is_on_cpu.then(|| (threads.get(sample.thread).to_owned(), None))
        }),
        sums(profile, &mut frames, "off CPU", |sample, frames| {
            let pause = objects.pause(sample)?;
            let pause = frames.named(Some(format!("[{pause}]")));
            Some((threads.get(sample.thread).to_owned(), pause))
        }),
        sums(profile, &mut frames, "waits by object", |sample, _| {
            let Activity::Waiting(kind) = sample.activity else {
                return None;
            };
            let object = objects.object(kind, sample.object).unwrap_or_default();
            Some((format!("{} {object}", kind.word()).trim().to_owned(), None))
        }),
    ];
    views.push(by_waker(profile, &mut frames, &threads, &objects));
    let threads = ThreadNames::of(profile);
    views.extend(time_lines(profile, &mut frames, &threads, &objects));
    File::of(names::program(profile), frames.finish(), views)
}

/// Makes a view of sums. `ends` returns what stands outside of a sample's stack, and the frame
/// inside of it; none if the view lacks the sample.
fn sums(
    profile: &Profile,
    frames: &mut Frames<'_>,
    name: &str,
    ends: impl Fn(&Sample, &mut Frames<'_>) -> Option<(String, Option<u32>)>,
) -> View {
    let mut sums: BTreeMap<(u32, u32, Option<u32>), u128> = BTreeMap::new();
    for sample in &profile.samples {
        if let Some((outer, inner)) = ends(sample, frames)
            && sample.weight_ns != 0
        {
            let outer = frames.name(outer);
            *sums.entry((outer, sample.stack, inner)).or_default() += u128::from(sample.weight_ns);
        }
    }
    let mut view = View::new(name);
    for ((outer, stack, inner), weight_ns) in sums {
        let mut all = vec![outer];
        all.extend(frames.stack(stack));
        all.extend(inner);
        view.add(all, weight_ns);
    }
    view
}

/// Makes the view of waits by what ended them.
fn by_waker(
    profile: &Profile,
    frames: &mut Frames<'_>,
    threads: &ThreadNames,
    objects: &ObjectNames<'_>,
) -> View {
    let mut sums: BTreeMap<Vec<u32>, u128> = BTreeMap::new();
    for waking in &profile.wakings {
        let waker = wakers::waker_stack(waking);
        let depth = frames.depth(waking.stack) + waker.map_or(0, |stack| frames.depth(stack));
        let most = if depth < DEPTH { DEPTH } else { DEPTH / 2 - 1 };
        let mut all = vec![frames.name(threads.get(waking.thread).to_owned())];
        all.extend(frames.innermost(waking.stack, most));
        for text in wakers::between(waking, threads, objects) {
            all.push(frames.name(text));
        }
        if let Some(stack) = waker {
            all.extend(frames.innermost(stack, most).into_iter().rev());
        }
        *sums.entry(all).or_default() += u128::from(waking.weight_ns);
    }
    let mut view = View::new("waits by waker");
    for (stack, weight_ns) in sums {
        view.add(stack, weight_ns);
    }
    view
}

/// Makes the views of threads, the heaviest first.
fn time_lines(
    profile: &Profile,
    frames: &mut Frames<'_>,
    threads: &ThreadNames,
    objects: &ObjectNames<'_>,
) -> Vec<View> {
    let mut by_name: HashMap<&str, Vec<&Sample>> = HashMap::new();
    for sample in &profile.samples {
        if sample.weight_ns != 0 {
            let name = threads.get(sample.thread);
            by_name.entry(name).or_default().push(sample);
        }
    }
    let mut groups: Vec<_> = by_name.into_iter().collect();
    groups.sort_by_cached_key(|(name, samples)| {
        let on_cpu = samples.iter().filter(|it| it.activity.is_on_cpu());
        let on_cpu_ns: u128 = on_cpu.map(|it| u128::from(it.weight_ns)).sum();
        (Reverse(on_cpu_ns), Reverse(samples.len()), name.to_string())
    });
    let mut left = TIME_LINES;
    let mut views = Vec::new();
    for (name, samples) in groups.into_iter().take(THREADS) {
        let mut view = View::new(format!("thread {name}, in the order of time"));
        let rows = rows(&samples, frames, objects);
        let needed: usize = rows.iter().map(|row| frames.depth(row.0.0) + 1).sum();
        let Some(rest) = left.checked_sub(needed) else {
            break;
        };
        left = rest;
        for ((stack, inner), weight_ns) in rows {
            let mut all = frames.stack(stack);
            all.extend(inner);
            view.add(all, weight_ns);
        }
        views.push(view);
    }
    views
}

/// A stack, with what stands inside of it, and its time.
type Row = ((u32, Option<u32>), u128);

/// Returns the rows of a time line: samples that follow an equal one are one with it.
fn rows(samples: &[&Sample], frames: &mut Frames<'_>, objects: &ObjectNames<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for sample in samples {
        let pause = objects.pause(sample).map(|text| format!("[{text}]"));
        let key = (sample.stack, frames.named(pause));
        let weight_ns = u128::from(sample.weight_ns);
        match rows.last_mut() {
            Some(row) if row.0 == key => row.1 += weight_ns,
            _ => rows.push((key, weight_ns)),
        }
    }
    rows
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

    /// A view's stacks as text.
    fn stacks(document: &Value, view: usize) -> Vec<String> {
        let frames = document["shared"]["frames"].as_array().unwrap();
        let view = &document["profiles"][view];
        let samples = view["samples"].as_array().unwrap().iter();
        let name = |frame: &Value| {
            let frame = &frames[frame.as_u64().unwrap() as usize];
            frame["name"].as_str().unwrap().to_owned()
        };
        let text = |stack: &Value| {
            let names: Vec<String> = stack.as_array().unwrap().iter().map(name).collect();
            names.join(";")
        };
        let weights = view["weights"].as_array().unwrap().iter();
        samples
            .zip(weights)
            .map(|(stack, weight)| format!("{} {weight}", text(stack)))
            .collect()
    }

    #[test]
    fn a_file_has_a_view_for_each_question() {
        let document = json(&samples::small());
        let views = document["profiles"].as_array().unwrap();
        let names: Vec<_> = views
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        let expected = ["wall: all threads", "on CPU", "off CPU", "waits by object"];
        assert_eq!(names[..4], expected);
        assert_eq!(names[4], "waits by waker");
        assert_eq!(names[5], "thread main, in the order of time");
        assert_eq!(names.len(), 15);
        assert_eq!(
            stacks(&document, 1),
            [
                "main;main;descend;descend 30000000",
                "worker-*;start_thread;work 10000000"
            ]
        );
        assert_eq!(
            stacks(&document, 3),
            ["mutex 0x5510 (table_lock);start_thread;work;pthread_mutex_lock 9900000000"]
        );
        assert_eq!(
            stacks(&document, 5),
            [
                "main;descend;descend 30000000",
                "main;read;ksys_read_[k];[in kernel] 60000000"
            ]
        );
        assert_eq!(views[0]["endValue"], 10_000_000_000_u64);
    }

    #[test]
    fn hostile_profiles_are_files_with_frames_that_exist() {
        for profile in samples::hostile() {
            let document = json(&profile);
            let frames = document["shared"]["frames"].as_array().unwrap().len() as u64;
            for view in document["profiles"].as_array().unwrap() {
                for stack in view["samples"].as_array().unwrap() {
                    let stack = stack.as_array().unwrap();
                    assert!(stack.len() <= frames::DEPTH + 2);
                    assert!(stack.iter().all(|it| it.as_u64().unwrap() < frames));
                }
            }
        }
    }
}
