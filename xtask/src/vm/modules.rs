//! Modules of a kernel: the files, and the order in which the kernel loads them.
//!
//! A module names its dependencies in its section `.modinfo`. A name without a file is built into
//! the kernel, which differs from version to version. Debian compresses the files from 6.12 on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};

/// A module's name and content.
pub(super) struct Module {
    pub name: String,
    pub content: Vec<u8>,
}

/// The modules `wanted` below `folder` with all that they depend on, each after its dependencies.
pub(super) fn load(folder: &Path, wanted: &[String]) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    find(folder, &mut files)?;
    let mut modules = Vec::new();
    for name in wanted {
        add(name, &files, &mut modules)?;
    }
    Ok(modules)
}

fn add(name: &str, files: &BTreeMap<String, PathBuf>, modules: &mut Vec<Module>) -> Result<()> {
    let name = normal(name);
    let Some(file) = files.get(&name) else {
        return Ok(());
    };
    if modules.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let content = content(file)?;
    for dependency in dependencies(&content).with_context(|| file.display().to_string())? {
        add(&dependency, files, modules)?;
    }
    modules.push(Module { name, content });
    Ok(())
}

/// Collects the modules' files by their names.
fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// `virtio_pci` for `virtio-pci.ko.xz`; `None` for a file that is no module.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".xz").unwrap_or(name);
    name.strip_suffix(".ko").map(normal)
}

/// File names have dashes where the kernel's names have underscores.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn content(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_none_or(|extension| extension != "xz") {
        return Ok(std::fs::read(file)?);
    }
    let output = Command::new("xz")
        .args(["-d", "-c"])
        .arg(file)
        .output()
        .context("xz did not start: install xz-utils")?;
    ensure!(
        output.status.success(),
        "xz can't unpack {}",
        file.display()
    );
    Ok(output.stdout)
}

fn dependencies(content: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(content)?;
    let section = file.section_by_name(".modinfo");
    let section = section.context("the module has no section .modinfo")?;
    Ok(parse_depends(section.data()?))
}

/// Reads the strings of `.modinfo`, each of which ends with a zero.
fn parse_depends(strings: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(strings);
    text.split('\0')
        .filter_map(|string| string.strip_prefix("depends="))
        .flat_map(|names| names.split(','))
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modules_dependencies_are_read() {
        let strings = b"license=GPL\0depends=virtio,virtio_ring\0intree=Y\0";
        assert_eq!(parse_depends(strings), ["virtio", "virtio_ring"]);
        assert!(parse_depends(b"depends=\0name=x\0").is_empty());
    }

    #[test]
    fn a_module_has_its_kernels_name() {
        let name = |path: &str| module_name(Path::new(path));
        assert_eq!(
            name("a/crc32c-intel.ko.xz").as_deref(),
            Some("crc32c_intel")
        );
        assert_eq!(name("a/ext4.ko").as_deref(), Some("ext4"));
        assert_eq!(name("modules.builtin"), None);
    }
}
