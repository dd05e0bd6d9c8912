//! A frame as plain text, in 80 columns where names permit it.

use raddle_inspect::{Histogram, NO_CARRIER, ThreadRecord, ThreadState, WaitKind};

use super::Shown;
use super::lints::Lint;
use super::look::{CarrierRow, Frame, Row};
use super::select::{Group, groups, plain, sorted};
use super::source::{Condition, Source};

/// Threads or groups that are printed if the user doesn't say.
const ROWS: usize = 20;
/// Carriers that are printed.
const CARRIERS: usize = 32;

/// A title, and cells that stand right or left below it.
pub(super) struct Column {
    pub title: &'static str,
    pub width: usize,
    pub is_right: bool,
}

const fn right(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        is_right: true,
    }
}

const fn left(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        is_right: false,
    }
}

/// 79 columns, with a space between each two. The last column has no end.
pub(super) const THREADS: [Column; 8] = [
    right("TID", 10),
    right("CPU%", 5),
    right("WAKES/s", 7),
    right("TURNS/s", 7),
    left("STATE", 8),
    right("SINCE", 6),
    left("WAITS FOR", 14),
    left("NAME", 15),
];
pub(super) const GROUPS: [Column; 9] = [
    right("THREADS", 8),
    right("RUN", 5),
    right("READY", 6),
    right("CPU%", 6),
    right("WAKES/s", 8),
    right("TURNS/s", 8),
    right("WAIT", 7),
    right("DELAY", 7),
    left("NAME", 15),
];
pub(super) const CARRIER_COLUMNS: [Column; 8] = [
    right("CARRIER", 7),
    left("STATE", 8),
    right("CPU%", 5),
    right("NO CPU%", 7),
    right("TURNS/s", 8),
    right("STEALS/s", 8),
    right("QUEUE", 5),
    left("RUNS", 24),
];

/// Returns cells below columns, as one line.
pub(super) fn line<'a>(columns: &[Column], cells: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for (column, cell) in columns.iter().zip(cells) {
        if !line.is_empty() {
            line.push(' ');
        }
        let width = column.width;
        line += &if column.is_right {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        };
    }
    line.truncate(line.trim_end().len());
    line
}

pub(super) fn titles(columns: &[Column]) -> String {
    line(columns, columns.iter().map(|column| column.title))
}

/// Returns all lines of a frame.
pub(super) fn lines(source: &Source, frame: &Frame, lints: &[Lint], shown: &Shown) -> Vec<String> {
    let mut lines = head(source, frame);
    lines.push(String::new());
    for lint in lints {
        lines.push(format!("! {}: {}", lint.text, lint.cure));
    }
    if !lints.is_empty() {
        lines.push(String::new());
    }
    lines.push(titles(&CARRIER_COLUMNS));
    for row in frame.carriers.iter().take(CARRIERS) {
        let cells = carrier(frame, row);
        lines.push(line(&CARRIER_COLUMNS, cells.iter().map(String::as_str)));
    }
    lines.extend(more(frame.carriers.len(), CARRIERS, "carrier"));
    lines.push(String::new());
    let most = shown.rows.unwrap_or(ROWS);
    if shown.by_name {
        let groups = groups(frame, &shown.filter, shown.sort);
        lines.push(titles(&GROUPS));
        for cells in groups.iter().take(most).map(|it| group(frame, it)) {
            lines.push(line(&GROUPS, cells.iter().map(String::as_str)));
        }
        lines.extend(more(groups.len(), most, "name"));
    } else {
        let (picked, all) = sorted(frame, &shown.filter, shown.sort, most);
        lines.push(titles(&THREADS));
        for &at in &picked {
            let cells = thread(frame, &frame.rows[at as usize]);
            lines.push(line(&THREADS, cells.iter().map(String::as_str)));
        }
        lines.extend(more(all, most, "thread"));
    }
    lines
}

fn more(all: usize, shown: usize, noun: &str) -> Option<String> {
    let more = all.saturating_sub(shown);
    (more != 0).then(|| format!("and {more} more {noun}{}", if more == 1 { "" } else { "s" }))
}

/// Returns the lines about the whole process.
pub(super) fn head(source: &Source, frame: &Frame) -> Vec<String> {
    let states = &frame.states;
    let (pid, up_ns) = (source.pid, frame.now_ns.saturating_sub(frame.started_ns));
    let condition = match frame.condition {
        Condition::Stopped => ", stopped",
        Condition::Ended => ", has ended",
        Condition::Executed => ", has executed another program",
        Condition::Runs => "",
    };
    let bound = match states.bound {
        0 => String::new(),
        bound => format!("; {bound} bound"),
    };
    let waits: Option<u64> = frame.pool().map(|it| it.cpu_wait_ns).sum();
    let carriers = frame.wanted();
    let extra: u32 = frame.engines.iter().map(|engine| engine.extra).sum();
    let cpus = match source.cpus {
        0 => String::new(),
        cpus => format!(" on {cpus} CPU{}", if cpus == 1 { "" } else { "s" }),
    };
    vec![
        cut(
            &format!(
                "process {pid}{condition}, up {}: {}",
                short(up_ns),
                plain(source.command.as_bytes())
            ),
            79,
        ),
        format!(
            "threads {}: {} running, {} runnable, {} waiting{bound}",
            states.all(),
            states.running,
            states.runnable,
            states.waiting,
        ),
        format!(
            "CPU {:.1}% threads, {:.1}% process; {carriers} carrier{}{}{cpus}{}",
            frame.percent(frame.threads_cpu_ns()),
            frame.percent(frame.process_cpu_ns),
            if carriers == 1 { "" } else { "s" },
            if extra == 0 {
                String::new()
            } else {
                format!(" ({extra} extra)")
            },
            waits.map_or(String::new(), |ns| {
                format!(", no CPU {:.1}%", frame.percent(ns))
            })
        ),
        delays(frame),
    ]
}

