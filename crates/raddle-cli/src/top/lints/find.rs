//! Findings of one frame.

use std::collections::{HashMap, VecDeque};

use raddle_inspect::{CarrierState, Histogram, PolicyKind, ThreadState, upper_ns};
use raddle_stacks::EngineSlot;

use super::{Kind, LASTS_NS, Lint, Settings};
use crate::top::look::{CarrierRow, Frame, Row};
use crate::top::select::plain;

/// A runnable thread that gets no turn for so many rounds of all others is starved.
const ROUNDS: u64 = 4;
/// There are many runnable threads if there are so many times more than carriers.
const CROWD: u64 = 4;
/// A thread of a crowd waits for so long, half of them longer.
const CROWDED_NS: u64 = 20_000_000;
/// A woken thread is late after so long.
const LATE_NS: u64 = 20_000_000;
/// How many woken threads must be known, and how many of them late, in percent.
const LATE_SAMPLES: u64 = 20;
const LATE_PERCENT: u64 = 5;
/// Frames that are shorter say too little.
const FRAME_NS: u64 = 50_000_000;
/// The most threads that a lint names.
const NAMED: usize = 3;

/// Returns all findings but those of locks.
pub(super) fn all(settings: &Settings, frame: &Frame, late: &mut Late) -> Vec<Lint> {
    let short = shortage(frame);
    let mut findings = Vec::new();
    findings.extend(starved(settings, frame, short));
    findings.extend(holds_carrier(frame));
    findings.extend(crowded(settings, frame, short));
    findings.extend(late.look(settings, frame, short));
    if frame.interval_ns() >= FRAME_NS {
        findings.extend(hogged(settings, frame));
        findings.extend(bound_dominate(frame));
    }
    findings
}

/// Returns the part of their time for which carriers waited for a CPU in the frame.
pub(super) fn shortage(frame: &Frame) -> f64 {
    let sum = |of: fn(&CarrierRow) -> Option<u64>| frame.pool().filter_map(of).sum::<u64>() as f64;
    let (ran, waited) = (sum(|it| it.cpu_ns), sum(|it| it.cpu_wait_ns));
    if ran + waited == 0.0 {
        0.0
    } else {
        waited / (ran + waited)
    }
}

fn starved(settings: &Settings, frame: &Frame, short: f64) -> Option<Lint> {
    let carriers = frame.wanted().max(1);
    let quantum_ns = match settings.quantum_ns {
        u64::MAX => 0,
        ns => ns,
    };
    let round_ns = frame.states.runnable.saturating_mul(quantum_ns) / carriers;
    let least_ns = (LASTS_NS / 2).max(ROUNDS.saturating_mul(round_ns));
    let waited_ns = |row: &Row| frame.now_ns.saturating_sub(row.still_since_ns);
    let is_starved = |row: &&Row| {
        let own_ns = waited_ns(row) as f64 * (1.0 - short);
        let is_late = waited_ns(row) >= LASTS_NS && own_ns >= least_ns as f64;
        row.record.state == ThreadState::RUNNABLE && !row.is_bound() && is_late
    };
    let mut rows: Vec<&Row> = frame.rows.iter().filter(is_starved).collect();
    rows.sort_by_key(|row| (row.still_since_ns, row.record.tid));
    let first = *rows.first()?;
    let seconds = waited_ns(first) as f64 / 1e9;
    let text = format!(
        "{} runnable for {seconds:.1} s without a turn",
        have(&rows, "has been", "have been")
    );
    let engine = engine_of(frame, first);
    let pid = settings.pid;
    let cure = match engine {
        _ if settings.quantum_ns == u64::MAX => {
            format!("let others in between: raddle ctl {pid} quantum 2000")
        }
        Some(engine) if engine.quota != 0 => {
            format!(
                "raise the quota of engine {}: raddle ctl {pid} share",
                engine.number
            )
        }
        Some(engine) if engine.policy != PolicyKind::FIFO && engine.policy.word() != "fair" => {
            format!(
                "policy {} prefers others: raddle ctl {pid} policy fair",
                engine.policy.word()
            )
        }
        _ => format!(
            "see what runs instead (raddle dump {pid} --state running), or add a carrier: raddle \
             ctl {pid} carriers {}",
            frame.wanted() + 1
        ),
    };
    let subject = engine.map_or(0, |it| it.number.into());
    Some(Lint {
        tids: tids(&rows),
        ..Lint::new(Kind::Starved, subject, first.still_since_ns, text, cure)
    })
}

