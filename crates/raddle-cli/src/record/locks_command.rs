//! `raddle locks`: the locks that threads wait for, and those that hold them.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use raddle_record::outputs::locks;
use raddle_record::profile::{Lock, Profile};
use serde::Serialize;

use super::recorder::Recorder;
use super::result;
use crate::cli::LocksArguments;
use crate::recording::ends_by_signal;
use crate::stdout::{print, width};

/// Looks at waits in each second.
const FREQUENCY: u32 = 99;

pub(crate) fn run(arguments: &LocksArguments) -> Result<ExitCode> {
    let ends = ends_by_signal()?;
    let mut recorder = Recorder::start(arguments.pid, FREQUENCY, false)?;
    let until = Instant::now() + Duration::from_secs_f64(arguments.duration);
    recorder.record(&|| ends.load(Ordering::Relaxed) || Instant::now() >= until)?;
    let profile = result::profile(recorder);
    if arguments.json {
        let text = serde_json::to_string_pretty(&Document::of(&profile))?;
        print(&(text + "\n"))?;
    } else {
        print(&locks::text(&profile, width()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    pid: u32,
    duration_ns: u64,
    lost_events: u64,
    locks: Vec<LockDocument<'a>>,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct LockDocument<'a> {
    kind: &'a str,
    address: String,
    name: Option<&'a str>,
    waits: u64,
    waited_ns: u64,
    longest_wait_ns: u64,
    threads: u64,
    waiters_at_a_time: f64,
    is_convoy: bool,
    /// As the next two: null if no hold is known.
    holds: Option<u64>,
    held_ns: Option<u64>,
    longest_hold_ns: Option<u64>,
    ended_elsewhere_ns: u64,
    waits_at: Vec<Place<'a>>,
    held_at: Vec<Place<'a>>,
}

/// A stack, from the innermost function outwards, and the time waited.
#[derive(Serialize)]
struct Place<'a> {
    thread: Option<&'a str>,
    waited_ns: u64,
    functions: Vec<&'a str>,
}

impl<'a> Document<'a> {
    fn of(profile: &'a Profile) -> Document<'a> {
        Document {
            pid: profile.pid,
            duration_ns: profile.duration_ns,
            lost_events: profile.lost_events,
            locks: profile.locks.iter().map(|it| lock(profile, it)).collect(),
            remarks: &profile.remarks,
        }
    }
}

fn lock<'a>(profile: &'a Profile, lock: &'a Lock) -> LockDocument<'a> {
    let functions = |stack: u32| {
        let functions = profile.functions_of(stack).rev();
        functions.map(|function| &*function.name).collect()
    };
    let waits = lock.waits_at.iter().map(|&(stack, waited_ns)| Place {
        thread: None,
        waited_ns,
        functions: functions(stack),
    });
    let holders = lock.held_at.iter().map(|holder| Place {
        thread: holder
            .thread
            .and_then(|thread| profile.threads.get(thread as usize))
            .map(|thread| &*thread.name),
        waited_ns: holder.waited_ns,
        functions: holder.stack.map(functions).unwrap_or_default(),
    });
    LockDocument {
        kind: &lock.kind,
        address: format!("{:#x}", lock.address),
        name: lock.name.as_deref(),
        waits: lock.waits,
        waited_ns: lock.waited_ns,
        longest_wait_ns: lock.longest_wait_ns,
        threads: lock.waiters,
        waiters_at_a_time: locks::waiters_at_a_time(profile, lock),
        is_convoy: locks::is_convoy(profile, lock),
        holds: lock.holds.map(|holds| holds.count),
        held_ns: lock.holds.map(|holds| holds.ns),
        longest_hold_ns: lock.holds.map(|holds| holds.longest_ns),
        ended_elsewhere_ns: lock.ended_elsewhere_ns,
        waits_at: waits.collect(),
        held_at: holders.collect(),
    }
}
