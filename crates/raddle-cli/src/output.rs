//! A file that is whole or not there: for its user alone, as cores and traces have what a process
//! knows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};

use crate::failure::{Failure, say};
use crate::run::inherit;
use crate::stdout::print;

/// A file that is being written. It has no name until it is kept, so that nothing is left if this
/// process is killed; where the file system can't do that, it is removed unless it is kept.
pub(crate) struct Output {
    file: File,
    /// Its name meanwhile, if it has one.
    path: Option<PathBuf>,
    /// Where it goes when it is whole.
    goal: PathBuf,
    replaces: bool,
    /// It is standard output, and has no name.
    is_stdout: bool,
}

impl Output {
    /// As [`Output::create`]; `-` is standard output, if that is no terminal.
    pub(crate) fn create_or_stdout(goal: &Path, force: bool) -> Result<Output, Failure> {
        if goal.as_os_str() != "-" {
            return Output::create(goal, force);
        }
        if inherit::was_closed(libc::STDOUT_FILENO) {
            let what = "standard output is closed";
            return Err(Failure::input(what, "open it, or give the name of a file"));
        }
        let stdout = io::stdout();
        if stdout.is_terminal() {
            let what = "standard output is a terminal, which can't show this file";
            return Err(Failure::input(what, "write it to a pipe, or give a name"));
        }
        let file = stdout.as_fd().try_clone_to_owned().map_err(|error| {
            let what = format!("standard output can't be used ({error})");
            Failure::input(what, "give a name")
        })?;
        Ok(Output {
            file: file.into(),
            path: None,
            goal: goal.to_owned(),
            replaces: false,
            is_stdout: true,
        })
    }

    /// Returns the name of what is written.
    pub(crate) fn shown(&self) -> String {
        if self.is_stdout {
            return "standard output".into();
        }
        self.goal.display().to_string()
    }

    /// The file is whole. Prints a line then.
    pub(crate) fn keep_and_tell(self, line: &str) -> anyhow::Result<()> {
        let is_stdout = self.is_stdout;
        self.keep()?;
        Ok(tell(line, is_stdout)?)
    }

    /// Prints a line beside the file.
    pub(crate) fn tell(&self, line: &str) -> io::Result<()> {
        tell(line, self.is_stdout)
    }

    /// Creates the file, which must not exist. With `force` it takes the place of a regular file
    /// when it is whole; it is written through no link.
    pub(crate) fn create(goal: &Path, force: bool) -> Result<Output, Failure> {
        let exists = fs::symlink_metadata(goal);
        if let Ok(found) = &exists
            && !(force && found.is_file())
        {
            let cure = if found.is_file() {
                "give another name, or --force to replace it"
            } else {
                "give another name: only a regular file is replaced"
            };
            return Err(Failure::input(format!("{} exists", goal.display()), cure));
        }
        let (file, path) = create(goal, exists.is_ok()).map_err(|error| {
            Failure::input(
                format!("{} can't be created ({error})", goal.display()),
                "give a name in a folder that this user may write to",
            )
        })?;
        Ok(Output {
            file,
            path,
            goal: goal.to_owned(),
            replaces: exists.is_ok(),
            is_stdout: false,
        })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Creates a file without a name for reading and writing: in the same folder, or in that of
    /// temporary files if this is standard output.
    pub(crate) fn beside(&self) -> io::Result<File> {
        let folder = if self.is_stdout {
            std::env::temp_dir()
        } else {
            folder_of(&self.goal).to_owned()
        };
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(&folder, flags, Mode::from_raw_mode(MODE)) {
            return Ok(file.into());
        }
        let path = folder.join(format!(".raddle-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(MODE);
        let file = options.open(&path)?;
        fs::remove_file(path)?;
        Ok(file)
    }

    /// Returns true if this is a pipe without a reader.
    pub(crate) fn is_left(&self) -> bool {
        let mut of_file = [PollFd::new(&self.file, PollFlags::empty())];
        let polled = self.is_stdout && poll(&mut of_file, Some(&Timespec::default())).is_ok();
        polled && of_file[0].revents().contains(PollFlags::ERR)
    }

    /// Explains a failed write.
    pub(crate) fn failed(&self, error: &io::Error) -> Failure {
        if self.is_stdout && error.kind() == ErrorKind::BrokenPipe {
            let what = "the reader of standard output has left before the end";
            return Failure::input(what, "have it read all, or give the name of a file");
        }
        let cure = if self.is_stdout {
            "write it to a place with room"
        } else {
            "give a name where there is room; what was written is removed"
        };
        Failure::input(format!("{} can't be written ({error})", self.shown()), cure)
    }

    /// The file is whole.
    pub(crate) fn keep(mut self) -> Result<(), Failure> {
        if self.is_stdout {
            return Ok(());
        }
        self.name().map_err(|error| self.failed(&error))
    }

    fn name(&mut self) -> io::Result<()> {
        if self.path.is_none() {
            let path = if self.replaces {
                beside(&self.goal)
            } else {
                self.goal.clone()
            };
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, own, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
            self.path = Some(path);
        }
        if let Some(path) = self.path.as_ref().filter(|path| **path != self.goal) {
            fs::rename(path, &self.goal)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Prints a line: on standard error, if standard output is a file's.
fn tell(line: &str, is_stdout: bool) -> io::Result<()> {
    if is_stdout {
        say(line);
        return Ok(());
    }
    print(&format!("{line}\n"))
}

/// Such a file is for its user alone.
const MODE: u32 = 0o600;

fn folder_of(goal: &Path) -> &Path {
    match goal.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Creates the file without a name, else with one.
fn create(goal: &Path, replaces: bool) -> io::Result<(File, Option<PathBuf>)> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(folder_of(goal), flags, Mode::from_raw_mode(MODE)) {
        return Ok((file.into(), None));
    }
    let path = if replaces {
        beside(goal)
    } else {
        goal.to_owned()
    };
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&path)?;
    Ok((file, Some(path)))
}

/// Returns a name in the same folder.
fn beside(goal: &Path) -> PathBuf {
    let mut name = goal.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("raddle-out-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_that_is_not_kept_is_removed() {
        let folder = folder("removed");
        let goal = folder.join("core");
        drop(Output::create(&goal, false).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        Output::create(&goal, false).unwrap().keep().unwrap();
        assert_eq!(fs::metadata(&goal).unwrap().mode() & 0o777, 0o600);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_is_replaced_without_force_and_no_link_is_followed() {
        let folder = folder("replaced");
        let (goal, link) = (folder.join("core"), folder.join("link"));
        fs::write(&goal, "precious").unwrap();
        symlink(&goal, &link).unwrap();
        assert!(Output::create(&goal, false).is_err());
        assert!(Output::create(&link, true).is_err());
        let output = Output::create(&goal, true).unwrap();
        output.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"precious");
        output.keep().unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
