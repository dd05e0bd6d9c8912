//! The manifest: the suites, their versions, and the known behaviour of their cases.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::workspace::Workspace;

const MANIFEST: &str = "xtask/suites.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    suite: Vec<Suite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    pub name: String,
    /// A name that selects several suites.
    pub family: Option<String>,
    pub source: Source,
    pub build: Build,
    /// Seconds after which a batch counts as hung.
    limit_s: u64,
    /// How many batches run at the same time.
    #[serde(default = "one")]
    pub at_once: usize,
    /// Batches, or cases of a batch as `BATCH/CASE`, that don't run at all, each with its reason.
    #[serde(default)]
    pub skip: BTreeMap<String, String>,
    /// Cases that may differ from native, each with its reason.
    #[serde(default)]
    pub differs: BTreeMap<String, String>,
}

/// The source of a suite; each is `NAME=VERSION`.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// A package of Debian that holds sources.
    Package(String),
    /// A source package of Debian.
    #[serde(rename = "source_package")]
    Debian(String),
    /// The upstream archive of a source package of Debian, without Debian's changes.
    Upstream(String),
    /// A crate of crates.io.
    Crate(String),
    /// A package of Debian that is installed.
    Installed(String),
}

/// The build of a suite, and its batches.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Build {
    /// glibc's test programs in these folders of its source, linked with the machine's libc.
    Glibc { folders: Vec<String> },
    /// The unit tests and the integration tests of a crate; those named, if any is.
    Crate {
        #[serde(default)]
        features: Vec<String>,
        #[serde(default)]
        tests: Vec<String>,
    },
    /// CPython's modules of tests.
    Python { modules: Vec<String> },
    /// libuv's test runner; a test is a batch.
    Libuv,
    /// Redis' Tcl tests against the servers that are installed; a unit is a batch.
    Redis { units: Vec<String> },
    /// The programs of varnishtest; a program is a batch.
    Varnish,
    /// memcached's Perl scripts; a script is a batch.
    Memcached,
    /// Tests of MariaDB's driver against the server that is installed, by the driver's suites; a
    /// suite is a batch.
    Mariadb(BTreeMap<String, Vec<String>>),
}

fn one() -> usize {
    1
}

impl Manifest {
    pub(super) fn load(workspace: &Workspace) -> Result<Manifest> {
        let text = std::fs::read_to_string(workspace.root.join(MANIFEST))
            .with_context(|| format!("can't read {MANIFEST}"))?;
        Manifest::parse(&text).with_context(|| format!("{MANIFEST} is malformed"))
    }

    fn parse(text: &str) -> Result<Manifest> {
        let manifest: Manifest = toml::from_str(text)?;
        for suite in &manifest.suite {
            let exact = suite.source.package().contains('=');
            ensure!(exact, "{}: the source has no version", suite.name);
            let reasons = suite.skip.values().chain(suite.differs.values());
            for reason in reasons {
                ensure!(!reason.is_empty(), "{}: a reason is empty", suite.name);
            }
        }
        Ok(manifest)
    }

    /// Returns the suites of these names or families; all if there is no name.
    pub(super) fn select(&self, names: &[String]) -> Result<Vec<&Suite>> {
        for name in names {
            let known = self.suite.iter().any(|suite| suite.is_called(name));
            let all: Vec<_> = self.suite.iter().map(|suite| suite.name.as_str()).collect();
            ensure!(
                known,
                "there is no suite {name}: name one of {}",
                all.join(", ")
            );
        }
        let wanted =
            |suite: &&Suite| names.is_empty() || names.iter().any(|name| suite.is_called(name));
        Ok(self.suite.iter().filter(wanted).collect())
    }
}

impl Suite {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.family.as_deref() == Some(name)
    }

    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.limit_s)
    }

    pub(super) fn version(&self) -> &str {
        self.source.version()
    }

    pub(super) fn print(&self) {
        let family = self.family.as_deref().unwrap_or("-");
        let (skipped, differing) = (self.skip.len(), self.differs.len());
        println!("{} ({family}): {}", self.name, self.source.describe());
        println!("    {skipped} are not run, {differing} may differ");
    }
}

impl Source {
    /// `NAME=VERSION`.
    pub(super) fn package(&self) -> &str {
        match self {
            Source::Package(package)
            | Source::Debian(package)
            | Source::Upstream(package)
            | Source::Crate(package)
            | Source::Installed(package) => package,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.package().split('=').next().unwrap_or_default()
    }

    pub(super) fn version(&self) -> &str {
        self.package()
            .split_once('=')
            .map_or("", |(_, version)| version)
    }

    fn describe(&self) -> String {
        let kind = match self {
            Source::Package(_) => "Debian's package",
            Source::Debian(_) => "Debian's source package",
            Source::Upstream(_) => "upstream's source of Debian's package",
            Source::Crate(_) => "the crate",
            Source::Installed(_) => "Debian's installed package",
        };
        format!("{kind} {} {}", self.name(), self.version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[[suite]]
name = "a"
family = "crates"
source.crate = "a=1.0.0"
build.crate = { features = ["full"] }
limit_s = 60
[suite.differs]
"t/x" = "why"
[[suite]]
name = "b"
source.source_package = "b=2-1"
build.python = { modules = [] }
limit_s = 60
"#;

    #[test]
    fn a_name_selects_a_suite_or_a_family() {
        let manifest = Manifest::parse(TEXT).expect("well-formed");
        let names = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let suites = manifest.select(&names).expect("known");
            suites.iter().map(|suite| suite.name.clone()).collect()
        };
        assert_eq!(names(&[]), ["a", "b"]);
        assert_eq!(names(&["crates"]), ["a"]);
        assert_eq!(names(&["b"]), ["b"]);
        assert!(manifest.select(&["c".to_owned()]).is_err());
    }

    #[test]
    fn a_source_without_a_version_is_malformed() {
        assert!(Manifest::parse(&TEXT.replace("a=1.0.0", "a")).is_err());
        assert!(Manifest::parse(&TEXT.replace("why", "")).is_err());
    }

    #[test]
    fn the_manifest_of_this_tree_is_well_formed() {
        let text = include_str!("../../suites.toml");
        let manifest = Manifest::parse(text).expect("well-formed");
        assert!(!manifest.suite.is_empty());
    }
}
