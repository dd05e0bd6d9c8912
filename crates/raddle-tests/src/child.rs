//! A program while it runs: its output as it comes, its end, and its stacks if it does not end.
//!
//! Every program leads a process group of its own. The group is killed while its leader is dead but
//! not yet reaped, so that the number can't belong to another process. Output is read by threads,
//! because a full pipe would stop the program.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, mem};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::mode::{Mode, raddle};
use crate::tools::find_tool;

/// A shell that runs the tests in the background may ignore a terminal's signals.
fn default_signals() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: the default action is no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// How long a program may take for something that it does in any case.
const PATIENCE: Duration = Duration::from_secs(60);

/// The output and status of a program that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// The exit status, or 128 plus the number of the signal that ended the program, as in shells.
pub fn status_number(status: ExitStatus) -> i32 {
    let by_signal = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(by_signal)
}

/// A program that was started and not yet waited for. Dropping it kills its process group.
pub struct Running {
    child: Child,
    mode: Mode,
    stdout: Collector,
    stderr: Collector,
}

impl Running {
    /// Starts `command`, made by [`Mode::command`], and writes `input` to it.
    pub fn start(mode: Mode, mut command: Command, input: Option<&[u8]>) -> Result<Running> {
        let stdin = if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe { command.pre_exec(default_signals) };
        let mut child = command
            .spawn()
            .with_context(|| format!("can't start {command:?}"))?;
        let stdout = Collector::start(child.stdout.take());
        let stderr = Collector::start(child.stderr.take());
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            let input = input.to_owned();
            // A program may end before it has read all input: this is no failure of the writer.
            thread::spawn(move || pipe.write_all(&input));
        }
        Ok(Running {
            child,
            mode,
            stdout,
            stderr,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stdout_so_far(&self) -> String {
        self.stdout.text()
    }

    pub fn stderr_so_far(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the program has printed `text`, and nothing else.
    ///
    /// # Errors
    ///
    /// After a minute.
    pub fn wait_until_it_says(&self, text: &str) -> Result<()> {
        let started = Instant::now();
        while self.stdout_so_far() != text {
            ensure!(started.elapsed() < PATIENCE, "it never said {text:?}");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends a program that ends well at SIGTERM.
    ///
    /// # Errors
    ///
    /// If it doesn't, or not within a minute.
    pub fn terminate(self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait(PATIENCE)?.status;
        ensure!(status_number(status) == 0, "{status}");
        Ok(())
    }

    /// Sends one signal to the program itself, not to its children.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for the end.
    ///
    /// # Errors
    ///
    /// After `timeout`, with the output so far and the stacks; the program is dead then.
    pub fn wait(mut self, timeout: Duration) -> Result<Outcome> {
        if !self.has_ended_within(timeout)? {
            // Read before the stacks: a debugger's stop can wake what hangs, and then it goes on.
            let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
            let stacks = self.stacks();
            let _ = self.end();
            let seconds = timeout.as_secs();
            bail!(
                "did not end within {seconds} s\n--- stdout\n{stdout}--- stderr\n{stderr}{stacks}"
            );
        }
        let status = self.end()?;
        let outcome = Outcome {
            status,
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
        };
        let is_report =
            |line: &str| line.starts_with("raddle: process ") && line.contains(" among ");
        ensure!(
            !outcome.stderr.lines().any(is_report),
            "a deadlock was reported:\n{}",
            outcome.stderr
        );
        Ok(outcome)
    }

    /// Returns true if the program ends in time; leaves it unreaped.
    pub fn has_ended_within(&self, timeout: Duration) -> Result<bool> {
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit = Timespec::try_from(left)?;
            match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit)) {
                Ok(count) => return Ok(count > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Kills what is left of the group, then reaps its leader.
    fn end(&mut self) -> Result<ExitStatus> {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        Ok(self.child.wait()?)
    }

    /// The stacks of every process of the group, as far as the machine's tools can tell.
    fn stacks(&self) -> String {
        let mut text = String::new();
        for pid in group_members(self.pid()).into_iter().take(3) {
            if let (Mode::Raddle { .. }, Ok(raddle)) = (self.mode, raddle()) {
                let _ = writeln!(text, "--- raddle dump {pid}");
                text += &tool_output(Command::new(raddle).arg("dump").arg(pid.to_string()));
            }
            let Ok(gdb) = find_tool("gdb") else {
                continue;
            };
            let _ = writeln!(text, "--- gdb -p {pid}");
            let mut command = Command::new(gdb);
            command.args(["-nx", "-batch", "-ex", "set pagination off"]);
            command.args([
                "-ex",
                "thread apply all backtrace 16",
                "-p",
                &pid.to_string(),
            ]);
            text += &tool_output(&mut command);
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After `end` the child is reaped, and this waits for nothing and kills no process.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end();
        }
    }
}

/// The processes of group `group`, its leader first.
fn group_members(group: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut members: Vec<u32> = pids.filter(|&pid| group_of(pid) == Some(group)).collect();
    members.sort_by_key(|&pid| (pid != group, pid));
    members
}

/// The third field after the name in parentheses, which may itself contain anything.
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}

/// The first lines of a tool's output, within a short time.
fn tool_output(command: &mut Command) -> String {
    const LIMIT: Duration = Duration::from_secs(20);
    const LINES: usize = 300;
    let command = mem::replace(command, Command::new("true"));
    let Ok(running) = Running::start(Mode::Native, command, None) else {
        return String::new();
    };
    let ended = running.has_ended_within(LIMIT).unwrap_or(false);
    let text = running.stdout_so_far();
    let mut text: String = text
        .lines()
        .take(LINES)
        .map(|line| format!("{line}\n"))
        .collect();
    if !ended {
        text += "(cut short)\n";
    }
    text
}

/// Reads a pipe to its end on a thread of its own.
struct Collector {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collector {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Collector {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&bytes);
        let reader = pipe.map(|mut pipe| {
            thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    theirs
                        .lock()
                        .expect("no reader panics")
                        .extend(&chunk[..count]);
                }
            })
        });
        Collector { bytes, reader }
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().expect("no reader panics");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.text()
    }
}
