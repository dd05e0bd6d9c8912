//! The profile that a recording comes to.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use raddle_inspect::{SAMPLES_MAX, WaitKind};
use raddle_record::clock::Moment;
use raddle_record::history::{StackNumber, Told};
use raddle_record::managed_locks::{self, Monitors, Seen};
use raddle_record::profile::{Activity, Interner, Profile, Wait};
use raddle_record::wakers::divided;
use raddle_record::weights::{Made, samples, shortcoming};

use raddle_stacks::MonitorObjects;
use raddle_stacks::locks::ObjectKind;

use super::locks;
use super::recorder::{Epoch, Holding, Recorder};

/// The most objects that are told.
const WAITS_MAX: usize = 1 << 12;
/// The least time between two of the runtime's own samples.
const OWN_INTERVAL_NS: u64 = 1_000_000_000 / SAMPLES_MAX as u64;
/// The most wakers of an object.
const WAKERS_MAX: usize = 16;

pub(super) fn profile(recorder: Recorder) -> Profile {
    let end = recorder.end;
    let lost_events = recorder.lost_events;
    let duration_ns = end.boot_ns.saturating_sub(recorder.begin.boot_ns);
    let woken = recorder.wakers.finish();
    let further_threads = recorder.history.further_threads;
    let mut told = recorder.history.finish(end.boot_ns);
    recorder.bound.finish(&mut told);
    recorder.sitting.finish(&mut told);
    // The runtime has a limit.
    let least_ns = u64::from(recorder.own_series.is_some()) * OWN_INTERVAL_NS;
    let made = Made {
        begin_ns: recorder.begin.boot_ns,
        interval_ns: (recorder.interval.as_nanos() as u64).max(least_ns),
        most_cpu_ns: recorder.most_cpu_ns,
        is_with_kernel: recorder.own_series.is_some() || recorder.series.is_with_kernel(),
    };
    let epochs = recorder.epochs.named;
    let resolve = |it: StackNumber| {
        let epoch = epochs.get(it.epoch as usize)?;
        epoch.stacks.get(it.number as usize).copied()
    };
    let kinds = kinds(&told, &epochs);
    let mut interner = recorder.interner;
    let monitors = monitors(
        &interner,
        &recorder.monitor_objects,
        &recorder.monitor_owners,
        &told,
        &resolve,
    );
    let samples = samples(&told, &recorder.on_cpu, &made, &resolve, &mut interner);
    let plain = |stack| interner.without_monitor(stack);
    let wakings = divided(&woken, &told, &samples, &resolve, &plain);
    let own_lost = recorder.own_series.as_ref().map_or(0, |own| own.lost());
    let mut remarks = recorder.remarks;
    if let Some(refusal) = recorder.series.refusal() {
        remarks.push(format!(
            "what threads execute was sampled by the runtime itself, because the kernel permits no \
             perf events ({refusal})"
        ));
    }
    if !recorder.is_sampled {
        remarks.extend(locks::not_shown(&told, &kinds));
    }
    remarks.extend(shortcoming(&recorder.on_cpu, made.interval_ns));
    remarks.extend(limits(&told, further_threads));
    let seen = seen(&told, &resolve);
    let since_begin_ns = Moment::now().boot_ns.saturating_sub(recorder.begin.boot_ns);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(0, |now| now.as_nanos() as u64);
    let mut profile = Profile {
        pid: recorder.pid,
        command: recorder.command,
        began_unix_ns: now_ns.saturating_sub(since_begin_ns),
        duration_ns,
        interval_ns: made.interval_ns,
        waits: waits(&told, &kinds, &recorder.objects.names),
        locks: locks::locks(
            &told,
            &kinds,
            &recorder.objects.names,
            &recorder.holders,
            &resolve,
        ),
        functions: interner.functions,
        stacks: interner.stacks,
        threads: told.threads,
        samples,
        wakings,
        lost_events,
        lost_samples: recorder.series.lost() + own_lost,
        remarks,
    };
    managed_locks::add(&mut profile, &seen, &monitors);
    profile
}

/// Says what had no room.
fn limits(told: &Told, further_threads: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if told.dropped_spans != 0 {
        remarks.push(format!("{} waits had no room", told.dropped_spans));
    }
    if further_threads != 0 {
        remarks.push(format!(
            "{further_threads} threads are not shown one by one: they count as one, \
             [further threads]"
        ));
    }
    remarks
}