/// A thread that has not run since waits in the kernel if its carrier's kernel thread has neither
/// executed nor waited for a CPU, or another carrier runs in its place.
fn holds_carrier(frame: &Frame) -> Option<Lint> {
    let is_still = |it: &CarrierRow| {
        let used_ns = it
            .cpu_ns
            .zip(it.cpu_wait_ns)
            .map(|(ran, waited)| ran + waited);
        used_ns.is_some_and(|ns| ns < frame.interval_ns() / 100) && it.turns == 0
    };
    let holds = |it: &&CarrierRow| {
        let state = it.slot.record.state;
        let is_held = state == CarrierState::RUNNING && is_still(it);
        it.slot.record.current_tid != 0 && (it.blocked_since_ns.is_some() || is_held)
    };
    let held: HashMap<u32, &CarrierRow> = frame
        .pool()
        .filter(holds)
        .map(|it| (it.slot.record.current_tid, it))
        .collect();
    if held.is_empty() {
        return None;
    }
    let held_ns = |row: &Row| frame.now_ns.saturating_sub(row.still_since_ns);
    let is_its = |row: &&Row| {
        row.record.state == ThreadState::RUNNING
            && !row.is_bound()
            && held_ns(row) >= LASTS_NS
            && held.contains_key(&row.record.tid)
    };
    let mut rows: Vec<&Row> = frame.rows.iter().filter(is_its).collect();
    rows.sort_by_key(|row| (row.still_since_ns, row.record.tid));
    let first = *rows.first()?;
    let text = format!(
        "{} {} in the kernel, for {:.1} s so far",
        have(&rows, "holds", "hold"),
        match rows.len() {
            1 => format!("carrier {}", held[&first.record.tid].slot.record.id),
            all => count(all as u64, "carrier"),
        },
        held_ns(first) as f64 / 1e9
    );
    let name = plain(first.record.name_bytes());
    let cure = format!(
        "give it a kernel thread of its own (raddle run --exclude 'name:{name}'), or use a call \
         that Raddle handles; raddle dump --tid {} says where it is",
        first.record.tid
    );
    let carriers = rows.iter().map(|row| held[&row.record.tid].slot.record.id);
    Some(Lint {
        tids: tids(&rows),
        carriers: carriers.collect(),
        ..Lint::new(Kind::HoldsCarrier, 0, first.still_since_ns, text, cure)
    })
}

fn crowded(settings: &Settings, frame: &Frame, short: f64) -> Option<Lint> {
    let (runnable, carriers) = (frame.states.runnable, frame.wanted().max(1));
    if runnable < CROWD * carriers {
        return None;
    }
    let is_runnable = |row: &&Row| row.record.state == ThreadState::RUNNABLE && !row.is_bound();
    let rows = frame.rows.iter().filter(is_runnable);
    let mut ages: Vec<u64> = rows
        .map(|row| frame.now_ns.saturating_sub(row.since_ns()))
        .collect();
    let middle = ages.len() / 2;
    if ages.is_empty() {
        return None;
    }
    let (_, median_ns, _) = ages.select_nth_unstable(middle);
    if (*median_ns as f64) * (1.0 - short) < CROWDED_NS as f64 {
        return None;
    }
    let text = format!(
        "{runnable} threads want to run on {}, and half of them have waited {:.0} ms or more",
        count(carriers, "carrier"),
        *median_ns as f64 / 1e6
    );
    let pid = settings.pid;
    let cpus = u64::from(settings.cpus);
    let cure = if cpus > carriers {
        format!("the process may use {cpus} CPUs: raddle ctl {pid} carriers {cpus}")
    } else {
        "start fewer threads that compute, or give the process more CPUs".into()
    };
    Some(Lint::new(Kind::Crowded, 0, frame.now_ns, text, cure))
}

