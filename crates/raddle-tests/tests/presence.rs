//! Raddle is really there: threads of the program are not kernel threads.
//!
//! Without this, a runtime that quietly gives every thread a kernel thread would pass every test.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Kernel threads that the runtime may have beside its carriers: sysmon, and helpers.
const OTHERS_MAX: usize = 3;

fn kernel_threads(pid: u32) -> Result<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Threads:"));
    Ok(line
        .context("a status has a line on threads")?
        .trim()
        .parse()?)
}

/// Programs of several languages, each with a hundred waiting threads: the threads are green
/// whatever their runtime did before it made them.
fn green_in_every_runtime(test: &str, source: &str) {
    in_every_mode(test, |mode| {
        for variant in Program::build(source)?.variants {
            let running = wait_until_all_wait(mode, &variant.command)?;
            let found = kernel_threads(running.pid())?;
            let is_right = (found > 100) == (mode == Mode::Native);
            ensure!(is_right, "{}: {found} kernel threads", variant.label);
        }
        Ok(())
    });
}

#[test]
fn threads_of_java_are_green() {
    green_in_every_runtime("presence::threads_of_java_are_green", "Waiting.java");
}

#[test]
fn threads_of_mono_and_dotnet_are_green() {
    green_in_every_runtime(
        "presence::threads_of_mono_and_dotnet_are_green",
        "waiting.cs",
    );
}

#[test]
fn threads_of_python_are_green() {
    green_in_every_runtime("presence::threads_of_python_are_green", "waiting.py");
}

fn start_waiting(mode: Mode, count: usize) -> Result<Running> {
    let program = Program::build("many_waiting.c")?;
    let mut line = program.variants[0].command.clone();
    line.push(count.to_string().into());
    wait_until_all_wait(mode, &line)
}

fn wait_until_all_wait(mode: Mode, line: &[OsString]) -> Result<Running> {
    let running = Running::start(mode, mode.command(line)?, None)?;
    running.wait_until_it_says("waiting\n")?;
    Ok(running)
}

fn check(test: &str, count: usize) {
    in_every_mode(test, |mode| {
        let running = start_waiting(mode, count)?;
        let found = kernel_threads(running.pid())?;
        match mode {
            Mode::Native => ensure!(found == count + 1, "{found} kernel threads"),
            Mode::Raddle { carriers } => ensure!(
                found <= usize::from(carriers) + OTHERS_MAX,
                "{found} kernel threads with {carriers} carriers"
            ),
        }
        running.terminate()
    });
}

#[test]
fn five_hundred_threads_need_no_more_kernel_threads_than_carriers_and_three() {
    check(
        "presence::five_hundred_threads_need_no_more_kernel_threads_than_carriers_and_three",
        500,
    );
}

#[test]
fn ten_thousand_threads_need_no_more_either() {
    check("presence::ten_thousand_threads_need_no_more_either", 10_000);
}

