//! A summary for a terminal: where the time of threads went, and what they waited for.
//!
//! Times of states, threads and objects are the exact ones of events. Times of functions and places
//! are those of samples.

mod places;
mod wakers;

use std::collections::BTreeMap;

use raddle_inspect::WaitKind;

use super::columns::{Page, Rows, count, percent, time};
use super::names::{self, ObjectNames};
use crate::profile::{Activity, Profile, Thread, Wait};

/// The lines of each table.
const ROWS: usize = 10;
/// The wakers that are named for an object.
const WAKERS: usize = 3;

/// Returns the summary, in lines of at most `width` columns.
pub fn text(profile: &Profile, width: usize) -> String {
    let mut out = Page::new(width);
    head(profile, &mut out);
    states(profile, &mut out);
    places::functions(profile, &mut out);
    places::pauses(profile, &mut out);
    wakers::wakers(profile, &mut out);
    threads(profile, &mut out);
    objects(profile, &mut out);
    out.into_text()
}

/// What was recorded, and what is missing.
fn head(profile: &Profile, out: &mut Page) {
    let command: Vec<String> = profile.command.iter().map(|it| names::plain(it)).collect();
    let command = format!("process {}: {}", profile.pid, command.join(" "));
    out.line(command.trim_end_matches(": "));
    let mut recorded = format!(
        "recorded {}, {}, {}",
        time(profile.duration_ns.into()),
        count(profile.threads.len() as u64, "thread"),
        count(profile.stacks.len() as u64, "stack"),
    );
    if profile.interval_ns != 0 {
        let interval = time(profile.interval_ns.into());
        recorded += &format!(", a sample each {interval} of CPU time");
    }
    out.sentence(&recorded);
    if profile.lost_events != 0 {
        out.sentence(&format!(
            "lost: {}; times that contain them are too short or too long",
            count(profile.lost_events, "event")
        ));
    }
    if profile.lost_samples != 0 {
        out.sentence(&format!("lost: {}", count(profile.lost_samples, "sample")));
    }
    for remark in &profile.remarks {
        out.sentence(&names::plain(remark));
    }
}

fn sum(threads: &[Thread], part: impl Fn(&Thread) -> u64) -> u128 {
    threads.iter().map(|thread| u128::from(part(thread))).sum()
}

/// Where the threads' time went.
fn states(profile: &Profile, out: &mut Page) {
    let threads = &profile.threads;
    let running = sum(threads, |it| it.running_ns);
    let runnable = sum(threads, |it| it.runnable_ns);
    let in_kernel = sum(threads, |it| it.in_kernel_ns);
    let waiting = sum(threads, |it| it.waiting_ns);
    let whole = running + runnable + in_kernel + waiting;
    let without_cpu = profile.samples.iter();
    let without_cpu = without_cpu.filter(|it| it.activity == Activity::WithoutCpu);
    let without_cpu: u128 = without_cpu.map(|it| u128::from(it.weight_ns)).sum();
    if whole == 0 {
        return;
    }
    let mut rows = Rows::new(&["time", "share", "all threads together"]);
    for (part, what) in [
        (running.saturating_sub(without_cpu), "running"),
        (without_cpu, "on carriers without a CPU"),
        (runnable, "runnable, without a carrier"),
        (in_kernel, "in the kernel, with their carriers"),
        (waiting, "waiting"),
    ] {
        rows.row(vec![time(part), percent(part, whole), what.into()]);
    }
    for (kind, part) in kinds(&profile.waits) {
        let what = format!("  {}", kind.word());
        rows.row(vec![time(part), percent(part, whole), what]);
    }
    out.gap();
    rows.write(out);
}

/// The time of each kind of wait, the longest first.
fn kinds(waits: &[Wait]) -> Vec<(WaitKind, u128)> {
    let mut kinds: BTreeMap<u32, u128> = BTreeMap::new();
    for wait in waits {
        *kinds.entry(wait.kind.0).or_default() += u128::from(wait.total_ns);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(kind, total)| (std::cmp::Reverse(total), kind));
    kinds
        .into_iter()
        .map(|(kind, total)| (WaitKind(kind), total))
        .collect()
}

