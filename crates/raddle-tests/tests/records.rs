//! `raddle record`: the shares of a program that measures them itself, and every end that a
//! recording may have.

mod recordings;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, RunFolder, Running, in_every_mode, raddle, shared_object};
use recordings::{
    COMPUTING, LOCKS, Recorded, Stacks, WAITING, command_line, compare_all, executing, read,
    record, record_program, times, with_carriers,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn run(mut command: Command) -> Result<Output> {
    Ok(command.output()?)
}

/// Records `shares.c` for four seconds.
fn record_shares(command: Command, file: &Path) -> Result<Recorded> {
    record_program(command, &command_line("shares.c")?, file)
}

#[test]
fn shares_are_those_that_the_program_has_measured() {
    let name = "records::shares_are_those_that_the_program_has_measured";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("shares-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let command = record(mode, &["-F", "999", "-o", path, "--"])?;
        let (printed, said, stacks) = record_shares(command, &file)?;
        compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)?;
        // The time for locks is exact; other threads are runnable meanwhile.
        let waits = times(&stacks, &LOCKS);
        for lock in LOCKS {
            let (said, found) = (said[lock], waits.get(lock).copied().unwrap_or(0.0));
            ensure!(
                found > said * 0.8 && found < said * 1.05,
                "{lock}: {found} s of {said}"
            );
        }
        ensure!(printed.contains("mutex lock_three"), "{printed}");
        ensure!(printed.contains("computes"), "{printed}");
        Ok(())
    });
}

/// As [`record`], where perf events are refused.
fn record_without_events(mode: Mode, arguments: &[&str]) -> Result<Command> {
    let inner = record(mode, arguments)?;
    let filter = command_line("refused.c")?;
    let mut command = Command::new(&filter[0]);
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    Ok(command)
}

#[test]
fn where_perf_events_are_refused_the_runtime_itself_samples() {
    let name = "records::where_perf_events_are_refused_the_runtime_itself_samples";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("own-samples-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let command = record_without_events(mode, &["-F", "999", "-o", path, "--"])?;
        let (printed, said, stacks) = record_shares(command, &file)?;
        compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)?;
        // The frames go on to where the thread began.
        let is_whole = |frames: &[String]| frames.iter().any(|it| it.contains("start_thread"));
        let computing = stacks
            .iter()
            .filter(|(frames, _)| frames.iter().any(|it| it.contains("compute_")));
        let (whole, all) = computing.fold((0, 0), |(whole, all), (frames, us)| {
            (whole + us * u64::from(is_whole(frames)), all + us)
        });
        ensure!(whole * 100 >= all * 98, "{whole} of {all} us have an end");
        ensure!(printed.contains("by the runtime itself"), "{printed}");
        Ok(())
    });
}

/// Programs that look at what signals could disturb, with one case of each.
const UNDISTURBED: [(&str, &str); 8] = [
    ("undisturbed.c", "no_call_is_interrupted"),
    ("preemption.c", "the_end_of_a_coroutine_stack_is_enough"),
    ("preemption.c", "the_red_zone_survives"),
    ("preemption.c", "fork_while_others_compute"),
    ("machine.c", "avx_sums_survive_preemption"),
    ("turns.c", "a_program_executes_itself_among_burners"),
    ("blocking.c", "a_child_process_waits_for_its_exec_alone"),
    ("own_calls.c", "a_signal_ends_a_sleep"),
];

#[test]
fn a_program_does_not_notice_samples_by_the_runtime() {
    let name = "records::a_program_does_not_notice_samples_by_the_runtime";
    with_carriers(name, |mode_name, mode| {
        for (source, case) in UNDISTURBED {
            let folder = RunFolder::new(&format!("undisturbed-{mode_name}"))?;
            let file = folder.path().join("a.folded");
            let path = file.to_str().context("a path")?;
            let mut command = record_without_events(mode, &["-F", "1000", "-o", path, "--"])?;
            command.args(command_line(source)?).arg(case);
            let output = run(command)?;
            let stdout = String::from_utf8_lossy(&output.stdout);
            ensure!(output.status.success(), "{source} {case}: {output:?}");
            ensure!(stdout.contains(&format!("ok {case}\n")), "{output:?}");
        }
        Ok(())
    });
}

#[test]
fn undisturbed_runs_without_a_recording() {
    let name = "records::undisturbed_runs_without_a_recording";
    in_every_mode(name, |mode| {
        let mut words = command_line("undisturbed.c")?;
        words.push("no_call_is_interrupted".into());
        let output = mode.command(&words)?.output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    });
}