/// Every carrier of the pool runs a thread that has not waited in the frame, and has used most of
/// the carrier's CPU time.
fn hogged(settings: &Settings, frame: &Frame) -> Option<Lint> {
    const VICTIM_NS: u64 = 200_000_000;
    let is_active = |it: &&CarrierRow| {
        let state = it.slot.record.state;
        state == CarrierState::RUNNING && it.slot.record.current_tid != 0
    };
    let active: HashMap<u32, &CarrierRow> = frame
        .pool()
        .filter(is_active)
        .map(|it| (it.slot.record.current_tid, it))
        .collect();
    if (active.len() as u64) < frame.wanted().max(1) {
        return None;
    }
    let mut hogs = Vec::new();
    let mut victims = 0;
    for row in &frame.rows {
        let waited_ns = frame.now_ns.saturating_sub(row.still_since_ns);
        match row.record.state {
            ThreadState::RUNNABLE if !row.is_bound() && waited_ns >= VICTIM_NS => victims += 1,
            ThreadState::RUNNING => {
                let own_ns = active.get(&row.record.tid).and_then(|it| it.cpu_ns);
                let is_hog = |own_ns: u64| {
                    row.wakes == 0
                        && own_ns >= frame.interval_ns() / 5
                        && row.cpu_ns >= own_ns / 10 * 8
                };
                if own_ns.is_some_and(is_hog) {
                    hogs.push(row);
                }
            }
            _ => {}
        }
    }
    if victims == 0 || hogs.len() < active.len() {
        return None;
    }
    let text = format!(
        "{} all carriers without ever waiting, while {} to run",
        have(&hogs, "holds", "hold"),
        if victims == 1 {
            "1 thread wants".to_owned()
        } else {
            format!("{victims} threads want")
        }
    );
    let pid = settings.pid;
    let cure = if settings.quantum_ns == u64::MAX {
        format!("let others in between: raddle ctl {pid} quantum 2000")
    } else {
        let more = frame.wanted() + 1;
        format!("add a carrier: raddle ctl {pid} carriers {more}")
    };
    Some(Lint {
        tids: tids(&hogs),
        ..Lint::new(Kind::Hogged, 0, frame.begin_ns, text, cure)
    })
}

fn bound_dominate(frame: &Frame) -> Option<Lint> {
    if frame.states.bound == 0 {
        return None;
    }
    let all_ns = frame.threads_cpu_ns();
    let mut rows: Vec<&Row> = frame.rows.iter().filter(|row| row.is_bound()).collect();
    rows.retain(|row| row.cpu_ns != 0);
    let bound_ns: u64 = rows.iter().map(|row| row.cpu_ns).sum();
    if bound_ns < all_ns / 2 || bound_ns < frame.interval_ns() / 2 {
        return None;
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.cpu_ns));
    let text = format!(
        "{} with kernel threads of their own: {:.0} % of all CPU time: {}",
        count(rows.len() as u64, "thread"),
        bound_ns as f64 * 100.0 / all_ns.max(1) as f64,
        list(&rows)
    );
    let cure = "the kernel shares the CPUs between them and the carriers; exclude only threads \
                that need it (--exclude)"
        .into();
    Some(Lint {
        tids: tids(&rows),
        ..Lint::new(Kind::BoundDominate, 0, frame.begin_ns, text, cure)
    })
}

/// The wake-ups of the last second or so.
#[derive(Default)]
pub(super) struct Late {
    /// Times of looks, with all wake-ups so far.
    looks: VecDeque<(u64, Histogram)>,
}

impl Late {
    fn look(&mut self, settings: &Settings, frame: &Frame, short: f64) -> Option<Lint> {
        self.looks.push_back((frame.now_ns, frame.wake_ups_ever));
        while self
            .looks
            .get(1)
            .is_some_and(|(at_ns, _)| frame.now_ns.saturating_sub(*at_ns) >= LASTS_NS)
        {
            self.looks.pop_front();
        }
        let (since_ns, before) = self.looks.front()?;
        let counts = frame.wake_ups_ever.counts.iter().zip(before.counts);
        let counts = counts.map(|(now, before)| now.saturating_sub(before));
        let (mut all, mut late) = (0, 0);
        for (bucket, count) in counts.enumerate() {
            all += count;
            let own_ns = upper_ns(bucket) as f64 * (1.0 - short);
            late += if own_ns >= LATE_NS as f64 { count } else { 0 };
        }
        if all < LATE_SAMPLES || late * 100 < all * LATE_PERCENT || late < 3 {
            return None;
        }
        let text = format!(
            "{} % of woken threads have waited {} ms or more for a carrier",
            late * 100 / all,
            LATE_NS / 1_000_000
        );
        let pid = settings.pid;
        let cure = match settings.quantum_ns {
            u64::MAX => format!("set a quantum: raddle ctl {pid} quantum 2000"),
            ns if ns > 1_000_000 => format!(
                "a shorter quantum (raddle ctl {pid} quantum {}), or policy fair",
                ns / 2000
            ),
            _ => format!(
                "more carriers: raddle ctl {pid} carriers {}",
                frame.wanted() + 1
            ),
        };
        Some(Lint::new(Kind::WokenLate, 0, *since_ns, text, cure))
    }
}