/// The threads that were on carriers for the longest time.
fn threads(profile: &Profile, out: &mut Page) {
    let mut sorted: Vec<&Thread> = profile.threads.iter().collect();
    sorted.sort_by_key(|it| {
        let paused_ns = u128::from(it.runnable_ns) + u128::from(it.in_kernel_ns);
        (std::cmp::Reverse((it.running_ns, paused_ns)), it.tid)
    });
    let mut rows = Rows::new(&[
        "running",
        "runnable",
        "longest",
        "in kernel",
        "waiting",
        "turns",
        "thread",
    ]);
    for thread in sorted.iter().take(ROWS) {
        rows.row(vec![
            time(thread.running_ns.into()),
            time(thread.runnable_ns.into()),
            time(thread.longest_runnable_ns.into()),
            time(thread.in_kernel_ns.into()),
            time(thread.waiting_ns.into()),
            thread.turns.to_string(),
            format!("{} #{}", names::thread(thread), thread.tid),
        ]);
    }
    section(
        "threads, the longest on carriers first",
        &rows,
        sorted.len(),
        out,
    );
}

/// The objects that threads waited for longest.
fn objects(profile: &Profile, out: &mut Page) {
    let names = ObjectNames::of(profile);
    let mut rows = Rows::new(&[
        "time",
        "longest",
        "waits",
        "threads",
        "object, and its wakers",
    ]);
    let mut sorted: Vec<&Wait> = profile.waits.iter().collect();
    sorted.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
    for wait in sorted.iter().take(ROWS) {
        let mut what = String::from(wait.kind.word());
        if let Some(object) = names.object(wait.kind, wait.object) {
            what += &format!(" {object}");
        }
        rows.row(vec![
            time(wait.total_ns.into()),
            time(wait.longest_ns.into()),
            wait.count.to_string(),
            wait.threads.to_string(),
            what,
        ]);
        if let Some(wakers) = wakers(profile, wait) {
            rows.note(wakers);
        }
    }
    let title = "what threads waited for, the longest time first";
    section(title, &rows, sorted.len(), out);
}

/// Names the threads that woke others most often: `woken by worker-1 (120), main (3), 4 others`.
fn wakers(profile: &Profile, wait: &Wait) -> Option<String> {
    let named = wait.wakers.iter().take(WAKERS).map(|&(thread, times)| {
        let name = profile.threads.get(thread as usize);
        let name = name.map_or(names::UNKNOWN.into(), names::thread);
        format!("{name} ({times})")
    });
    let mut named: Vec<String> = named.collect();
    if named.is_empty() {
        return None;
    }
    let others = wait.wakers.len() - named.len();
    if others != 0 {
        named.push(format!("{others} others"));
    }
    Some(format!("woken by {}", named.join(", ")))
}

/// Writes a table below its title, which says of how many rows these are the first.
fn section(title: &str, rows: &Rows, all: usize, out: &mut Page) {
    if rows.is_empty() {
        return;
    }
    let part = if all > ROWS {
        format!(" ({ROWS} of {all})")
    } else {
        String::new()
    };
    out.gap();
    out.sentence(&format!("{title}{part}"));
    rows.write(out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::columns::WIDTH;
    use crate::outputs::samples;

    #[test]
    fn a_summary_says_where_the_time_went() {
        let text = text(&samples::small(), WIDTH);
        let expected = "\
process 4711: ./server --port 8080
recorded 1.000s, 10 threads, 4 stacks, a sample each 10.00ms of CPU time

   time  share  all threads together
40.00ms   0.4%  running
";
        assert!(text.starts_with(expected), "{text}");
        for line in [
            " 9.900s  99.0%    mutex",
            "30.00ms  75.0%  30.00ms  75.0%  descend",
            " 9.900s  99.4%     99      mutex  pthread_mutex_lock < work < start_thread",
            "9.900s  200.00ms     99        9  mutex 0x5510 (table_lock)",
            "                                    woken by main (99)",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_summary_of_nothing_is_short() {
        let text = text(&Profile::default(), WIDTH);
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn hostile_profiles_have_lines_of_limited_width() {
        for profile in samples::hostile() {
            for width in [40, 80, 200] {
                for line in text(&profile, width).lines() {
                    assert!(line.chars().count() <= width, "{line}");
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
            }
        }
    }
}
