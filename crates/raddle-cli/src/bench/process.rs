//! Starting a program in one of the ways, and waiting for it no longer than a limit.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cli::{
    CARRIERS_VARIABLE, CPUS_VARIABLE, EXCLUDE_VARIABLE, EXTRA_CARRIERS_VARIABLE,
    MAX_RUNNABLE_VARIABLE, MAX_THREADS_VARIABLE, QUANTUM_VARIABLE, VERBOSE_VARIABLE,
};

/// How a program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    NativeAll,
    NativeOne,
    RaddleOne,
    RaddleDefault,
}

pub(super) const EVERY_WAY: [Way; 4] = [
    Way::NativeAll,
    Way::NativeOne,
    Way::RaddleOne,
    Way::RaddleDefault,
];

impl Way {
    /// Its name in JSON lines and messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::NativeAll => "native_all_cpus",
            Way::NativeOne => "native_one_cpu",
            Way::RaddleOne => "raddle_one_carrier",
            Way::RaddleDefault => "raddle_default",
        }
    }

    /// Returns the command that starts `program` in this way. Variables that would change how
    /// raddle runs it are removed, so that defaults are defaults.
    pub(super) fn command(self, raddle: &Path, program: &[OsString]) -> Command {
        let (first, rest) = match self {
            Way::NativeAll | Way::NativeOne => (PathBuf::from(&program[0]), &program[1..]),
            Way::RaddleOne | Way::RaddleDefault => (raddle.to_path_buf(), program),
        };
        let mut command = Command::new(first);
        match self {
            Way::NativeAll | Way::NativeOne => {}
            Way::RaddleOne => drop(command.args(["run", "-n", "1", "--"])),
            Way::RaddleDefault => drop(command.args(["run", "--"])),
        }
        command.args(rest).stdin(Stdio::null());
        for variable in [
            CARRIERS_VARIABLE,
            CPUS_VARIABLE,
            EXTRA_CARRIERS_VARIABLE,
            QUANTUM_VARIABLE,
            MAX_THREADS_VARIABLE,
            MAX_RUNNABLE_VARIABLE,
            VERBOSE_VARIABLE,
            EXCLUDE_VARIABLE,
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Starts the command; with [`Way::NativeOne`] on one CPU.
    pub(super) fn spawn(self, command: &mut Command) -> io::Result<Child> {
        match self {
            Way::NativeOne => spawn_on_one_cpu(command),
            Way::NativeAll | Way::RaddleOne | Way::RaddleDefault => command.spawn(),
        }
    }

    /// As `spawn`, for a program that may make several processes: one carrier for each of them is
    /// one CPU only on a machine with one CPU.
    pub(super) fn spawn_processes(self, command: &mut Command) -> io::Result<Child> {
        match self {
            Way::NativeOne | Way::RaddleOne => spawn_on_one_cpu(command),
            Way::NativeAll | Way::RaddleDefault => command.spawn(),
        }
    }
}

/// Sets the affinity on the thread that forks, which the child inherits: a hook between fork and
/// exec would be unsafe code.
fn spawn_on_one_cpu(command: &mut Command) -> io::Result<Child> {
    let restricted = || {
        let allowed = sched_getaffinity(None)?;
        let first = (0..CpuSet::MAX_CPU)
            .find(|&cpu| allowed.is_set(cpu))
            .unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one)?;
        command.spawn()
    };
    let child = std::thread::scope(|scope| scope.spawn(restricted).join());
    child.unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

/// Runs to the end and returns standard output, or why there is none.
pub(super) fn output(way: Way, command: &mut Command, limit: Duration) -> Result<String, String> {
    output_of(|command| way.spawn(command), command, limit)
}

/// The same for a program that makes processes.
pub(super) fn output_of_processes(
    way: Way,
    command: &mut Command,
    limit: Duration,
) -> Result<String, String> {
    output_of(|command| way.spawn_processes(command), command, limit)
}

fn output_of(
    spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    command: &mut Command,
    limit: Duration,
) -> Result<String, String> {
    let text = |error: io::Error| error.to_string();
    let (mut out, mut err) = (unnamed_file().map_err(text)?, unnamed_file().map_err(text)?);
    command
        .stdout(out.try_clone().map_err(text)?)
        .stderr(err.try_clone().map_err(text)?);
    let mut child = spawn(command).map_err(text)?;
    let status = wait(&mut child, limit).map_err(text)?;
    match status {
        None => Err(format!(
            "did not end in {} s, and was killed",
            limit.as_secs()
        )),
        Some(status) if status.success() => content(&mut out).map_err(text),
        Some(status) => {
            let complaint = content(&mut err).unwrap_or_default();
            let last = complaint.lines().last().unwrap_or("it said nothing");
            Err(format!("{status}: {last}"))
        }
    }
}

/// Waits for the end. Kills the program at the limit, and returns `None` then.
pub(super) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    if readable_within(&pidfd, limit)? {
        return child.wait().map(Some);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Returns whether `file` becomes readable before the limit.
pub(super) fn readable_within(file: impl AsFd, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&file, PollFlags::IN)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Makes a file and not a pipe: it needs no reader while the program runs.
fn unnamed_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

fn content(file: &mut File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(way: Way, script: &str, limit: Duration) -> Result<String, String> {
        let program = ["/bin/sh", "-c", script].map(OsString::from);
        output(way, &mut way.command(Path::new("raddle"), &program), limit)
    }

    #[test]
    fn one_cpu_is_for_the_child_alone() {
        let before = sched_getaffinity(None).unwrap();
        let list = "grep Cpus_allowed_list /proc/self/status";
        let line = shell(Way::NativeOne, list, LIMIT).unwrap();
        let cpu = line.split_whitespace().nth(1).unwrap();
        assert!(cpu.parse::<u32>().is_ok(), "{line}");
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_failure_says_the_programs_last_words() {
        let error = shell(
            Way::NativeAll,
            "echo first >&2; echo last >&2; exit 3",
            LIMIT,
        );
        assert_eq!(error.unwrap_err(), "exit status: 3: last");
    }

    #[test]
    fn what_takes_too_long_is_killed() {
        let started = Instant::now();
        let error = shell(Way::NativeAll, "exec sleep 60", Duration::from_millis(50));
        assert_eq!(error.unwrap_err(), "did not end in 0 s, and was killed");
        assert!(started.elapsed() < LIMIT);
    }

    #[test]
    fn processes_of_one_carrier_are_kept_on_one_cpu() {
        for way in EVERY_WAY {
            let mut command = Command::new("nproc");
            let child = way.spawn_processes(command.stdout(Stdio::piped())).unwrap();
            let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            let all = crate::machine::cpus_allowed();
            let wanted = match way {
                Way::NativeOne | Way::RaddleOne => 1,
                Way::NativeAll | Way::RaddleDefault => all,
            };
            assert_eq!(said.trim(), wanted.to_string(), "{}", way.name());
        }
    }

    #[test]
    fn the_ways_under_raddle_differ_in_carriers_alone() {
        let program = ["prog", "-x"].map(OsString::from);
        let line = |way: Way| {
            let command = way.command(Path::new("/r"), &program);
            let arguments = command
                .get_args()
                .map(|argument| argument.to_str().unwrap());
            arguments.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(Way::NativeOne), "-x");
        assert_eq!(line(Way::RaddleOne), "run -n 1 -- prog -x");
        assert_eq!(line(Way::RaddleDefault), "run -- prog -x");
    }
}
