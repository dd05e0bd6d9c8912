//! Facts of `/proc` about a process, to check its socket and to explain a missing one.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;

use rustix::process::geteuid;

use crate::failure::{Failure, more_rights};
use crate::machine::has_procfs;

const PRELOAD: &str = "libraddle_preload.so";
/// The runtime of a program that carries it.
const CARRIED: &str = " /memfd:raddle (deleted)";

/// A process that exists.
pub(crate) struct Process {
    pub pid: u32,
    pub user: u32,
    /// Its number in the innermost PID namespace: its own process id.
    pub own_pid: u32,
    /// The process that a thread belongs to: `pid` itself for a process.
    group: u32,
    state: char,
    /// A filter of system calls holds for it.
    has_filter: bool,
    /// What the kernel gave the program when it was executed.
    image: Option<Vec<u8>>,
}

impl Process {
    pub(crate) fn find(pid: u32) -> Result<Process, Failure> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        let process = status.ok().and_then(|status| Process::parse(pid, &status));
        match process {
            Some(process) if process.group != pid => Err(Failure::input(
                format!("{pid} is a thread of process {}", process.group),
                format!("give the number of the process, {}", process.group),
            )),
            Some(process) if !matches!(process.state, 'Z' | 'X') => Ok(Process {
                image: image(pid),
                ..process
            }),
            _ => Err(no_process(pid)),
        }
    }

    fn parse(pid: u32, status: &str) -> Option<Process> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.strip_prefix(':').map(str::split_whitespace)
        };
        Some(Process {
            pid,
            user: field("Uid")?.nth(1)?.parse().ok()?,
            own_pid: field("NSpid")
                .and_then(|pids| pids.last()?.parse().ok())
                .unwrap_or(pid),
            group: field("Tgid")?.next()?.parse().ok()?,
            state: field("State")?.next()?.chars().next()?,
            has_filter: field("Seccomp").and_then(|mut it| it.next()) == Some("2"),
            image: None,
        })
    }

    /// Returns whether this user may ask the process: the same user, or root.
    pub(crate) fn is_ours(&self) -> bool {
        let user = geteuid().as_raw();
        user == 0 || user == self.user
    }

    /// Returns true if a filter may forbid it system calls.
    pub(super) fn has_filter(&self) -> bool {
        self.has_filter
    }

    /// Explains why the process has no inspection socket.
    pub(crate) fn explain_silence(&self) -> Failure {
        let pid = self.pid;
        match self.is_preloaded() {
            _ if !self.is_ours() => self.belongs_to_another(),
            Ok(false) => Failure::input(
                format!("process {pid} does not run under raddle"),
                "start it with raddle run -- PROGRAM",
            ),
            _ if self.has_other_network() => Failure::input(
                format!("process {pid} is in another network namespace"),
                format!("enter that with nsenter -n -t {pid}, and use this command there"),
            ),
            Ok(true) => match self.lender() {
                Some(parent) => Failure::input(
                    format!(
                        "process {pid} has no threads of its own: it borrows the memory of {parent}"
                    ),
                    format!("give the number of the parent, {parent}"),
                ),
                None => Failure::input(
                    format!("process {pid} has started no thread yet, so there is nothing to show"),
                    "wait for its second thread; raddle run -v says if it can't have any",
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Failure::input(
                format!("process {pid} can't be looked at, and does not seem to run under raddle"),
                format!("start it with raddle run -- PROGRAM, or {}", more_rights()),
            ),
            Err(_) => no_process(pid),
        }
    }

    pub(super) fn belongs_to_another(&self) -> Failure {
        Failure::input(
            format!("process {} belongs to user {}", self.pid, self.user),
            "run this as that user or as root",
        )
    }

    /// Returns the parent if it has the same memory: the process is the child of a `vfork` and has
    /// executed no program yet.
    fn lender(&self) -> Option<u32> {
        const KCMP_VM: libc::c_long = 1;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|it| it.strip_prefix("PPid:"))?;
        let parent: u32 = line.trim().parse().ok()?;
        // SAFETY: the call has numbers alone.
        let differ = unsafe { libc::syscall(libc::SYS_kcmp, parent, self.pid, KCMP_VM, 0, 0) };
        (differ == 0).then_some(parent)
    }

    /// Says that the process is stopped, if it is.
    pub(crate) fn is_stopped(&self) -> Option<Failure> {
        let pid = self.pid;
        match self.state {
            'T' => Some(Failure::input(
                format!("process {pid} is stopped"),
                format!("kill -CONT {pid} resumes it"),
            )),
            't' => Some(Failure::input(
                format!("process {pid} is stopped by a debugger"),
                "resume it there",
            )),
            _ => None,
        }
    }

    /// Returns true if the runtime is mapped.
    pub(crate) fn is_preloaded(&self) -> io::Result<bool> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let is_runtime = |line: &str| line.contains(PRELOAD) || line.ends_with(CARRIED);
        Ok(maps.lines().any(is_runtime))
    }

    /// Fails if the process has executed another program since it was found.
    pub(crate) fn check_program(&self) -> Result<(), Failure> {
        let pid = self.pid;
        match (&self.image, image(pid)) {
            (Some(before), Some(now)) if *before != now => Err(Failure::input(
                format!("process {pid} has executed another program meanwhile"),
                "try again",
            )),
            _ => Ok(()),
        }
    }

    /// Returns the inode of its PID namespace.
    pub(super) fn namespace(&self) -> Option<u64> {
        namespace(&self.pid.to_string(), "pid")
    }

    /// Returns whether the process has another network namespace, where its abstract socket is.
    fn has_other_network(&self) -> bool {
        let inode = |process: &str| namespace(process, "net");
        match (inode(&self.pid.to_string()), inode("self")) {
            (Some(its), Some(ours)) => its != ours,
            _ => false,
        }
    }
}

/// Returns a process's auxiliary vector, in which an execution changes random addresses; `None` for
/// a process that has ended, or is not ours.
fn image(pid: u32) -> Option<Vec<u8>> {
    let vector = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    (!vector.is_empty()).then_some(vector)
}

/// Returns the inode of a process's namespace.
fn namespace(process: &str, kind: &str) -> Option<u64> {
    let file = fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?;
    Some(file.st_ino())
}

fn no_process(pid: u32) -> Failure {
    if !has_procfs() {
        return Failure::input(
            format!("/proc is not mounted here, so process {pid} can't be found"),
            "mount -t proc proc /proc, or use this command where it is mounted",
        );
    }
    Failure::input(
        format!("there is no process {pid}"),
        "look for it with pidof or ps",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "\
Name:\tUid: 9
State:\tS (sleeping)
Tgid:\t4242
Pid:\t4242
Uid:\t1000\t1001\t1001\t1001
NSpid:\t4242\t7
";

    #[test]
    fn a_status_file_is_read_by_its_fields() {
        let process = Process::parse(4242, STATUS).unwrap();
        assert_eq!(
            (process.user, process.own_pid, process.state),
            (1001, 7, 'S')
        );
        let without = STATUS.replace("NSpid", "Other");
        assert_eq!(Process::parse(4242, &without).unwrap().own_pid, 4242);
        assert!(Process::parse(4242, "Name:\tx\n").is_none());
    }

    #[test]
    fn this_process_is_found_and_is_ours() {
        let process = Process::find(std::process::id()).unwrap();
        assert!(process.is_ours() && !process.has_other_network());
        assert!(matches!(process.is_preloaded(), Ok(false)));
    }
}
