//! Functions and places in the code, by the samples' time.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{ROWS, section};
use crate::outputs::columns::{Page, Rows, percent, time};
use crate::outputs::names;
use crate::outputs::totals::Totals;
use crate::profile::{Activity, Profile};

/// The innermost functions that name a place.
const DEPTH: usize = 4;

/// The functions with the most time of their own on a CPU.
pub(super) fn functions(profile: &Profile, out: &mut Page) {
    let totals = Totals::of(profile);
    let mut sorted = totals.functions;
    sorted.retain(|function| function.on_cpu.own_ns != 0);
    sorted.sort_by_key(|function| Reverse((function.on_cpu.own_ns, function.on_cpu.total_ns)));
    let mut rows = Rows::new(&["self", "share", "total", "share", "function"]);
    for function in sorted.iter().take(ROWS) {
        let times = function.on_cpu;
        rows.row(vec![
            time(times.own_ns),
            percent(times.own_ns, totals.on_cpu_ns),
            time(times.total_ns),
            percent(times.total_ns, totals.on_cpu_ns),
            function.name.clone(),
        ]);
    }
    let title = "functions, the most time on a CPU first";
    section(title, &rows, sorted.len(), out);
}

/// The places where threads spent the most time off the CPU.
pub(super) fn pauses(profile: &Profile, out: &mut Page) {
    let mut places: BTreeMap<(String, String), (u128, u64)> = BTreeMap::new();
    let mut whole = 0;
    for sample in &profile.samples {
        if sample.activity == Activity::Running {
            continue;
        }
        let innermost = profile.functions_of(sample.stack).rev().take(DEPTH);
        let innermost: Vec<String> = innermost.map(names::function).collect();
        let place = places
            .entry((sample.activity.word(), innermost.join(" < ")))
            .or_default();
        place.0 += u128::from(sample.weight_ns);
        place.1 = place.1.saturating_add(sample.count);
        whole += u128::from(sample.weight_ns);
    }
    let mut sorted: Vec<_> = places.into_iter().collect();
    sorted.sort_by_key(|(_, times)| Reverse(*times));
    let mut rows = Rows::new(&["time", "share", "times", "doing", "innermost functions"]);
    for ((activity, place), (total_ns, count)) in sorted.iter().take(ROWS) {
        let place = match place.as_str() {
            "" => names::UNKNOWN,
            place => place,
        };
        rows.row(vec![
            time(*total_ns),
            percent(*total_ns, whole),
            count.to_string(),
            activity.clone(),
            place.into(),
        ]);
    }
    let title = "places off the CPU, the longest time first";
    section(title, &rows, sorted.len(), out);
}
