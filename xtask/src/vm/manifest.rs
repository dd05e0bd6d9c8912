//! The manifest: kernels, processors, tests, and the known behaviour of their cases.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::workspace::Workspace;

const MANIFEST: &str = "xtask/vm.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub guest: Guest,
    #[serde(rename = "kernel")]
    pub kernels: Vec<Kernel>,
    #[serde(rename = "processor")]
    pub processors: Vec<Processor>,
    #[serde(rename = "test")]
    pub tests: Vec<Test>,
    /// Cases that may fail under raddle, as `KERNEL/FILE/CASE` or `FILE/CASE`, with the reasons.
    #[serde(default)]
    known: BTreeMap<String, String>,
}

/// The properties of every guest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Guest {
    pub memory_mib: u32,
    /// Seconds that a case may take in one mode.
    pub case_limit_s: u64,
    boot_limit_s: u64,
    /// Modules of the kernel, which are loaded with what they depend on.
    pub modules: Vec<String>,
    /// Programs of this machine that tests start.
    pub programs: Vec<String>,
    /// Files and folders of this machine that no dependency names.
    pub files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    pub name: String,
    /// The Debian suite that has it.
    pub suite: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Processor {
    /// The emulator's name of it.
    pub model: String,
    /// Features of the emulated processor that are switched off.
    #[serde(default)]
    pub without: Vec<String>,
    pub cpus: Vec<u32>,
    /// A part of what `raddle run -v` says on it.
    pub says: String,
    /// The test files that run on it; all if there is none.
    #[serde(default)]
    files: Vec<String>,
}

/// A test file of raddle-tests, or a part of one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    pub file: String,
    /// Only the cases that have one of these in their names; all if there is none.
    #[serde(default)]
    pub only: Vec<String>,
    /// Cases that don't run, by a part of their names, with the reasons.
    #[serde(default)]
    pub skip: BTreeMap<String, String>,
    pub limit_s: u64,
}

/// The selection of the command line.
#[derive(Default)]
pub(super) struct Selection {
    pub kernels: Vec<String>,
    pub cpus: Vec<u32>,
    pub processors: Vec<String>,
}

/// One boot: a kernel on a processor with a number of CPUs.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub processor: &'a Processor,
    pub cpus: u32,
}

impl Manifest {
    pub(super) fn load(workspace: &Workspace) -> Result<Manifest> {
        let text = std::fs::read_to_string(workspace.root.join(MANIFEST))
            .with_context(|| format!("can't read {MANIFEST}"))?;
        Manifest::parse(&text).with_context(|| format!("{MANIFEST} is malformed"))
    }

    fn parse(text: &str) -> Result<Manifest> {
        let manifest: Manifest = toml::from_str(text)?;
        let skipped = manifest.tests.iter().flat_map(|test| &test.skip);
        for (case, reason) in skipped.chain(&manifest.known) {
            ensure!(!reason.is_empty(), "{case} has no reason");
        }
        for processor in &manifest.processors {
            for file in &processor.files {
                let known = manifest.tests.iter().any(|test| test.file == *file);
                ensure!(known, "{}: there is no test file {file}", processor.model);
            }
        }
        Ok(manifest)
    }

    /// Returns the machines of `selection`, kernel by kernel. A number of CPUs that the manifest
    /// does not have is allowed.
    pub(super) fn machines(&self, selection: &Selection) -> Result<Vec<Machine<'_>>> {
        let kernels: Vec<_> = self.kernels.iter().map(|it| it.name.as_str()).collect();
        check("kernel", &selection.kernels, &kernels)?;
        let models: Vec<_> = self.processors.iter().map(|it| it.model.as_str()).collect();
        check("processor", &selection.processors, &models)?;
        let mut machines = Vec::new();
        for kernel in &self.kernels {
            for processor in &self.processors {
                if !has(&selection.kernels, &kernel.name)
                    || !has(&selection.processors, &processor.model)
                {
                    continue;
                }
                let asked = &selection.cpus;
                let cpus = if asked.is_empty() {
                    &processor.cpus
                } else {
                    asked
                };
                machines.extend(cpus.iter().map(|&cpus| Machine {
                    kernel,
                    processor,
                    cpus,
                }));
            }
        }
        Ok(machines)
    }

    /// Returns the reason why a case may fail under raddle with this kernel; `None` if it may not.
    pub(super) fn known(&self, kernel: &str, file: &str, case: &str) -> Option<&str> {
        let here = self.known.get(&format!("{kernel}/{file}/{case}"));
        let reason = here.or_else(|| self.known.get(&format!("{file}/{case}")));
        reason.map(String::as_str)
    }
}

