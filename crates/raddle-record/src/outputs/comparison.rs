//! Two profiles side by side: what grew and what shrank.
//!
//! Recordings have different lengths, so that times are compared for each second of them. Where a
//! file does not say how long it was recorded, shares of the profile's whole time take the place of
//! times a second; [`Measure`] says which.
//!
//! Threads, addresses and lines differ between two processes. Compared are functions by name, and
//! stacks by the names of their functions, of their threads and of the kinds of waits.

mod text;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::columns::WIDTH;
use super::folded::{self, Objects, microseconds};
use super::totals::{FunctionTimes, Times, Totals};
use super::{html, names, summary};
use crate::profile::{Profile, Sample};

/// What numbers of a comparison are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Nanoseconds in a second of the recording.
    NsPerSecond,
    /// Parts of the profile's whole time, in billionths.
    Billionths,
}

impl Measure {
    fn of(before: &Profile, after: &Profile) -> Measure {
        if before.duration_ns == 0 || after.duration_ns == 0 {
            Measure::Billionths
        } else {
            Measure::NsPerSecond
        }
    }
}

/// A number before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pair {
    pub before: f64,
    pub after: f64,
}

impl Pair {
    /// Returns how much it grew.
    pub fn change(self) -> f64 {
        self.after - self.before
    }
}

/// A function's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FunctionChange {
    #[serde(rename = "self")]
    pub own: Pair,
    pub total: Pair,
    /// `own` as a part of all such time.
    pub self_share: Pair,
    pub total_share: Pair,
}

/// A function in both profiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FunctionComparison {
    pub name: String,
    pub on_cpu: FunctionChange,
    pub off_cpu: FunctionChange,
}

/// What is known of one of the profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    pub command: String,
    pub duration_ns: u64,
    pub threads: usize,
    pub on_cpu_ns: f64,
    pub off_cpu_ns: f64,
    pub lost_events: u64,
    pub lost_samples: u64,
    pub remarks: Vec<String>,
}

/// Two profiles side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The version of this document.
    pub version: u32,
    pub measure: Measure,
    pub before: Side,
    pub after: Side,
    /// The time of all threads, by what they did.
    pub activities: BTreeMap<String, Pair>,
    /// In the order of names.
    pub functions: Vec<FunctionComparison>,
}

impl Comparison {
    /// Compares two profiles.
    pub fn of(before: &Profile, after: &Profile) -> Comparison {
        let measure = Measure::of(before, after);
        let totals = [Totals::of(before), Totals::of(after)];
        let scales = [
            scale(before, &totals[0], measure),
            scale(after, &totals[1], measure),
        ];
        Comparison {
            version: 1,
            measure,
            before: side(before, &totals[0]),
            after: side(after, &totals[1]),
            activities: activities([before, after], scales),
            functions: functions(&totals, scales),
        }
    }

    /// Returns the comparison as text, in lines of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        text::text(self, width)
    }
}

/// Returns the factor that makes a profile's nanoseconds comparable.
fn scale(profile: &Profile, totals: &Totals, measure: Measure) -> f64 {
    let whole = match measure {
        Measure::NsPerSecond => profile.duration_ns as f64,
        Measure::Billionths => (totals.on_cpu_ns + totals.off_cpu_ns) as f64,
    };
    if whole == 0.0 { 0.0 } else { 1e9 / whole }
}

fn side(profile: &Profile, totals: &Totals) -> Side {
    let command: Vec<String> = profile.command.iter().map(|it| names::plain(it)).collect();
    Side {
        command: command.join(" "),
        duration_ns: profile.duration_ns,
        threads: profile.threads.len(),
        on_cpu_ns: totals.on_cpu_ns as f64,
        off_cpu_ns: totals.off_cpu_ns as f64,
        lost_events: profile.lost_events,
        lost_samples: profile.lost_samples,
        remarks: profile.remarks.iter().map(|it| names::plain(it)).collect(),
    }
}

