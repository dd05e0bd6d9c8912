//! Packages of a Debian archive, without installing one: apt with lists and a cache of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One source of an archive: its kind (`deb`, `deb-src`), address, and suite.
pub(crate) type Source<'a> = (&'a str, &'a str, &'a str);

/// apt with a folder of its own below the target folder.
pub(crate) struct Apt {
    configuration: PathBuf,
    packages: PathBuf,
}

impl Apt {
    /// Writes the configuration and fetches the lists of the archive's `main`.
    pub(crate) fn update(folder: &Path, sources: &[Source<'_>]) -> Result<Apt> {
        ensure!(
            Path::new(KEYRING).is_file(),
            "{KEYRING} is not there: install debian-archive-keyring"
        );
        for part in [
            "etc/apt.conf.d",
            "etc/preferences.d",
            "etc/sources.list.d",
            "state/lists/partial",
            "cache/archives/partial",
            "packages",
        ] {
            fs::create_dir_all(folder.join(part))?;
        }
        let line = |(kind, address, suite): &Source<'_>| {
            format!("{kind} [signed-by={KEYRING}] {address} {suite} main\n")
        };
        let lines: String = sources.iter().map(line).collect();
        fs::write(folder.join("etc/sources.list"), lines)?;
        fs::write(folder.join("state/status"), "")?;
        let apt = Apt {
            configuration: folder.join("apt.conf"),
            packages: folder.join("packages"),
        };
        fs::write(&apt.configuration, settings(folder))?;
        apt.get(&apt.packages, &["update"])?;
        Ok(apt)
    }

    /// Downloads a binary package, `NAME` or `NAME=VERSION`, and unpacks it below `root`.
    pub(crate) fn unpack(&self, package: &str, root: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(root);
        self.add(package, root)
    }

    /// Downloads a binary package and unpacks it below `root`, beside what is there.
    pub(crate) fn add(&self, package: &str, root: &Path) -> Result<()> {
        let name = package.split('=').next().unwrap_or(package);
        let folder = self.packages.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        self.get(&folder, &["download", package])?;
        let file = entries(&folder)?
            .into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get download left no package")?;
        fs::create_dir_all(root)?;
        shell::run(Command::new("dpkg-deb").arg("-x").arg(file).arg(root))
    }

    /// Downloads a source package, `NAME=VERSION`, and unpacks it, with Debian's patches, below
    /// `root`. Returns the folder of the source.
    pub(crate) fn unpack_source(&self, package: &str, root: &Path) -> Result<PathBuf> {
        let _ = fs::remove_dir_all(root);
        fs::create_dir_all(root)?;
        self.get(root, &["source", package])?;
        let folder = entries(root)?.into_iter().find(|path| path.is_dir());
        folder.context("apt-get source left no folder")
    }

    /// Downloads the upstream archive of a source package, `NAME=VERSION`, and unpacks it below
    /// `root`. Returns the folder of the source.
    pub(crate) fn unpack_upstream(&self, package: &str, root: &Path) -> Result<PathBuf> {
        let _ = fs::remove_dir_all(root);
        fs::create_dir_all(root)?;
        self.get(root, &["source", "--tar-only", package])?;
        let file = entries(root)?.into_iter().find(|path| path.is_file());
        let file = file.context("apt-get source left no archive")?;
        shell::run(Command::new("tar").arg("-C").arg(root).arg("-xf").arg(file))?;
        let folder = entries(root)?.into_iter().find(|path| path.is_dir());
        folder.context("the archive has no folder")
    }

    /// Returns the packages that `package` depends on.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let mut command = Command::new("apt-cache");
        command.env("APT_CONFIG", &self.configuration);
        let output = command.args(["depends", package]).output()?;
        ensure!(output.status.success(), "the archive has no {package}");
        Ok(parse_dependencies(&String::from_utf8_lossy(&output.stdout)))
    }

    fn get(&self, folder: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &self.configuration);
        shell::run(command.current_dir(folder).args(arguments))
    }
}

fn settings(folder: &Path) -> String {
    let options = [
        ("Etc", "etc"),
        ("State", "state"),
        ("State::status", "state/status"),
        ("Cache", "cache"),
    ];
    let line = |(name, part): &(&str, &str)| {
        let path = folder.join(part);
        format!("Dir::{name} \"{}\";\n", path.display())
    };
    let lines: String = options.iter().map(line).collect();
    // Lists are trusted by their signature. A mirror that lags has lists past their date.
    lines + "APT::Sandbox::User \"root\";\nAcquire::Check-Valid-Until \"false\";\n"
}

/// Reads what `apt-cache depends` prints. Alternatives begin with `|`, virtual packages with `<`.
fn parse_dependencies(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| !name.starts_with('<'))
        .map(str::to_owned)
        .collect()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_without_alternatives_and_virtual_packages() {
        let text = "linux-image-7\n  PreDepends: linux-base\n |Depends: dracut\n  \
                    Depends: <linux-initramfs-tool>\n    dracut\n  Depends: linux-binary-7\n  \
                    Depends: linux-modules-7\n  Suggests: grub\n";
        assert_eq!(
            parse_dependencies(text),
            ["linux-binary-7", "linux-modules-7"]
        );
    }
}
