//! All metrics: their names, their meaning and where their values come from.

use std::collections::BTreeMap;
use std::fmt;

use raddle_inspect::{CarrierRecord, CarrierState, EngineRecord, Header, ThreadState, WaitKind};

use super::{Durations, Families, Labels, Row, seconds};
use crate::metrics::exporter::Sample;
use crate::metrics::groups::{Counts, GroupRow, STATES};
use crate::metrics::kernel_times::KernelTime;
use crate::metrics::reading::{CARRIERS_MAX, Reading};

/// The carrier that stands for all beyond [`CARRIERS_MAX`].
const REST: &str = "other";

/// A process that has answered, with its labels.
struct Process<'a> {
    labels: Labels,
    reading: &'a Reading,
}

impl Process<'_> {
    fn row<V>(&self, more: &[(&'static str, &str)], value: V) -> Row<V> {
        let mut labels = self.labels.clone();
        labels.extend(more.iter().map(|(name, text)| (*name, (*text).to_owned())));
        Row { labels, value }
    }
}

fn labels(sample: &Sample) -> Labels {
    vec![
        ("pid", sample.pid.to_string()),
        ("command", sample.command.clone()),
    ]
}

pub(super) fn write(samples: &[Sample], out: &mut Families<'_>) -> fmt::Result {
    let of = |value: &dyn Fn(&Sample) -> f64| -> Vec<Row<f64>> {
        let row = |sample| Row {
            labels: labels(sample),
            value: value(sample),
        };
        samples.iter().map(row).collect()
    };
    out.gauge(
        "raddle_up",
        "1 if the process answered, 0 if it is stopped, hangs, has ended or has no thread yet",
        of(&|sample| f64::from(u8::from(sample.reading.is_ok()))),
    )?;
    out.gauge(
        "raddle_scrape_duration_seconds",
        "How long this process was read",
        of(&|sample| sample.took.as_secs_f64()),
    )?;
    let processes: Vec<Process<'_>> = samples.iter().filter_map(answered).collect();
    threads(&processes, out)?;
    waits(&processes, out)?;
    delays(&processes, out)?;
    engines(&processes, out)?;
    carriers(&processes, out)?;
    kernel(&processes, out)?;
    groups(&processes, out)
}

fn answered(sample: &Sample) -> Option<Process<'_>> {
    Some(Process {
        labels: labels(sample),
        reading: sample.reading.as_ref().ok()?,
    })
}

/// One row for each process.
fn one<V>(processes: &[Process<'_>], value: impl Fn(&Reading) -> V) -> Vec<Row<V>> {
    let row = |process: &Process<'_>| process.row(&[], value(process.reading));
    processes.iter().map(row).collect()
}

fn threads(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    out.gauge(
        "raddle_uptime_seconds",
        "Time since the program made its second thread",
        one(processes, |reading| {
            let header = &reading.header;
            seconds(header.now_ns.saturating_sub(header.started_ns))
        }),
    )?;
    let states = |process: &Process<'_>| {
        let row = |(state, threads): (ThreadState, u64)| {
            process.row(&[("state", state.word())], threads as f64)
        };
        by_state(process.reading).map(row)
    };
    out.gauge(
        "raddle_threads",
        "Green threads that live, by state; those that are neither on a carrier nor in a run queue \
         count as waiting",
        processes.iter().flat_map(states),
    )?;
    out.counter(
        "raddle_threads_created",
        "Green threads that were made, the main one included",
        one(processes, |reading| reading.totals.created),
    )?;
    out.counter(
        "raddle_threads_ended",
        "Green threads that have ended",
        one(processes, |reading| {
            let live = reading.header.live_threads;
            reading.totals.created.saturating_sub(live)
        }),
    )
}

/// Counts threads without a walk over them.
fn by_state(reading: &Reading) -> [(ThreadState, u64); 3] {
    let runs =
        |carrier: &&CarrierRecord| carrier.current_tid != 0 && carrier.state != CarrierState::ENDED;
    let live = reading.header.live_threads;
    let running = reading.carriers.iter().filter(runs).count() as u64;
    let running = running.min(live);
    let queues = reading.carriers.iter().map(|carrier| carrier.queue_len);
    let queues = queues.chain(reading.totals.engines.iter().map(|engine| engine.queue_len));
    let runnable = queues.fold(0, u64::saturating_add).min(live - running);
    [
        (ThreadState::RUNNING, running),
        (ThreadState::RUNNABLE, runnable),
        (ThreadState::WAITING, live - running - runnable),
    ]
}