fn engine_of<'a>(frame: &'a Frame, row: &Row) -> Option<&'a EngineSlot> {
    let is_its = |engine: &&EngineSlot| engine.number == row.record.group;
    let found = frame.engines.iter().find(is_its);
    found.or(frame.engines.first())
}

/// `#12 "worker"`.
pub(super) fn named(row: &Row) -> String {
    let name = plain(row.record.name_bytes());
    format!("#{} \"{name}\"", row.record.tid)
}

fn list(rows: &[&Row]) -> String {
    let first: Vec<String> = rows.iter().take(NAMED).map(|row| named(row)).collect();
    let more = rows.len().saturating_sub(NAMED);
    match more {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// `#12 "worker" has`, `#1 "a", #2 "b" have`.
fn have(rows: &[&Row], one: &str, many: &str) -> String {
    let verb = if rows.len() == 1 { one } else { many };
    format!("{} {verb}", list(rows))
}

fn tids(rows: &[&Row]) -> Vec<u32> {
    const MOST: usize = 100;
    rows.iter().take(MOST).map(|row| row.record.tid).collect()
}

fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::look::States;
    use crate::top::source::Condition;
    use raddle_inspect::bucket_of;

    /// A look at a second, after so many wake-ups that took a microsecond, and so many that took
    /// 30 ms.
    fn frame(second: u64, prompt: u64, late: u64) -> Frame {
        let mut wake_ups = Histogram::EMPTY;
        wake_ups.counts[bucket_of(1000)] = prompt;
        wake_ups.counts[bucket_of(30_000_000)] = late;
        Frame {
            condition: Condition::Runs,
            now_ns: second * LASTS_NS,
            begin_ns: 0,
            started_ns: 0,
            rows: Vec::new(),
            states: States::default(),
            carriers: Vec::new(),
            engines: Vec::new(),
            wake_ups: Histogram::EMPTY,
            delays: Histogram::EMPTY,
            wake_ups_ever: wake_ups,
            blocked: 0,
            blocked_ever: 0,
            process_cpu_ns: 0,
        }
    }

    fn settings(quantum_ns: u64) -> Settings {
        Settings {
            pid: 42,
            quantum_ns,
            cpus: 2,
        }
    }

    #[test]
    fn threads_that_were_woken_late_since_the_look_before_are_named_with_a_cure() {
        for (quantum_ns, cure) in [
            (u64::MAX, "quantum 2000"),
            (10_000_000, "quantum 5000"),
            (500_000, "carriers 1"),
        ] {
            let settings = settings(quantum_ns);
            let mut watch = Late::default();
            // What was late before the first look is over.
            assert_eq!(watch.look(&settings, &frame(1, 100, 900), 0.0), None);
            let lint = watch.look(&settings, &frame(2, 190, 910), 0.0).unwrap();
            assert_eq!(lint.kind, Kind::WokenLate);
            assert!(lint.text.starts_with("10 % of woken threads"), "{lint:?}");
            assert!(lint.cure.contains(cure), "{lint:?}");
            assert_eq!(watch.look(&settings, &frame(3, 290, 910), 0.0), None);
        }
    }

    #[test]
    fn few_late_threads_and_missing_cpus_are_no_finding() {
        let settings = settings(10_000_000);
        let of = |prompt, late, short| {
            let mut watch = Late::default();
            watch.look(&settings, &frame(1, 0, 0), short);
            watch.look(&settings, &frame(2, prompt, late), short)
        };
        assert_eq!(of(10, 9, 0.0), None, "few samples");
        assert_eq!(of(1000, 20, 0.0), None, "2 percent");
        assert_eq!(of(100, 50, 0.5), None, "the carriers had half of a CPU");
        assert!(of(100, 50, 0.0).is_some());
    }
}