/// The output of `raddle dump`.
fn dump(pid: u32) -> Result<String> {
    let output = Command::new(raddle()?)
        .args(["dump", &pid.to_string()])
        .output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Carriers that are neither spare nor another thread's own, as `raddle dump` shows them.
fn carriers(pid: u32) -> Result<usize> {
    let text = dump(pid)?;
    let is_active = |line: &&str| line.starts_with("carrier ") && !line.contains(" spare ");
    Ok(text.lines().filter(is_active).count())
}

fn resize(running: &Running, count: usize) -> Result<()> {
    let pid = running.pid();
    let done = Command::new(raddle()?)
        .args(["ctl", &pid.to_string(), "carriers", &count.to_string()])
        .output()?;
    ensure!(done.status.success(), "{done:?}");
    let started = Instant::now();
    while carriers(pid)? != count {
        ensure!(started.elapsed() < LIMIT, "never {count} carriers");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn carriers_are_resized_while_threads_compute() {
    let name = "presence::carriers_are_resized_while_threads_compute";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build("computing.c")?;
        let running = Running::start(mode, mode.command(&program.variants[0].command)?, None)?;
        running.wait_until_it_says("computing\n")?;
        for count in [4, 1, 3, 2] {
            resize(&running, count)?;
        }
        let pid = running.pid().to_string();
        let stats = Command::new(raddle()?)
            .args(["dump", &pid, "--stats"])
            .output()?;
        let stats = String::from_utf8(stats.stdout)?;
        ensure!(stats.contains("from wake-up to running"), "{stats}");
        running.terminate()
    });
}

/// The output of `raddle dump --json`.
fn dump_json(pid: u32, flags: &[&str]) -> Result<Value> {
    let dumped = Command::new(raddle()?)
        .args(["dump", &pid.to_string(), "--json"])
        .args(flags)
        .output()?;
    ensure!(dumped.status.success(), "{dumped:?}");
    Ok(serde_json::from_slice(&dumped.stdout)?)
}

/// Eight computing threads share the carriers: each waits in turn, and has its part of the time.
#[test]
fn delays_and_cpu_times_are_told() {
    let name = "presence::delays_and_cpu_times_are_told";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        let program = Program::build("computing.c")?;
        let running = Running::start(mode, mode.command(&program.variants[0].command)?, None)?;
        running.wait_until_it_says("computing\n")?;
        let limit = Instant::now() + Duration::from_secs(10);
        let stats = loop {
            std::thread::sleep(Duration::from_millis(300));
            let stats = dump_json(running.pid(), &["--stats"])?;
            if stats["delay"]["samples"].as_u64() > Some(10) {
                break stats;
            }
            ensure!(Instant::now() < limit, "{stats}");
        };
        let longest_ns = stats["longest_delay"]["ns"].as_u64();
        ensure!(longest_ns > Some(1_000_000), "{stats}");
        let up_ns = stats["now_ns"].as_u64().zip(stats["started_ns"].as_u64());
        ensure!(
            longest_ns < up_ns.map(|(now, start)| now - start),
            "{stats}"
        );
        ensure!(stats["longest_delay"]["name"] == "program", "{stats}");
        let usage = dump_json(running.pid(), &["--cpu", "--interval", "0.5"])?;
        let threads = usage["threads"].as_array().context("threads")?;
        let percents: Vec<f64> = threads
            .iter()
            .filter_map(|thread| thread["cpu_percent"].as_f64())
            .collect();
        ensure!(percents.len() == 9, "{usage}");
        ensure!(
            percents.iter().filter(|one| **one > 0.0).count() >= 8,
            "{usage}"
        );
        let sum: f64 = percents.iter().sum();
        ensure!(sum <= f64::from(carriers) * 101.0, "{percents:?}");
        running.terminate()
    });
}

/// A compiler thread gets more than twice the time of each of twenty others; by weight, ten times.
/// While other processes take the CPUs for most of a run, the shares say little: the best of three
/// runs counts.
#[test]
fn compiler_threads_have_a_larger_share() {
    let name = "presence::compiler_threads_have_a_larger_share";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build("compilers.c")?;
        let mut percents = Vec::new();
        for _ in 0..3 {
            let command = mode.command(&program.variants[0].command)?;
            let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
            let said = outcome.stdout.split_whitespace().next();
            let percent: u32 = said.context("a number")?.parse()?;
            if percent > 200 {
                return Ok(());
            }
            percents.push(percent);
        }
        bail!("{percents:?} percent")
    });
}

