//! Cargo's view of this workspace: its root, target folder, packages and their targets.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell;

/// The workspace as `cargo metadata` describes it.
#[derive(Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    pub packages: Vec<Package>,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub manifest_path: PathBuf,
    pub dependencies: Vec<Dependency>,
    pub targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    pub name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub kind: Option<String>,
    /// Present only for a dependency inside this tree.
    pub path: Option<PathBuf>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub name: String,
    pub kind: Vec<String>,
}

impl Workspace {
    /// Asks `cargo metadata`, without resolving dependencies: it needs no network.
    pub(crate) fn load() -> Result<Workspace> {
        let output = shell::cargo(&manifest_folder())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .stderr(std::process::Stdio::inherit())
            .output()
            .context("cargo could not be started")?;
        anyhow::ensure!(
            output.status.success(),
            "cargo metadata failed: {}",
            output.status
        );
        serde_json::from_slice(&output.stdout).context("cargo metadata printed something else")
    }

    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Returns whether `package` has the integration test `test`.
    pub(crate) fn has_test(&self, package: &str, test: &str) -> bool {
        self.package(package)
            .is_some_and(|package| package.tests().any(|name| name == test))
    }

    /// Builds the command and the preloaded library as they are installed.
    pub(crate) fn build_release(&self) -> Result<()> {
        let packages = ["--package", "raddle-cli", "--package", "raddle-preload"];
        shell::run(
            shell::cargo(&self.root)
                .args(["build", "--release"])
                .args(packages),
        )
    }

    /// Builds an example beside the command, where the command looks for it.
    pub(crate) fn build_example(&self, package: &str, example: &str) -> Result<()> {
        shell::run(
            shell::cargo(&self.root)
                .args(["build", "--release", "--package", package])
                .args(["--example", example]),
        )
    }

    pub(crate) fn raddle(&self) -> PathBuf {
        self.target.join("release/raddle")
    }

    pub(crate) fn preload(&self, profile: &str) -> PathBuf {
        self.target.join(profile).join("libraddle_preload.so")
    }
}

impl Package {
    /// The names of the integration tests.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &str> {
        self.targets
            .iter()
            .filter(|target| target.is("test"))
            .map(|target| target.name.as_str())
    }

    pub(crate) fn has_library(&self) -> bool {
        self.targets.iter().any(|target| target.is("lib"))
    }

    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

impl Target {
    fn is(&self, kind: &str) -> bool {
        self.kind.iter().any(|own| own == kind)
    }
}

/// Returns whether this is continuous integration, which sets `CI=true`; nothing may be skipped
/// there.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Returns the folder that Cargo names when it runs this; the built-in one serves a binary started
/// by hand.
fn manifest_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}
