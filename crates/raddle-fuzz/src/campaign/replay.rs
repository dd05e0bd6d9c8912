//! One case again: its listing, its native trace, and where other traces part from it.

use anyhow::Result;

use super::Explanations;
use super::judge::Judge;
use super::modes::{Mode, PATIENT, Runner};
use super::trace::Outcome;
use crate::case::{Case, listing};

/// Runs a case natively twice and in each mode; returns true if no trace differs.
///
/// # Errors
/// An executor that doesn't run.
pub fn replay(
    case: &Case,
    modes: &[Mode],
    runner: &Runner,
    explanations: &Explanations,
) -> Result<bool> {
    println!("{}", listing(case));
    let judge = Judge {
        runner,
        explanations,
    };
    let cases = [("case".to_owned(), case.clone())];
    let run = |mode| anyhow::Ok(runner.run(mode, &cases, &PATIENT)?["case"].clone());
    let native = run(Mode::Native)?;
    println!("--- native\n{}", native.lines());
    let mut same = true;
    for mode in [Mode::Native].iter().chain(modes) {
        let trace = run(*mode)?;
        match judge.compare(case, &native, &trace) {
            Outcome::Same => println!("--- {mode}: same"),
            Outcome::Explained(index) => {
                println!("--- {mode}: explained: {}", explanations.get(index).reason);
            }
            Outcome::Different(difference) => {
                same = false;
                let (agent, other) = (&difference.agent, &difference.other);
                println!(
                    "--- {mode}: {agent} {:?}, natively {:?}",
                    other, difference.native
                );
                println!("{}", trace.lines());
            }
        }
    }
    Ok(same)
}