fn waits(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    let parks = |process: &Process<'_>| {
        let counts = process.reading.totals.parks;
        let known = WaitKind::ALL.iter().filter(|kind| **kind != WaitKind::NONE);
        let row = |kind: &WaitKind| {
            let count = counts.get(kind.0 as usize).copied().unwrap_or(0);
            process.row(&[("kind", kind.word())], count)
        };
        known.map(row).collect::<Vec<_>>()
    };
    out.counter(
        "raddle_parks",
        "Times that a green thread gave up its carrier to wait, by what it waited for",
        processes.iter().flat_map(parks),
    )?;
    out.counter(
        "raddle_wait_timeouts",
        "Waits of green threads that ended by their time limit",
        one(processes, |reading| reading.totals.time_outs),
    )?;
    out.counter(
        "raddle_pump_polls",
        "Looks of carriers into the event pump",
        one(processes, |reading| reading.totals.polls),
    )?;
    out.counter(
        "raddle_pump_events",
        "Events that were found in the event pump",
        one(processes, |reading| reading.totals.poll_events),
    )
}

fn delays(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    out.histogram(
        "raddle_wake_up_latency",
        "Time from a wake-up to running, of one wake-up in 64",
        processes.iter().map(|process| {
            let totals = &process.reading.totals;
            let durations = Durations {
                histogram: &totals.wake_ups,
                sum_ns: totals.wake_ups_ns,
            };
            process.row(&[], durations)
        }),
    )?;
    out.histogram(
        "raddle_scheduling_delay",
        "Time from runnable to running; a sample of one wake-up in 64 counts as 64 where not all \
         are measured",
        processes.iter().map(|process| {
            let totals = &process.reading.totals;
            let durations = Durations {
                histogram: &totals.delays,
                sum_ns: totals.delays_ns,
            };
            process.row(&[], durations)
        }),
    )?;
    out.gauge(
        "raddle_longest_scheduling_delay_seconds",
        "The longest measured time from runnable to running, since the start",
        one(processes, |reading| {
            seconds(reading.header.longest_delay.ns)
        }),
    )
}

/// The engines of a process that are in use, with the labels' text.
fn engines_of<'a>(process: &Process<'a>) -> Vec<(String, &'a EngineRecord)> {
    let engines = process.reading.totals.engines.iter().enumerate();
    engines
        .filter(|(_, engine)| engine.wanted != 0)
        .map(|(number, engine)| (number.to_string(), engine))
        .collect()
}

