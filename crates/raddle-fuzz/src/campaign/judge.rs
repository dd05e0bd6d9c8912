//! The judge of a difference: the case is repeated, natively and in the mode.

use std::collections::BTreeMap;

use anyhow::Result;

use super::Explanations;
use super::modes::{DELAYED, Mode, PATIENT, Runner};
use super::trace::{Difference, Outcome, Trace};
use crate::case::Case;

/// How often a case is repeated, each natively and in its mode.
const REPEATS: usize = 4;

/// How often once more, if only some of the traces in its mode differ: on a busy machine an event
/// can come before the call that it is to interrupt, natively as well.
const MORE_REPEATS: usize = 12;

/// How often a case is repeated natively with delays: Linux may show the difference as well if its
/// threads get the CPU late.
const DELAYED_REPEATS: usize = 60;

pub(super) struct Judge<'a> {
    pub runner: &'a Runner,
    pub explanations: &'a Explanations,
}

/// How many of the traces differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    Some,
    All,
}

pub(super) enum Verdict {
    /// All native traces are the same, which is here, and some of the others differ.
    Different(Difference, Share, Box<Trace>),
    Explained(usize),
    /// The native traces differ from each other.
    Unsteady(Difference),
    /// All native traces are the same unless the agents are delayed: then some part from it as the
    /// other trace does, in the same place and with the same lines.
    Delayed(Difference, Share),
    /// The repetitions show no difference.
    Unrepeated(Difference),
}

impl Judge<'_> {
    pub(super) fn compare(&self, case: &Case, native: &Trace, other: &Trace) -> Outcome {
        other.compare(native, case, self.explanations)
    }

    /// Repeats cases with first traces that differed; `first` has those of the mode.
    ///
    /// # Errors
    /// An executor that doesn't run.
    pub(super) fn verdicts(
        &self,
        suspects: &[(String, Case)],
        mode: Mode,
        first: &BTreeMap<String, Trace>,
    ) -> Result<Vec<Verdict>> {
        let mut verdicts = self.repeat(suspects, mode, first, REPEATS)?;
        let is_rare = |verdict: &Verdict| matches!(verdict, Verdict::Different(_, Share::Some, _));
        let places: Vec<_> = (0..suspects.len())
            .filter(|&place| is_rare(&verdicts[place]))
            .collect();
        let rare: Vec<_> = places
            .iter()
            .map(|&place| suspects[place].clone())
            .collect();
        let again = self.repeat(&rare, mode, first, MORE_REPEATS)?;
        for (place, verdict) in places.into_iter().zip(again) {
            verdicts[place] = verdict;
        }
        self.look_at_delays(suspects, &mut verdicts)?;
        Ok(verdicts)
    }

    /// Repeats the cases that differ natively, with delays.
    fn look_at_delays(&self, suspects: &[(String, Case)], verdicts: &mut [Verdict]) -> Result<()> {
        for ((id, case), verdict) in suspects.iter().zip(verdicts) {
            let Verdict::Different(difference, share, typical) = verdict else {
                continue;
            };
            let repeated: Vec<(String, Case)> = (0..DELAYED_REPEATS)
                .map(|repeat| (format!("{id}#{repeat}"), case.clone()))
                .collect();
            let delayed = self.runner.run(Mode::Native, &repeated, &DELAYED)?;
            let parts = |trace: &Trace| trace.parts_by(typical, case, difference);
            if delayed.values().any(parts) {
                *verdict = Verdict::Delayed(difference.clone(), *share);
            }
        }
        Ok(())
    }

    /// Repeats each case `repeats` times.
    fn repeat(
        &self,
        suspects: &[(String, Case)],
        mode: Mode,
        first: &BTreeMap<String, Trace>,
        repeats: usize,
    ) -> Result<Vec<Verdict>> {
        if suspects.is_empty() {
            return Ok(Vec::new());
        }
        let repeated: Vec<(String, Case)> = suspects
            .iter()
            .flat_map(|(id, case)| {
                (0..repeats).map(move |repeat| (format!("{id}#{repeat}"), case.clone()))
            })
            .collect();
        let native = self.runner.run(Mode::Native, &repeated, &PATIENT)?;
        let other = self.runner.run(mode, &repeated, &PATIENT)?;
        let verdicts = suspects.iter().map(|(id, case)| {
            let of = |traces: &BTreeMap<String, Trace>| -> Vec<Trace> {
                (0..repeats)
                    .map(|repeat| traces[&format!("{id}#{repeat}")].clone())
                    .collect()
            };
            self.verdict(case, &of(&native), &of(&other), &first[id])
        });
        Ok(verdicts.collect())
    }

    fn verdict(&self, case: &Case, native: &[Trace], other: &[Trace], first: &Trace) -> Verdict {
        if let Some(difference) = native[1..]
            .iter()
            .find_map(|trace| Difference::between(&native[0], trace))
        {
            return Verdict::Unsteady(difference);
        }
        let shortest = |trace: Trace, other: &Trace| trace.with_times_of(other);
        let typical = native[1..].iter().fold(native[0].clone(), shortest);
        let mut explained = None;
        let (mut different, mut count) = (None, 0);
        for trace in other {
            match self.compare(case, &typical, trace) {
                Outcome::Different(difference) => {
                    count += 1;
                    different.get_or_insert(difference);
                }
                Outcome::Explained(index) => explained = Some(index),
                Outcome::Same => {}
            }
        }
        if let Some(difference) = different {
            let share = if count == other.len() {
                Share::All
            } else {
                Share::Some
            };
            return Verdict::Different(difference, share, Box::new(typical));
        }
        match (explained, self.compare(case, &typical, first)) {
            (Some(index), _) | (None, Outcome::Explained(index)) => Verdict::Explained(index),
            (None, Outcome::Different(difference)) => Verdict::Unrepeated(difference),
            // The native trace of the first run was the odd one.
            (None, Outcome::Same) => Verdict::Unsteady(Difference {
                agent: String::new(),
                step: 0,
                native: "the first native trace was another".into(),
                other: String::new(),
            }),
        }
    }
}
