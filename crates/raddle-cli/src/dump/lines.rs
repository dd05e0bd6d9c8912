//! A snapshot as lines in columns, one for each carrier and one for each green thread. Counters are
//! `name=value`, so that a line still makes sense outside its table.

use std::io::{self, Write};

use raddle_inspect::{
    CarrierRecord, CarrierState, Header, Histogram, NO_CARRIER, PolicyKind, Snapshot, ThreadFlags,
    ThreadRecord, ThreadState, WaitKind,
};
use raddle_record::text::quoted;

use super::stacks::{Taken, doing};
use super::{Facts, Statistics, blocking, groups};
use crate::table::{Align, write_rows};

/// Returns true if the kernel tells sysmon which carriers wait in it.
pub(super) fn has_alarms(header: &Header) -> bool {
    header.flags & Header::ALARMS != 0
}

pub(super) fn write(
    facts: &Facts<'_>,
    snapshot: &Snapshot<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let pid = facts.pid;
    let header = snapshot.header();
    let up_ns = header.now_ns.saturating_sub(header.started_ns);
    let is_spare = |record: &CarrierRecord| record.state == CarrierState::SPARE;
    let spare = snapshot.carriers().filter(is_spare).count() as u64;
    let carriers = u64::from(header.carriers);
    writeln!(
        out,
        "process {pid}: {}{}, {}{}, up {}",
        count(header.live_threads, "green thread"),
        match facts.stacks.map_or(0, |taken| taken.lights) {
            0 => String::new(),
            lights => format!(", {}", count(lights, "light thread")),
        },
        count(carriers - spare, "carrier"),
        if spare == 0 {
            String::new()
        } else {
            format!(" and {spare} spare")
        },
        seconds(up_ns)
    )?;
    if header.extra != 0 {
        writeln!(
            out,
            "other processes leave this one less than half of its CPUs: {} beside {}",
            count(header.extra, "extra carrier"),
            header.wanted
        )?;
    }
    if header.policy != PolicyKind::FIFO {
        writeln!(out, "{}", policy(header))?;
    }
    if header.longest_delay.ns >= LONG_DELAY_NS {
        writeln!(out, "{}", longest_delay(header))?;
    }
    if let Some(line) = waits_now(snapshot) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    write_rows(&[Align::Left; 13], out, || {
        snapshot.carriers().map(|record| carrier(&record))
    })?;
    writeln!(out)?;
    match &facts.statistics {
        Some(statistics) => write_statistics(statistics, header, out),
        None => write_threads(facts, snapshot, out),
    }
}

/// Writes the threads with their stacks, or groups of threads with equal ones.
fn write_stacks(
    facts: &Facts<'_>,
    taken: &Taken,
    snapshot: &Snapshot<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let now_ns = snapshot.header().now_ns;
    let is_grouped = snapshot.threads().len() > groups::UNGROUPED_MAX;
    if facts.shown.grouped.unwrap_or(is_grouped) {
        return groups::write(&facts.shown, taken, now_ns, out);
    }
    let mut rows = Vec::new();
    write_rows(&[Align::Left; 12], &mut rows, || {
        snapshot.threads().map(|record| thread(&record, now_ns))
    })?;
    let rows = String::from_utf8_lossy(&rows);
    for (row, record) in rows.lines().zip(snapshot.threads()) {
        groups::headline(&facts.shown, row, out)?;
        if let Some(captured) = taken.threads.get(&record.tid) {
            if let Some(doing) = doing(captured.kind) {
                writeln!(out, "    ({doing})")?;
            }
            groups::write_wait(taken, &[captured], out)?;
            groups::write_stack(&facts.shown, taken, captured, out)?;
        }
    }
    Ok(())
}

fn write_threads(
    facts: &Facts<'_>,
    snapshot: &Snapshot<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let header = snapshot.header();
    match (&facts.usage, facts.stacks) {
        (_, Some(taken)) => write_stacks(facts, taken, snapshot, out)?,
        (Some(usage), None) => write_rows(&[Align::Left; 13], out, || {
            let sorted = usage.sorted(snapshot);
            let with_usage = |record: ThreadRecord| {
                let mut cells = thread(&record, header.now_ns);
                let used = [usage.percent(&record), record.cpu_ns as f64 / 1e9];
                cells.insert(2, format!("cpu {:.1}% {:.3}s", used[0], used[1]));
                cells
            };
            sorted.into_iter().map(with_usage)
        })?,
        (None, None) => write_rows(&[Align::Left; 12], out, || {
            snapshot
                .threads()
                .map(|record| thread(&record, header.now_ns))
        })?,
    }
    for (tid, sitting) in &facts.sitting {
        writeln!(out)?;
        let headline = format!("#{tid} sits in the kernel: {}", sitting.reason());
        stack(&headline, &sitting.frames, out)?;
    }
    Ok(())
}

