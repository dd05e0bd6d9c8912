//! The code that a process has mapped, and when it is compared with what it was.
//!
//! It is compared every two seconds, and soon after a stack has led to code that is not known: a
//! program loads libraries in its first second, and a virtual machine makes its code then. If such
//! a look finds nothing, the next one has to wait for twice as long.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use raddle_stacks::Modules;

use crate::failure::{Failure, more_rights};

/// How often mappings are compared; and how soon after unknown code.
const USUALLY: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(100);

/// What was mapped when an epoch began.
pub(super) struct Mappings {
    number: u64,
    compared: Instant,
    /// The time from one look to the next one if there is unknown code.
    pause: Duration,
}

impl Mappings {
    /// Returns true if the process has other files with code by now, as far as it is time to look.
    /// Code without a file is added to the modules.
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
        let is_more = modules.add_later(&*lines).unwrap_or(false);
        self.pause = if is_more {
            SOON
        } else {
            (self.pause * 2).min(USUALLY)
        };
        number(&lines) != self.number
    }
}

/// Returns a number that changes when files with code are mapped or unmapped.
fn number(lines: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let rights = line.split(|&byte| byte == b' ').nth(1);
        let is_code = rights.is_some_and(|rights| rights.get(2) == Some(&b'x'));
        if is_code && line.contains(&b'/') {
            line.hash(&mut hasher);
        }
    }
    hasher.finish()
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

    /// Returns the code that the process has mapped.
    pub(super) fn modules(&self, pid: u32) -> io::Result<(Modules, Mappings)> {
        let lines = lines(pid)?;
        let root = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        let mappings = Mappings {
            number: number(&lines),
            compared: Instant::now(),
            pause: SOON,
        };
        Ok((Modules::parse(&*lines, &root)?, mappings))
    }
}
