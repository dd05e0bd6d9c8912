//! Traces, and where two of them part.

use std::collections::BTreeMap;

use super::explanations::Explanations;
use crate::case::Case;

/// The step that stands for the state at the end and the process's status.
const END: u32 = u32::MAX;

/// The end of the line of a call that was over too early.
const WAS_SHORTER: &str = " was shorter";

/// A case's actions by agent. The agent with an empty name is the process itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    agents: BTreeMap<String, Vec<String>>,
    /// Milliseconds by agent and step, where a call took some.
    elapsed_ms: BTreeMap<(String, String), u64>,
    /// How the process ended.
    end: String,
}

/// The first place where two traces part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub agent: String,
    pub step: u32,
    /// The line of the native trace; empty if it has no more.
    pub native: String,
    pub other: String,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Same,
    /// By the explanation with this index.
    Explained(usize),
    Different(Difference),
}

impl Trace {
    pub fn parse(text: &str) -> Self {
        let mut trace = Self::default();
        for line in text.lines() {
            if line.starts_with("killed") || line.starts_with("exits") || line == "ends" {
                line.clone_into(&mut trace.end);
                continue;
            }
            let (agent, line) = line.split_once(' ').unwrap_or((line, ""));
            if let Some((step, ms)) = line.strip_prefix('~').and_then(|line| line.split_once(' ')) {
                let key = (agent.to_owned(), step.to_owned());
                trace.elapsed_ms.insert(key, ms.parse().unwrap_or(0));
                continue;
            }
            if line.ends_with(" waits") || line.contains("executor died") {
                trace.end = "waits".into();
            }
            trace
                .agents
                .entry(agent.to_owned())
                .or_default()
                .push(line.to_owned());
        }
        trace
    }

    /// Returns true if the executor has written the trace to its end.
    pub fn is_complete(&self) -> bool {
        !self.end.is_empty()
    }

    /// Calls that returned, and whether with an error.
    pub fn results(&self) -> impl Iterator<Item = (&str, bool)> {
        let lines = self.agents.values().flatten();
        lines.filter_map(|line| {
            let (call, result) = line.split_once(" = ")?;
            let name = call.split_once(' ')?.1;
            let is_error = result.starts_with('E') || result.starts_with('-');
            Some((name, is_error))
        })
    }

    /// Its lines, for a reader.
    pub fn lines(&self) -> String {
        let lines = self
            .agents
            .iter()
            .flat_map(|(agent, lines)| lines.iter().map(move |line| format!("{agent} {line}\n")));
        lines.collect::<String>() + &self.end + "\n"
    }

    /// Compares with a native trace. Lines that an explanation calls harmless are passed over.
    pub fn compare(&self, native: &Trace, case: &Case, explanations: &Explanations) -> Outcome {
        let mut passed = None;
        let mut first: Option<Difference> = None;
        let ends = [native.end.as_str(), self.end.as_str()];
        let agents = native.agents.keys().chain(self.agents.keys());
        for agent in agents {
            let lines = |trace: &Trace| trace.agents.get(agent).cloned().unwrap_or_default();
            let found = part(agent, &lines(native), &lines(self), &mut |difference| {
                let explained = explanations.find(case, difference, ends);
                let harmless = explained.filter(|&index| explanations.is_harmless(index));
                passed = passed.or(harmless);
                harmless.is_some()
            });
            first = earlier(first, found);
        }
        first = earlier(first, self.time_difference(native, case));
        if first.is_none() && self.end != native.end {
            first = Some(Difference {
                agent: String::new(),
                step: END,
                native: native.end.clone(),
                other: self.end.clone(),
            });
        }
        match (first, passed) {
            (Some(difference), _) => match explanations.find(case, &difference, ends) {
                Some(index) => Outcome::Explained(index),
                None => Outcome::Different(difference),
            },
            (None, Some(index)) => Outcome::Explained(index),
            (None, None) => Outcome::Same,
        }
    }