fn write_statistics(
    statistics: &Statistics,
    header: &Header,
    out: &mut impl Write,
) -> io::Result<()> {
    let wake_ups = percentiles("from wake-up to running", &statistics.wake_ups);
    writeln!(out, "{wake_ups}")?;
    let delays = percentiles("from runnable to running", &statistics.delays);
    writeln!(out, "{delays}")?;
    if (1..LONG_DELAY_NS).contains(&header.longest_delay.ns) {
        writeln!(out, "{}", longest_delay(header))?;
    }
    let noticed = if has_alarms(header) {
        "after the first the kernel says at once, by perf events"
    } else {
        "sysmon looks, without perf events"
    };
    writeln!(out, "carriers that sit in the kernel: {noticed}")?;
    let times = count(statistics.blocking.total, "time");
    writeln!(
        out,
        "carriers replaced while they sat in the kernel: {times}"
    )?;
    let rows = blocking::rows(&statistics.blocking, &statistics.mappings, header.now_ns);
    write_rows(&[Align::Left; 4], out, || rows.iter().cloned())?;
    let frequent = blocking::by_count(&statistics.frequent);
    if !frequent.is_empty() {
        writeln!(out, "the most frequent places:")?;
    }
    for site in frequent {
        let headline = blocking::headline(site, header.now_ns);
        stack(
            &headline,
            &blocking::frames(site, &statistics.mappings),
            out,
        )?;
    }
    Ok(())
}

/// A line of text, and the frames below it, from the inside out.
fn stack(headline: &str, frames: &[String], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{headline}")?;
    frames
        .iter()
        .try_for_each(|frame| writeln!(out, "    {frame}"))
}

/// `policy fair, shares: rest 75%, group 1 25%`.
pub(super) fn policy(header: &Header) -> String {
    let mut text = format!("policy {}", header.policy.word());
    let groups = header
        .shares
        .iter()
        .enumerate()
        .filter(|(_, percent)| **percent != 0);
    for (group, percent) in groups {
        text += &match group {
            0 => format!(", shares: rest {percent}%"),
            group => format!(", group {group} {percent}%"),
        };
    }
    text
}

/// `engine 1: quota 30%`.
pub(super) fn engine(number: u32, quota: Option<u32>) -> String {
    match quota {
        None => format!("there is no engine {number}"),
        Some(0) => format!("engine {number}: no quota"),
        Some(percent) => format!("engine {number}: quota {percent}%"),
    }
}

fn carrier(record: &CarrierRecord) -> Vec<String> {
    let runs = match record.current_tid {
        0 => "runs nothing".into(),
        tid => format!("runs #{tid}"),
    };
    let mut cells = vec![
        format!("carrier {}", record.id),
        format!("kernel tid {}", record.kernel_tid),
        record.state.word().into(),
        runs,
        format!("queue={}", record.queue_len),
        format!("wakeups={}", record.wakeups),
    ];
    cells.extend(counters([
        record.switches,
        record.steal,
        record.steal_fail,
        record.preempt,
        record.park,
    ]));
    if record.engine != 0 {
        cells.push(format!("engine={}", record.engine));
    }
    if record.quota != 0 {
        cells.push(format!("quota={}%", record.quota));
    }
    cells
}

fn thread(record: &ThreadRecord, now_ns: u64) -> Vec<String> {
    let is_light = record.flags.contains(ThreadFlags::LIGHT);
    let carrier = match record.carrier {
        _ if is_light && record.host_tid != 0 => format!("host #{}", record.host_tid),
        _ if is_light => "no host".into(),
        NO_CARRIER => "no carrier".into(),
        id if record.flags.contains(ThreadFlags::BOUND) => format!("bound to {id}"),
        id => format!("carrier {id}"),
    };
    let main = record.flags.contains(ThreadFlags::MAIN);
    let mut cells = vec![
        format!("#{}", record.tid),
        format!(
            "{}{}",
            quoted(record.name_bytes()),
            if main { " main" } else { "" }
        ),
        record.state.word().into(),
        wait(record, now_ns),
        match record.since_ns {
            0 => "-".into(),
            since_ns => format!("since {}", seconds(now_ns.saturating_sub(since_ns))),
        },
        carrier,
    ];
    if is_light {
        return cells;
    }
    cells.extend(counters([
        record.switches,
        record.steal,
        record.steal_fail,
        record.preempt,
        record.park,
    ]));
    if record.group != 0 {
        cells.push(format!("group={}", record.group));
    }
    cells
}

fn counters([switches, steal, steal_fail, preempt, park]: [u64; 5]) -> [String; 5] {
    [
        format!("active={switches}"),
        format!("steal={steal}"),
        format!("steal_fail={steal_fail}"),
        format!("preempt={preempt}"),
        format!("park={park}"),
    ]
}

