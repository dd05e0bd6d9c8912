//! The code that a process has mapped, and when it is compared with what it was.
//!
//! It is compared every two seconds, and soon after a stack has led to code that is not known: a
//! program loads libraries in its first second, and a virtual machine makes its code then. If such
//! a look finds nothing, the next one has to wait for twice as long.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use raddle_stacks::Modules;

use crate::failure::{Failure, more_rights};

/// How often mappings are compared; and how soon after unknown code.
const USUALLY: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(100);

/// When mappings are compared.
pub(super) struct Mappings {
    compared: Instant,
    /// The time from one look to the next one if there is unknown code.
    pause: Duration,
}

impl Mappings {
    /// Those of an epoch that begins now.
    pub(super) fn new() -> Mappings {
        Mappings {
            compared: Instant::now(),
            pause: SOON,
        }
    }

    /// Returns true if the process has mapped code of files that is not known, as far as it is time
    /// to look. Code without a file is added to the modules.
    pub(super) fn are_others(&mut self, pid: u32, modules: &Modules) -> bool {
        let passed = self.compared.elapsed();
        let is_due = passed >= USUALLY || passed >= self.pause && modules.take_strays();
        if !is_due {
            return false;
        }
        self.compared = Instant::now();
        let Some(lines) = lines(pid).ok().filter(|lines| !lines.is_empty()) else {
            return false; // it has ended
        };
        if !modules.knows_all(&*lines).unwrap_or(true) {
            return true;
        }
        let is_more = modules.add_later(&*lines).unwrap_or(false);
        self.pause = if is_more {
            SOON
        } else {
            (self.pause * 2).min(USUALLY)
        };
        false
    }
}

/// Returns the lines of all mappings.
fn lines(pid: u32) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{pid}/maps"))
}

/// The root folder of a process, which stays reachable after its end.
pub(super) struct Root(File);

impl Root {
    pub(super) fn of(pid: u32) -> Result<Root, Failure> {
        let path = format!("/proc/{pid}/root");
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(path);
        file.map(Root).map_err(|error| {
            Failure::input(
                format!("the files of process {pid} can't be reached ({error})"),
                more_rights(),
            )
        })
    }

    /// Returns the code that the process has mapped: an error if it has ended, even if its parent
    /// has not waited for it yet.
    pub(super) fn modules(&self, pid: u32) -> io::Result<Modules> {
        let lines = lines(pid)?;
        if lines.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Modules::parse(&*lines, &self.path())
    }

    /// Returns where paths of the process begin.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}
