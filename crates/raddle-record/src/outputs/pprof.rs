//! A profile in pprof's format: protocol buffers in gzip, for `go tool pprof`, Grafana, Speedscope
//! and others.
//!
//! | in the file | is |
//! |---|---|
//! | a sample's values | `samples`; `wall`, `cpu`, `off_cpu` in nanoseconds; `wall` is their sum |
//! | labels of a sample | `thread`, `tid`, `activity`, `object` |
//! | a location | a function with those that are inlined in it |
//! | a mapping | a module, or `[kernel]`, `[python]`, `[java]`, `[jit]` |
//! | the first comment | `raddle profile version 1` |
//! | fields from 7201 on | Raddle's own: recording, threads, waits, wakers; others pass over |
//!
//! Samples with the same stack and labels are one. [`read`] reads such files, and
//! those of other profilers.
//!
//! Format: <https://github.com/google/pprof/blob/main/proto/profile.proto>.

mod fields;
mod messages;
mod reader;
mod tables;
#[cfg(test)]
mod tests;
mod values;
mod wakings;

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use raddle_inspect::WaitKind;

use super::names::{self, ObjectNames};
use crate::profile::{Activity, Profile, Sample};
pub use reader::{ReadError, read};
use tables::Tables;

/// The version of Raddle's own parts of the file.
pub const VERSION: u32 = 1;
/// A comment begins with it; the version follows.
const VERSION_COMMENT: &str = "raddle profile version ";

/// Writes the profile.
///
/// # Errors
/// Those of the output.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let bytes = message(profile).encode_to_vec();
    let mut encoder = GzEncoder::new(out, Compression::default());
    encoder.write_all(&bytes)?;
    encoder.finish()?;
    Ok(())
}

/// What samples have in common that are one in the file: the stack, the thread, the activity, the
/// kind of the wait, the object.
type Key = (u32, u32, u32, u32, u64);

/// Numbers an activity.
fn code(activity: Activity) -> (u32, u32) {
    match activity {
        Activity::Running => (0, 0),
        Activity::Runnable => (1, 0),
        Activity::InKernel => (2, 0),
        Activity::Waiting(kind) => (3, kind.0),
        Activity::WithoutCpu => (4, 0),
    }
}

fn message(profile: &Profile) -> messages::Profile {
    let mut tables = Tables::new(profile);
    let mut message = messages::Profile {
        sample_type: [
            ("samples", "count"),
            ("wall", "nanoseconds"),
            ("cpu", "nanoseconds"),
            ("off_cpu", "nanoseconds"),
        ]
        .map(|(name, unit)| tables.value_type(name, unit))
        .to_vec(),
        period_type: Some(tables.value_type("cpu", "nanoseconds")),
        period: clamp(profile.interval_ns.into()),
        default_sample_type: tables.string("wall"),
        time_nanos: clamp(profile.began_unix_ns.into()),
        duration_nanos: clamp(profile.duration_ns.into()),
        comment: comments(profile)
            .iter()
            .map(|comment| tables.string(comment))
            .collect(),
        sample: samples(profile, &mut tables),
        waking: wakings::messages(profile, &mut tables),
        recording: Some(recording(profile)),
        thread: profile.threads.iter().map(thread).collect(),
        wait: profile.waits.iter().map(wait).collect(),
        ..messages::Profile::default()
    };
    tables.finish(&mut message);
    message
}

