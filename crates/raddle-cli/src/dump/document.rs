//! A snapshot as a JSON document.

mod stacks;
mod waits;

use raddle_inspect::{
    BlockingRecord, BlockingSite, CarrierRecord, Header, Histogram, NO_CARRIER, Snapshot,
    ThreadFlags, ThreadRecord, WaitKind,
};
use serde::Serialize;
use stacks::{OwnStack, Stack};
use waits::{Deadlock, WaitsFor};

use super::{Facts, Statistics, blocking, lines};

#[derive(Serialize)]
pub(super) struct Document {
    pid: u32,
    version: u32,
    now_ns: u64,
    started_ns: u64,
    live_threads: u64,
    /// Light threads of the explicit API; absent if no stacks were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    light_threads: Option<u64>,
    carriers_wanted: u64,
    /// Carriers beside those, while other processes want the CPUs.
    carriers_extra: u64,
    /// `null` for none.
    quantum_ns: Option<u64>,
    policy: &'static str,
    /// Percentages of the groups, the rest first; empty without shares.
    shares: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_up: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<Percentiles>,
    longest_delay: Option<LongestDelay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinning: Option<Blocking>,
    carriers: Vec<Carrier>,
    threads: Vec<Thread>,
    /// All different stacks; absent if none were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<Vec<Stack>>,
    /// Why there are none, if they were wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks_missing: Option<String>,
    /// Why the process has not answered, if it was read without its help.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer_missing: Option<String>,
    /// Which names are missing for a reason that isn't the program's, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    names_missing: Option<String>,
    /// Why there are no Java locks or frames, if there is a virtual machine that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    java_missing: Option<String>,
    /// Threads that keep a carrier in the kernel now.
    sitting: Vec<Sitting>,
    /// Waits that can't end, with --deadlocks only.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlocks: Option<Vec<Deadlock>>,
}

#[derive(Serialize)]
struct Sitting {
    tid: u32,
    reason: String,
    /// Frames from the inside out.
    stack: Vec<String>,
}

/// The longest time for which a runnable thread waited for a carrier, as far as it was measured.
#[derive(Serialize)]
struct LongestDelay {
    ns: u64,
    at_ns: u64,
    tid: u64,
    name: String,
}

/// The time from a wake-up, or from runnable, to running; upper ends of a histogram's buckets.
#[derive(Serialize)]
struct Percentiles {
    samples: u64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
}

/// Carriers that were replaced while they blocked in the kernel: how often, and the latest.
#[derive(Serialize)]
struct Blocking {
    /// True once the kernel reports at once that a carrier waits in it: from the first record on.
    alarms: bool,
    total: u64,
    latest: Vec<Record>,
    /// The most frequent sites, most frequent first.
    places: Vec<Site>,
}

#[derive(Serialize)]
struct Site {
    count: u64,
    at_ns: u64,
    tid: u64,
    reason: String,
    /// Frames from the inside out, as far as they are known.
    stack: Vec<String>,
}

#[derive(Serialize)]
struct Record {
    at_ns: u64,
    tid: Option<u64>,
    /// The system call's number; `null` for a page fault, a stop, or when it isn't known.
    call: Option<i64>,
    reason: String,
    place: Option<String>,
}

#[derive(Serialize)]
struct Carrier {
    id: u32,
    kernel_tid: u32,
    state: &'static str,
    current_tid: Option<u32>,
    queue_len: u64,
    wakeups: u64,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Serialize)]
struct Thread {
    tid: u32,
    name: String,
    state: &'static str,
    wait: Option<Wait>,
    /// `null` where the time isn't known.
    since_ns: Option<u64>,
    in_state_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<f64>,
    carrier: Option<u32>,
    main: bool,
    bound: bool,
    light: bool,
    /// Of a light thread: the thread that hosts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<u64>,
    group: u32,
    #[serde(flatten)]
    counters: Counters,
    #[serde(flatten)]
    stack: Option<OwnStack>,
    /// What it waits for, as far as that was read from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<WaitsFor>,
}

#[derive(Serialize)]
struct Wait {
    kind: &'static str,
    arg: u64,
    deadline_ns: Option<u64>,
}

#[derive(Serialize)]
struct Counters {
    #[serde(rename = "active")]
    switches: u64,
    steal: u64,
    steal_fail: u64,
    preempt: u64,
    park: u64,
}

