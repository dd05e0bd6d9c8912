//! The places where threads waited, with the places that ended the waits. Sleeps, which end by
//! themselves, are left out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{ROWS, section};
use crate::outputs::columns::{Page, Rows, percent, time};
use crate::outputs::names::{self, ThreadNames};
use crate::outputs::wakers::{is_sleep, word};
use crate::profile::{Function, Origin, Profile, Waker, Waking};

/// The innermost functions that name a place.
const DEPTH: usize = 4;
/// The most wakers of a place, and the least part that one has ended.
const WAKERS: usize = 4;
const LEAST: f64 = 0.005;

/// A place where threads waited: its time, and that of what ended the waits.
#[derive(Default)]
struct Place {
    total_ns: u128,
    wakers: BTreeMap<String, u128>,
}

pub(super) fn wakers(profile: &Profile, out: &mut Page) {
    let threads = ThreadNames::groups(profile);
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    let mut whole = 0;
    for waking in profile.wakings.iter().filter(|waking| !is_sleep(waking)) {
        let ns = u128::from(waking.weight_ns);
        let path = path(profile, waking.stack);
        let name = format!("{} in {path}", waking.activity.word());
        let place = places.entry(name).or_default();
        place.total_ns += ns;
        *place
            .wakers
            .entry(waker(profile, &threads, waking))
            .or_default() += ns;
        whole += ns;
    }
    let mut sorted: Vec<_> = places.into_iter().collect();
    sorted.sort_by_key(|(_, place)| Reverse(place.total_ns));
    let mut rows = Rows::new(&["time", "share", "waits, and below them what ended these"]);
    for (name, place) in sorted.iter().take(ROWS) {
        let share = percent(place.total_ns, whole);
        rows.row(vec![time(place.total_ns), share, name.clone()]);
        let mut wakers: Vec<_> = place.wakers.iter().collect();
        wakers.sort_by_key(|&(name, ns)| (Reverse(*ns), name));
        let least_ns = (place.total_ns as f64 * LEAST) as u128;
        let shown = wakers.into_iter().filter(|(_, ns)| **ns >= least_ns);
        for (name, ns) in shown.take(WAKERS) {
            let share = percent(*ns, place.total_ns);
            rows.row(vec![time(*ns), share, format!("  {name}")]);
        }
    }
    let title = "waits but for sleeps, by what ended them, the longest time first";
    section(title, &rows, sorted.len(), out);
}

fn waker(profile: &Profile, threads: &ThreadNames, waking: &Waking) -> String {
    match waking.waker {
        Waker::Thread { thread, stack } => {
            let place = stack.map_or(names::UNKNOWN.into(), |stack| path(profile, stack));
            format!("woken by {} in {place}", threads.get(thread))
        }
        _ => word(waking).into(),
    }
}

/// Returns the innermost functions of a stack; of one with Python's or Java's functions the
/// innermost of these.
fn path(profile: &Profile, stack: u32) -> String {
    let is_managed =
        |function: &&Function| matches!(function.origin, Origin::Python | Origin::Java);
    let all: Vec<&Function> = profile.functions_of(stack).rev().collect();
    let first = all.iter().position(is_managed).unwrap_or(0);
    let innermost = all[first..].iter().take(DEPTH);
    let innermost: Vec<String> = innermost.map(|it| names::function(it)).collect();
    if innermost.is_empty() {
        return names::UNKNOWN.into();
    }
    innermost.join(" < ")
}