#[test]
fn a_running_program_is_recorded_by_two_at_once_in_all_formats() {
    let name = "records::a_running_program_is_recorded_by_two_at_once_in_all_formats";
    with_carriers(name, |mode_name, mode| {
        let mut arguments = command_line("shares.c")?;
        arguments.push("30".into());
        let running = Running::start(mode, mode.command(&arguments)?, None)?;
        let pid = running.pid().to_string();
        let folder = RunFolder::new(&format!("record-{mode_name}"))?;
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (folded, pprof) = (file("a.folded"), file("a.pb.gz"));
        let begun = Instant::now();
        let outputs = loop {
            let first = record(mode, &["-d", "1", "-o", &folded, &pid])?
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            let second = run(record(mode, &["-d", "1", "-o", &pprof, &pid])?)?;
            let first = first.wait_with_output()?;
            if first.status.success() && second.status.success() {
                break [first, second];
            }
            // It may not have had a thread yet.
            ensure!(begun.elapsed() < LIMIT, "{first:?} {second:?}");
            for file in [&folded, &pprof] {
                let _ = std::fs::remove_file(file);
            }
        };
        for output in outputs {
            let text = String::from_utf8(output.stdout)?;
            ensure!(
                text.contains("running") && text.contains("lock_three"),
                "{text}"
            );
        }
        let stacks = read(Path::new(&folded))?;
        // On a busy machine a second has few samples.
        ensure!(!times(&stacks, &COMPUTING).is_empty(), "{stacks:?}");
        ensure!(
            times(&stacks, &WAITING).len() == WAITING.len(),
            "{stacks:?}"
        );
        ensure!(
            std::fs::read(&pprof)?.starts_with(&[0x1f, 0x8b]),
            "a gzip file"
        );
        Ok(())
    });
}