    /// Returns true if the trace parts from a native one by this difference, which may not be the
    /// first: another agent's lines may part earlier.
    pub fn parts_by(&self, native: &Trace, case: &Case, difference: &Difference) -> bool {
        if difference.is_of_time() {
            let found = self.time_difference(native, case);
            return found.is_some_and(|found| {
                (&found.agent, found.step) == (&difference.agent, difference.step)
            });
        }
        if difference.agent.is_empty() {
            return (&native.end, &self.end) == (&difference.native, &difference.other);
        }
        let lines = |trace: &Trace| {
            let lines = trace.agents.get(&difference.agent);
            lines.cloned().unwrap_or_default()
        };
        let found = part(&difference.agent, &lines(native), &lines(self), &mut |_| {
            false
        });
        found.is_some_and(|found| found == *difference)
    }

    /// Takes over the shorter of both times of each call.
    pub fn with_times_of(mut self, other: &Trace) -> Self {
        for (key, ms) in &mut self.elapsed_ms {
            *ms = (*ms).min(other.elapsed_ms.get(key).copied().unwrap_or(0));
        }
        self
    }

    /// Finds a call that waits, took a while natively, and much less here.
    fn time_difference(&self, native: &Trace, case: &Case) -> Option<Difference> {
        const LEAST_MS: u64 = 5;
        /// The calls that wait for the kernel's grace periods when a file is closed.
        const CLOSING: &[&str] = &["close", "close_range", "dup2", "dup3"];
        let early = native.elapsed_ms.iter().find(|(key, ms)| {
            let other = self.elapsed_ms.get(key).copied().unwrap_or(0);
            let step = key
                .1
                .parse()
                .ok()
                .and_then(|step: usize| case.steps.get(step));
            let waits = step.is_some_and(|step| {
                let spec = step.call.spec;
                spec.waits && !CLOSING.contains(&spec.name)
            });
            waits
                && **ms >= LEAST_MS
                && other * 2 < **ms
                && self.has_result(key)
                && native.has_result(key)
        });
        early.map(|((agent, step), ms)| Difference {
            agent: agent.clone(),
            step: step.parse().unwrap_or(END),
            native: format!("{step} took {ms} ms"),
            other: format!("{step}{WAS_SHORTER}"),
        })
    }

    fn has_result(&self, (agent, step): &(String, String)) -> bool {
        let lines = self.agents.get(agent).into_iter().flatten();
        let mut of_step = lines.filter(|line| line.split(' ').next() == Some(step));
        of_step.any(|line| line.contains(" = "))
    }
}

/// The first lines of one agent that differ and are not passed over.
fn part(
    agent: &str,
    native: &[String],
    other: &[String],
    passes: &mut impl FnMut(&Difference) -> bool,
) -> Option<Difference> {
    let (mut left, mut right) = (native.iter().peekable(), other.iter().peekable());
    let mut step = 0;
    loop {
        let (mine, theirs) = (left.peek(), right.peek());
        if mine.is_none() && theirs.is_none() {
            return None;
        }
        if mine != theirs {
            let text =
                |line: Option<&&String>| line.map(|line| (*line).clone()).unwrap_or_default();
            let steps = [mine, theirs].into_iter().flatten();
            let found = steps.map(|line| step_of(line).unwrap_or(step)).min();
            let difference = Difference {
                agent: agent.to_owned(),
                step: found.unwrap_or(END),
                native: text(mine),
                other: text(theirs),
            };
            if !passes(&difference) {
                return Some(difference);
            }
        }
        for line in [left.next(), right.next()].into_iter().flatten() {
            step = step_of(line).unwrap_or(step);
        }
    }
}

/// The step of a line, if the line names one.
fn step_of(line: &str) -> Option<u32> {
    let word = line.split(' ').next()?;
    match word {
        "end" => Some(END),
        _ => word.parse().ok(),
    }
}

fn earlier(first: Option<Difference>, second: Option<Difference>) -> Option<Difference> {
    match (first, second) {
        (Some(first), Some(second)) if second.step < first.step => Some(second),
        (first @ Some(_), _) => first,
        (None, second) => second,
    }
}