fn activities(profiles: [&Profile; 2], scales: [f64; 2]) -> BTreeMap<String, Pair> {
    let mut activities: BTreeMap<String, Pair> = BTreeMap::new();
    for (number, profile) in profiles.into_iter().enumerate() {
        for sample in &profile.samples {
            let pair = activities.entry(sample.activity.word()).or_default();
            let side = if number == 0 {
                &mut pair.before
            } else {
                &mut pair.after
            };
            *side += sample.weight_ns as f64 * scales[number];
        }
    }
    activities
}

fn functions(totals: &[Totals; 2], scales: [f64; 2]) -> Vec<FunctionComparison> {
    let by_name = totals.each_ref().map(|totals| {
        let functions = totals.functions.iter();
        let functions = functions.map(|function| (function.name.as_str(), function));
        functions.collect::<BTreeMap<&str, &FunctionTimes>>()
    });
    let all: BTreeSet<&str> = by_name.iter().flat_map(|it| it.keys().copied()).collect();
    let times = |name: &str, pick: fn(&FunctionTimes) -> Times| {
        by_name
            .each_ref()
            .map(|functions| functions.get(name).map_or(Times::default(), |it| pick(it)))
    };
    let whole_on = totals.each_ref().map(|totals| totals.on_cpu_ns);
    let whole_off = totals.each_ref().map(|totals| totals.off_cpu_ns);
    all.into_iter()
        .map(|name| FunctionComparison {
            name: name.into(),
            on_cpu: change(times(name, |it| it.on_cpu), whole_on, scales),
            off_cpu: change(times(name, |it| it.off_cpu), whole_off, scales),
        })
        .collect()
}

fn change(times: [Times; 2], whole: [u128; 2], scales: [f64; 2]) -> FunctionChange {
    let scaled = |ns: [u128; 2]| Pair {
        before: ns[0] as f64 * scales[0],
        after: ns[1] as f64 * scales[1],
    };
    let share = |part: u128, whole: u128| {
        if whole == 0 {
            0.0
        } else {
            part as f64 / whole as f64
        }
    };
    let shares = |ns: [u128; 2]| Pair {
        before: share(ns[0], whole[0]),
        after: share(ns[1], whole[1]),
    };
    let own = times.map(|it| it.own_ns);
    let total = times.map(|it| it.total_ns);
    FunctionChange {
        own: scaled(own),
        total: scaled(total),
        self_share: shares(own),
        total_share: shares(total),
    }
}

/// Writes folded stacks with two columns, before and after, as `difffolded.pl` does: input for
/// `flamegraph.pl`. The second column is scaled to the duration of the first profile.
///
/// # Errors
/// Those of the output.
pub fn write_folded(before: &Profile, after: &Profile, out: &mut dyn Write) -> io::Result<()> {
    for (stack, [before_ns, after_ns]) in stacks(before, after, |_| true) {
        let (before_us, after_us) = (microseconds(before_ns), microseconds(after_ns));
        if before_us != 0 || after_us != 0 {
            writeln!(out, "{stack} {before_us} {after_us}")?;
        }
    }
    Ok(())
}

/// The times of stacks before and after.
type Stacks = BTreeMap<String, [u128; 2]>;

/// Returns each stack's times, those of the second profile for as long as the first one lasted; of
/// those samples that count.
fn stacks(before: &Profile, after: &Profile, counts: fn(&Sample) -> bool) -> Stacks {
    let measure = Measure::of(before, after);
    let scales = [before, after].map(|it| scale(it, &Totals::of(it), measure));
    let factor = if scales[0] == 0.0 {
        1.0
    } else {
        scales[1] / scales[0]
    };
    let mut stacks = Stacks::new();
    for (stack, ns) in folded::stacks(before, Objects::Kinds, counts) {
        stacks.entry(stack).or_default()[0] = ns;
    }
    for (stack, ns) in folded::stacks(after, Objects::Kinds, counts) {
        stacks.entry(stack).or_default()[1] = (ns as f64 * factor) as u128;
    }
    stacks
}