/// Returns what is known of each stack by the spans of which the stack was read.
fn seen(told: &Told, resolve: &dyn Fn(StackNumber) -> Option<u32>) -> HashMap<u32, Seen> {
    let mut all: HashMap<u32, Seen> = HashMap::new();
    for span in &told.spans {
        if let Some(stack) = resolve(span.stack) {
            let seen = all.entry(stack).or_default();
            seen.longest_ns = span.ns.max(seen.longest_ns);
            seen.threads.insert(span.doing.thread);
        }
    }
    all
}

/// Returns the names of the objects that stacks wait for, and the owners of their monitors.
fn monitors(
    interner: &Interner,
    objects: &MonitorObjects,
    owners: &[Holding],
    told: &Told,
    resolve: &dyn Fn(StackNumber) -> Option<u32>,
) -> Monitors {
    let mut monitors = Monitors::default();
    for (&stack, &object) in &interner.monitors {
        let name = objects.name(object).map(|name| (stack, name));
        monitors.names.extend(name);
    }
    let waits = told.stand_for();
    for holding in owners {
        let name = objects.name(holding.lock.1 as u32);
        let (Some(name), Some(thread)) = (name, holding.thread) else {
            continue;
        };
        let owners = monitors.owners.entry(name).or_default();
        let owner = (thread, holding.stack.and_then(resolve));
        let stands_for = waits.get(&holding.wait).copied().unwrap_or_default();
        *owners.entry(owner).or_default() += stands_for;
    }
    monitors
}

/// What threads wait for.
pub(super) type Object = (WaitKind, u64);
/// The kinds of objects.
pub(super) type Kinds<'e> = HashMap<Object, &'e ObjectKind>;

/// Returns what threads waited for, the longest time first.
fn waits(told: &Told, kinds: &Kinds<'_>, names: &HashMap<Object, String>) -> Vec<Wait> {
    let mut waits: HashMap<Object, Wait> = HashMap::new();
    for (doing, total) in &told.totals {
        let Activity::Waiting(kind) = doing.activity else {
            continue;
        };
        let object = doing.object;
        let wait = waits.entry((kind, object)).or_insert(Wait {
            kind,
            object,
            name: None,
            count: 0,
            total_ns: 0,
            longest_ns: 0,
            threads: 0,
            wakers: Vec::new(),
        });
        wait.count += total.count;
        wait.total_ns += total.ns;
        wait.longest_ns = wait.longest_ns.max(total.longest_ns);
        wait.threads += 1;
    }
    let mut waits: Vec<Wait> = waits.into_values().collect();
    waits.sort_by_key(|wait| (Reverse(wait.total_ns), wait.object));
    waits.truncate(WAITS_MAX);
    for wait in &mut waits {
        let object = (wait.kind, wait.object);
        if let Some(wakers) = told.wakers.get(&object) {
            wait.wakers = wakers
                .iter()
                .map(|(&thread, &count)| (thread, count))
                .collect();
            wait.wakers.sort_by_key(|it| (Reverse(it.1), it.0));
            wait.wakers.truncate(WAKERS_MAX);
        }
        let words = [
            kinds.get(&object).map(|kind| kind.word()),
            names.get(&object).map(|it| &**it),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        wait.name = (!words.is_empty()).then(|| words.join(" "));
    }
    waits
}

/// Returns the kinds of objects that threads waited for on a futex, as their stacks tell.
fn kinds<'e>(told: &Told, epochs: &'e [Epoch]) -> Kinds<'e> {
    const MUTEX: &ObjectKind = &ObjectKind::Mutex;
    const SEMAPHORE: &ObjectKind = &ObjectKind::Semaphore;
    let mut kinds = HashMap::new();
    for span in &told.spans {
        let object = span.doing.object;
        let by_stack = || {
            let epoch = epochs.get(span.stack.epoch as usize)?;
            epoch.waits.get(span.stack.number as usize)?.as_ref()
        };
        let kind = match span.doing.activity {
            Activity::Waiting(WaitKind::MUTEX) => Some((WaitKind::MUTEX, MUTEX)),
            Activity::Waiting(WaitKind::SEMAPHORE) => match by_stack() {
                // The semaphore is the waiting thread's own.
                Some(ObjectKind::PythonMutex | ObjectKind::PythonLot) => None,
                _ => Some((WaitKind::SEMAPHORE, SEMAPHORE)),
            },
            Activity::Waiting(WaitKind::FUTEX) => by_stack().map(|kind| (WaitKind::FUTEX, kind)),
            _ => None,
        };
        if let Some((wait, kind)) = kind {
            kinds.entry((wait, object)).or_insert(kind);
        }
    }
    kinds
}