impl Difference {
    /// The first place where two traces part, with or without an explanation.
    pub fn between(native: &Trace, other: &Trace) -> Option<Difference> {
        match other.compare(native, &Case::default(), &Explanations::none()) {
            Outcome::Different(difference) => Some(difference),
            _ => None,
        }
    }

    /// The common part of differences of one kind: the call of the step, and both lines without
    /// their numbers.
    pub fn class(&self, case: &Case) -> String {
        let call = self.call(case);
        format!(
            "{call}: {} | {}",
            general(&self.native),
            general(&self.other)
        )
    }

    /// Returns true if only the time that a call took differs.
    fn is_of_time(&self) -> bool {
        self.other.ends_with(WAS_SHORTER)
    }

    /// The name of the step's call.
    pub fn call(&self, case: &Case) -> &'static str {
        let named = [&self.native, &self.other].into_iter().find_map(|line| {
            let name = line.split(' ').nth(1)?;
            let is_result = line.contains(" = ") || line.ends_with(" waits");
            is_result.then(|| crate::calls::find(name)).flatten()
        });
        match (named, case.steps.get(self.step as usize)) {
            (Some(spec), _) => spec.name,
            (None, Some(step)) => step.call.spec.name,
            (None, None) => "end",
        }
    }
}

/// A line without the parts that differ within a class: the step, places, bytes, large numbers.
fn general(line: &str) -> String {
    if line.is_empty() {
        return "nothing".into();
    }
    if let Some((_, result)) = line.split_once(" = ") {
        let is_large = result
            .parse::<i64>()
            .is_ok_and(|number| !(-1..=2).contains(&number));
        return format!("= {}", if is_large { "number" } else { result });
    }
    let words: Vec<_> = line.split(' ').collect();
    match &words[..] {
        ["signal", number, "code", code, ..] => format!("signal {number} code {code}"),
        ["end", "descriptor", ..] => "end descriptor".into(),
        ["end", "child", _, result, _, code, _, status] => {
            format!("end child {result} code {code} status {status}")
        }
        ["end", kind, ..] => format!("end {kind}"),
        [_, "memory", _, .., "read"] => "memory can't be read".into(),
        [_, "memory", ..] => "memory".into(),
        [_, rest @ ..] if !rest.is_empty() => rest.join(" "),
        _ => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(native: &str, other: &str) -> Option<Difference> {
        Difference::between(&Trace::parse(native), &Trace::parse(other))
    }

    #[test]
    fn the_earliest_step_counts_whichever_agent_made_it() {
        let native = "main 0 read = 1\nmain 3 read = 2\na1 1 write = 1\nexits with 0\n";
        let other = "main 0 read = 1\nmain 3 read = 3\na1 1 write = EPIPE\nexits with 0\n";
        let found = difference(native, other).expect("they differ");
        assert_eq!((found.agent.as_str(), found.step), ("a1", 1));
    }

    #[test]
    fn how_a_process_ended_counts_last() {
        let found = difference(
            "main 0 read = 1\nexits with 0\n",
            "main 0 read = 1\nkilled by 9\n",
        );
        assert_eq!(found.expect("they differ").native, "exits with 0");
    }

    #[test]
    fn a_call_that_is_over_too_early_differs() -> anyhow::Result<()> {
        let case = crate::case::parse("threads 0 futex\nmain inline nanosleep(0, 0)\n")?;
        let trace = |time| Trace::parse(&format!("main 0 nanosleep = 0\n{time}exits with 0\n"));
        let compare =
            |time| trace(time).compare(&trace("main ~0 40\n"), &case, &Explanations::none());
        assert_eq!(compare("main ~0 39\n"), Outcome::Same);
        assert!(matches!(compare(""), Outcome::Different(_)));
        Ok(())
    }

    #[test]
    fn a_class_forgets_numbers() {
        let class = |native, other| {
            difference(native, other)
                .expect("differs")
                .class(&Case::default())
        };
        let first = class("main 0 read = 10\nends\n", "main 0 read = EAGAIN\nends\n");
        let second = class("main 7 read = 99\nends\n", "main 7 read = EAGAIN\nends\n");
        assert_eq!(first, second);
    }
}