#[test]
fn locks_are_shown_with_their_holders() {
    let name = "records::locks_are_shown_with_their_holders";
    with_carriers(name, |_, mode| {
        let mut arguments = command_line("shares.c")?;
        arguments.push("30".into());
        let running = Running::start(mode, mode.command(&arguments)?, None)?;
        let pid = running.pid().to_string();
        let begun = Instant::now();
        let document = loop {
            let mut command = Command::new(raddle()?);
            command.args(["locks", "--json", "-d", "2", &pid]);
            let output = run(command)?;
            if output.status.success() {
                break serde_json::from_slice::<Value>(&output.stdout)?;
            }
            ensure!(begun.elapsed() < LIMIT, "{output:?}"); // no thread yet
        };
        let locks = document["locks"].as_array().context("locks")?;
        for (number, name) in (1..).zip(LOCKS) {
            let is_it = |lock: &&Value| lock["name"] == name;
            let lock = locks
                .iter()
                .find(is_it)
                .with_context(|| format!("no {name}"))?;
            let figure = |name: &str| lock[name].as_f64().context("a number");
            // Two threads, of which one waits nearly always, for as long as the other sleeps.
            let held_ns = figure("held_ns")? / figure("holds")?;
            let least_ns = f64::from(number) * 5e6;
            ensure!(lock["kind"] == "mutex" && lock["threads"] == 2, "{lock}");
            ensure!(held_ns > least_ns, "{lock}");
            ensure!(figure("waiters_at_a_time")? < 1.1, "{lock}");
            ensure!(lock["is_convoy"] == false, "{lock}");
            let place = |name: &str| serde_json::to_string(&lock[name]);
            ensure!(place("waits_at")?.contains("\"contends\""), "{lock}");
            let held = place("held_at")?;
            ensure!(
                held.contains("usleep") && held.contains("contends"),
                "{lock}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_recording_ends_with_its_process_as_it_does() {
    let name = "records::a_recording_ends_with_its_process_as_it_does";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("record-ends-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let shell = |script: &str| -> Result<Output> {
            let mut command = record(mode, &["-o", path, "--force", "--", "sh", "-c", script])?;
            command.env(
                "SHARES",
                command_line("shares.c")?.first().context("a program")?,
            );
            run(command)
        };
        // A program that executes another one is recorded from then on.
        let executed = shell("exec \"$SHARES\" 0.5")?;
        ensure!(executed.status.success(), "{executed:?}");
        read(&file)?;
        let status = shell("exit 7")?;
        ensure!(status.status.code() == Some(7), "{status:?}");
        let killed = shell("kill -KILL $$")?;
        ensure!(killed.status.code() == Some(128 + 9), "{killed:?}");
        let missing = run(record(mode, &["--", "/no/such/program"])?)?;
        ensure!(missing.status.code() == Some(127), "{missing:?}");
        Ok(())
    });
}

/// A full disk is a sentence, and the status says so.
#[test]
fn a_full_standard_output_is_one_sentence() {
    let name = "records::a_full_standard_output_is_one_sentence";
    with_carriers(name, |_, mode| {
        let mut arguments = command_line("shares.c")?;
        arguments.push("30".into());
        let running = Running::start(mode, mode.command(&arguments)?, None)?;
        let pid = running.pid().to_string();
        // It has threads then.
        let begun = Instant::now();
        while !run(record(mode, &["-d", "0.1", &pid])?)?.status.success() {
            ensure!(begun.elapsed() < LIMIT, "it is never recorded");
        }
        for command in ["record", "locks"] {
            let output = Command::new(raddle()?)
                .args([command, "-d", "0.1", &pid])
                .stdout(std::fs::File::options().write(true).open("/dev/full")?)
                .stderr(Stdio::piped())
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(2), "{command}: {output:?}");
            ensure!(
                said.lines().count() == 1 && said.contains("No space"),
                "{said}"
            );
        }
        Ok(())
    });
}

/// A signal that ends the recorder ends the program, too.
#[test]
fn a_signal_is_passed_on_to_the_program() {
    let name = "records::a_signal_is_passed_on_to_the_program";
    with_carriers(name, |_, mode| {
        let mut command = record(mode, &["--"])?;
        command.args(command_line("shares.c")?).arg("60");
        let recorder = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child_of(recorder.id())?;
        std::thread::sleep(Duration::from_millis(500));
        rustix::process::kill_process(Pid::from_child(&recorder), Signal::TERM)?;
        let output = recorder.wait_with_output()?;
        ensure!(output.status.code() == Some(128 + 15), "{output:?}");
        Ok(())
    });
}

/// Whatever signal ends a tool, what it had is written.
#[test]
fn a_signal_to_a_tool_loses_nothing() {
    let name = "records::a_signal_to_a_tool_loses_nothing";
    with_carriers(name, |mode_name, mode| {
        let mut arguments = command_line("shares.c")?;
        arguments.push("60".into());
        let running = Running::start(mode, mode.command(&arguments)?, None)?;
        let pid = running.pid().to_string();
        let folder = RunFolder::new(&format!("signals-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let begun = Instant::now();
        while !run(record(mode, &["-d", "0.1", &pid])?)?.status.success() {
            ensure!(begun.elapsed() < LIMIT, "it is never recorded");
        }
        for signal in [Signal::QUIT, Signal::HUP, Signal::INT, Signal::TERM] {
            for tool in ["record", "trace", "locks"] {
                let mut command = Command::new(raddle()?);
                command.args([tool, &pid, "-d", "30"]);
                if tool != "locks" {
                    command.args(["--force", "-o", path]);
                }
                let tool_process = command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()?;
                std::thread::sleep(Duration::from_millis(700));
                let id = Pid::from_child(&tool_process);
                rustix::process::kill_process(id, signal)?;
                let output = tool_process.wait_with_output()?;
                ensure!(output.status.success(), "{tool} {signal:?}: {output:?}");
                ensure!(!output.stdout.is_empty(), "{tool} {signal:?}: {output:?}");
                if tool != "locks" {
                    ensure!(std::fs::metadata(&file)?.len() > 100, "{tool} {signal:?}");
                    std::fs::remove_file(&file)?;
                }
            }
        }
        Ok(())
    });
}

#[test]
fn what_was_recorded_before_a_crash_is_written() {
    let name = "records::what_was_recorded_before_a_crash_is_written";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("record-crash-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let mut command = record(mode, &["-o", path, "--"])?;
        command.args(command_line("shares.c")?).arg("60");
        let recorder = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let recorder_pid = recorder.id();
        let child = child_of(recorder_pid)?;
        std::thread::sleep(Duration::from_secs(1));
        rustix::process::kill_process(child, Signal::SEGV)?;
        let output = recorder.wait_with_output()?;
        ensure!(output.status.code() == Some(128 + 11), "{output:?}");
        ensure!(output.status.signal().is_none(), "{output:?}");
        let stacks = read(&file)?;
        ensure!(!times(&stacks, &WAITING).is_empty(), "{stacks:?}");
        Ok(())
    });
}

/// Waits until a process has a child.
fn child_of(pid: u32) -> Result<Pid> {
    let begun = Instant::now();
    loop {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let first = children.split_whitespace().next();
        let child = first.and_then(|child| child.parse().ok());
        if let Some(child) = child.and_then(Pid::from_raw) {
            return Ok(child);
        }
        ensure!(begun.elapsed() < LIMIT, "no child");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_can_not_be_recorded_is_one_sentence() {
    let name = "records::what_can_not_be_recorded_is_one_sentence";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("record-refused-{mode_name}"))?;
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        std::fs::write(file("there.folded"), "precious")?;
        let own = std::process::id().to_string();
        for (arguments, sentence) in [
            (vec!["-d", "1", &*own], "does not run under raddle"),
            (vec!["-o", &file("there.folded"), &own], "exists"),
            (
                vec!["-o", "/no/such/folder/a.folded", &own],
                "can't be created",
            ),
            (vec!["-o", &file("a.txt"), &own], "says no format"),
            (
                vec!["-o", &file("a.html"), "-o", &file("a.html"), &own],
                "is given twice",
            ),
            (vec!["-d", "0", &own], "0.01 to 3600"),
            (vec!["-F", "0", &own], "a whole number from 1 to 10000"),
            (vec!["0"], "PID"),
            (vec![], "PID"),
            (vec![&own, "--", "true"], "cannot be used with"),
        ] {
            let output = run(record(mode, &arguments)?)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(2), "{arguments:?}: {output:?}");
            ensure!(
                said.lines().count() == 1 && said.contains(sentence),
                "{arguments:?}: {said}"
            );
        }
        ensure!(std::fs::read_to_string(file("there.folded"))? == "precious");
        ensure!(!Path::new(&file("a.txt")).exists(), "a file is left");
        Ok(())
    });
}

