//! Kernels of Debian: the package that the metapackage names, unpacked below the target folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::manifest::Kernel;
use crate::apt::Apt;
use crate::workspace::Workspace;

const MIRROR: &str = "http://deb.debian.org/debian";
const METAPACKAGE: &str = "linux-image-cloud-amd64";
/// Packages with these names are the kernel and its modules. From Debian 14 on they are apart.
const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// Holds the name of the package that is unpacked.
const MARK: &str = "package";

/// The files of a kernel.
pub(super) struct Files {
    pub image: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}

/// Fetches the newest kernel of its suite. If the archive can't be reached, an earlier download
/// serves, with a line.
pub(super) fn fetch(workspace: &Workspace, kernel: &Kernel) -> Result<Files> {
    let folder = workspace.target.join("vm/kernels").join(&kernel.name);
    let root = folder.join("root");
    match update(&folder, &root, kernel) {
        Ok(()) => {}
        Err(error) if folder.join(MARK).is_file() => {
            println!("the kernel {} is not updated: {error:#}", kernel.name);
        }
        Err(error) => {
            let name = &kernel.name;
            return Err(error.context(format!(
                "the kernel {name} can't be fetched: see that {MIRROR} can be reached"
            )));
        }
    }
    files(&root)
}

/// Fetches the static busybox of the suite, for the first steps of a guest.
pub(super) fn busybox(workspace: &Workspace, kernel: &Kernel) -> Result<PathBuf> {
    let folder = workspace.target.join("vm/busybox");
    let candidates = ["bin/busybox", "usr/bin/busybox"].map(|path| folder.join("root").join(path));
    let found = || candidates.iter().find(|path| path.is_file()).cloned();
    if found().is_none() {
        let apt = Apt::update(&folder, &[("deb", MIRROR, &kernel.suite)])?;
        apt.unpack("busybox-static", &folder.join("root"))?;
    }
    found().context("the package busybox-static has no busybox")
}

fn update(folder: &Path, root: &Path, kernel: &Kernel) -> Result<()> {
    let apt = Apt::update(folder, &[("deb", MIRROR, &kernel.suite)])?;
    let parts = |package: &str| -> Result<Vec<String>> {
        let mut names = apt.dependencies(package)?;
        names.retain(|name| PARTS.iter().any(|part| name.starts_with(part)));
        Ok(names)
    };
    let package = parts(METAPACKAGE)?.into_iter().next();
    let package = package.with_context(|| format!("{METAPACKAGE} names no kernel"))?;
    let mark = folder.join(MARK);
    if fs::read_to_string(&mark).is_ok_and(|unpacked| unpacked == package) {
        return Ok(());
    }
    let _ = fs::remove_file(&mark);
    apt.unpack(&package, root)?;
    for part in parts(&package)? {
        apt.add(&part, root)?;
    }
    Ok(fs::write(mark, package)?)
}

/// Finds the image and the modules. Their places differ between Debian's releases.
fn files(root: &Path) -> Result<Files> {
    let below = ["usr/lib/modules", "lib/modules"].map(|path| root.join(path));
    let folder = below.iter().find(|path| path.is_dir());
    let folder = folder.context("the kernel's package has no modules")?;
    let modules = entry(folder, |_| true).context("the folder of modules is empty")?;
    let beside = modules.join("vmlinuz");
    let image = if beside.is_file() {
        Some(beside)
    } else {
        entry(&root.join("boot"), |name| name.starts_with("vmlinuz-"))
    };
    Ok(Files {
        image: image.context("the kernel's package has no vmlinuz")?,
        modules,
    })
}

/// Returns the first entry of a folder with such a name.
fn entry(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut found = entries.filter(|entry| entry.file_name().to_str().is_some_and(&is_wanted));
    found.next().map(|entry| entry.path())
}
