//! Making a case smaller as long as it differs in the same way.
//!
//! Each round makes all cases with one thing less and runs them together; the one with the least
//! left that still differs goes to the next round.

use std::collections::BTreeMap;

use anyhow::Result;

use super::judge::Judge;
use super::modes::{Mode, PATIENT};
use super::trace::{Difference, Outcome, Trace};
use crate::calls::Answer;
use crate::case::{Call, Case, Data, FIRST_CHILD, Idle, MAIN, Site, Value};

const ROUNDS: usize = 60;
/// How often a candidate runs in the mode: some differences show only sometimes.
const TRIES: usize = 3;

/// The smallest case found.
///
/// # Errors
/// An executor that doesn't run.
pub fn shrink(judge: &Judge, case: &Case, mode: Mode, difference: &Difference) -> Result<Case> {
    let class = difference.class(case);
    let mut best = case.clone();
    for _ in 0..ROUNDS {
        let candidates: Vec<_> = smaller(&best)
            .into_iter()
            .enumerate()
            .map(|(index, case)| (index.to_string(), case))
            .collect();
        let Some(found) = first_that_differs(judge, &candidates, mode, &class)? else {
            break;
        };
        best = found;
    }
    Ok(best)
}

fn first_that_differs(
    judge: &Judge,
    candidates: &[(String, Case)],
    mode: Mode,
    class: &str,
) -> Result<Option<Case>> {
    let several: Vec<_> = candidates
        .iter()
        .flat_map(|(id, case)| (0..TRIES).map(move |index| (format!("{id}#{index}"), case.clone())))
        .collect();
    let native = judge.runner.run(Mode::Native, &several, &PATIENT)?;
    let other = judge.runner.run(mode, &several, &PATIENT)?;
    let found = candidates.iter().find(|(id, case)| {
        let of = |traces: &BTreeMap<String, Trace>| -> Vec<Trace> {
            (0..TRIES)
                .map(|index| traces[&format!("{id}#{index}")].clone())
                .collect()
        };
        let (native, other) = (of(&native), of(&other));
        let steady = native[1..]
            .iter()
            .all(|trace| Difference::between(&native[0], trace).is_none());
        steady
            && other
                .iter()
                .any(|trace| match judge.compare(case, &native[0], trace) {
                    Outcome::Different(difference) => difference.class(case) == class,
                    _ => false,
                })
    });
    Ok(found.map(|(_, case)| case.clone()))
}

/// All cases that have a little less, those with the least left first.
fn smaller(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    let steps = case.steps.len();
    for part in [2, 4] {
        let size = steps / part;
        for from in (0..steps).step_by(size.max(1)).filter(|_| size > 1) {
            cases.push(without_steps(case, from, (from + size).min(steps)));
        }
    }
    for step in (0..steps).rev() {
        cases.push(without_steps(case, step, step + 1));
    }
    cases.extend(with_fewer_threads(case));
    let change = |change: &dyn Fn(&mut Case)| {
        let mut changed = case.clone();
        change(&mut changed);
        changed
    };
    for index in 0..case.resources.len() {
        cases.push(change(&|case| _ = case.resources.remove(index)));
        for state in 0..case.resources[index].state.len() {
            cases.push(change(&|case| {
                _ = case.resources[index].state.remove(state)
            }));
        }
    }
    for index in 0..case.handlers.len() {
        cases.push(change(&|case| _ = case.handlers.remove(index)));
    }
    if case.blocked != 0 {
        cases.push(change(&|case| case.blocked = 0));
    }
    if case.idle != Idle::Futex {
        cases.push(change(&|case| case.idle = Idle::Futex));
    }
    for (index, step) in case.steps.iter().enumerate() {
        for event in 0..step.events.len() {
            cases.push(change(&|case| _ = case.steps[index].events.remove(event)));
        }
        for put in (0..step.puts.len()).rev() {
            cases.push(change(&|case| _ = case.steps[index].puts.remove(put)));
        }
    }
    cases.extend(with_simpler_values(case));
    cases
}

fn with_simpler_values(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        for (argument, value) in step.call.arguments.iter().enumerate() {
            if *value != Value::Int(0) && step.call.spec.answer != Answer::Fork {
                let mut simpler = case.clone();
                simpler.steps[index].call.arguments[argument] = Value::Int(0);
                cases.push(simpler);
            }
        }
        for (put, stored) in step.puts.iter().enumerate() {
            if let Data::Number(bytes, value) = stored.data
                && value != Value::Int(0)
                && step.call.spec.answer != Answer::Fork
            {
                let mut simpler = case.clone();
                simpler.steps[index].puts[put].data = Data::Number(bytes, Value::Int(0));
                cases.push(simpler);
            }
        }
        let raw = step.call.spec.number.is_some() && step.call.spec.answer != Answer::Fork;
        if raw && step.call.site != Site::Inline {
            let mut simpler = case.clone();
            simpler.steps[index].call.site = Site::Inline;
            cases.push(simpler);
        }
    }
    cases
}

/// Without some steps; references to their results become -1.
fn without_steps(case: &Case, from: usize, to: usize) -> Case {
    let mut smaller = case.clone();
    let removed: Vec<_> = smaller.steps.drain(from..to).collect();
    if removed
        .iter()
        .any(|step| step.call.spec.answer == Answer::Fork)
    {
        // Children are counted as they stand: without one, the others' numbers would be wrong.
        smaller.steps.retain(|step| step.call.agent < FIRST_CHILD);
        let has_fork = smaller
            .steps
            .iter()
            .any(|step| step.call.spec.answer == Answer::Fork);
        if has_fork {
            return case.clone();
        }
    }
    each_value(&mut smaller, |value| {
        if let Value::Result(step) = value {
            let step_index = usize::from(*step);
            if (from..to).contains(&step_index) {
                *value = Value::Int(u64::MAX);
            } else if step_index >= to {
                *step -= (to - from) as u8;
            }
        }
    });
    smaller
}

/// With one thread less, whose calls the thread before it makes, or with none.
fn with_fewer_threads(case: &Case) -> Vec<Case> {
    if case.threads == 0 {
        return Vec::new();
    }
    let mut smaller = case.clone();
    let last = case.threads;
    smaller.threads -= 1;
    let other = if last == 1 { MAIN } else { last - 1 };
    let change = |call: &mut Call| {
        if call.agent == last {
            call.agent = other;
        }
    };
    for step in &mut smaller.steps {
        change(&mut step.call);
        let own = step.call.agent;
        step.events
            .iter_mut()
            .for_each(|event| change(&mut event.call));
        step.events.retain(|event| event.call.agent != own);
    }
    each_value(&mut smaller, |value| match value {
        Value::Tid(agent) | Value::Pthread(agent) | Value::Stack(agent, _) if *agent == last => {
            *agent = other;
        }
        _ => {}
    });
    vec![smaller]
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
        let smaller = to_text(&without_steps(&case, 0, 1));
        assert!(
            smaller.ends_with("close(r0)\nmain inline close(-1)\n"),
            "{smaller}"
        );
        Ok(())
    }

    #[test]
    fn a_thread_that_goes_leaves_its_calls_to_another() -> Result<()> {
        let case = parse("threads 2 futex\na2 inline tkill(tid:a2, 10)\n")?;
        let smaller = to_text(&with_fewer_threads(&case)[0]);
        assert_eq!(smaller, "threads 1 futex\na1 inline tkill(tid:a1, 10)\n");
        Ok(())
    }
}