/// Time in code of the libraries that must have names.
const NAMED_PART: f64 = 0.97;
/// A busy machine takes samples away. So much of what the program has measured is there at least.
const LEAST_PART: f64 = 0.5;

/// Returns the words of plugins.c with its two libraries.
fn plugin_words(arguments: &[&str]) -> Result<Vec<OsString>> {
    let mut words = command_line("plugins.c")?;
    words.extend(arguments.iter().map(|&it| it.into()));
    words.push(shared_object("plugins_library.c")?.into());
    words.push(shared_object("plugins_other.c")?.into());
    Ok(words)
}

/// Seconds of stacks in which a frame has one of these in its name.
fn plugin_seconds(stacks: &Stacks, names: &[&str]) -> f64 {
    let is_it = |frame: &String| names.iter().any(|name| frame.contains(name));
    let stacks = stacks.iter().filter(|(frames, _)| frames.iter().any(is_it));
    stacks.map(|(_, us)| *us as f64 / 1e6).sum()
}

/// Returns true if `raddle record` says that it could not look at a library in time.
fn is_late(stdout: &[u8]) -> bool {
    let stdout = String::from_utf8_lossy(stdout);
    let plain = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    plain.contains("unmapped before the tool could look")
}

/// Records plugins.c, and compares the names of its libraries' code with what it has measured.
/// Returns false if the tool says that it was late.
fn check_plugin(
    mode_name: &str,
    mut command: Command,
    file: &str,
    arguments: &[&str],
) -> Result<bool> {
    let output = command.args(plugin_words(arguments)?).output()?;
    ensure!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout)?;
    let said = |part: &str| -> f64 {
        let lines = stdout.lines().filter_map(|line| line.strip_prefix(part));
        let seconds = lines.filter_map(|it| it.trim().parse::<f64>().ok());
        seconds.sum()
    };
    let stacks = read(file.as_ref())?;
    let executing = executing(&stacks);
    let nameless = ["library.so+0x", "[unknown file]", "[code without a name]"];
    let found = |stacks: &Stacks, part: &str| {
        let names = ["plugin_", "second_"].map(|it| format!("{it}{part}"));
        let named = names.each_ref().map(|name| plugin_seconds(stacks, &[name]));
        (named, plugin_seconds(stacks, &nameless))
    };
    let (computed, unnamed) = found(&executing, "compute");
    let all: f64 = computed.iter().sum();
    let most = computed[0].max(computed[1]);
    let said_compute = said("part compute ");
    // Each has computed half of it. On a busy machine a sample stands for ones that were lost.
    ensure!(
        most < 0.7 * said_compute.max(all + unnamed),
        "{mode_name}: a wrong name: {computed:?}"
    );
    if is_late(stdout.as_bytes()) {
        return Ok(false);
    }
    ensure!(
        all >= NAMED_PART * (all + unnamed) && all > LEAST_PART * said_compute,
        "{mode_name}: {computed:?} s have names and {unnamed} s have none, of {said_compute} s"
    );
    let least = computed[0].min(computed[1]);
    ensure!(least > 0.1 * all, "{mode_name}: a wrong name: {computed:?}");
    let (rested, _) = found(&stacks, "rest");
    let least = rested[0].min(rested[1]);
    let said_rest = said("part rest ");
    ensure!(
        least > 0.25 * said_rest,
        "{mode_name}: {rested:?} s of {said_rest} s"
    );
    Ok(true)
}

