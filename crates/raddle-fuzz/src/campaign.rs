//! A campaign: many cases, natively twice and under raddle, and their differences.
//!
//! 1. A batch of cases runs in every mode. A case with two native traces that differ is *noise*: it
//!    is counted, and not judged.
//! 2. A case with another trace under raddle is repeated, natively and in that mode, with more
//!    patience, and if only some traces in that mode differ, once more and oftener. It is a
//!    *difference* if all native traces are the same and some trace under raddle is another;
//!    *unsteady* if the native ones differ; *unrepeated* if nothing differs again. It is *delayed*
//!    if the same two lines part a native trace from others once the case's threads get the CPU
//!    late ([`DELAYED`](modes::DELAYED)): Linux does that as well.
//! 3. Differences are explained by rule ([`explanations`]), or else grouped in classes; the first
//!    of each class is shrunk.

mod explanations;
mod judge;
mod modes;
mod replay;
mod report;
mod shrink;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::calls::{self, Spec};
use crate::case::{Case, parse};
use crate::generate;
pub use explanations::Explanations;
use judge::{Judge, Verdict};
pub use modes::{Mode, NotContained, Runner};
pub use replay::replay;
pub use report::Report;
use trace::{Difference, Outcome, Trace};

/// Cases of a batch.
const BATCH: u64 = 400;

/// What a campaign runs.
pub struct Plan {
    /// The first seed.
    pub seed: u64,
    /// Calls to run in each mode, at least.
    pub calls: u64,
    /// The name of the call that most steps make.
    pub focus: Option<String>,
    /// Modes under raddle.
    pub modes: Vec<Mode>,
    /// Cases that are run before those made from seeds.
    pub corpus: Option<PathBuf>,
    /// Classes that are shrunk at most.
    pub shrink: usize,
}

/// Runs a campaign to its end.
///
/// # Errors
/// An executor that doesn't run; a case of the corpus that is none.
pub fn run(plan: &Plan, runner: &Runner, explanations: &Explanations) -> Result<Report> {
    let mut campaign = Campaign {
        judge: Judge {
            runner,
            explanations,
        },
        report: Report::new(),
        plan,
    };
    for cases in corpus(plan)?.chunks(BATCH as usize) {
        campaign.batch(cases)?;
    }
    let focus = focus(plan)?;
    let mut seed = plan.seed;
    let began = Instant::now();
    while campaign.report.calls < plan.calls {
        let cases: Vec<_> = (seed..seed + BATCH)
            .map(|seed| (seed.to_string(), generate::about(seed, focus)))
            .collect();
        campaign.batch(&cases)?;
        seed += BATCH;
        eprintln!(
            "{} in {:.0} s",
            campaign.report.line(),
            began.elapsed().as_secs_f64()
        );
    }
    campaign.shrink()?;
    Ok(campaign.report)
}

/// The cases of a folder: files that end in `.case`.
fn corpus(plan: &Plan) -> Result<Vec<(String, Case)>> {
    let Some(folder) = &plan.corpus else {
        return Ok(Vec::new());
    };
    let entries = std::fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "case")
    });
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path)?;
        let case = parse(&text).with_context(|| format!("{}", path.display()))?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .replace(' ', "-");
        Ok((name, case))
    };
    paths.iter().map(read).collect()
}

fn focus(plan: &Plan) -> Result<Option<&'static Spec>> {
    let find = |name: &String| calls::find(name).with_context(|| format!("no call `{name}`"));
    plan.focus.as_ref().map(find).transpose()
}

struct Campaign<'a> {
    judge: Judge<'a>,
    report: Report,
    plan: &'a Plan,
}

impl Campaign<'_> {
    fn batch(&mut self, cases: &[(String, Case)]) -> Result<()> {
        let runner = self.judge.runner;
        let [first, second] = [(); 2].map(|()| runner.run(Mode::Native, cases, &modes::FAST));
        let (mut first, second) = (first?, second?);
        let mut steady = BTreeSet::new();
        for (id, case) in cases {
            let trace = &first[id];
            self.report.count(case, trace);
            match Difference::between(trace, &second[id]) {
                None => {
                    let trace = trace.clone().with_times_of(&second[id]);
                    first.insert(id.clone(), trace);
                    steady.insert(id);
                }
                Some(difference) => self.report.noise(id, case, &difference),
            }
        }
        for &mode in &self.plan.modes {
            let others = runner.run(mode, cases, &modes::FAST)?;
            let suspects: Vec<_> = cases
                .iter()
                .filter(|(id, _)| steady.contains(id))
                .filter(|(id, case)| self.is_suspect(case, &first[id], &others[id], mode))
                .cloned()
                .collect();
            self.judge_suspects(&suspects, mode, &others)?;
        }
        Ok(())
    }

    /// Returns true if the trace has a difference without an explanation.
    fn is_suspect(&mut self, case: &Case, native: &Trace, other: &Trace, mode: Mode) -> bool {
        match self.judge.compare(case, native, other) {
            Outcome::Same => false,
            Outcome::Explained(index) => {
                self.report.explained(index);
                false
            }
            Outcome::Different(difference) => {
                self.report.suspect(mode);
                let known = self.report.is_known(&difference.class(case));
                if known {
                    self.report.again(&difference.class(case));
                }
                !known
            }
        }
    }

    fn judge_suspects(
        &mut self,
        suspects: &[(String, Case)],
        mode: Mode,
        traces: &BTreeMap<String, Trace>,
    ) -> Result<()> {
        for ((id, case), verdict) in suspects
            .iter()
            .zip(self.judge.verdicts(suspects, mode, traces)?)
        {
            match verdict {
                Verdict::Different(difference, ..) => {
                    self.report.different(id, case, mode, difference)
                }
                Verdict::Explained(index) => self.report.explained(index),
                Verdict::Delayed(difference, share) => {
                    self.report.delayed(id, case, mode, &difference, share)
                }
                Verdict::Unsteady(difference) => self.report.unsteady(id, case, &difference),
                Verdict::Unrepeated(difference) => {
                    self.report.unrepeated(id, case, mode, &difference)
                }
            }
        }
        Ok(())
    }

    /// Shrinks one case of each class.
    fn shrink(&mut self) -> Result<()> {
        let wanted = self.plan.shrink;
        for found in self.report.classes_mut().take(wanted) {
            found.case = shrink::shrink(&self.judge, &found.case, found.mode, &found.difference)?;
        }
        Ok(())
    }
}
