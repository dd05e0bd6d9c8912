//! Shares: groups of threads, and the part of the carriers' time that each group gets.
//!
//! Rules come from `--share`: those that begin with `name:GLOB=` are looked at when a thread is
//! named and when one is created with a name, `lib:GLOB=` when it is created (by the symbol layer,
//! which knows the start function). The rest of a rule is one of
//!
//! - `25`: a weight. Rule number i is group i of the fair policy; a thread that fits no rule is in
//!   group 0, the rest, which has what the rules leave.
//! - `30%`, `carriers=2`, or both with a comma between: a quota, in percent of one CPU, and a
//!   number of carriers. Rule number i is engine i.

use super::{Rules, matches, matches_library};
use raddle_engine::engine::{MAX_PLANNED, Plan};
use raddle_engine::thread::Birth;
use raddle_engine::{PROCESS, Thread};
use raddle_sched::policies::fair::GROUPS;
use raddle_sched::policies::{Class, Kind};
use raddle_sched::quota::MAX_PERCENT;

/// `RADDLE_SHARE`.
static RULES: Rules = Rules::new();

/// The content of a list of rules; rule number i is at i.
pub struct Shares {
    /// The shares of all groups in hundredths, if any rule has one.
    pub weights: Option<[u32; GROUPS]>,
    /// The engines.
    pub plans: [Option<Plan>; GROUPS],
}

/// What matching threads get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Weight(u32),
    Engine { quota: u32, carriers: u32 },
}

/// Reads `rules`, if that is a list of them.
pub fn parse(rules: &[u8]) -> Option<Shares> {
    let (mut weights, mut plans) = ([0; GROUPS], [None; GROUPS]);
    let mut sum = 0;
    for (index, rule) in rules.split(|&byte| byte == b';').enumerate() {
        let (_, _, part) = split(rule)?;
        let weight = weights.get_mut(index + 1)?;
        match part {
            Part::Weight(percent) => {
                *weight = percent;
                sum += percent;
            }
            Part::Engine { quota, carriers } => {
                plans[index + 1] = Some(Plan {
                    kind: Kind::Fair,
                    carriers,
                    quota,
                });
            }
        }
    }
    weights[0] = 100u32.checked_sub(sum)?.max(1);
    Some(Shares {
        weights: (sum != 0).then_some(weights),
        plans,
    })
}

/// Kind, glob and part of a rule. A glob may hold an equals sign: it ends where a part follows.
fn split(rule: &[u8]) -> Option<(&[u8], &[u8], Part)> {
    let colon = rule.iter().position(|&byte| byte == b':')?;
    let (kind, rest) = (&rule[..colon], &rule[colon + 1..]);
    let ends = (0..rest.len()).filter(|&at| rest[at] == b'=');
    let mut parts = ends.filter_map(|at| Some((&rest[..at], part(&rest[at + 1..])?)));
    let (glob, part) = parts.next()?;
    // A glob that ends with the beginning of a part comes from a mistake in that part.
    let is_mistake = glob.ends_with(b"=carriers") || glob.ends_with(b",carriers");
    let is_known = matches!(kind, b"name" | b"lib") && !glob.is_empty() && !is_mistake;
    is_known.then_some((kind, glob, part))
}

fn part(text: &[u8]) -> Option<Part> {
    let number = |digits: &[u8]| core::str::from_utf8(digits).ok()?.parse().ok();
    let is_weight = |percent: &u32| (1..=99).contains(percent);
    if let Some(percent) = number(text).filter(is_weight) {
        return Some(Part::Weight(percent));
    }
    let (mut quota, mut carriers) = (0, 0);
    for word in text.split(|&byte| byte == b',') {
        let (place, digits, most) = match word.strip_suffix(b"%") {
            Some(digits) => (&mut quota, digits, MAX_PERCENT),
            None => (&mut carriers, word.strip_prefix(b"carriers=")?, MAX_PLANNED),
        };
        let is_first = *place == 0;
        *place = number(digits).filter(|value| is_first && (1..=most).contains(value))?;
    }
    Some(Part::Engine { quota, carriers })
}

/// Sets the rules, which [`parse`] has accepted as `shares`.
pub fn set_rules(rules: &'static [u8], shares: &Shares) {
    for (number, plan) in (0..).zip(&shares.plans) {
        if let Some(plan) = plan {
            PROCESS.engines.set(number, *plan);
        }
    }
    RULES.set(rules);
}

/// Returns true if there are rules at all.
#[inline(always)]
pub fn any() -> bool {
    RULES.any()
}