fn engines(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    let rows = |value: &dyn Fn(&EngineRecord) -> Option<f64>| -> Vec<Row<f64>> {
        let of = |process: &Process<'_>| {
            let row = |(number, engine): (String, &EngineRecord)| {
                Some(process.row(&[("engine", &number)], value(engine)?))
            };
            let engines = engines_of(process).into_iter();
            engines.filter_map(row).collect::<Vec<_>>()
        };
        processes.iter().flat_map(of).collect()
    };
    let policies = |process: &Process<'_>| {
        let row = |(number, engine): (String, &EngineRecord)| {
            let policy = vec![("policy", engine.policy.word().to_owned())];
            process.row(&[("engine", &number)], policy)
        };
        engines_of(process).into_iter().map(row).collect::<Vec<_>>()
    };
    let help = "The policy of an engine, by which the next thread is chosen";
    out.info("raddle_engine", help, processes.iter().flat_map(policies))?;
    out.gauge(
        "raddle_engine_wanted_carriers",
        "Carriers of an engine that may be active",
        rows(&|engine| Some(engine.wanted.into())),
    )?;
    out.gauge(
        "raddle_engine_extra_carriers",
        "Carriers that may be active beside these while other processes want the CPUs",
        rows(&|engine| Some(engine.extra.into())),
    )?;
    out.gauge(
        "raddle_engine_queue_threads",
        "Runnable threads in the queue that an engine's carriers share",
        rows(&|engine| Some(engine.queue_len as f64)),
    )?;
    out.gauge(
        "raddle_engine_quota_ratio",
        "CPU time that an engine's threads may use together, where 1 is one CPU; only with a quota",
        rows(&|engine| (engine.quota != 0).then(|| f64::from(engine.quota) / 100.0)),
    )?;
    out.gauge(
        "raddle_engine_throttled",
        "1 while an engine has used its quota up",
        rows(&|engine| (engine.quota != 0).then(|| f64::from(engine.is_held.min(1)))),
    )?;
    let shares = |process: &Process<'_>| {
        let Header { shares, .. } = process.reading.header;
        let is_shown = |share: &(usize, u8)| share.1 != 0;
        let row = |(number, percent): (usize, u8)| {
            let number = number.to_string();
            process.row(&[("share", &number)], f64::from(percent) / 100.0)
        };
        let shares = shares.into_iter().enumerate().filter(is_shown);
        shares.map(row).collect::<Vec<_>>()
    };
    out.gauge(
        "raddle_share_ratio",
        "Part of the carriers' time of a rule of --share; 0 is all other threads; only with shares",
        processes.iter().flat_map(shares),
    )?;
    let quantum = |process: &Process<'_>| {
        let ns = process.reading.header.quantum_ns;
        (ns != u64::MAX).then(|| process.row(&[], seconds(ns)))
    };
    out.gauge(
        "raddle_quantum_seconds",
        "How long a thread may compute while others wait; missing without a limit",
        processes.iter().filter_map(quantum),
    )
}

/// A counter of each carrier; those beyond [`CARRIERS_MAX`] are added up for each engine.
fn by_carrier(
    processes: &[Process<'_>],
    value: impl Fn(&CarrierRecord) -> u64,
) -> impl Iterator<Item = Row<u64>> {
    let of = |process: &Process<'_>| {
        let mut sums: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for (number, carrier) in process.reading.carriers.iter().enumerate() {
            let number = number.min(CARRIERS_MAX);
            let sum = sums.entry((number, carrier.engine)).or_default();
            *sum = sum.saturating_add(value(carrier));
        }
        let name = |number: usize| match process.reading.carriers.get(number) {
            Some(carrier) if number < CARRIERS_MAX => carrier.id.to_string(),
            _ => REST.to_owned(),
        };
        let row = |((number, engine), value): ((usize, u64), u64)| {
            let (carrier, engine) = (name(number), engine.to_string());
            process.row(&[("engine", &engine), ("carrier", &carrier)], value)
        };
        sums.into_iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = processes.iter().flat_map(of).collect();
    rows.into_iter()
}

fn carriers(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    let states = |process: &Process<'_>| {
        let mut counts: BTreeMap<(u64, &str), u32> = BTreeMap::new();
        for carrier in &process.reading.carriers {
            *counts
                .entry((carrier.engine, carrier.state.word()))
                .or_default() += 1;
        }
        let row = |((engine, state), count): ((u64, &str), u32)| {
            let engine = engine.to_string();
            process.row(&[("engine", &engine), ("state", state)], f64::from(count))
        };
        counts.into_iter().map(row).collect::<Vec<_>>()
    };
    out.gauge(
        "raddle_carriers",
        "Carriers of an engine, by state",
        processes.iter().flat_map(states),
    )?;
    type Counter = (&'static str, &'static str, fn(&CarrierRecord) -> u64);
    const COUNTERS: [Counter; 5] = [
        (
            "raddle_switches",
            "Turns of green threads that began on a carrier",
            |carrier| carrier.switches,
        ),
        (
            "raddle_steals",
            "Runnable threads that a carrier took from others",
            |carrier| carrier.steal,
        ),
        (
            "raddle_failed_steals",
            "Searches of a carrier for work at others that found nothing",
            |carrier| carrier.steal_fail,
        ),
        (
            "raddle_preemptions",
            "Green threads that were preempted on a carrier",
            |carrier| carrier.preempt,
        ),
        (
            "raddle_carrier_sleeps",
            "Times that a carrier went to sleep for lack of work",
            |carrier| carrier.park,
        ),
    ];
    for (name, help, value) in COUNTERS {
        out.counter(name, help, by_carrier(processes, value))?;
    }
    let length = |row: Row<u64>| Row {
        labels: row.labels,
        value: row.value as f64,
    };
    out.gauge(
        "raddle_run_queue_threads",
        "Runnable threads in the queue of a carrier",
        by_carrier(processes, |carrier| carrier.queue_len).map(length),
    )
}