impl Document {
    pub(super) fn new(facts: &Facts<'_>, snapshot: &Snapshot<'_>) -> Document {
        let (pid, statistics) = (facts.pid, facts.statistics.as_ref());
        let sitting = |(tid, sitting): &(u32, blocking::BlockedThread)| Sitting {
            tid: *tid,
            reason: sitting.reason(),
            stack: sitting.frames.clone(),
        };
        let header = snapshot.header();
        Document {
            pid,
            version: header.version,
            now_ns: header.now_ns,
            started_ns: header.started_ns,
            live_threads: header.live_threads,
            light_threads: facts.stacks.map(|taken| taken.lights),
            carriers_wanted: header.wanted,
            carriers_extra: header.extra,
            quantum_ns: (header.quantum_ns != u64::MAX).then_some(header.quantum_ns),
            policy: header.policy.word(),
            shares: shares(header),
            wake_up: statistics.map(|all| Percentiles::new(&all.wake_ups)),
            delay: statistics.map(|all| Percentiles::new(&all.delays)),
            longest_delay: (header.longest_delay.ns != 0).then_some(LongestDelay {
                ns: header.longest_delay.ns,
                at_ns: header.longest_delay.at_ns,
                tid: header.longest_delay.tid,
                name: String::from_utf8_lossy(header.longest_delay.name_bytes()).into_owned(),
            }),
            pinning: statistics.map(|statistics| Blocking::new(statistics, header)),
            carriers: snapshot
                .carriers()
                .map(|record| Carrier::new(&record))
                .collect(),
            threads: snapshot
                .threads()
                .map(|record| Thread::new(facts, &record, header.now_ns))
                .collect(),
            stacks: facts.stacks.map(|taken| {
                let stacks = taken.stacks.iter();
                stacks.map(Stack::new).collect()
            }),
            stacks_missing: facts.missing.clone().filter(|_| facts.stacks.is_none()),
            answer_missing: facts.stacks.and_then(|taken| taken.silence.clone()),
            names_missing: facts.stacks.and_then(|taken| taken.names_missing.clone()),
            java_missing: facts.stacks.and_then(|taken| taken.java_missing.clone()),
            sitting: facts.sitting.iter().map(sitting).collect(),
            deadlocks: facts
                .deadlocks
                .map(|all| all.iter().map(Deadlock::new).collect()),
        }
    }
}

fn shares(header: &Header) -> Vec<u8> {
    let shares = header.shares.iter().copied();
    shares.filter(|percent| *percent != 0).collect()
}

impl Blocking {
    fn new(statistics: &Statistics, header: &Header) -> Blocking {
        let latest = |record: &BlockingRecord| Record {
            at_ns: record.at_ns,
            tid: (record.tid != 0).then_some(record.tid),
            call: (record.call >= 0).then_some(record.call),
            reason: blocking::reason(record),
            place: blocking::site(record, &statistics.mappings),
        };
        let frequent = |site: &&BlockingSite| Site {
            count: site.count,
            at_ns: site.at_ns,
            tid: site.tid,
            reason: blocking::reason(&BlockingRecord {
                call: site.call,
                ..BlockingRecord::default()
            }),
            stack: blocking::frames(site, &statistics.mappings),
        };
        let by_count = blocking::by_count(&statistics.frequent);
        Blocking {
            places: by_count.iter().map(frequent).collect(),
            alarms: lines::has_alarms(header),
            total: statistics.blocking.total,
            latest: statistics.blocking.latest().iter().map(latest).collect(),
        }
    }
}

impl Percentiles {
    fn new(histogram: &Histogram) -> Percentiles {
        Percentiles {
            samples: histogram.total(),
            p50_ns: histogram.per_mille(500),
            p90_ns: histogram.per_mille(900),
            p95_ns: histogram.per_mille(950),
            p99_ns: histogram.per_mille(990),
            p999_ns: histogram.per_mille(999),
        }
    }
}

impl Carrier {
    fn new(record: &CarrierRecord) -> Carrier {
        Carrier {
            id: record.id,
            kernel_tid: record.kernel_tid,
            state: record.state.word(),
            current_tid: (record.current_tid != 0).then_some(record.current_tid),
            queue_len: record.queue_len,
            wakeups: record.wakeups,
            counters: Counters {
                switches: record.switches,
                steal: record.steal,
                steal_fail: record.steal_fail,
                preempt: record.preempt,
                park: record.park,
            },
        }
    }
}

impl Thread {
    fn new(facts: &Facts<'_>, record: &ThreadRecord, now_ns: u64) -> Thread {
        let wait = Wait {
            kind: record.wait_kind.word(),
            arg: record.wait_arg,
            deadline_ns: (record.deadline_ns != 0).then_some(record.deadline_ns),
        };
        let since_ns = Some(record.since_ns).filter(|since_ns| *since_ns != 0);
        Thread {
            tid: record.tid,
            name: String::from_utf8_lossy(record.name_bytes()).into_owned(),
            state: record.state.word(),
            wait: (record.wait_kind != WaitKind::NONE).then_some(wait),
            since_ns,
            in_state_ns: since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)),
            cpu_ns: facts.usage.as_ref().map(|_| record.cpu_ns),
            cpu_percent: facts.usage.as_ref().map(|usage| usage.percent(record)),
            carrier: (record.carrier != NO_CARRIER).then_some(record.carrier),
            main: record.flags.contains(ThreadFlags::MAIN),
            bound: record.flags.contains(ThreadFlags::BOUND),
            light: record.flags.contains(ThreadFlags::LIGHT),
            host: (record.host_tid != 0).then_some(record.host_tid),
            group: record.group,
            counters: Counters {
                switches: record.switches,
                steal: record.steal,
                steal_fail: record.steal_fail,
                preempt: record.preempt,
                park: record.park,
            },
            stack: facts
                .stacks
                .and_then(|taken| OwnStack::of(taken, record.tid)),
            waits_for: facts
                .stacks
                .and_then(|taken| WaitsFor::of(taken, record.tid)),
        }
    }
}
