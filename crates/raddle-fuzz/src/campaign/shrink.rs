//! Making a case smaller as long as it differs in the same way.
//!
//! A round tries every *edit* alone, all in one run. The edits that leave the difference as it is
//! are made together, or if that is too much a half of them, and so on down to one. Rounds end when
//! no edit is left.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::judge::Judge;
use super::modes::{Mode, PATIENT};
use super::trace::{Difference, Outcome, Trace};
use crate::calls::Answer;
use crate::case::{Call, Case, Data, FIRST_CHILD, Idle, MAIN, Site, Step, Value};

const ROUNDS: usize = 12;
/// How often a candidate runs in the mode: some differences show only sometimes.
const TRIES: usize = 2;

/// A reduction. Edits are made in this order, those of a kind from the last to the first, so that
/// no edit changes the meaning of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edit {
    /// An argument becomes 0: the step, the argument.
    ZeroArgument(usize, usize),
    /// A stored value becomes 0.
    ZeroPut(usize, usize),
    /// The call is made by the plainest site.
    Inline(usize),
    RemovePut(usize, usize),
    RemoveEvent(usize, usize),
    RemoveStep(usize),
    RemoveState(usize, usize),
    RemoveResource(usize),
    RemoveHandler(usize),
    BlockNothing,
    IdleByFutex,
    FewerThreads,
}

/// The smallest case found.
///
/// # Errors
/// An executor that doesn't run.
pub(super) fn shrink(
    judge: &Judge,
    case: &Case,
    mode: Mode,
    difference: &Difference,
) -> Result<Case> {
    let class = difference.class(case);
    let mut best = case.clone();
    for _ in 0..ROUNDS {
        let sets = edits(&best).into_iter().map(|edit| vec![edit]).collect();
        let alone: Vec<Edit> = that_differ(judge, &best, sets, mode, &class)?.concat();
        let Some(found) = most_of(judge, &best, &alone, mode, &class)? else {
            break;
        };
        best = found;
    }
    Ok(best)
}

/// The case with as many of these edits as possible.
fn most_of(
    judge: &Judge,
    case: &Case,
    edits: &[Edit],
    mode: Mode,
    class: &str,
) -> Result<Option<Case>> {
    let mut size = edits.len();
    while size > 0 {
        let sets = edits.chunks(size).map(<[Edit]>::to_vec).collect();
        if let Some(set) = that_differ(judge, case, sets, mode, class)?.first() {
            return Ok(Some(edited(case, set)));
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    Ok(None)
}

/// The sets of edits after which the case still differs in this way.
fn that_differ(
    judge: &Judge,
    case: &Case,
    sets: Vec<Vec<Edit>>,
    mode: Mode,
    class: &str,
) -> Result<Vec<Vec<Edit>>> {
    let candidates: Vec<_> = sets.iter().map(|set| edited(case, set)).collect();
    let several: Vec<_> = candidates
        .iter()
        .enumerate()
        .flat_map(|(id, case)| (0..TRIES).map(move |index| (format!("{id}#{index}"), case.clone())))
        .collect();
    let native = judge.runner.run(Mode::Native, &several, &PATIENT)?;
    let other = judge.runner.run(mode, &several, &PATIENT)?;
    let differs = |id: usize, case: &Case| {
        let of = |traces: &BTreeMap<String, Trace>| -> Vec<Trace> {
            (0..TRIES)
                .map(|index| traces[&format!("{id}#{index}")].clone())
                .collect()
        };
        let (native, other) = (of(&native), of(&other));
        let mut steady = native[1..]
            .iter()
            .map(|trace| Difference::between(&native[0], trace));
        steady.all(|difference| difference.is_none())
            && other
                .iter()
                .any(|trace| match judge.compare(case, &native[0], trace) {
                    Outcome::Different(difference) => difference.class(case) == class,
                    _ => false,
                })
    };
    let kept = sets.into_iter().zip(&candidates).enumerate();
    let kept = kept.filter(|(id, (_, case))| differs(*id, case));
    Ok(kept.map(|(_, (set, _))| set).collect())
}

/// Every edit that changes something.
fn edits(case: &Case) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        edits.push(Edit::RemoveStep(index));
        edits.extend((0..step.events.len()).map(|event| Edit::RemoveEvent(index, event)));
        edits.extend((0..step.puts.len()).map(|put| Edit::RemovePut(index, put)));
        edits.extend(simplifications(index, step));
    }
    for (index, resource) in case.resources.iter().enumerate() {
        edits.push(Edit::RemoveResource(index));
        edits.extend((0..resource.state.len()).map(|state| Edit::RemoveState(index, state)));
    }
    edits.extend((0..case.handlers.len()).map(Edit::RemoveHandler));
    if case.blocked != 0 {
        edits.push(Edit::BlockNothing);
    }
    if case.idle != Idle::Futex {
        edits.push(Edit::IdleByFutex);
    }
    if case.threads > 0 {
        edits.push(Edit::FewerThreads);
    }
    edits
}

