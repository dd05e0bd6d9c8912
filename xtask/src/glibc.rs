//! Tests with another glibc than the machine's: the programs are linked with it and started by its
//! ld.so, natively and under raddle.
//!
//! The package comes from a Debian suite through apt, with lists and a cache of their own below the
//! target folder: nothing on the machine is installed or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;
use crate::{lanes, shell};

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Where a package has libc and ld.so.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Fetches the glibc of `suite`, unless a `folder` with its libraries is given, and runs the tests
/// on C and C++ programs with it.
pub fn run(workspace: &Workspace, suite: &str, folder: Option<PathBuf>) -> Result<bool> {
    let folder = match folder {
        Some(folder) => folder,
        None => fetch(&workspace.target.join("glibc").join(suite), suite)?,
    };
    let folder = fs::canonicalize(&folder).with_context(|| folder.display().to_string())?;
    let loader = folder.join("ld-linux-x86-64.so.2");
    ensure!(loader.is_file(), "{} is not there", loader.display());
    shell::run(Command::new(&loader).arg("--version"))?;
    lanes::with_glibc(workspace, &folder)
}

/// Gets and unpacks the package; gives the folder of its libraries.
fn fetch(folder: &Path, suite: &str) -> Result<PathBuf> {
    ensure!(
        Path::new(KEYRING).is_file(),
        "{KEYRING} is not there: install debian-archive-keyring, or unpack libc6 and name its \
         {LIBRARIES} by --folder"
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
    let sources = format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n");
    fs::write(folder.join("etc/sources.list"), sources)?;
    fs::write(folder.join("state/status"), "")?;
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
    let mut settings: String = options.iter().map(line).collect();
    settings += "APT::Sandbox::User \"root\";\n";
    let configuration = folder.join("apt.conf");
    fs::write(&configuration, settings)?;
    let packages = folder.join("packages");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &configuration);
        shell::run(command.current_dir(&packages).args(arguments))
    };
    apt(&["update"])?;
    apt(&["download", "libc6"])?;
    let package = fs::read_dir(&packages)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .max()
        .context("apt-get download left no package")?;
    let root = folder.join("root");
    let _ = fs::remove_dir_all(&root);
    shell::run(Command::new("dpkg-deb").arg("-x").args([&package, &root]))?;
    Ok(root.join(LIBRARIES))
}
