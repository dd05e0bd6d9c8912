//! Things that must not outlive this command: servers and the folder of temporary files.
//!
//! Protocol: a server is started while the registry is locked, and joins it before the lock is
//! released. A thread waits for signals; at the first one it takes the lock for good, kills all
//! registered servers and every descendant of this process, waits until they have ended, removes
//! the folder, and ends the process. So a server is either in the registry or is never started, and
//! no process writes to the folder while it is removed.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::tree;
use crate::failure::Failure;

/// How long processes that were killed are waited for.
const ENDS: Duration = Duration::from_secs(5);

struct Registry {
    /// The servers that run; each leads a process group.
    leaders: Vec<Pid>,
    folder: Option<PathBuf>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    leaders: Vec::new(),
    folder: None,
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cleans up at SIGINT, SIGTERM and SIGHUP, and ends the process as shells expect.
pub(super) fn watch() -> Result<(), Failure> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(|error| {
        Failure::input(
            format!("signals can't be handled ({error})"),
            "raise the limit of open files (ulimit -n)",
        )
    })?;
    std::thread::spawn(|| wait(signals));
    Ok(())
}

fn wait(mut signals: Signals) {
    let Some(signal) = signals.forever().next() else {
        return;
    };
    let registry = registry();
    let mut doomed: Vec<Pid> = tree::members(rustix::process::getpid());
    doomed.extend(registry.leaders.iter().copied().flat_map(tree::members));
    let doomed: Vec<OwnedFd> = (doomed.into_iter())
        .filter(|member| *member != rustix::process::getpid())
        .filter_map(|member| pidfd_open(member, PidfdFlags::empty()).ok())
        .collect();
    for leader in &registry.leaders {
        kill_group(*leader);
    }
    for process in &doomed {
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    wait_for_ends(&doomed);
    if let Some(folder) = &registry.folder {
        let _ = fs::remove_dir_all(folder);
    }
    std::process::exit(128 + signal);
}

/// Returns when all processes have ended, at the latest after [`ENDS`].
fn wait_for_ends(processes: &[OwnedFd]) {
    let deadline = Instant::now() + ENDS;
    for process in processes {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref());
    }
}

/// The folder to remove at a signal.
pub(super) fn remove_at_end(folder: &Path) {
    registry().folder = Some(folder.to_path_buf());
}

/// Does not return while a signal is handled: failures that the signal causes are not reported.
pub(super) fn wait_for_signal() {
    drop(registry());
}

/// Starts a server, which must lead a process group.
pub(super) fn start(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let mut registry = registry();
    let child = spawn()?;
    registry.leaders.push(Pid::from_child(&child));
    Ok(child)
}

/// Kills the rest of a server's group, after its leader was waited for.
pub(super) fn leave(leader: Pid) {
    let mut registry = registry();
    kill_group(leader);
    registry.leaders.retain(|other| *other != leader);
}

fn kill_group(leader: Pid) {
    let _ = kill_process_group(leader, Signal::KILL);
}
