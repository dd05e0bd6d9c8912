//! A frame as a JSON document: `docs/top.schema.json` describes the fields.

use raddle_inspect::{Histogram, NO_CARRIER, ThreadFlags, ThreadState, WaitKind};
use raddle_stacks::EngineSlot;
use serde::Serialize;

use super::Shown;
use super::lints::Lint;
use super::look::{CarrierRow, Frame, Row};
use super::select::{Group, groups, sorted};
use super::source::Source;

/// Rises with each change after which a reader of an earlier version is wrong.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document {
    schema: u32,
    pid: u32,
    command: String,
    condition: &'static str,
    up_s: f64,
    interval_s: f64,
    cpus: Option<u32>,
    threads: Threads,
    cpu: Cpu,
    carriers: Vec<Carrier>,
    engines: Vec<Engine>,
    wake_ups: Times,
    delays: Times,
    kernel_blocks: KernelBlocks,
    lints: Vec<LintEntry>,
    groups: Option<Vec<GroupEntry>>,
    rows: Vec<Thread>,
    /// Threads that the filter picks and `rows` doesn't have.
    left_out: u64,
}

#[derive(Serialize)]
struct Threads {
    all: u64,
    running: u64,
    runnable: u64,
    waiting: u64,
    exiting: u64,
    bound: u64,
}

/// In percent of one CPU.
#[derive(Serialize)]
struct Cpu {
    threads_percent: f64,
    process_percent: f64,
    /// For how long carriers waited for a CPU.
    carriers_wait_percent: Option<f64>,
}

#[derive(Serialize)]
struct Carrier {
    id: u32,
    kernel_tid: u32,
    state: &'static str,
    bound: bool,
    engine: u64,
    tid: Option<u32>,
    queue: u64,
    cpu_percent: Option<f64>,
    cpu_wait_percent: Option<f64>,
    turns_per_s: f64,
    steals_per_s: f64,
    preempts_per_s: f64,
    blocked_for_s: Option<f64>,
}

#[derive(Serialize)]
struct Engine {
    number: u32,
    policy: &'static str,
    wanted: u32,
    extra: u32,
    quota_percent: Option<u32>,
    queue: u64,
    ahead: u64,
}

/// Times in the interval.
#[derive(Serialize)]
struct Times {
    count: u64,
    p50_us: Option<f64>,
    p90_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// For each bucket that isn't empty: its upper end, and how many times are in it.
    buckets: Vec<(u64, u64)>,
}

#[derive(Serialize)]
struct KernelBlocks {
    all: u64,
    per_s: f64,
}

#[derive(Serialize)]
struct LintEntry {
    kind: &'static str,
    text: String,
    cure: String,
    for_s: f64,
    tids: Vec<u32>,
    carriers: Vec<u32>,
    lock: Option<String>,
}

#[derive(Serialize)]
struct GroupEntry {
    name: String,
    threads: u64,
    running: u64,
    runnable: u64,
    waiting: u64,
    cpu_percent: f64,
    wakes_per_s: f64,
    turns_per_s: f64,
    preempts_per_s: f64,
    longest_wait_s: f64,
    longest_delay_s: f64,
}

#[derive(Serialize)]
struct Thread {
    tid: u32,
    name: String,
    state: &'static str,
    main: bool,
    bound: bool,
    carrier: Option<u32>,
    group: u32,
    cpu_percent: f64,
    cpu_s: f64,
    wakes_per_s: f64,
    turns_per_s: f64,
    preempts_per_s: f64,
    since_s: Option<f64>,
    wait: Option<Wait>,
}

#[derive(Serialize)]
struct Wait {
    kind: &'static str,
    address: Option<String>,
    descriptor: Option<u64>,
    argument: Option<u64>,
    ends_in_s: Option<f64>,
}

impl Document {
    pub(super) fn new(source: &Source, frame: &Frame, lints: &[Lint], shown: &Shown) -> Document {
        let most = shown.rows.unwrap_or(usize::MAX);
        let (picked, all) = if shown.by_name {
            (Vec::new(), 0)
        } else {
            sorted(frame, &shown.filter, shown.sort, most)
        };
        let rows = picked
            .iter()
            .map(|&at| thread(frame, &frame.rows[at as usize]));
        let rows: Vec<Thread> = rows.collect();
        let states = &frame.states;
        Document {
            schema: SCHEMA,
            pid: source.pid,
            command: source.command.clone(),
            condition: frame.condition.word(),
            up_s: seconds(frame.now_ns.saturating_sub(frame.started_ns)),
            interval_s: seconds(frame.interval_ns()),
            cpus: Some(source.cpus).filter(|cpus| *cpus != 0),
            threads: Threads {
                all: states.all(),
                running: states.running,
                runnable: states.runnable,
                waiting: states.waiting,
                exiting: states.exiting,
                bound: states.bound,
            },
            cpu: cpu(frame),
            carriers: frame.carriers.iter().map(|it| carrier(frame, it)).collect(),
            engines: frame.engines.iter().map(engine).collect(),
            wake_ups: times(&frame.wake_ups),
            delays: times(&frame.delays),
            kernel_blocks: KernelBlocks {
                all: frame.blocked_ever,
                per_s: rounded(frame.per_second(frame.blocked)),
            },
            lints: lints.iter().map(|lint| entry(frame, lint)).collect(),
            groups: shown.by_name.then(|| {
                let groups = groups(frame, &shown.filter, shown.sort);
                let groups = groups.iter().take(most);
                groups.map(|it| group(frame, it)).collect()
            }),
            left_out: (all - rows.len()) as u64,
            rows,
        }
    }
}

