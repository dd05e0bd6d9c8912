//! Getting the sources of a suite from a package registry, once for each version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::manifest::{Source, Suite};
use crate::apt::{self, Apt};
use crate::shell;
use crate::workspace::Workspace;

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
/// Debian 12 has the packages that the manifest names; Debian 13 has upstream sources that Debian
/// 12 no longer has in the older version.
const ARCHIVES: [apt::Source<'static>; 5] = [
    ("deb", MIRROR, "bookworm"),
    ("deb-src", MIRROR, "bookworm"),
    ("deb", SECURITY, "bookworm-security"),
    ("deb-src", SECURITY, "bookworm-security"),
    ("deb-src", MIRROR, "trixie"),
];

/// The file that marks the source in a folder as complete.
const COMPLETE: &str = ".complete";

/// Returns the folder of the suite's source, fetched unless it is present.
pub(super) fn source(workspace: &Workspace, suite: &Suite, folder: &Path) -> Result<PathBuf> {
    let root = folder.join(format!("source-{}", suite.version().replace(':', "_")));
    let complete = root.join(COMPLETE);
    if let Ok(source) = fs::read_to_string(&complete) {
        return Ok(root.join(source));
    }
    let source = match &suite.source {
        Source::Package(package) => {
            archive(workspace)?.unpack(package, &root)?;
            root.clone()
        }
        Source::Debian(package) => archive(workspace)?.unpack_source(package, &root)?,
        Source::Upstream(package) => archive(workspace)?.unpack_upstream(package, &root)?,
        Source::Crate(_) => fetch_crate(&suite.source, folder, &root)?,
        Source::Installed(_) => {
            check_installed(suite)?;
            root.clone()
        }
    };
    fs::create_dir_all(&root)?;
    let relative = source.strip_prefix(&root).unwrap_or(Path::new(""));
    fs::write(&complete, relative.display().to_string())?;
    Ok(source)
}

fn archive(workspace: &Workspace) -> Result<Apt> {
    Apt::update(&workspace.target.join("suites/apt"), &ARCHIVES)
}

/// Errs unless the package is installed in the manifest's version, which the list of cases is
/// about.
pub(super) fn check_installed(suite: &Suite) -> Result<()> {
    let (name, version) = (suite.source.name(), suite.version());
    let mut query = Command::new("dpkg-query");
    let output = query.args(["-W", "-f", "${Version}", name]).output()?;
    let installed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        installed == version,
        "{name} {version} is wanted, and what is installed is \"{installed}\""
    );
    Ok(())
}

/// Lets Cargo fetch a crate, as the dependency of an empty package, and copies it: the sources in
/// Cargo's registry are not to be written to.
fn fetch_crate(source: &Source, folder: &Path, root: &Path) -> Result<PathBuf> {
    let (name, version) = (source.name(), source.version());
    let empty = folder.join("fetch");
    fs::create_dir_all(empty.join("src"))?;
    fs::write(empty.join("src/lib.rs"), "")?;
    let package = "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n";
    let dependency = format!("[workspace]\n[dependencies]\n{name} = \"={version}\"\n");
    fs::write(empty.join("Cargo.toml"), format!("{package}{dependency}"))?;
    shell::run(shell::cargo(&empty).arg("fetch"))?;
    let output = shell::cargo(&empty)
        .args(["metadata", "--format-version", "1"])
        .output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let Some(package) = packages.iter().find(|package| package["name"] == *name) else {
        bail!("cargo fetched no {name}");
    };
    let manifest = package["manifest_path"].as_str().context("no manifest")?;
    let fetched = Path::new(manifest).parent().context("no folder")?;
    let _ = fs::remove_dir_all(root);
    shell::run(Command::new("cp").arg("-r").arg(fetched).arg(root))?;
    // The target folder is below a workspace, and this package is no member of it. Dependencies of
    // the tests may need the crate in turn: that has to be this copy.
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    let own = format!("\n[workspace]\n[patch.crates-io]\n{name} = {{ path = \".\" }}\n");
    fs::write(&manifest, text + &own)?;
    Ok(root.to_owned())
}