/// `delays p50 1us p99 12us of 3400; from wake-up p50 1us p99 5us of 640`.
fn delays(frame: &Frame) -> String {
    let part = |name: &str, histogram: &Histogram| match histogram.total() {
        0 => format!("{name} none"),
        all => {
            let at = |per_mille| short(histogram.per_mille(per_mille).unwrap_or(0));
            format!("{name} p50 {} p99 {} of {all}", at(500), at(990))
        }
    };
    let delays = part("delays", &frame.delays);
    format!("{delays}; {}", part("from wake-up", &frame.wake_ups))
}

pub(super) fn thread(frame: &Frame, row: &Row) -> [String; 8] {
    let record = &row.record;
    let since_ns = row.since_ns();
    [
        record.tid.to_string(),
        rate(frame.percent(row.cpu_ns)),
        rate(frame.per_second(row.wakes)),
        rate(frame.per_second(row.turns)),
        record.state.word().into(),
        match since_ns {
            0 => "-".into(),
            since_ns => short(frame.now_ns.saturating_sub(since_ns)),
        },
        waits_for(record),
        name(row),
    ]
}

/// The main thread has the id of the process.
fn name(row: &Row) -> String {
    let name = plain(row.record.name_bytes());
    if row.is_bound() {
        format!("{name} (bound)")
    } else {
        name
    }
}

fn waits_for(record: &ThreadRecord) -> String {
    let kind = record.wait_kind;
    match kind {
        _ if record.state != ThreadState::WAITING => match record.state {
            ThreadState::RUNNING if record.carrier != NO_CARRIER => {
                format!("carrier {}", record.carrier)
            }
            _ => "-".into(),
        },
        // The last digits tell objects apart.
        kind if kind.is_address() => format!("{} {:x}", shorter(kind), record.wait_arg & 0xff_ffff),
        kind if kind.is_descriptor() => format!("{} {}", kind.word(), record.wait_arg),
        kind => kind.word().into(),
    }
}

fn shorter(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::SEMAPHORE => "sem",
        kind => kind.word(),
    }
}

pub(super) fn group(frame: &Frame, group: &Group) -> [String; 9] {
    let time = |ns| if ns == 0 { "-".into() } else { short(ns) };
    [
        group.threads.to_string(),
        group.running.to_string(),
        group.runnable.to_string(),
        rate(frame.percent(group.cpu_ns)),
        rate(frame.per_second(group.wakes)),
        rate(frame.per_second(group.turns)),
        time(group.wait_ns),
        time(group.delay_ns),
        plain(group.name.as_bytes()),
    ]
}

pub(super) fn carrier(frame: &Frame, row: &CarrierRow) -> [String; 8] {
    let record = &row.slot.record;
    let percent = |ns: Option<u64>| ns.map_or("-".into(), |ns| rate(frame.percent(ns)));
    let state = if row.slot.is_bound {
        "bound"
    } else {
        record.state.word()
    };
    let mut runs = match record.current_tid {
        0 => "-".into(),
        tid => match frame.rows.iter().find(|row| row.record.tid == tid) {
            Some(row) => format!("{tid} {}", name(row)),
            None => tid.to_string(),
        },
    };
    if record.engine != 0 {
        runs += &format!(" (engine {})", record.engine);
    }
    [
        record.id.to_string(),
        state.into(),
        percent(row.cpu_ns),
        percent(row.cpu_wait_ns),
        rate(frame.per_second(row.turns)),
        rate(frame.per_second(row.steals)),
        record.queue_len.to_string(),
        runs,
    ]
}

/// At most six characters, or as many as a large number needs.
pub(super) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 99.95 => format!("{value:.1}"),
        value if value < 99_999.5 => format!("{value:.0}"),
        value => format!("{:.0}k", value / 1e3),
    }
}

/// A duration in at most six characters.
pub(super) fn short(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{:.0}us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.0}ms", ns as f64 / 1e6),
        1_000_000_000..100_000_000_000 => format!("{seconds:.1}s"),
        _ if seconds < 100.0 * 60.0 => format!("{:.0}m", seconds / 60.0),
        _ if seconds < 100.0 * 3600.0 => format!("{:.0}h", seconds / 3600.0),
        _ => format!("{:.0}d", seconds / 86_400.0),
    }
}

/// Cuts a text to so many characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let texts = [
            (7, "7ns"),
            (1_500, "2us"),
            (20_000_000, "20ms"),
            (1_250_000_000, "1.2s"),
            (99_999_999_999, "100.0s"),
            (150_000_000_000, "2m"),
            (7_200_000_000_000, "2h"),
            (u64::MAX, "213504d"),
        ];
        for (ns, text) in texts {
            assert_eq!(short(ns), text);
        }
    }

    #[test]
    fn rates_are_short() {
        let texts = [(0.0, "0"), (99.94, "99.9"), (99.96, "100"), (1e5, "100k")];
        for (value, text) in texts {
            assert_eq!(rate(value), text);
        }
    }

    #[test]
    fn tables_have_80_columns() {
        for columns in [&THREADS[..], &GROUPS, &CARRIER_COLUMNS] {
            let width: usize = columns.iter().map(|it| it.width + 1).sum();
            assert!(width <= 80, "{width}");
            assert!(columns.iter().all(|it| it.title.len() <= it.width));
        }
    }
}
