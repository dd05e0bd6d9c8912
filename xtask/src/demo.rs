//! `xtask demo`: the main job in under a minute, as one small table.
//!
//! Three unmodified programs play ping-pong between two threads: on all CPUs, on one CPU, and
//! under raddle. The run on one CPU is the honest comparison: much of what user-mode threads
//! seem to gain on all CPUs is that both threads sit on one. `raddle bench` measures properly:
//! more rounds, interleaved, with medians.
//!
//! The affinity of a native run is set on the thread that starts it, and the child inherits it;
//! `taskset` may not be there, and a hook between fork and exec would be unsafe code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::thread::CpuSet;

use crate::shell;
use crate::workspace::Workspace;

const RUN_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A program of the demonstration: its title and its command line.
struct Program {
    title: &'static str,
    command: Vec<PathBuf>,
}

#[derive(Clone, Copy)]
enum Mode {
    AllCpus,
    OneCpu,
    Raddle,
}

/// Nanoseconds a hand-off, or the reason for a missing figure.
type Figure = Result<f64, String>;

/// Prints the table. Returns false when a run gave no figure.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    workspace.build_release()?;
    let folder = workspace.target.join("demo");
    fs::create_dir_all(&folder)?;
    let programs = prepare(&workspace.root.join("xtask/demo"), &folder)?;
    let mut all_ran = true;
    println!("\nnanoseconds a hand-off between two threads; less is better\n");
    println!(
        "{}",
        row(["", "native,", "native,", "under", "all CPUs", "one CPU"])
    );
    println!(
        "{}",
        row([
            "program", "all CPUs", "one CPU", "raddle", "/ raddle", "/ raddle"
        ])
    );
    for program in programs {
        let [all, one, raddle] = [Mode::AllCpus, Mode::OneCpu, Mode::Raddle]
            .map(|mode| measure(&program, mode, &workspace.raddle()));
        all_ran &= all.is_ok() && one.is_ok() && raddle.is_ok();
        println!("{}", program_row(program.title, [&all, &one, &raddle]));
        let failures = [("all CPUs", all), ("one CPU", one), ("raddle", raddle)];
        for (mode, failure) in failures
            .into_iter()
            .filter_map(|(m, f)| Some((m, f.err()?)))
        {
            println!("  {}, {mode}: {failure}", program.title);
        }
    }
    Ok(all_ran)
}

/// Compiles what needs compiling; a language that is not installed is left out with a line.
fn prepare(sources: &Path, folder: &Path) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    let pingpong = folder.join("pingpong");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-pthread", "-o"])
        .arg(&pingpong)
        .arg(sources.join("pingpong.c"));
    shell::run(&mut cc)?;
    programs.push(Program {
        title: "C, condition variable",
        command: vec![pingpong],
    });
    match shell::find("python3") {
        Some(python) => programs.push(Program {
            title: "CPython, queue.Queue",
            command: vec![python, sources.join("pingpong.py")],
        }),
        None => println!("CPython is left out: python3 is not installed"),
    }
    match (shell::find("java"), shell::find("javac")) {
        (Some(java), Some(javac)) => {
            shell::run(
                Command::new(javac)
                    .arg("-d")
                    .arg(folder)
                    .arg(sources.join("PingPong.java")),
            )?;
            let command = vec![java, "-cp".into(), folder.into(), "PingPong".into()];
            programs.push(Program {
                title: "Java, BlockingQueue",
                command,
            });
        }
        _ => println!("Java is left out: java and javac are not both installed"),
    }
    Ok(programs)
}

fn measure(program: &Program, mode: Mode, raddle: &Path) -> Figure {
    let [first, arguments @ ..] = &program.command[..] else {
        return Err("no command".into());
    };
    let mut command = match mode {
        Mode::Raddle => Command::new(raddle),
        Mode::AllCpus | Mode::OneCpu => Command::new(first),
    };
    if matches!(mode, Mode::Raddle) {
        command.args(["run", "--"]).arg(first);
    }
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let one_cpu = matches!(mode, Mode::OneCpu);
    let output = start(command, one_cpu)
        .and_then(finish)
        .map_err(|error| format!("{error:#}"))?;
    figure(&output).ok_or_else(|| "printed no figure".into())
}

/// Starts the command from a thread of its own, bound to one CPU if asked.
fn start(mut command: Command, one_cpu: bool) -> Result<Child> {
    let starter = std::thread::spawn(move || -> Result<Child> {
        if one_cpu {
            rustix::thread::sched_setaffinity(None, &first_cpu()?)?;
        }
        Ok(command.spawn()?)
    });
    starter
        .join()
        .ok()
        .context("the thread that starts the program panicked")?
}

/// Returns the first CPU that this process may use, which may not be CPU 0.
fn first_cpu() -> Result<CpuSet> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu));
    let mut set = CpuSet::new();
    set.set(first.context("this process may use no CPU")?);
    Ok(set)
}

/// Waits for the child, kills it at the limit, and returns what it printed: a line, so that the
/// unread pipe can't fill.
fn finish(mut child: Child) -> Result<String> {
    let deadline = Instant::now() + RUN_LIMIT;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            None => {
                child.kill()?;
                child.wait()?;
                bail!("did not end within {} s", RUN_LIMIT.as_secs());
            }
        }
    };
    if !status.success() {
        bail!("{status}");
    }
    Ok(std::io::read_to_string(
        child.stdout.take().context("no standard output")?,
    )?)
}

/// Reads `123 ns/hand-off` from the program's last line.
fn figure(output: &str) -> Option<f64> {
    output
        .trim_end()
        .lines()
        .last()?
        .strip_suffix(" ns/hand-off")?
        .parse()
        .ok()
}

fn program_row(title: &str, [all, one, raddle]: [&Figure; 3]) -> String {
    let nanoseconds = |figure: &Figure| figure.as_ref().map_or("-".into(), |ns| format!("{ns:.0}"));
    let ratio = |native: &Figure| match (native, raddle) {
        (Ok(native), Ok(raddle)) if *raddle > 0.0 => format!("{:.1}x", native / raddle),
        _ => "-".into(),
    };
    let cells = [
        nanoseconds(all),
        nanoseconds(one),
        nanoseconds(raddle),
        ratio(all),
        ratio(one),
    ];
    let [all_ns, one_ns, raddle_ns, over_all, over_one] = cells.each_ref().map(String::as_str);
    row([title, all_ns, one_ns, raddle_ns, over_all, over_one])
}

fn row([title, a, b, c, d, e]: [&str; 6]) -> String {
    format!("{title:<24}{a:>10}{b:>10}{c:>10}{d:>10}{e:>10}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_the_last_line() {
        assert_eq!(figure("warming up\n2392 ns/hand-off\n"), Some(2392.0));
        assert_eq!(figure("2392 ns\n"), None);
        assert_eq!(figure(""), None);
    }

    #[test]
    fn a_row_shows_ratios_only_of_what_ran() {
        let failed: Figure = Err("no".into());
        let line = program_row("C", [&Ok(4000.0), &failed, &Ok(100.0)]);
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["C", "4000", "-", "100", "40.0x", "-"]);
    }

    #[test]
    fn one_cpu_is_inherited_by_the_child() {
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").stdout(Stdio::piped());
        let status = finish(start(command, true).unwrap()).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list:"))
            .unwrap();
        assert!(
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u32>()
                .is_ok(),
            "{line}"
        );
    }

    #[test]
    fn a_program_that_fails_gives_no_figure() {
        let program = Program {
            title: "false",
            command: vec!["false".into()],
        };
        assert!(measure(&program, Mode::AllCpus, Path::new("raddle")).is_err());
    }
}