/// A thread that waits for a mutex with a preempted holder doesn't wait for the holder's turn. In a
/// whole rotation each of twenty threads that compute has a turn. Without lent turns the wait is
/// about a rotation. With them it is more than nothing where the kernel takes the CPU from the
/// carrier of the holder, as other processes and a third carrier on two CPUs make it do.
#[test]
fn a_waiter_lends_its_turn_to_the_holder_of_the_lock() {
    let name = "presence::a_waiter_lends_its_turn_to_the_holder_of_the_lock";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build("lent.c")?;
        for arguments in [&[][..], &["inherits"]] {
            let line = [program.variants[0].command[0].clone()];
            let line = line.into_iter().chain(arguments.iter().map(OsString::from));
            let command = mode.command(&line.collect::<Vec<_>>())?;
            let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
            let said = outcome.stdout.split_whitespace().next();
            let percent: u32 = said.context("a number")?.parse()?;
            ensure!(percent < 50, "{arguments:?}: {outcome:?}");
        }
        Ok(())
    });
}

/// Tests that want CPUs for themselves, or count how others want them.
static CPUS: Mutex<()> = Mutex::new(());

/// The number that `starving.c` prints in one of its modes.
fn starving(mode: Mode, which: &str) -> Result<f64> {
    let _alone = CPUS.lock();
    let program = Program::build("starving.c")?;
    let line = [program.variants[0].command[0].clone(), which.into()];
    let outcome = Running::start(mode, mode.command(&line)?, None)?.wait(LIMIT)?;
    let said = outcome.stdout.split_whitespace().next();
    Ok(said.context("a number")?.parse()?)
}

/// The number is below `limit` in one of three runs: other processes make it larger.
fn ensure_below(limit: f64, mode: Mode, which: &str) -> Result<()> {
    let mut found = Vec::new();
    while found.len() < 3 {
        let number = starving(mode, which)?;
        if number < limit {
            return Ok(());
        }
        found.push(number);
    }
    bail!("{which}: {found:?}")
}

/// Threads that begin and end all the time, or yield, don't keep one that computes from the CPU: it
/// waited for 130 to 400 ms when the last turn of a thread that ended wasn't counted, and a yield
/// was a turn like any other.
#[test]
fn no_thread_waits_for_long_beside_threads_that_begin_and_end_or_yield() {
    let name = "presence::no_thread_waits_for_long_beside_threads_that_begin_and_end_or_yield";
    in_every_mode(name, |mode| {
        for which in ["create", "yield"] {
            ensure_below(80.0, mode, which)?; // the longest wait in ms
        }
        Ok(())
    });
}

/// A waiter that gives up soon, and tries again, lends the holder its own share and no more.
#[test]
fn a_waiter_lends_no_more_than_its_own_share() {
    let name = "presence::a_waiter_lends_no_more_than_its_own_share";
    in_every_mode(name, |mode| {
        match mode {
            Mode::Native => starving(mode, "lend").map(drop),
            Mode::Raddle { .. } => ensure_below(250.0, mode, "lend"), // percent
        }
    });
}

/// Starts eight threads that compute by `wrapper`, with as many carriers as CPUs, whatever other
/// processes do.
fn compute_in(wrapper: &str) -> Result<Running> {
    compute_with(wrapper, "0")
}

/// As [`compute_in`], with at most `extra` extra carriers.
fn compute_with(wrapper: &str, extra: &str) -> Result<Running> {
    let program = Program::build("computing.c")?;
    let program = program.variants[0].command[0].to_str().context("a path")?;
    let raddle = raddle()?;
    let raddle = raddle.to_str().context("a path")?;
    let flag = "--extra-carriers";
    let line = [
        "sh", "-c", wrapper, raddle, "run", flag, extra, "--", program,
    ];
    let command = Mode::Native.command(&line)?;
    let running = Running::start(Mode::Raddle { carriers: 0 }, command, None)?;
    running.wait_until_it_says("computing\n")?;
    Ok(running)
}

/// What a container's resize may take.
const RESIZE: Duration = Duration::from_secs(5);