/// Returns simpler values and a simpler site. A new process's arguments stay: it may need them all.
fn simplifications(index: usize, step: &Step) -> Vec<Edit> {
    let mut edits = Vec::new();
    if step.call.spec.answer == Answer::Fork {
        return edits;
    }
    for (argument, value) in step.call.arguments.iter().enumerate() {
        if *value != Value::Int(0) {
            edits.push(Edit::ZeroArgument(index, argument));
        }
    }
    for (put, stored) in step.puts.iter().enumerate() {
        if matches!(stored.data, Data::Number(_, value) if value != Value::Int(0)) {
            edits.push(Edit::ZeroPut(index, put));
        }
    }
    if step.call.spec.number.is_some() && step.call.site != Site::Inline {
        edits.push(Edit::Inline(index));
    }
    edits
}

fn edited(case: &Case, set: &[Edit]) -> Case {
    let mut case = case.clone();
    let set: BTreeSet<Edit> = set.iter().copied().collect();
    let (values, removals): (Vec<Edit>, Vec<Edit>) = set
        .into_iter()
        .partition(|&edit| edit < Edit::RemovePut(0, 0));
    // Steps go last among the objects with indexes of steps, and larger indexes before smaller
    // ones.
    let order = |edit: &Edit| {
        let kind = match edit {
            Edit::RemovePut(..) | Edit::RemoveEvent(..) | Edit::RemoveState(..) => 0,
            Edit::RemoveStep(_) | Edit::RemoveResource(_) | Edit::RemoveHandler(_) => 1,
            _ => 2,
        };
        (kind, std::cmp::Reverse(*edit))
    };
    let mut removals = removals;
    removals.sort_by_key(order);
    for edit in values.into_iter().chain(removals) {
        apply(&mut case, edit);
    }
    case
}

fn apply(case: &mut Case, edit: Edit) {
    match edit {
        Edit::ZeroArgument(step, argument) => {
            case.steps[step].call.arguments[argument] = Value::Int(0);
        }
        Edit::ZeroPut(step, put) => {
            if let Data::Number(bytes, _) = case.steps[step].puts[put].data {
                case.steps[step].puts[put].data = Data::Number(bytes, Value::Int(0));
            }
        }
        Edit::Inline(step) => case.steps[step].call.site = Site::Inline,
        Edit::RemovePut(step, put) => _ = case.steps[step].puts.remove(put),
        Edit::RemoveEvent(step, event) => _ = case.steps[step].events.remove(event),
        Edit::RemoveStep(step) => remove_step(case, step),
        Edit::RemoveState(resource, state) => _ = case.resources[resource].state.remove(state),
        Edit::RemoveResource(resource) => _ = case.resources.remove(resource),
        Edit::RemoveHandler(handler) => _ = case.handlers.remove(handler),
        Edit::BlockNothing => case.blocked = 0,
        Edit::IdleByFutex => case.idle = Idle::Futex,
        Edit::FewerThreads => remove_thread(case),
    }
}

/// Removes a step; references to its result become -1. With a fork its child's steps go.
fn remove_step(case: &mut Case, index: usize) {
    let is_fork = |step: &Step| step.call.spec.answer == Answer::Fork;
    if is_fork(&case.steps[index]) {
        // Children are counted as they stand.
        let child = case.steps[..index]
            .iter()
            .filter(|step| is_fork(step))
            .count() as u8;
        case.steps.iter_mut().for_each(|step| {
            let agent = &mut step.call.agent;
            *agent = match agent.checked_sub(FIRST_CHILD) {
                Some(other) if other == child => GONE,
                Some(other) if other > child => *agent - 1,
                _ => *agent,
            };
        });
        each_value(case, |value| {
            if let Value::Child(other) = value
                && *other > child
            {
                *other -= 1;
            }
        });
    }
    case.steps[index].call.agent = GONE;
    while let Some(index) = case.steps.iter().position(|step| step.call.agent == GONE) {
        case.steps.remove(index);
        each_value(case, |value| {
            if let Value::Result(step) = value {
                match usize::from(*step).cmp(&index) {
                    std::cmp::Ordering::Equal => *value = Value::Int(u64::MAX),
                    std::cmp::Ordering::Greater => *step -= 1,
                    std::cmp::Ordering::Less => {}
                }
            }
        });
    }
}