/// Returns whether a selection has a name; an empty one has every name.
fn has(selection: &[String], name: &str) -> bool {
    selection.is_empty() || selection.iter().any(|it| it == name)
}

fn check(kind: &str, names: &[String], known: &[&str]) -> Result<()> {
    for name in names {
        let known_names = known.join(", ");
        ensure!(
            known.contains(&name.as_str()),
            "there is no {kind} {name}: name one of {known_names}"
        );
    }
    Ok(())
}

impl Guest {
    pub(super) fn boot_limit(&self) -> Duration {
        Duration::from_secs(self.boot_limit_s)
    }
}

impl Processor {
    pub(super) fn runs(&self, test: &Test) -> bool {
        has(&self.files, &test.file)
    }
}

impl Test {
    /// Returns true if a case of the file runs. `part` is a part of `FILE/CASE` that it must have.
    pub(super) fn selects(&self, case: &str, part: Option<&str>) -> bool {
        let is_in = |name: &String| case.contains(name.as_str());
        (self.only.is_empty() || self.only.iter().any(is_in))
            && !self.skip.keys().any(is_in)
            && part.is_none_or(|part| format!("{}/{case}", self.file).contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[guest]
memory_mib = 1024
case_limit_s = 60
boot_limit_s = 60
modules = []
programs = []
files = []
[[kernel]]
name = "a"
suite = "x"
[[kernel]]
name = "b"
suite = "y"
[[processor]]
model = "new"
cpus = [1, 2]
says = "green"
[[processor]]
model = "old"
cpus = [2]
says = "kernel threads"
files = ["time"]
[[test]]
file = "threads"
only = ["life::", "exits::"]
limit_s = 10
[test.skip]
"exits::z" = "why"
[[test]]
file = "time"
limit_s = 10
[known]
"a/time/x" = "on a"
"time/y" = "everywhere"
"#;

    fn manifest() -> Manifest {
        Manifest::parse(TEXT).expect("well-formed")
    }

    fn names(selection: &Selection) -> Vec<String> {
        let manifest = manifest();
        let machines = manifest.machines(selection).expect("known names");
        machines
            .iter()
            .map(|it| format!("{} {} {}", it.kernel.name, it.processor.model, it.cpus))
            .collect()
    }

    #[test]
    fn machines_are_kernels_by_processors_by_numbers_of_cpus() {
        let all = names(&Selection::default());
        assert_eq!(
            all,
            [
                "a new 1", "a new 2", "a old 2", "b new 1", "b new 2", "b old 2"
            ]
        );
    }

    #[test]
    fn a_selection_leaves_a_part_and_may_ask_for_other_numbers_of_cpus() {
        let selection = Selection {
            kernels: vec!["b".into()],
            cpus: vec![3],
            processors: vec!["new".into()],
        };
        assert_eq!(names(&selection), ["b new 3"]);
        let unknown = Selection {
            kernels: vec!["c".into()],
            ..Selection::default()
        };
        assert!(manifest().machines(&unknown).is_err());
    }

    #[test]
    fn a_case_is_known_on_one_kernel_or_on_all() {
        let manifest = manifest();
        assert_eq!(manifest.known("a", "time", "x"), Some("on a"));
        assert_eq!(manifest.known("b", "time", "x"), None);
        assert_eq!(manifest.known("b", "time", "y"), Some("everywhere"));
    }

    #[test]
    fn cases_are_selected_by_parts_of_their_names() {
        let manifest = manifest();
        let threads = &manifest.tests[0];
        assert!(threads.selects("life::a", None));
        assert!(!threads.selects("other::a", None));
        assert!(!threads.selects("exits::z", None));
        assert!(threads.selects("exits::y", Some("threads/exits")));
        assert!(!threads.selects("exits::y", Some("time/")));
    }

    #[test]
    fn a_reason_is_not_empty_and_a_processors_file_exists() {
        assert!(Manifest::parse(&TEXT.replace("everywhere", "")).is_err());
        assert!(Manifest::parse(&TEXT.replace("[\"time\"]", "[\"tim\"]")).is_err());
    }

    #[test]
    fn the_manifest_of_this_tree_is_well_formed() {
        let manifest = Manifest::parse(include_str!("../../vm.toml")).expect("well-formed");
        let machines = manifest.machines(&Selection::default());
        assert!(!machines.expect("known names").is_empty());
    }
}