/// Records plugins.c with perf events and without.
fn check_plugins(name: &str, arguments: &[&str]) {
    with_carriers(name, |mode_name, mode| {
        for record in [record, record_without_events] {
            let folder = RunFolder::new(&format!("{}-{mode_name}", name.replace("::", "-")))?;
            let file = &*folder.path().join("a.folded").display().to_string();
            let words = ["-F", "999", "-o", file, "--force", "--"];
            let mut tries = 0..5;
            while !check_plugin(mode_name, record(mode, &words)?, file, arguments)? {
                ensure!(tries.next().is_some(), "{mode_name}: late each time");
            }
        }
        Ok(())
    });
}

#[test]
fn libraries_in_the_same_place_that_are_opened_and_closed_in_a_loop_have_names() {
    let name =
        "records::libraries_in_the_same_place_that_are_opened_and_closed_in_a_loop_have_names";
    check_plugins(name, &["1", "15000", "15000", "5000"]);
}

#[test]
fn libraries_that_are_mapped_for_a_moment_have_names() {
    let name = "records::libraries_that_are_mapped_for_a_moment_have_names";
    // The recording goes on for long after each of them.
    check_plugins(name, &["0", "150000", "100000", "800000"]);
}

#[test]
fn code_of_a_process_that_ends_has_names() {
    let name = "records::code_of_a_process_that_ends_has_names";
    check_plugins(name, &["0", "150000", "100000", "0"]);
}

/// Waits until a tool's child has mapped a file, and then until it has no more.
fn comes_and_goes(tool: u32, file: &str) -> Result<()> {
    let has = |pid: Pid| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_nonzero()));
        maps.is_ok_and(|maps| maps.contains(file))
    };
    for is_mapped in [true, false] {
        while has(child_of(tool)?) != is_mapped {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

#[test]
fn code_that_is_mapped_between_two_looks_has_no_names_of_other_code() {
    let name = "records::code_that_is_mapped_between_two_looks_has_no_names_of_other_code";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("late-{mode_name}"))?;
        let file = &*folder.path().join("a.folded").display().to_string();
        let mut command = record_without_events(mode, &["-F", "40", "-o", file, "--"])?;
        let words = plugin_words(&["0", "300000", "100000", "300000"])?;
        let tool = command.args(&words).stdout(Stdio::piped()).spawn()?;
        let library = |from_end: usize| words[words.len() - from_end].to_string_lossy();
        comes_and_goes(tool.id(), &library(2))?;
        kill_process(Pid::from_child(&tool), Signal::STOP)?;
        let is_seen = comes_and_goes(tool.id(), &library(1)).is_ok();
        kill_process(Pid::from_child(&tool), Signal::CONT)?;
        let output = tool.wait_with_output()?;
        let stacks = executing(&read(file.as_ref())?);
        let named = ["plugin_", "second_"].map(|name| plugin_seconds(&stacks, &[name]));
        let is_late = is_seen && is_late(&output.stdout);
        ensure!(is_late, "{mode_name}: {output:?}");
        ensure!(named[0] < 0.45 && named[1] == 0.0, "{mode_name}: {named:?}");
        Ok(())
    });
}

#[test]
fn plugins_run_without_a_recording() {
    let name = "records::plugins_run_without_a_recording";
    in_every_mode(name, |mode| {
        let words = plugin_words(&["0", "1000", "1000", "0"])?;
        let output = mode.command(&words)?.output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    });
}