fn cpu(frame: &Frame) -> Cpu {
    let waits = frame.pool().map(|it| it.cpu_wait_ns);
    let waits_ns: Option<u64> = waits.sum();
    Cpu {
        threads_percent: rounded(frame.percent(frame.threads_cpu_ns())),
        process_percent: rounded(frame.percent(frame.process_cpu_ns)),
        carriers_wait_percent: waits_ns.map(|ns| rounded(frame.percent(ns))),
    }
}

fn carrier(frame: &Frame, row: &CarrierRow) -> Carrier {
    let record = &row.slot.record;
    Carrier {
        id: record.id,
        kernel_tid: record.kernel_tid,
        state: record.state.word(),
        bound: row.slot.is_bound,
        engine: record.engine,
        tid: Some(record.current_tid).filter(|tid| *tid != 0),
        queue: record.queue_len,
        cpu_percent: row.cpu_ns.map(|ns| rounded(frame.percent(ns))),
        cpu_wait_percent: row.cpu_wait_ns.map(|ns| rounded(frame.percent(ns))),
        turns_per_s: rounded(frame.per_second(row.turns)),
        steals_per_s: rounded(frame.per_second(row.steals)),
        preempts_per_s: rounded(frame.per_second(row.preempts)),
        blocked_for_s: row
            .blocked_since_ns
            .map(|since_ns| seconds(frame.now_ns.saturating_sub(since_ns))),
    }
}

fn engine(engine: &EngineSlot) -> Engine {
    Engine {
        number: engine.number,
        policy: engine.policy.word(),
        wanted: engine.wanted,
        extra: engine.extra,
        quota_percent: Some(engine.quota).filter(|quota| *quota != 0),
        queue: engine.queue_len,
        ahead: engine.ahead_len,
    }
}

fn times(histogram: &Histogram) -> Times {
    let part = |per_mille| Some(histogram.per_mille(per_mille)? as f64 / 1e3);
    let counts = histogram.counts.iter().enumerate();
    let counts = counts.filter(|(_, count)| **count != 0);
    Times {
        count: histogram.total(),
        p50_us: part(500),
        p90_us: part(900),
        p99_us: part(990),
        p999_us: part(999),
        buckets: counts
            .map(|(bucket, count)| (raddle_inspect::upper_ns(bucket), *count))
            .collect(),
    }
}

fn entry(frame: &Frame, lint: &Lint) -> LintEntry {
    LintEntry {
        kind: lint.kind.word(),
        text: lint.text.clone(),
        cure: lint.cure.clone(),
        for_s: seconds(frame.now_ns.saturating_sub(lint.since_ns)),
        tids: lint.tids.clone(),
        carriers: lint.carriers.clone(),
        lock: lint.lock.map(|address| format!("{address:#x}")),
    }
}

fn group(frame: &Frame, group: &Group) -> GroupEntry {
    GroupEntry {
        name: group.name.clone(),
        threads: group.threads,
        running: group.running,
        runnable: group.runnable,
        waiting: group.waiting,
        cpu_percent: rounded(frame.percent(group.cpu_ns)),
        wakes_per_s: rounded(frame.per_second(group.wakes)),
        turns_per_s: rounded(frame.per_second(group.turns)),
        preempts_per_s: rounded(frame.per_second(group.preempts)),
        longest_wait_s: seconds(group.wait_ns),
        longest_delay_s: seconds(group.delay_ns),
    }
}

fn thread(frame: &Frame, row: &Row) -> Thread {
    let record = &row.record;
    let since_ns = row.since_ns();
    Thread {
        tid: record.tid,
        name: String::from_utf8_lossy(record.name_bytes()).into_owned(),
        state: record.state.word(),
        main: record.flags.contains(ThreadFlags::MAIN),
        bound: row.is_bound(),
        carrier: Some(record.carrier).filter(|id| *id != NO_CARRIER),
        group: record.group,
        cpu_percent: rounded(frame.percent(row.cpu_ns)),
        cpu_s: seconds(record.cpu_ns),
        wakes_per_s: rounded(frame.per_second(row.wakes)),
        turns_per_s: rounded(frame.per_second(row.turns)),
        preempts_per_s: rounded(frame.per_second(row.preempts)),
        since_s: (since_ns != 0).then(|| seconds(frame.now_ns.saturating_sub(since_ns))),
        wait: (record.state == ThreadState::WAITING).then(|| wait(frame, row)),
    }
}

fn wait(frame: &Frame, row: &Row) -> Wait {
    let (kind, argument) = (row.record.wait_kind, row.record.wait_arg);
    let has_argument = !matches!(
        kind,
        WaitKind::NONE | WaitKind::SLEEP | WaitKind::SIGNAL | WaitKind::YIELD
    );
    let is_plain = has_argument && !kind.is_address() && !kind.is_descriptor();
    let deadline_ns = row.record.deadline_ns;
    Wait {
        kind: kind.word(),
        address: kind.is_address().then(|| format!("{argument:#x}")),
        descriptor: kind.is_descriptor().then_some(argument),
        argument: is_plain.then_some(argument),
        ends_in_s: (deadline_ns != 0).then(|| seconds(deadline_ns.saturating_sub(frame.now_ns))),
    }
}

fn seconds(ns: u64) -> f64 {
    (ns as f64 / 1e6).round() / 1e3
}

/// Two decimals.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