fn clamp(value: u128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What `pprof -comments` shows.
fn comments(profile: &Profile) -> Vec<String> {
    let command: Vec<String> = profile.command.iter().map(|it| names::plain(it)).collect();
    let mut comments = vec![
        format!("{VERSION_COMMENT}{VERSION}"),
        format!("process {}: {}", profile.pid, command.join(" ")),
    ];
    if profile.lost_events != 0 || profile.lost_samples != 0 {
        comments.push(format!(
            "{} events and {} samples were lost",
            profile.lost_events, profile.lost_samples
        ));
    }
    comments.extend(profile.remarks.iter().map(|remark| names::plain(remark)));
    comments
}

fn samples(profile: &Profile, tables: &mut Tables<'_>) -> Vec<messages::Sample> {
    let objects = ObjectNames::of(profile);
    let mut sums: BTreeMap<Key, (u128, u128)> = BTreeMap::new();
    for sample in &profile.samples {
        let (activity, kind) = code(sample.activity);
        let key = (sample.stack, sample.thread, activity, kind, sample.object);
        let sum = sums.entry(key).or_default();
        sum.0 += u128::from(sample.count);
        sum.1 += u128::from(sample.weight_ns);
    }
    let threads: Vec<(String, u32)> = profile
        .threads
        .iter()
        .map(|thread| (names::thread(thread), thread.tid))
        .collect();
    let mut messages = Vec::with_capacity(sums.len());
    for ((stack, thread, activity, kind, object), (count, weight_ns)) in sums {
        let activity = activity_of(activity, kind);
        let (on_ns, off_ns) = match activity {
            Activity::Running => (weight_ns, 0),
            _ => (0, weight_ns),
        };
        let sample = Sample {
            thread,
            activity,
            object,
            stack,
            at_ns: 0,
            weight_ns: 0,
            count: 0,
        };
        messages.push(messages::Sample {
            location_id: tables.locations(stack),
            value: [count, weight_ns, on_ns, off_ns].map(clamp).to_vec(),
            label: labels(&sample, threads.get(thread as usize), &objects, tables),
        });
    }
    messages
}

fn activity_of(activity: u32, kind: u32) -> Activity {
    match activity {
        0 => Activity::Running,
        1 => Activity::Runnable,
        2 => Activity::InKernel,
        _ => Activity::Waiting(WaitKind(kind)),
    }
}

fn labels(
    sample: &Sample,
    thread: Option<&(String, u32)>,
    objects: &ObjectNames<'_>,
    tables: &mut Tables<'_>,
) -> Vec<messages::Label> {
    let mut labels = vec![tables.label("activity", &sample.activity.word())];
    if let Some((name, tid)) = thread {
        labels.push(tables.label("thread", name));
        labels.push(messages::Label {
            key: tables.string("tid"),
            num: i64::from(*tid),
            ..messages::Label::default()
        });
    }
    let kind = match sample.activity {
        Activity::Waiting(kind) => kind,
        _ => WaitKind::NONE,
    };
    if let Some(object) = objects.object(kind, sample.object) {
        labels.push(tables.label("object", &object));
    }
    labels
}

fn recording(profile: &Profile) -> messages::Recording {
    messages::Recording {
        pid: profile.pid,
        command: profile.command.clone(),
        began_unix_ns: profile.began_unix_ns,
        duration_ns: profile.duration_ns,
        interval_ns: profile.interval_ns,
        lost_events: profile.lost_events,
        lost_samples: profile.lost_samples,
        remarks: profile.remarks.clone(),
    }
}

fn thread(thread: &crate::profile::Thread) -> messages::Thread {
    messages::Thread {
        tid: thread.tid,
        name: thread.name.clone(),
        began_ns: thread.began_ns,
        ended_ns: thread.ended_ns,
        running_ns: thread.running_ns,
        runnable_ns: thread.runnable_ns,
        in_kernel_ns: thread.in_kernel_ns,
        waiting_ns: thread.waiting_ns,
        turns: thread.turns,
        wakes: thread.wakes,
        longest_runnable_ns: thread.longest_runnable_ns,
    }
}

fn wait(wait: &crate::profile::Wait) -> messages::Wait {
    let pairs = wait.wakers.iter();
    messages::Wait {
        kind: wait.kind.0,
        object: wait.object,
        name: wait.name.clone(),
        count: wait.count,
        total_ns: wait.total_ns,
        longest_ns: wait.longest_ns,
        threads: wait.threads,
        wakers: pairs
            .flat_map(|&(thread, times)| [u64::from(thread), times])
            .collect(),
    }
}