/// `futex 0x7f00dead, 0.250s left`, `fd_read 7`, `-`.
pub(super) fn wait(record: &ThreadRecord, now_ns: u64) -> String {
    let kind = record.wait_kind;
    let mut text = match kind {
        WaitKind::NONE => return "-".into(),
        WaitKind::SLEEP | WaitKind::SIGNAL | WaitKind::YIELD => kind.word().into(),
        WaitKind::API | WaitKind::UNPARK | WaitKind::COMPLETION => kind.word().into(),
        WaitKind::CHILD if record.wait_arg == 0 => "child any".into(),
        kind if kind.is_address() => format!("{} {:#x}", kind.word(), record.wait_arg),
        kind => format!("{} {}", kind.word(), record.wait_arg),
    };
    if record.deadline_ns != 0 {
        let left_ns = record.deadline_ns.saturating_sub(now_ns);
        text += &format!(", {} left", seconds(left_ns));
    }
    text
}

/// A delay that is worth a sentence.
const LONG_DELAY_NS: u64 = 100_000_000;

/// `the longest wait of a runnable thread: 0.130s, #501 "server", 4.200s ago`.
fn longest_delay(header: &Header) -> String {
    let delay = header.longest_delay;
    format!(
        "the longest wait of a runnable thread: {}, #{} {}, {} ago",
        seconds(delay.ns),
        delay.tid,
        quoted(delay.name_bytes()),
        seconds(header.now_ns.saturating_sub(delay.at_ns))
    )
}

/// Returns `#501 "server" has been runnable for 1.297s without a turn` for the runnable thread that
/// has waited longest, if that is long: the counters have only delays that have ended.
fn waits_now(snapshot: &Snapshot<'_>) -> Option<String> {
    let now_ns = snapshot.header().now_ns;
    let waited_ns = |record: &ThreadRecord| now_ns.saturating_sub(record.since_ns);
    let longest = snapshot
        .threads()
        .filter(|record| record.state == ThreadState::RUNNABLE && record.since_ns != 0)
        .max_by_key(waited_ns)?;
    (waited_ns(&longest) >= LONG_DELAY_NS).then(|| {
        format!(
            "#{} {} has been runnable for {} without a turn",
            longest.tid,
            quoted(longest.name_bytes()),
            seconds(waited_ns(&longest))
        )
    })
}

/// Formats upper ends of buckets, so with "at most".
fn percentiles(what: &str, histogram: &Histogram) -> String {
    let parts = [
        (500, "p50"),
        (900, "p90"),
        (950, "p95"),
        (990, "p99"),
        (999, "p99.9"),
    ];
    let mut line = format!("{what}, {}:", count(histogram.total(), "sample"));
    for (per_mille, name) in parts {
        if let Some(ns) = histogram.per_mille(per_mille) {
            line += &format!(" {name} {:.1}us", ns as f64 / 1e3);
        }
    }
    line
}

pub(super) fn seconds(nanoseconds: u64) -> String {
    format!("{:.3}s", nanoseconds as f64 / 1e9)
}

pub(super) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::ThreadState;

    #[test]
    fn a_wait_shows_its_argument_as_what_it_is() {
        let wait_for = |wait_kind, wait_arg, deadline_ns| {
            let record = ThreadRecord {
                wait_kind,
                wait_arg,
                deadline_ns,
                ..ThreadRecord::default()
            };
            wait(&record, 1_000_000_000)
        };
        assert_eq!(wait_for(WaitKind::NONE, 5, 0), "-");
        assert_eq!(wait_for(WaitKind::FUTEX, 0x1234, 0), "futex 0x1234");
        assert_eq!(
            wait_for(WaitKind::FD_READ, 7, 1_250_000_000),
            "fd_read 7, 0.250s left"
        );
        assert_eq!(wait_for(WaitKind::SLEEP, 0, 1), "sleep, 0.000s left");
        assert_eq!(wait_for(WaitKind::CHILD, 0, 0), "child any");
        assert_eq!(wait_for(WaitKind::UNPARK, 0, 0), "unpark");
        assert_eq!(wait_for(WaitKind(99), 3, 0), "unknown 3");
    }

    #[test]
    fn latencies_are_one_line() {
        assert_eq!(
            percentiles("from wake-up to running", &Histogram::EMPTY),
            "from wake-up to running, 0 samples:"
        );
        let mut histogram = Histogram::EMPTY;
        histogram.counts[raddle_inspect::bucket_of(900)] = 1;
        assert_eq!(
            percentiles("from wake-up to running", &histogram),
            "from wake-up to running, 1 sample: p50 1.0us p90 1.0us p95 1.0us p99 1.0us p99.9 1.0us"
        );
    }

    #[test]
    fn a_thread_is_one_line_in_the_order_of_a_stack_dump() {
        let record = ThreadRecord {
            tid: 1_073_741_830,
            carrier: 1,
            state: ThreadState::WAITING,
            wait_kind: WaitKind::CONDVAR,
            wait_arg: 0x10,
            since_ns: 1_000,
            switches: 5,
            park: 4,
            name: *b"io\x1b[2J\0\0\0\0\0\0\0\0\0\0",
            ..ThreadRecord::default()
        };
        assert_eq!(
            thread(&record, 1_234_001_000).join(" "),
            "#1073741830 \"io\\u{1b}[2J\" waiting condvar 0x10 since 1.234s carrier 1 \
             active=5 steal=0 steal_fail=0 preempt=0 park=4"
        );
    }
}
