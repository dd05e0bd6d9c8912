//! The tools that record, where the kernel permits little: under a container's filter of system
//! calls, as a user without rights, and from inside and outside of a PID namespace.

mod protobuf;
mod recordings;
mod trace_files;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, RunFolder, Running, raddle, say};
use recordings::{
    COMPUTING, LOCKS, Times, WAITING, command_line, compare_all, read, record, record_program,
    said, times, with_carriers,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The threads of shares.c.
const THREADS: u64 = 13;

/// Where the program and the tool run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Container,
    /// A user without capabilities and without perf events.
    User,
    /// The program and the tool in one PID namespace.
    Inside,
    /// The program in a PID namespace, the tool outside of it.
    Outside,
}

const NAMESPACE: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
const USER: [&str; 6] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "--bounding-set=-all",
];

impl Place {
    /// Returns the words before a program's command.
    fn of_program(self) -> Result<Vec<OsString>> {
        let is_root = rustix::process::geteuid().is_root();
        Ok(match self {
            Place::Container => command_line("contained.c")?,
            Place::User => {
                let user = USER.iter().filter(|_| is_root).map(OsString::from);
                user.chain(command_line("refused.c")?).collect()
            }
            Place::Inside | Place::Outside => NAMESPACE.map(OsString::from).into(),
        })
    }

    /// Returns the words before the command of a tool, if the program is a certain process here.
    fn of_tool(self, pid: u32) -> Result<Vec<OsString>> {
        match self {
            Place::Inside => {
                let words = format!("nsenter --target {pid} --pid --mount --");
                Ok(words.split(' ').map(OsString::from).collect())
            }
            Place::Outside => Ok(Vec::new()),
            _ => self.of_program(),
        }
    }

    /// Returns false if there can be no such place here, and says so.
    fn is_there(self, test: &str) -> Result<bool> {
        let mut line = self.of_program()?;
        line.extend([raddle()?.into(), "--version".into()]);
        let output = Command::new(&line[0]).args(&line[1..]).output();
        let works = output.is_ok_and(|it| it.status.success());
        if !works {
            say(&format!("skipped: {test}: there is no such place here"));
        }
        Ok(works)
    }
}