/// The agent of steps that are about to be removed.
const GONE: u8 = u8::MAX;

/// Removes the last thread; the one before makes its calls.
fn remove_thread(case: &mut Case) {
    let last = case.threads;
    case.threads -= 1;
    let other = if last == 1 { MAIN } else { last - 1 };
    let change = |call: &mut Call| {
        if call.agent == last {
            call.agent = other;
        }
    };
    for step in &mut case.steps {
        change(&mut step.call);
        let own = step.call.agent;
        step.events
            .iter_mut()
            .for_each(|event| change(&mut event.call));
        step.events.retain(|event| event.call.agent != own);
    }
    each_value(case, |value| match value {
        Value::Tid(agent) | Value::Pthread(agent) | Value::Stack(agent, _) if *agent == last => {
            *agent = other;
        }
        _ => {}
    });
}

fn each_value(case: &mut Case, mut change: impl FnMut(&mut Value)) {
    for step in &mut case.steps {
        for put in &mut step.puts {
            if let Data::Number(_, value) = &mut put.data {
                change(value);
            }
        }
        step.call.arguments.iter_mut().for_each(&mut change);
        for event in &mut step.events {
            event.call.arguments.iter_mut().for_each(&mut change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{parse, to_text};

    #[test]
    fn results_keep_their_steps() -> Result<()> {
        let case = parse(
            "threads 0 futex\nmain inline dup(1)\nmain inline dup(2)\nmain inline close(r1)\n\
             main inline close(r0)\n",
        )?;
        let smaller = to_text(&edited(&case, &[Edit::RemoveStep(0)]));
        assert!(
            smaller.ends_with("close(r0)\nmain inline close(-1)\n"),
            "{smaller}"
        );
        Ok(())
    }

    #[test]
    fn edits_together_mean_what_they_mean_alone() -> Result<()> {
        let case = parse(
            "threads 0 futex\nopen pipe 10 11 nonblock data\nput P0 u32 1\nmain inline dup(1)\n\
             put P0 u32 2\nput P0 u32 3\nmain inline dup(2)\nmain inline dup(3)\n",
        )?;
        let set = [
            Edit::RemoveStep(0),
            Edit::RemoveStep(2),
            Edit::RemovePut(1, 0),
            Edit::RemovePut(0, 0),
            Edit::ZeroArgument(1, 0),
            Edit::RemoveState(0, 0),
            Edit::RemoveState(0, 1),
        ];
        let smaller = to_text(&edited(&case, &set));
        let expected = "threads 0 futex\nopen pipe 10 11\nput P0 u32 3\nmain inline dup(0)\n";
        assert_eq!(smaller, expected);
        Ok(())
    }

    #[test]
    fn a_fork_takes_its_child_along() -> Result<()> {
        let case = parse(
            "threads 0 futex\nmain libc fork()\nc0 inline dup(1)\nmain libc fork()\n\
             c1 inline dup(2)\nmain inline kill(child:1, 0)\n",
        )?;
        let smaller = to_text(&edited(&case, &[Edit::RemoveStep(0)]));
        let expected = "threads 0 futex\nmain libc fork()\nc0 inline dup(2)\n\
                        main inline kill(child:0, 0)\n";
        assert_eq!(smaller, expected);
        Ok(())
    }

    #[test]
    fn a_thread_that_goes_leaves_its_calls_to_another() -> Result<()> {
        let case = parse("threads 2 futex\na2 inline tkill(tid:a2, 10)\n")?;
        let smaller = to_text(&edited(&case, &[Edit::FewerThreads]));
        assert_eq!(smaller, "threads 1 futex\na1 inline tkill(tid:a1, 10)\n");
        Ok(())
    }
}