/// Number, kind and glob of every rule.
fn rules() -> impl Iterator<Item = (u32, &'static [u8], &'static [u8])> {
    (1..)
        .zip(RULES.each().filter_map(split))
        .map(|(number, (kind, glob, _))| (number, kind, glob))
}

/// The rule for threads with a start function in this library.
pub fn of_library(path: &[u8]) -> Option<u32> {
    rules()
        .filter(|(_, kind, _)| *kind == b"lib")
        .find(|(_, _, glob)| matches_library(glob, path))
        .map(|(number, ..)| number)
}

/// The rule that `thread` goes by, or 0.
fn rule_of(thread: &Thread) -> u32 {
    match thread.engine_number() {
        0 => thread.task.policy.terms.group(),
        number => number,
    }
}

/// Puts `thread` under this rule, or under none (0).
fn assign(thread: &Thread, number: u32) {
    let is_engine = PROCESS.engines.get(number).is_some();
    let (group, engine) = if is_engine { (0, number) } else { (number, 0) };
    thread.task.policy.terms.set_group(group);
    PROCESS.engines.assign(thread, engine);
}

/// Finds the rule for `thread` after it got this name.
pub fn named(thread: &Thread, name: &[u8]) {
    if !any() {
        return;
    }
    let len = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    let by_name = || rules().filter(|(_, kind, _)| *kind == b"name");
    match by_name().find(|(_, _, glob)| matches(glob, &name[..len])) {
        Some((number, ..)) => assign(thread, number),
        // Only its old name put the thread under its rule.
        None if by_name().any(|(number, ..)| number == rule_of(thread)) => assign(thread, 0),
        None => {}
    }
}

/// Finds the rule for a new thread, which has its creator's name.
pub fn created(child: &Thread, parent: &Thread) {
    let birth = parent.next.replace(Birth::default());
    if birth.priority != 0 || birth.nice != 0 || birth.deadline_ns != 0 {
        let class = match birth.priority {
            0 if birth.deadline_ns != 0 => Class::DEADLINE,
            0 => Class::OTHER,
            _ => Class::ROUND_ROBIN,
        };
        let terms = &child.task.policy.terms;
        terms.set_attributes(class, birth.priority, birth.nice, birth.deadline_ns);
    }
    if birth.engine != 0 {
        return PROCESS.engines.assign(child, birth.engine);
    }
    if !any() {
        return;
    }
    match parent.share_next.replace(0) {
        0 => named(child, &child.name()),
        number => assign(child, number),
    }
    if parent.engine_number() == 0 {
        named(parent, &parent.name()); // it was named before there were carriers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parts_of_a_hundred_and_the_rest_has_what_is_left() {
        let weights = |rules: &[u8]| parse(rules).and_then(|shares| shares.weights);
        let both = weights(b"name:a=b*=25;lib:libx.so*=70").expect("two rules");
        assert_eq!(both[..4], [5, 25, 70, 0]);
        assert_eq!(weights(b"name:*=99").map(|shares| shares[0]), Some(1));
        let expected = (&b"name"[..], &b"a=b*"[..], Part::Weight(25));
        assert_eq!(split(b"name:a=b*=25"), Some(expected));
    }

    #[test]
    fn quotas_and_carriers_make_engines() {
        let shares = parse(b"name:a=30%;name:b=20;name:c=150%,carriers=3;name:d=carriers=2");
        let shares = shares.expect("four rules");
        assert_eq!(
            shares.weights.map(|weights| weights[..3] == [80, 0, 20]),
            Some(true)
        );
        let plans = shares
            .plans
            .map(|plan| plan.map(|plan| (plan.quota, plan.carriers)));
        let expected = [
            None,
            Some((30, 0)),
            None,
            Some((150, 3)),
            Some((0, 2)),
            None,
        ];
        assert_eq!(plans[..6], expected);
        assert!(parse(b"name:a=30%").is_some_and(|shares| shares.weights.is_none()));
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
            "name:a=0%",
            "name:a=102401%",
            "name:a=5%,6%",
            "name:a=5%,",
            "name:a=carriers=0",
            "name:a=carriers=65",
            "name:a=20,carriers=2",
        ] {
            assert!(parse(rules.as_bytes()).is_none(), "{rules}");
        }
        let many = [*b"name:a=1;"; GROUPS];
        let many = many.as_flattened().strip_suffix(b";").expect("a list");
        assert!(parse(many).is_none(), "more rules than groups");
    }
}