/// A folder that any user may write to.
fn folder(name: &str, mode: Mode) -> Result<RunFolder> {
    let folder = RunFolder::new(&format!("{name}-{mode}"))?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

/// Puts words before a command, and keeps its variables.
fn behind(words: Vec<OsString>, inner: &Command) -> Command {
    let mut line = words;
    line.push(inner.get_program().to_owned());
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// shares.c, running.
struct Started {
    place: Place,
    running: Running,
    /// Its number here.
    pid: u32,
    folder: RunFolder,
}

impl Started {
    fn start(place: Place, mode: Mode, seconds: &str, name: &str) -> Result<Started> {
        let folder = folder(name, mode)?;
        let mut line = command_line("shares.c")?;
        line.push(seconds.into());
        let mut command = behind(place.of_program()?, &mode.command(&line)?);
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        let begun = Instant::now();
        let pid = loop {
            // Of commands that execute another one it is the process itself.
            if matches!(place, Place::Container | Place::User) {
                break running.pid();
            }
            let children = format!("/proc/{0}/task/{0}/children", running.pid());
            let children = fs::read_to_string(children).unwrap_or_default();
            if let Some(child) = children.split_whitespace().next() {
                break child.parse()?;
            }
            ensure!(begun.elapsed() < LIMIT, "no child");
            std::thread::sleep(Duration::from_millis(5));
        };
        Ok(Started {
            place,
            running,
            pid,
            folder,
        })
    }

    /// Runs a tool with the process's number for `PID`, until it succeeds: the program has no
    /// second thread yet at first.
    fn tool(&self, words: &[&str]) -> Result<String> {
        let own = match self.place {
            Place::Inside => 1,
            _ => self.pid,
        };
        let own = own.to_string();
        let mut inner = Command::new(raddle()?);
        inner.args(words.iter().map(|&it| if it == "PID" { &own } else { it }));
        let begun = Instant::now();
        loop {
            let mut command = behind(self.place.of_tool(self.pid)?, &inner);
            let output: Output = command.output()?;
            if output.status.success() {
                return Ok(String::from_utf8(output.stdout)?);
            }
            if begun.elapsed() > LIMIT {
                bail!("{words:?}: {output:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for its end, and returns what it has measured.
    fn said(self) -> Result<Times> {
        let outcome = self.running.wait(LIMIT)?;
        said(&outcome.stdout)
    }

    fn document(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.tool(words)?)?)
    }
}

/// The shares of a profile are those that the program measures.
fn shares(place: Place, name: &str) {
    let test = format!("record_places::{name}");
    with_carriers(&test, |_, mode| {
        if !place.is_there(&test)? {
            return Ok(());
        }
        let folder = folder(name, mode)?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let command = record(mode, &["-F", "999", "-o", path, "--"])?;
        let command = behind(place.of_program()?, &command);
        let (printed, said, stacks) = record_program(command, &command_line("shares.c")?, &file)?;
        compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)?;
        ensure!(times(&stacks, &LOCKS).len() == LOCKS.len(), "{printed}");
        let by_itself = printed.contains("by the runtime itself");
        ensure!(
            by_itself == matches!(place, Place::Container | Place::User),
            "{printed}"
        );
        Ok(())
    });
}

/// Each other tool says what it says elsewhere.
fn tools(place: Place, name: &str) {
    let test = format!("record_places::{name}");
    with_carriers(&test, |_, mode| {
        if !place.is_there(&test)? {
            return Ok(());
        }
        let started = Started::start(place, mode, "60", name)?;
        let locks = started.document(&["locks", "PID", "--json", "-d", "1"])?;
        for lock in LOCKS {
            let all = locks["locks"].as_array().context("locks")?;
            let lock = all.iter().find(|it| it["name"] == lock).context(lock)?;
            let held = serde_json::to_string(&lock["held_at"])?;
            ensure!(
                lock["waits"].as_u64() > Some(3) && lock["threads"] == 2,
                "{lock}"
            );
            ensure!(held.contains("\"contends\""), "{lock}");
        }
        let file = started.folder.path().join("a.pftrace");
        let path = file.to_str().context("a path")?;
        started.tool(&["trace", "PID", "-d", "1", "-o", path, "--force"])?;
        let traced = trace_files::read(&file)?;
        for thread in ["computes", "sleeps", "contends"] {
            let thread = traced.get(thread).with_context(|| thread.to_owned())?;
            ensure!(thread.turns > 0, "{} turns", thread.turns);
        }
        let top = started.document(&["top", "PID", "--once", "--json"])?;
        let threads = top["rows"].as_array().context("rows")?;
        let computes = threads.iter().find(|it| it["name"] == "computes");
        let used = computes.and_then(|it| it["cpu_percent"].as_f64());
        ensure!(threads.len() as u64 == THREADS, "{top}");
        ensure!(used > Some(1.0), "{computes:?}");
        let page = started.tool(&["metrics", "PID"])?;
        let value = |metric: &str| -> f64 {
            let rows = page.lines().filter(|it| it.starts_with(metric));
            rows.filter_map(|it| it.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        };
        ensure!(value("raddle_up{") == 1.0, "{page}");
        ensure!(value("raddle_threads{") == THREADS as f64, "{page}");
        ensure!(value("raddle_carrier_cpu_seconds_total{") > 0.0, "{page}");
        Ok(())
    });
}

#[test]
fn shares_are_right_in_a_container() {
    shares(Place::Container, "shares_are_right_in_a_container");
}

#[test]
fn tools_work_in_a_container() {
    tools(Place::Container, "tools_work_in_a_container");
}

#[test]
fn shares_are_right_for_a_user_without_rights() {
    shares(Place::User, "shares_are_right_for_a_user_without_rights");
}

#[test]
fn tools_work_for_a_user_without_rights() {
    tools(Place::User, "tools_work_for_a_user_without_rights");
}

#[test]
fn shares_are_right_inside_of_a_pid_namespace() {
    shares(Place::Inside, "shares_are_right_inside_of_a_pid_namespace");
}

#[test]
fn tools_work_inside_of_a_pid_namespace() {
    tools(Place::Inside, "tools_work_inside_of_a_pid_namespace");
}

#[test]
fn tools_work_outside_of_a_pid_namespace() {
    tools(Place::Outside, "tools_work_outside_of_a_pid_namespace");
}

/// The program runs for longer than it is recorded: its shares are the same all the time.
#[test]
fn shares_are_right_outside_of_a_pid_namespace() {
    let name = "shares_are_right_outside_of_a_pid_namespace";
    let test = format!("record_places::{name}");
    with_carriers(&test, |_, mode| {
        if !Place::Outside.is_there(&test)? {
            return Ok(());
        }
        let started = Started::start(Place::Outside, mode, "6", name)?;
        let file = started.folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let words = [
            "record", "PID", "-F", "999", "-d", "4", "-o", path, "--force",
        ];
        let printed = started.tool(&words)?;
        let stacks = read(&file)?;
        ensure!(printed.contains("mutex lock_three"), "{printed}");
        let said = started.said()?;
        compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)
    });
}