fn ensure_carriers(running: &Running, count: usize) -> Result<()> {
    let started = Instant::now();
    while carriers(running.pid())? != count {
        let took = started.elapsed();
        ensure!(took < RESIZE, "not {count} carriers after {took:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Sets which of the machine's first two CPUs all kernel threads of a process may use.
fn allow_cpus(running: &Running, cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    for thread in fs::read_dir(format!("/proc/{}/task", running.pid()))? {
        let name = thread?.file_name();
        let tid = name.to_str().and_then(|tid| tid.parse().ok());
        // A kernel thread that has ended meanwhile needs no CPU.
        let _ = sched_setaffinity(tid.and_then(Pid::from_raw), &set);
    }
    Ok(())
}

#[test]
fn carriers_follow_the_cpus_that_may_be_used() {
    let name = "presence::carriers_follow_the_cpus_that_may_be_used";
    in_every_mode(name, |mode| {
        let allowed = sched_getaffinity(None)?;
        if mode != (Mode::Raddle { carriers: 2 }) || !allowed.is_set(0) || !allowed.is_set(1) {
            return Ok(());
        }
        let running = compute_in("exec taskset -c 0 \"$0\" \"$@\"")?;
        ensure_carriers(&running, 1)?;
        for cpus in [&[0, 1][..], &[1], &[0, 1]] {
            allow_cpus(&running, cpus)?;
            ensure_carriers(&running, cpus.len())?;
        }
        running.terminate()
    });
}

/// Waits until the process has extra carriers, or none any more, and dumps say so. Other tests may
/// want the CPU for a moment.
fn ensure_extra(running: &Running, some: bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let dumped = dump_json(running.pid(), &[])?;
        let extra = dumped["carriers_extra"].as_u64().context("a number")?;
        let text = dump(running.pid())?;
        if (extra != 0) == some && text.contains("extra carrier") == some {
            return Ok(());
        }
        ensure!(started.elapsed() < LIMIT, "{extra} extra carriers\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Eight green threads on one CPU, beside sixteen kernel threads of other processes.
#[test]
fn carriers_are_added_while_other_processes_want_the_cpus() {
    let name = "presence::carriers_are_added_while_other_processes_want_the_cpus";
    let _alone = CPUS.lock();
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) || !sched_getaffinity(None)?.is_set(0) {
            return Ok(());
        }
        if fs::read("/proc/self/schedstat").is_err() {
            eprintln!("this kernel keeps no account of the time that threads wait for a CPU");
            return Ok(());
        }
        let pinned = "exec taskset -c 0 \"$0\" \"$@\"";
        let program = Program::build("computing.c")?;
        let program = program.variants[0].command[0].to_str().context("a path")?;
        let running = compute_with(pinned, "5")?;
        let beside = || -> Result<Running> {
            let command = Mode::Native.command(&["taskset", "-c", "0", program])?;
            Running::start(Mode::Native, command, None)
        };
        for _ in 0..2 {
            let others = [beside()?, beside()?];
            ensure_extra(&running, true)?;
            for other in others {
                other.terminate()?;
            }
            ensure_extra(&running, false)?;
        }
        running.terminate()
    });
}

/// A control group with another in it; the outer one can have a quota. Both end with this value.
struct Groups {
    outer: PathBuf,
    /// The file that takes a quota, of a period of 100 ms in both versions.
    quota: &'static str,
}

impl Groups {
    /// `None` where this user can't make any.
    fn make() -> Option<Groups> {
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (root, quota) = if first.join("cpu.cfs_quota_us").exists() {
            (first, "cpu.cfs_quota_us")
        } else {
            (Path::new("/sys/fs/cgroup"), "cpu.max")
        };
        let outer = root.join(format!("raddle-tests-{}", std::process::id()));
        fs::create_dir_all(outer.join("inner")).ok()?;
        let groups = Groups { outer, quota };
        groups.outer.join(quota).exists().then_some(groups)
    }

    fn allow(&self, cpus: u32) -> Result<()> {
        Ok(fs::write(
            self.outer.join(self.quota),
            (cpus * 100_000).to_string(),
        )?)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.outer.join("inner"));
        let _ = fs::remove_dir(&self.outer);
    }
}

#[test]
fn carriers_follow_the_quota_of_the_groups_above() {
    let name = "presence::carriers_follow_the_quota_of_the_groups_above";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) || sched_getaffinity(None)?.count() < 2 {
            return Ok(());
        }
        let Some(groups) = Groups::make() else {
            eprintln!("no control group can be made here");
            return Ok(());
        };
        groups.allow(1)?;
        let inner = groups.outer.join("inner/cgroup.procs");
        let enter = format!("echo $$ > {}; exec \"$0\" \"$@\"", inner.display());
        let running = compute_in(&enter)?;
        for cpus in [1, 2, 1, 2] {
            groups.allow(cpus)?;
            ensure_carriers(&running, cpus as usize)?;
        }
        running.terminate()
    });
}