/// Writes a page with flame graphs of what grew, what shrank, and of both profiles.
///
/// # Errors
/// Those of the output.
pub fn write_html(before: &Profile, after: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let comparison = Comparison::of(before, after);
    let mut text = comparison.text(WIDTH);
    for (title, profile) in [("before", before), ("after", after)] {
        text += &format!("\n\n{title}\n\n{}", summary::text(profile, WIDTH));
    }
    let title = format!("{}: raddle report", names::program(after));
    let on_cpu = stacks(before, after, |sample| sample.activity.is_on_cpu());
    let off_cpu = stacks(before, after, |sample| !sample.activity.is_on_cpu());
    let file = views::file(&title, &on_cpu, &off_cpu);
    html::write_page(&title, &text, file.has_views().then_some(&file), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;

    /// The profile of twice the time, in which `descend` takes thrice as much.
    fn longer() -> Profile {
        let mut profile = samples::small();
        profile.duration_ns *= 2;
        for sample in &mut profile.samples {
            sample.weight_ns *= 2;
        }
        profile.samples[0].weight_ns *= 3;
        // Another process has other addresses.
        for sample in profile.samples.iter_mut().filter(|it| it.object != 0) {
            sample.object = 0x7710;
        }
        profile
    }

    #[test]
    fn what_grew_is_told_by_the_second() {
        let comparison = Comparison::of(&samples::small(), &longer());
        assert_eq!(comparison.measure, Measure::NsPerSecond);
        let of = |name: &str| {
            let mut functions = comparison.functions.iter();
            functions.find(|it| it.name == name).unwrap()
        };
        let descend = of("descend").on_cpu;
        assert_eq!((descend.own.before, descend.own.after), (30e6, 90e6));
        assert_eq!(
            (descend.self_share.before, descend.self_share.after),
            (0.75, 0.9)
        );
        assert_eq!(of("work").on_cpu.own.change(), 0.0);
        assert_eq!(of("work").on_cpu.self_share.after, 0.1);
        assert_eq!(comparison.activities["mutex"].change(), 0.0);
        assert_eq!(comparison.activities["running"].change(), 60e6);
        let text = comparison.text(WIDTH);
        let line = "+60.00ms/s  30.00ms/s  90.00ms/s  +15.0%  +60.00ms/s  descend";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("shrank"), "{text}");
        let text = Comparison::of(&longer(), &samples::small()).text(WIDTH);
        assert!(
            text.contains("on CPU, shrank") && !text.contains("grew"),
            "{text}"
        );
    }

    #[test]
    fn shares_are_compared_where_a_duration_is_unknown() {
        let mut before = samples::small();
        before.duration_ns = 0;
        let comparison = Comparison::of(&before, &longer());
        assert_eq!(comparison.measure, Measure::Billionths);
        assert!(
            comparison.text(WIDTH).contains("+0.59%"),
            "{}",
            comparison.text(WIDTH)
        );
    }

    #[test]
    fn two_columns_are_of_one_duration() {
        let mut out = Vec::new();
        write_folded(&samples::small(), &longer(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("main;main;descend;descend 30000 90000\n"),
            "{text}"
        );
        let wait = "worker-9;start_thread;work;pthread_mutex_lock;[waiting: mutex] 1100000 1100000";
        assert!(text.contains(wait), "{text}");
    }

    #[test]
    fn hostile_profiles_can_be_compared() {
        for before in samples::hostile() {
            for after in samples::hostile() {
                let comparison = Comparison::of(&before, &after);
                for width in [40, 80, 200] {
                    for line in comparison.text(width).lines() {
                        assert!(line.chars().count() <= width, "{line}");
                        assert!(!line.contains(char::is_control), "{line:?}");
                    }
                }
                serde_json::to_string(&comparison).unwrap();
                write_folded(&before, &after, &mut io::sink()).unwrap();
            }
            write_html(&before, &samples::small(), &mut io::sink()).unwrap();
        }
    }
}
