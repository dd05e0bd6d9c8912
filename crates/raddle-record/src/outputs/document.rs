//! A profile's facts as one JSON document, for scripts.

use serde::Serialize;

use super::names::{self, ObjectNames};
use super::totals::{Times, Totals};
use crate::profile::{Profile, Thread};

/// The version of the document.
const VERSION: u32 = 1;

/// What a profile says, without its stacks.
#[derive(Debug, Serialize)]
pub struct Document {
    version: u32,
    pid: u32,
    command: Vec<String>,
    began_unix_ns: u64,
    duration_ns: u64,
    lost_events: u64,
    lost_samples: u64,
    remarks: Vec<String>,
    /// Of all samples together.
    on_cpu_ns: u64,
    off_cpu_ns: u64,
    functions: Vec<Function>,
    threads: Vec<ThreadTimes>,
    waits: Vec<Wait>,
}

#[derive(Debug, Serialize)]
struct Function {
    name: String,
    on_cpu_self_ns: u64,
    on_cpu_total_ns: u64,
    off_cpu_self_ns: u64,
    off_cpu_total_ns: u64,
}

#[derive(Debug, Serialize)]
struct ThreadTimes {
    tid: u32,
    name: String,
    running_ns: u64,
    runnable_ns: u64,
    longest_runnable_ns: u64,
    in_kernel_ns: u64,
    waiting_ns: u64,
    turns: u64,
    wakes: u64,
}

#[derive(Debug, Serialize)]
struct Wait {
    kind: &'static str,
    /// The object's number and name, if there is an object.
    object: Option<String>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    threads: u64,
    wakers: Vec<Waker>,
}

#[derive(Debug, Serialize)]
struct Waker {
    thread: String,
    times: u64,
}

impl Document {
    /// Says what a profile says.
    pub fn of(profile: &Profile) -> Document {
        let totals = Totals::of(profile);
        let own = |it: &Times| clamp(it.own_ns);
        let total = |it: &Times| clamp(it.total_ns);
        let functions = totals.functions.iter().map(|function| Function {
            name: function.name.clone(),
            on_cpu_self_ns: own(&function.on_cpu),
            on_cpu_total_ns: total(&function.on_cpu),
            off_cpu_self_ns: own(&function.off_cpu),
            off_cpu_total_ns: total(&function.off_cpu),
        });
        Document {
            version: VERSION,
            pid: profile.pid,
            command: profile.command.clone(),
            began_unix_ns: profile.began_unix_ns,
            duration_ns: profile.duration_ns,
            lost_events: profile.lost_events,
            lost_samples: profile.lost_samples,
            remarks: profile.remarks.clone(),
            on_cpu_ns: clamp(totals.on_cpu_ns),
            off_cpu_ns: clamp(totals.off_cpu_ns),
            functions: functions.collect(),
            threads: profile.threads.iter().map(thread).collect(),
            waits: waits(profile),
        }
    }
}

fn clamp(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn thread(thread: &Thread) -> ThreadTimes {
    ThreadTimes {
        tid: thread.tid,
        name: names::thread(thread),
        running_ns: thread.running_ns,
        runnable_ns: thread.runnable_ns,
        longest_runnable_ns: thread.longest_runnable_ns,
        in_kernel_ns: thread.in_kernel_ns,
        waiting_ns: thread.waiting_ns,
        turns: thread.turns,
        wakes: thread.wakes,
    }
}

fn waits(profile: &Profile) -> Vec<Wait> {
    let names = ObjectNames::of(profile);
    let waker = |&(position, times): &(u32, u64)| {
        let thread = profile.threads.get(position as usize)?;
        let thread = names::thread(thread);
        Some(Waker { thread, times })
    };
    let waits = profile.waits.iter().map(|wait| Wait {
        kind: wait.kind.word(),
        object: names.object(wait.kind, wait.object),
        count: wait.count,
        total_ns: wait.total_ns,
        longest_ns: wait.longest_ns,
        threads: wait.threads,
        wakers: wait.wakers.iter().filter_map(waker).collect(),
    });
    waits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;

    #[test]
    fn a_document_has_the_facts() {
        let document = serde_json::to_value(Document::of(&samples::small())).unwrap();
        assert_eq!(document["functions"][0]["name"], "descend");
        assert_eq!(document["functions"][0]["on_cpu_self_ns"], 30_000_000);
        assert_eq!(document["threads"][0]["in_kernel_ns"], 60_000_000);
        assert_eq!(document["waits"][0]["object"], "0x5510 (table_lock)");
        assert_eq!(document["waits"][0]["wakers"][0]["times"], 99);
        for profile in samples::hostile() {
            serde_json::to_string(&Document::of(&profile)).unwrap();
        }
    }
}
