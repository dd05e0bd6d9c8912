//! Shares: which threads together get what part of the carriers' time.
//!
//! Rules come from `--share`: `name:GLOB=PERCENT` is looked at when a thread is named and when one
//! is created with a name, `lib:GLOB=PERCENT` when it is created (by the symbol layer, which knows
//! the start function). Rule number i is group i of the fair policy; who fits none is in group 0,
//! the rest, which has what the rules leave.

use crate::rules::{Rules, matches, matches_library};
use raddle_engine::Thread;
use raddle_sched::policies::fair::GROUPS;

/// `RADDLE_SHARE`.
static RULES: Rules = Rules::new();

/// The shares of all groups in hundredths, if `rules` is a list of them.
pub fn parse(rules: &[u8]) -> Option<[u32; GROUPS]> {
    let mut shares = [0; GROUPS];
    let mut sum = 0;
    for (index, rule) in rules.split(|&byte| byte == b';').enumerate() {
        let (_, _, percent) = split(rule)?;
        *shares.get_mut(index + 1)? = percent;
        sum += percent;
    }
    shares[0] = 100u32.checked_sub(sum)?.max(1);
    Some(shares)
}

/// Kind, glob and percentage of a rule.
fn split(rule: &[u8]) -> Option<(&[u8], &[u8], u32)> {
    let equals = rule.iter().rposition(|&byte| byte == b'=')?;
    let (pattern, percent) = (&rule[..equals], &rule[equals + 1..]);
    let percent: u32 = core::str::from_utf8(percent).ok()?.parse().ok()?;
    let colon = pattern.iter().position(|&byte| byte == b':')?;
    let (kind, glob) = (&pattern[..colon], &pattern[colon + 1..]);
    let is_known = matches!(kind, b"name" | b"lib") && !glob.is_empty();
    (is_known && (1..=99).contains(&percent)).then_some((kind, glob, percent))
}

/// Sets the rules, which [`parse`] has accepted.
pub fn set_rules(rules: &'static [u8]) {
    RULES.set(rules);
}

/// True if there are rules at all.
#[inline(always)]
pub fn any() -> bool {
    RULES.any()
}

/// Group, kind and glob of every rule.
fn rules() -> impl Iterator<Item = (u32, &'static [u8], &'static [u8])> {
    (1..)
        .zip(RULES.each().filter_map(split))
        .map(|(group, (kind, glob, _))| (group, kind, glob))
}

/// The group of threads whose start function is in this library.
pub fn of_library(path: &[u8]) -> Option<u32> {
    rules()
        .filter(|(_, kind, _)| *kind == b"lib")
        .find(|(_, _, glob)| matches_library(glob, path))
        .map(|(group, ..)| group)
}

/// `thread` has this name now.
pub fn named(thread: &Thread, name: &[u8]) {
    if !any() {
        return;
    }
    let len = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    let terms = &thread.task.policy.terms;
    let by_name = || rules().filter(|(_, kind, _)| *kind == b"name");
    match by_name().find(|(_, _, glob)| matches(glob, &name[..len])) {
        Some((group, ..)) => terms.set_group(group),
        // A name that it no longer has put it where it is.
        None if by_name().any(|(group, ..)| group == terms.group()) => terms.set_group(0),
        None => {}
    }
}

/// A new thread, which has its creator's name.
pub fn created(child: &Thread, parent: &Thread) {
    if !any() {
        return;
    }
    match parent.share_next.replace(0) {
        0 => named(child, &child.name()),
        group => child.task.policy.terms.set_group(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parts_of_a_hundred_and_the_rest_has_what_is_left() {
        let shares = parse(b"name:a=b*=25;lib:libx.so*=70").expect("two rules");
        assert_eq!(shares[..4], [5, 25, 70, 0]);
        assert_eq!(parse(b"name:*=99").map(|shares| shares[0]), Some(1));
        assert_eq!(
            split(b"name:a=b*=25"),
            Some((&b"name"[..], &b"a=b*"[..], 25))
        );
    }

    #[test]
    fn what_is_no_list_of_rules_is_refused() {
        for rules in [
            "",
            "name:a",
            "name:a=",
            "name:a=0",
            "name:a=100",
            "name:=5",
            "start:main=5",
            "a=5",
            "name:a=60;name:b=60",
            "name:a=5;",
            "name:a=-5",
            "name:a=5%",
        ] {
            assert_eq!(parse(rules.as_bytes()), None, "{rules}");
        }
        let many = [*b"name:a=1;"; GROUPS];
        let many = many.as_flattened().strip_suffix(b";").expect("a list");
        assert_eq!(parse(many), None, "more rules than groups");
    }
}
