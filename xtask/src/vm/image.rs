//! The disk of a guest: an ext4 image with parts of this machine, each at its own path, so that
//! test programs find in the guest what they were built with.
//!
//! Rejected: this machine's root by 9p or virtiofs. Debian's cloud kernels have no 9p, virtiofs
//! needs a daemon beside the emulator, and neither has the direct and asynchronous reads of a disk
//! that the tests are about.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// Folders that exist in every guest.
const FOLDERS: [&str; 8] = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "vm"];
/// Folders that are links where `/usr` holds everything.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Room beside the content, for what tests write.
const ROOM_MIB: u64 = 768;

/// An image under construction: a folder.
pub(super) struct Image {
    root: PathBuf,
    present: BTreeSet<PathBuf>,
}

impl Image {
    pub(super) fn new(root: PathBuf) -> Result<Image> {
        let _ = fs::remove_dir_all(&root);
        for name in FOLDERS {
            fs::create_dir_all(root.join(name))?;
        }
        for name in MERGED {
            if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
                symlink(target, root.join(name))?;
            }
        }
        let present = BTreeSet::new();
        Ok(Image { root, present })
    }

    /// Copies a file or folder of this machine to the same path.
    pub(super) fn add(&mut self, path: &Path) -> Result<()> {
        if !self.present.insert(path.to_owned()) {
            return Ok(());
        }
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                self.add(&entry?.path())?;
            }
            return Ok(());
        }
        let to = self.place(path)?;
        fs::copy(path, &to).with_context(|| format!("can't copy {}", path.display()))?;
        Ok(())
    }

    /// Copies programs and shared objects with the libraries that they need.
    pub(super) fn add_programs(&mut self, paths: &[PathBuf]) -> Result<()> {
        let output = Command::new("ldd").args(paths).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        for library in parse_ldd(&text) {
            self.add(Path::new(library))?;
        }
        paths.iter().try_for_each(|path| self.add(path))
    }

    /// Writes a file with other content than on this machine.
    pub(super) fn write(&mut self, path: &str, mode: u32, text: &str) -> Result<()> {
        self.write_bytes(path, mode, text.as_bytes())
    }

    /// As `write`, for binary content.
    pub(super) fn write_bytes(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let path = Path::new(path);
        self.present.insert(path.to_owned());
        let to = self.place(path)?;
        fs::write(&to, content)?;
        Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
    }

    /// Makes the file system, without a journal and without checksums that need a module.
    pub(super) fn finish(&self, file: &Path) -> Result<()> {
        let _ = fs::remove_file(file);
        let size = format!("{}M", size_mib(&self.root)? * 5 / 4 + ROOM_MIB);
        let mut mke2fs = Command::new(shell::find("mke2fs").context("install e2fsprogs")?);
        mke2fs.args(["-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum"]);
        mke2fs.args(["-E", "root_owner=0:0", "-m", "0", "-d"]);
        shell::run(mke2fs.arg(&self.root).arg(file).arg(size))
    }

    /// Returns the place of a path of this machine below the image's folder.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let parent = path.parent().context("a file has a folder")?;
        let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
        let name = path.file_name().context("a file has a name")?;
        ensure!(parent.is_absolute(), "{} is relative", path.display());
        let below = self.root.join(parent.strip_prefix("/")?);
        fs::create_dir_all(&below)?;
        Ok(below.join(name))
    }
}

/// Reads `NAME => PATH (ADDRESS)` and `PATH (ADDRESS)`.
fn parse_ldd(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| {
            let (before, _address) = line.trim().split_once(" (0x")?;
            let file = before.rsplit("=> ").next().unwrap_or(before);
            file.starts_with('/').then_some(file)
        })
        .collect()
}

fn size_mib(folder: &Path) -> Result<u64> {
    fn bytes(folder: &Path) -> Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?; // of a link itself
            sum += if metadata.is_dir() {
                bytes(&entry.path())?
            } else {
                metadata.len().next_multiple_of(4096)
            };
        }
        Ok(sum)
    }
    Ok(bytes(folder)? >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let text = "/a/program:\n\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f10)\n\
                    \tlibx.so => not found\n\tstatically linked\n";
        assert_eq!(
            parse_ldd(text),
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
    }
}