#[test]
fn carriers_that_sit_in_the_kernel_are_told_with_the_place() {
    let name = "presence::carriers_that_sit_in_the_kernel_are_told_with_the_place";
    in_every_mode(name, |mode| {
        // With more carriers the threads may not need that one's place.
        let Mode::Raddle { carriers: 1 } = mode else {
            return Ok(());
        };
        let program = Program::build("stuck.c")?;
        let running = Running::start(mode, mode.command(&program.variants[0].command)?, None)?;
        running.wait_until_it_says("stuck\n")?;
        let pid = running.pid().to_string();
        let stats = Command::new(raddle()?)
            .args(["dump", &pid, "--stats"])
            .output()?;
        let stats = String::from_utf8(stats.stdout)?;
        let event = stats.lines().find(|line| line.contains("system call 0 "));
        ensure!(
            event.is_some_and(|line| line.contains("at program+") && line.contains("(get_stuck+")),
            "{stats}"
        );
        ensure!(
            stats.contains("carriers that sit in the kernel: "),
            "{stats}"
        );
        running.terminate()
    });
}

#[test]
fn threads_beyond_the_limit_are_refused() {
    let name = "presence::threads_beyond_the_limit_are_refused";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build("many_waiting.c")?;
        let mut line = program.variants[0].command.clone();
        line.push("100".into());
        let mut command = mode.command(&line)?;
        command.env("RADDLE_MAX_THREADS", "50");
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        // The program's main thread is one of them, and it checks what pthread_create returns.
        ensure!(outcome.stdout.contains("(value 11"), "{}", outcome.stdout);
        Ok(())
    });
}

#[test]
fn runnable_threads_beyond_the_limit_are_refused_and_waiting_ones_are_not() {
    let name = "presence::runnable_threads_beyond_the_limit_are_refused_and_waiting_ones_are_not";
    in_every_mode(name, |mode| {
        let program = Program::build("crowded.c")?;
        let mut command = mode.command(&program.variants[0].command)?;
        command.env("RADDLE_MAX_RUNNABLE", "10");
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        let said = outcome.stdout.as_str();
        let made = said
            .lines()
            .find_map(|line| line.strip_prefix("computing "));
        let made: usize = made.context("it computes")?.parse()?;
        match mode {
            Mode::Raddle { .. } => {
                // The main thread is the tenth. One that is just being switched to may be missed.
                ensure!((9..=12).contains(&made), "{said}");
            }
            Mode::Native => ensure!(made == 30, "{said}"),
        }
        ensure!(said.contains("waiting 30\n"), "{said}");
        Ok(())
    });
}

#[test]
fn without_descriptors_for_the_engine_threads_are_kernel_threads() {
    let name = "presence::without_descriptors_for_the_engine_threads_are_kernel_threads";
    in_every_mode(name, |mode| {
        let program = Program::build("many_waiting.c")?;
        let shell = ["sh", "-c", "ulimit -n 5; exec \"$0\" 20"];
        let mut line: Vec<OsString> = shell.map(Into::into).into();
        line.extend(program.variants[0].command.clone());
        let running = wait_until_all_wait(mode, &line)?;
        let found = kernel_threads(running.pid())?;
        ensure!(found == 21, "{found} kernel threads");
        running.terminate()
    });
}
