//! `xtask install`: puts the release where `raddle run` finds it.
//!
//! Every file is written beside its place and renamed into it: the preloaded library may be
//! mapped by programs that run at this moment, and overwriting it in place would crash them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::c_library::{self, CLibrary};
use crate::shell;
use crate::workspace::Workspace;

/// Where each shell looks for completions, below the prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/raddle"),
    ("zsh", "share/zsh/site-functions/_raddle"),
    ("fish", "share/fish/vendor_completions.d/raddle.fish"),
];

/// Files of the C library's package, and where they go below `lib`.
const PACKAGING: [(&str, &str); 3] = [
    ("package/raddle.pc", "pkgconfig/raddle.pc"),
    (
        "package/raddle-config.cmake",
        "cmake/raddle/raddle-config.cmake",
    ),
    (
        "package/raddle-config-version.cmake",
        "cmake/raddle/raddle-config-version.cmake",
    ),
];

/// Commands for green threads: gdb looks for them beside the library, by its name.
const GDB_SCRIPTS: [&str; 3] = [
    "crates/raddle-cli/src/gdb/raddle_gdb_memory.py",
    "crates/raddle-cli/src/gdb/raddle_gdb_light.py",
    "crates/raddle-cli/src/gdb/raddle_gdb.py",
];

const PROGRAM_MODE: u32 = 0o755;
const DATA_MODE: u32 = 0o644;

pub(crate) fn run(workspace: &Workspace, prefix: &Path, destdir: &str) -> Result<()> {
    ensure!(
        prefix.is_absolute(),
        "PREFIX is {}: give an absolute path",
        prefix.display()
    );
    workspace.build_release()?;
    let folder = staged(prefix, destdir);
    let raddle = workspace.raddle();
    place(
        &fs::read(&raddle)?,
        &folder.join("bin/raddle"),
        PROGRAM_MODE,
    )?;
    let preload = read(&workspace.preload("release"))?;
    place(
        &preload,
        &folder.join("lib/raddle/libraddle_preload.so"),
        DATA_MODE,
    )?;
    let mut script = Vec::new();
    for part in GDB_SCRIPTS {
        script.extend(read(&workspace.root.join(part))?);
    }
    place(
        &script,
        &folder.join("lib/raddle/libraddle_preload.so-gdb.py"),
        DATA_MODE,
    )?;
    install_library(workspace, &c_library::build(workspace)?, &folder)?;
    install_manuals(&raddle, &folder)?;
    for (shell, file) in COMPLETIONS {
        let script = Command::new(&raddle)
            .args(["completions", shell])
            .output()?;
        ensure!(
            script.status.success(),
            "raddle completions {shell}: {}",
            script.status
        );
        place(&script.stdout, &folder.join(file), DATA_MODE)?;
    }
    Ok(())
}

/// Installs the C library and the files for compilers, pkg-config and CMake.
fn install_library(workspace: &Workspace, library: &CLibrary, folder: &Path) -> Result<()> {
    let lib = folder.join("lib");
    place(
        &read(&library.shared)?,
        &lib.join(library.file_name()),
        DATA_MODE,
    )?;
    place_link(&library.file_name(), &lib.join(library.soname()))?;
    place_link(&library.soname(), &lib.join("libraddle.so"))?;
    place(
        &read(&library.archive)?,
        &lib.join("libraddle.a"),
        DATA_MODE,
    )?;
    for header in c_library::HEADERS {
        let text = read(&c_library::source(workspace, header))?;
        place(&text, &folder.join(header), DATA_MODE)?;
    }
    let policy = read(&workspace.root.join(c_library::POLICY_HEADER))?;
    place(&policy, &folder.join("include/raddle_policy.h"), DATA_MODE)?;
    for (file, to) in PACKAGING {
        let text = fs::read_to_string(c_library::source(workspace, file))?;
        let series = library
            .version
            .rsplit_once('.')
            .map_or("", |(series, _)| series);
        let text = text.replace("@VERSION@", &library.version);
        let text = text.replace("@SERIES@", series);
        place(text.as_bytes(), &lib.join(to), DATA_MODE)?;
    }
    Ok(())
}

/// Makes a relative symbolic link, renamed into its place as files are.
fn place_link(to: &str, file: &Path) -> Result<()> {
    let beside = file.with_extension(format!("new-{}", std::process::id()));
    std::os::unix::fs::symlink(to, &beside).with_context(|| beside.display().to_string())?;
    fs::rename(&beside, file)?;
    println!("installed {}", file.display());
    Ok(())
}

fn read(built: &Path) -> Result<Vec<u8>> {
    fs::read(built).with_context(|| format!("{} was not built", built.display()))
}

fn install_manuals(raddle: &Path, folder: &Path) -> Result<()> {
    let written = std::env::temp_dir().join(format!("raddle-manuals-{}", std::process::id()));
    fs::create_dir_all(&written)?;
    shell::run(Command::new(raddle).arg("man").arg(&written))?;
    let mut count = 0;
    for entry in fs::read_dir(&written)? {
        let page = entry?;
        let place_for_page = folder.join("share/man/man1").join(page.file_name());
        place(&fs::read(page.path())?, &place_for_page, DATA_MODE)?;
        count += 1;
    }
    fs::remove_dir_all(&written)?;
    ensure!(count > 0, "raddle man wrote no page");
    Ok(())
}

/// Returns `prefix` below the packager's staging folder, if there is one.
fn staged(prefix: &Path, destdir: &str) -> PathBuf {
    if destdir.is_empty() {
        return prefix.to_path_buf();
    }
    Path::new(destdir).join(prefix.strip_prefix("/").unwrap_or(prefix))
}

fn place(content: &[u8], file: &Path, mode: u32) -> Result<()> {
    let cure = || {
        format!(
            "{}: choose a PREFIX you can write, or run as root",
            file.display()
        )
    };
    let parent = file.parent().context("a file to install has no folder")?;
    fs::create_dir_all(parent).with_context(cure)?;
    let beside = file.with_extension(format!("new-{}", std::process::id()));
    fs::write(&beside, content).with_context(cure)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(mode))?;
    fs::rename(&beside, file).with_context(cure)?;
    println!("installed {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staging_folder_goes_before_the_prefix() {
        assert_eq!(
            staged(Path::new("/usr"), "/tmp/stage"),
            Path::new("/tmp/stage/usr")
        );
        assert_eq!(staged(Path::new("/usr"), ""), Path::new("/usr"));
    }

    #[test]
    fn an_installed_file_replaces_the_old_one_by_a_new_inode() {
        use std::os::unix::fs::MetadataExt;
        let folder = std::env::temp_dir().join(format!("raddle-place-{}", std::process::id()));
        let file = folder.join("lib/x.so");
        place(b"old", &file, DATA_MODE).unwrap();
        let old_inode = fs::File::open(&file).unwrap();
        place(b"new", &file, PROGRAM_MODE).unwrap();
        let status = fs::metadata(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(status.mode() & 0o777, PROGRAM_MODE);
        assert_ne!(status.ino(), old_inode.metadata().unwrap().ino());
        fs::remove_dir_all(&folder).unwrap();
    }
}
