//! Running cases in a mode: natively, or under raddle with some number of carriers.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::trace::Trace;
use crate::case::{Case, to_text};
use crate::execute::NOT_CONTAINED;

/// How cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Native,
    /// Under raddle with so many carriers.
    Carriers(u8),
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Native => f.write_str("native"),
            Mode::Carriers(count) => write!(f, "-n {count}"),
        }
    }
}

/// How much time cases get.
pub struct Pace {
    pub slots: usize,
    pub limit_ms: u64,
    /// The seed of the agents' delays, if they have any.
    pub delays: Option<u64>,
}

/// For the first look.
pub(super) const FAST: Pace = Pace {
    slots: 16,
    limit_ms: 100,
    delays: None,
};

/// For repetitions.
pub(super) const PATIENT: Pace = Pace {
    slots: 10,
    limit_ms: 400,
    delays: None,
};

/// For differences that may come from timing alone.
pub(super) const DELAYED: Pace = Pace {
    slots: 16,
    limit_ms: 400,
    delays: Some(1),
};

/// The programs that run cases, and where.
pub struct Runner {
    pub executor: PathBuf,
    pub raddle: PathBuf,
    /// A folder for batches, results and the cases' own folders.
    pub folder: PathBuf,
    /// RADDLE_* variables.
    pub environment: Vec<(String, String)>,
}

/// The executor ran nothing, because nothing can be contained here.
#[derive(Debug)]
pub struct NotContained(String);

impl fmt::Display for NotContained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cases can't be contained here: {}", self.0)
    }
}

impl std::error::Error for NotContained {}

/// Seconds that a batch may take beside its cases.
const BATCH_LIMIT: Duration = Duration::from_secs(300);

impl Runner {
    /// Runs cases; each has a trace afterwards, a short one if the executor died.
    ///
    /// # Errors
    /// The executor doesn't start.
    pub fn run(
        &self,
        mode: Mode,
        cases: &[(String, Case)],
        pace: &Pace,
    ) -> Result<BTreeMap<String, Trace>> {
        let mut traces = BTreeMap::new();
        let mut left: Vec<&(String, Case)> = cases.iter().collect();
        while !left.is_empty() {
            let before = left.len();
            let (found, errors) = self.run_once(mode, &left, pace)?;
            traces.extend(found);
            left.retain(|(id, _)| !traces.contains_key(id));
            // A case that kills its executor is run alone, and reported.
            if left.len() == before {
                let (id, _) = left.remove(0);
                traces.insert(
                    id.clone(),
                    Trace::parse(&format!("main executor died: {errors}")),
                );
            }
        }
        Ok(traces)
    }

    fn run_once(
        &self,
        mode: Mode,
        cases: &[&(String, Case)],
        pace: &Pace,
    ) -> Result<(BTreeMap<String, Trace>, String)> {
        fs::create_dir_all(&self.folder)?;
        let [batch, results, errors] =
            ["batch", "results", "errors"].map(|name| self.folder.join(name));
        let texts = cases
            .iter()
            .map(|(id, case)| format!("== {id}\n{}", to_text(case)));
        fs::write(&batch, texts.collect::<String>())?;
        let _ = fs::remove_file(&results);
        let mut command = Command::new(&self.executor);
        command.arg("contain").arg(&self.folder);
        if let Mode::Carriers(count) = mode {
            command.arg(&self.raddle).args([
                "run",
                "-n",
                &count.to_string(),
                "--cpus",
                "machine",
                "--",
            ]);
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        }
        command
            .arg(&self.executor)
            .arg("serve")
            .args([&batch, &results]);
        command.arg(self.folder.join("slots"));
        command.args(["--slots", &pace.slots.to_string()]);
        command.args(["--limit-ms", &pace.limit_ms.to_string()]);
        if let Some(seed) = pace.delays {
            command.args(["--delays", &seed.to_string()]);
        }
        if mode != Mode::Native {
            command.arg("--patched");
        }
        let started = Instant::now();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&errors)?);
        let mut child = command.spawn().context("the executor doesn't start")?;
        while child.try_wait()?.is_none() {
            std::thread::sleep(Duration::from_millis(2));
            if started.elapsed() > BATCH_LIMIT {
                child.kill()?;
            }
        }
        let status = child.wait()?;
        let errors = fs::read_to_string(&errors).unwrap_or_default();
        let text = fs::read(&results).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if status.code() == Some(i32::from(NOT_CONTAINED)) {
            return Err(anyhow::Error::new(NotContained(errors)));
        }
        ensure!(
            status.success() || started.elapsed() > Duration::from_millis(5),
            "the executor doesn't run: {status}: {errors}"
        );
        Ok((split(&text), errors))
    }
}

/// Traces by case; one that was cut short is left out.
fn split(text: &str) -> BTreeMap<String, Trace> {
    let parts = text.split("== ").filter(|part| !part.is_empty());
    let traces = parts.filter_map(|part| {
        let (id, text) = part.split_once('\n')?;
        let trace = Trace::parse(text);
        trace.is_complete().then(|| (id.to_owned(), trace))
    });
    traces.collect()
}