fn kernel(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    let times = |value: fn(&KernelTime) -> u64| -> Vec<Row<u64>> {
        let of = |process: &Process<'_>| {
            let row = |(carrier, times): (&CarrierRecord, &Option<KernelTime>)| {
                let engine = carrier.engine.to_string();
                let labels = [
                    ("engine", engine.as_str()),
                    ("carrier", &carrier.id.to_string()),
                ];
                Some(process.row(&labels, value(times.as_ref()?)))
            };
            let reading = process.reading;
            let times = reading.carriers.iter().zip(&reading.kernel);
            times.filter_map(row).collect::<Vec<_>>()
        };
        processes.iter().flat_map(of).collect()
    };
    out.seconds(
        "raddle_carrier_cpu",
        "CPU time of a carrier's kernel threads, from the kernel, as far as seen",
        times(|times| times.cpu_ns),
    )?;
    out.seconds(
        "raddle_carrier_cpu_delay",
        "Time for which a carrier's kernel thread wanted a CPU and had none, from the kernel",
        times(|times| times.delay_ns),
    )?;
    out.counter(
        "raddle_kernel_blocks",
        "Carriers that were replaced by others because they sat in the kernel",
        one(processes, |reading| reading.totals.blocked),
    )?;
    out.gauge(
        "raddle_block_events_permitted",
        "1 if the kernel reports at once which carrier sits in it, by perf events; else sysmon \
         looks for it",
        one(processes, |reading| {
            f64::from(u8::from(reading.header.flags & Header::ALARMS != 0))
        }),
    )
}

fn groups(processes: &[Process<'_>], out: &mut Families<'_>) -> fmt::Result {
    fn of<'a>(process: &Process<'a>) -> &'a [GroupRow] {
        let groups = process.reading.groups.as_ref();
        groups.map_or(&[], |groups| &groups.rows)
    }
    let threads = |process: &Process<'_>| {
        let rows = |group: &GroupRow| {
            let row = |(state, count): (&ThreadState, &u64)| {
                let labels = [("group", group.name.as_str()), ("state", state.word())];
                process.row(&labels, *count as f64)
            };
            let threads = STATES.iter().zip(&group.threads);
            threads.map(row).collect::<Vec<_>>()
        };
        of(process).iter().flat_map(rows).collect::<Vec<_>>()
    };
    out.gauge(
        "raddle_group_threads",
        "Green threads with such a name, by state, at the latest look at each",
        processes.iter().flat_map(threads),
    )?;
    type Counter = (&'static str, &'static str, fn(&Counts) -> u64);
    const COUNTERS: [Counter; 4] = [
        (
            "raddle_group_switches",
            "Turns of the group's threads, as far as seen",
            |it| it.switches,
        ),
        (
            "raddle_group_steals",
            "Turns of the group's threads on another carrier than the last one, as far as seen",
            |it| it.steal,
        ),
        (
            "raddle_group_preemptions",
            "Preemptions of the group's threads, as far as seen",
            |it| it.preempt,
        ),
        (
            "raddle_group_parks",
            "Waits of the group's threads, as far as seen",
            |it| it.park,
        ),
    ];
    for (name, help, value) in COUNTERS {
        let rows = |process: &Process<'_>| {
            let row =
                |group: &GroupRow| process.row(&[("group", &group.name)], value(&group.counts));
            of(process).iter().map(row).collect::<Vec<_>>()
        };
        out.counter(name, help, processes.iter().flat_map(rows))?;
    }
    let age = |process: &Process<'_>| {
        let groups = process.reading.groups.as_ref()?;
        Some(process.row(&[], groups.age_s))
    };
    out.gauge(
        "raddle_group_age_seconds",
        "How old the oldest look is that the groups are made of; missing if the table of threads \
         can't be read",
        processes.iter().filter_map(age),
    )
}
