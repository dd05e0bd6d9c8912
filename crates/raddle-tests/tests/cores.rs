//! `raddle core` and `raddle dump --from`: core files with every green thread.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{
    Missing, Mode, Program, RunFolder, Running, find_tool, in_every_mode, raddle, status_number,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);

fn program() -> Result<PathBuf> {
    let program = Program::build("core_threads.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("core_threads.c is one program");
    };
    Ok(PathBuf::from(&variant.command[0]))
}

/// Calls `test` with a folder, and the program once it says that it is ready.
fn with_program(name: &str, arguments: &[&str], test: impl Fn(&Running, &RunFolder) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("{}-{mode}", name.replace("::", "-")))?;
        let mut line = vec![program()?.into_os_string()];
        line.extend(arguments.iter().map(OsString::from));
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&running, &folder)
    });
}

/// Runs the command in a folder.
fn run<S: AsRef<OsStr>>(folder: &RunFolder, arguments: &[S]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    Ok(command
        .args(arguments)
        .current_dir(folder.path())
        .output()?)
}

/// As [`run`]; the command must succeed. Returns its output.
fn run_well<S: AsRef<OsStr>>(folder: &RunFolder, arguments: &[S]) -> Result<String> {
    let output = run(folder, arguments)?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// As [`run`]; the command must refuse by one sentence, which is returned.
fn run_badly<S: AsRef<OsStr>>(folder: &RunFolder, arguments: &[S]) -> Result<String> {
    let output = run(folder, arguments)?;
    let sentence = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.code() == Some(2),
        "{:?} {sentence}",
        output.status
    );
    ensure!(
        sentence.starts_with("raddle: ") && sentence.lines().count() == 1,
        "{sentence}"
    );
    Ok(sentence)
}

fn write_core(running: &Running, folder: &RunFolder, more: &[&str]) -> Result<String> {
    let pid = running.pid().to_string();
    let arguments = [&["core", &pid, "-o", "full"], more].concat();
    run_well(folder, &arguments)
}

/// What gdb says, without a script.
fn gdb(folder: &RunFolder, core: &str, commands: &[&str]) -> Result<String> {
    let mut command = Command::new(find_tool("gdb")?);
    command.args(["-nx", "-batch", "-ex", "set debuginfod enabled off"]);
    for line in commands {
        command.args(["-ex", line]);
    }
    let output = command
        .arg(program()?)
        .arg(core)
        .current_dir(folder.path())
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn dump_json(folder: &RunFolder, arguments: &[&str]) -> Result<Value> {
    let text = run_well(folder, &[&["dump", "--json"], arguments].concat())?;
    Ok(serde_json::from_str(&text)?)
}

/// Returns how many threads have `wanted` on their stack, and no guessed frame.
fn count(document: &Value, wanted: &str) -> Result<usize> {
    let stacks = document["stacks"].as_array().context("stacks")?;
    let has_it = |stack: &Value| {
        let frames = stack["frames"].as_array().into_iter().flatten();
        let mut functions = frames.filter_map(|it| it["functions"].as_array()).flatten();
        stack["guessed"] == 0 && functions.any(|function| function["name"] == wanted)
    };
    let threads = document["threads"].as_array().context("threads")?;
    let stack = |thread: &Value| stacks.get(thread["stack"].as_u64()? as usize);
    let found = threads.iter().filter_map(stack).filter(|it| has_it(it));
    Ok(found.count())
}

#[test]
fn gdb_shows_ten_thousand_threads_of_a_core() {
    let name = "cores::gdb_shows_ten_thousand_threads_of_a_core";
    with_program(name, &["10000"], |running, folder| {
        let says = write_core(running, folder, &[])?;
        ensure!(says.contains(": 10001 threads in full, "), "{says}");
        ensure!(
            says.contains("read from outside while it went on"),
            "{says}"
        );
        let started = Instant::now();
        let text = gdb(folder, "full", &["thread apply all bt"])?;
        let took = started.elapsed();
        let workers = text
            .lines()
            .filter(|line| line.contains("worker ("))
            .count();
        ensure!(workers == 10_000, "{workers} workers");
        ensure!(took < LIMIT, "gdb took {took:?}");
        Ok(())
    });
}

#[test]
fn gdb_shows_registers_locals_and_numbers_of_parked_threads() {
    let name = "cores::gdb_shows_registers_locals_and_numbers_of_parked_threads";
    with_program(name, &["3"], |running, folder| {
        write_core(running, folder, &[])?;
        let commands = [
            "info threads",
            "thread 3",
            "frame function worker",
            "info locals",
            "print computed",
            "print *(int *)((char *)pthread_self() + 0x2d0)",
            "info auxv",
        ];
        let text = gdb(folder, "full", &commands)?;
        ensure!(text.contains("twice = 2\n"), "{text}");
        ensure!(text.contains("AT_ENTRY"), "{text}");
        // The C library's thread blocks are found by the FS base.
        let threads = text
            .lines()
            .filter(|line| line.contains("Thread 0x"))
            .count();
        ensure!(threads >= 4, "{text}");
        Ok(())
    });
}

#[test]
fn a_core_shows_what_the_process_showed() {
    let name = "cores::a_core_shows_what_the_process_showed";
    with_program(name, &["20"], |running, folder| {
        let pid = running.pid().to_string();
        write_core(running, folder, &[])?;
        let of_process = dump_json(folder, &[&pid])?;
        let of_core = dump_json(folder, &["--from", "full"])?;
        ensure!(count(&of_core, "worker")? == 20);
        let facts = |document: &Value| -> Result<Vec<String>> {
            let threads = document["threads"].as_array().context("threads")?;
            let facts = threads.iter().map(|thread| {
                let fields = [
                    "tid",
                    "name",
                    "state",
                    "wait",
                    "active",
                    "stack_kind",
                    "waits_for",
                ];
                fields.map(|field| thread[field].to_string()).join(" ")
            });
            Ok(facts.collect())
        };
        ensure!(facts(&of_process)? == facts(&of_core)?);
        ensure!(of_process["stacks"] == of_core["stacks"]);
        let text = run_well(folder, &["dump", "--from", "full", "--name", "worker-1*"])?;
        ensure!(
            text.contains("\"worker-19\"") && !text.contains("\"worker-2\""),
            "{text}"
        );
        Ok(())
    });
}

#[test]
fn threads_that_compute_are_sampled_named_as_missing_or_stopped() {
    let name = "cores::threads_that_compute_are_sampled_named_as_missing_or_stopped";
    with_program(name, &["2", "spin"], |running, folder| {
        let pid = running.pid().to_string();
        let says = write_core(running, folder, &[])?;
        ensure!(says.contains("while it went on"), "{says}");
        let text = gdb(folder, "full", &["thread apply all bt"])?;
        ensure!(
            text.contains("worker (") && text.contains("spin ("),
            "{text}"
        );
        // Where the kernel permits no perf events they are missing.
        let filter = Program::build("refused.c")?;
        let [filter] = filter.variants.as_slice() else {
            bail!("refused.c is one program");
        };
        let output = Command::new(&filter.command[0])
            .arg(raddle()?)
            .args(["core", &pid, "-o", "going"])
            .current_dir(folder.path())
            .output()?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let sentence = String::from_utf8(output.stderr)?;
        ensure!(
            sentence.contains("1 of 4 threads executed code"),
            "{sentence}"
        );
        let text = gdb(folder, "going", &["thread apply all bt"])?;
        ensure!(
            text.contains("worker (") && !text.contains("spin ("),
            "{text}"
        );
        let says = write_core(running, folder, &["--stop", "--force"])?;
        ensure!(
            says.contains("read from outside while it was stopped"),
            "{says}"
        );
        let text = gdb(folder, "full", &["thread apply all bt"])?;
        ensure!(
            text.contains("worker (") && text.contains("spin ("),
            "{text}"
        );
        ensure!(count(&dump_json(folder, &["--from", "full"])?, "spin")? == 1);
        // The process goes on.
        ensure!(!running.has_ended_within(Duration::from_millis(100))?);
        let document = dump_json(folder, &[&pid])?;
        ensure!(
            document["threads"]
                .as_array()
                .is_some_and(|it| it.len() == 4)
        );
        Ok(())
    });
}

/// The cycle of a core that `raddle core` has written is that of the process.
#[test]
fn a_core_has_the_deadlock_that_the_process_had() {
    let name = "cores::a_core_has_the_deadlock_that_the_process_had";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        for flags in [&[][..], &["--stop"]] {
            let folder = RunFolder::new(&format!("{}-{mode}", name.replace("::", "-")))?;
            let program = Program::build("deadlocks.c")?;
            let mut line = program.variants[0].command.clone();
            line.push("cycle5".into());
            let running = Running::start(mode, mode.command(&line)?, None)?;
            running.wait_until_it_says("ready\n")?;
            let pid = running.pid().to_string();
            let of_process = with_deadlock(&folder, &[&pid])?;
            write_core(&running, &folder, flags)?;
            let of_core = with_deadlock(&folder, &["--from", "full"])?;
            ensure!(of_process["deadlocks"] == of_core["deadlocks"]);
            let tids = &of_core["deadlocks"][0]["threads"];
            ensure!(tids.as_array().is_some_and(|it| it.len() == 5), "{tids}");
            let waits = |document: &Value| -> Vec<Value> {
                let threads = document["threads"].as_array().into_iter().flatten();
                threads.map(|it| it["waits_for"].clone()).collect()
            };
            ensure!(waits(&of_process) == waits(&of_core));
            let output = run(&folder, &["dump", "--from", "full", "--deadlocks"])?;
            let text = String::from_utf8(output.stdout)?;
            ensure!(text.contains("5 threads, each of which waits"), "{text}");
            ensure!(text.contains("(locks+0x28), held by #"), "{text}");
        }
        Ok(())
    });
}

/// Reads the document with deadlocks until it has one.
fn with_deadlock(folder: &RunFolder, which: &[&str]) -> Result<Value> {
    let started = Instant::now();
    loop {
        let arguments = [&["dump", "--json", "--deadlocks"], which].concat();
        let output = run(folder, &arguments)?;
        if output.status.code() == Some(3) {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        ensure!(started.elapsed() < LIMIT, "{output:?}");
    }
}

/// The core that the kernel has written.
fn kernel_core(folder: &Path) -> Result<PathBuf> {
    let found = fs::read_dir(folder)?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("core"));
    Ok(found.context("no core file")?.path())
}

/// Calls `test` with a folder and the core of a crash in it, if the kernel puts cores there.
fn with_crash(name: &str, test: impl Fn(&RunFolder, &str) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
        if pattern.starts_with('|') || pattern.contains('/') {
            let what = format!("a core_pattern for core files here ({})", pattern.trim());
            bail!(Missing(what));
        }
        let folder = RunFolder::new(&format!("{}-{mode}", name.replace("::", "-")))?;
        let line = [program()?.into_os_string(), "50".into(), "crash".into()];
        let mut command = mode.command(&line)?;
        command.current_dir(folder.path());
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        ensure!(status_number(outcome.status) == 128 + 11, "{outcome:?}");
        let core = kernel_core(folder.path())?;
        test(&folder, &core.to_string_lossy())
    });
}

#[test]
fn a_core_of_the_kernel_shows_all_threads() {
    let name = "cores::a_core_of_the_kernel_shows_all_threads";
    with_crash(name, |folder, core| {
        let document = dump_json(folder, &["--from", core])?;
        ensure!(count(&document, "worker")? == 50, "{document}");
        ensure!(count(&document, "crash")? == 1, "{document}");
        let before = gdb(folder, core, &["thread apply all bt"])?;
        ensure!(!before.contains("worker ("), "{before}");
        run_well(folder, &["core", "--from", core, "-o", "full"])?;
        let text = gdb(folder, "full", &["bt", "thread apply all bt"])?;
        ensure!(text.contains("signal SIGSEGV"), "{text}");
        let first = text.split("#0").nth(1).unwrap_or_default();
        ensure!(first.contains("crash ("), "{text}");
        let workers = text
            .lines()
            .filter(|line| line.contains("worker ("))
            .count();
        ensure!(workers == 50, "{workers} workers in {text}");
        let again = run_badly(folder, &["core", "--from", "full", "-o", "more"])?;
        ensure!(again.contains("has all green threads already"), "{again}");
        Ok(())
    });
}

#[test]
fn a_core_that_is_cut_off_shows_what_it_has() {
    let name = "cores::a_core_that_is_cut_off_shows_what_it_has";
    with_crash(name, |folder, core| {
        let bytes = fs::read(core)?;
        let cut = folder.path().join("cut");
        // The last pages are those of the main thread's stack.
        fs::write(&cut, &bytes[..bytes.len() - 0x10000])?;
        let output = run(folder, &["dump", "--json", "--from", "cut"])?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let sentence = String::from_utf8(output.stderr)?;
        ensure!(sentence.contains("65536 of"), "{sentence}");
        ensure!(count(&serde_json::from_slice(&output.stdout)?, "worker")? == 50);
        let output = run(folder, &["core", "--from", "cut", "-o", "full"])?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let text = gdb(folder, "full", &["thread apply all bt"])?;
        ensure!(text.matches("worker (").count() == 50, "{text}");
        fs::write(&cut, &bytes[..5000])?;
        run_badly(folder, &["dump", "--from", "cut"])?;
        Ok(())
    });
}

/// A generator of test data (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[test]
fn changed_cores_are_refused_or_shown() {
    let name = "cores::changed_cores_are_refused_or_shown";
    with_program(name, &["3"], |running, folder| {
        const SEEDS: u64 = 300;
        write_core(running, folder, &[])?;
        let whole = fs::read(folder.path().join("full"))?;
        let notes = whole.len().min(1 << 14) as u64;
        for seed in 1..=SEEDS {
            let mut dice = Dice(seed);
            let mut bytes = whole.clone();
            for _ in 0..=dice.roll(8) {
                // Headers and notes, mostly.
                let below = match dice.roll(4) {
                    0 => bytes.len() as u64,
                    1 => 64,
                    _ => notes,
                };
                let at = dice.roll(below) as usize;
                bytes[at] = dice.roll(256) as u8;
            }
            if dice.roll(4) == 0 {
                bytes.truncate(dice.roll(whole.len() as u64) as usize);
            }
            fs::write(folder.path().join("changed"), &bytes)?;
            let output = run(folder, &["dump", "--from", "changed"])?;
            let sentence = String::from_utf8_lossy(&output.stderr);
            let status = output.status.code();
            ensure!(
                matches!(status, Some(0..=2)) && !sentence.contains("panicked"),
                "seed {seed}: {status:?} {sentence}"
            );
        }
        Ok(())
    });
}

#[test]
fn files_that_are_no_cores_are_refused() {
    let name = "cores::files_that_are_no_cores_are_refused";
    with_program(name, &["1"], |running, folder| {
        write_core(running, folder, &[])?;
        let whole = fs::read(folder.path().join("full"))?;
        let changed = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            bytes
        };
        let cases: [(&[u8], &str); 6] = [
            (b"", "it is empty"),
            (b"no core at all", "it is no core file"),
            (&changed(18, 183), "a core of another machine (aarch64)"),
            (&changed(16, 3), "it is a program or a library"),
            (&changed(4, 1), "it is no core of a 64-bit x86 process"),
            (&whole[..100], "its headers are cut off"),
        ];
        for (bytes, says) in cases {
            fs::write(folder.path().join("bad"), bytes)?;
            for command in [
                &["dump", "--from", "bad"][..],
                &["core", "--from", "bad", "-o", "x"],
            ] {
                let sentence = run_badly(folder, command)?;
                ensure!(sentence.contains(says), "{sentence}");
            }
        }
        run_badly(folder, &["dump", "--from", "missing"])?;
        run_badly(folder, &["dump", "--from", "/dev/zero"])?;
        ensure!(!folder.path().join("x").exists());
        Ok(())
    });
}

#[test]
fn a_core_of_a_process_that_is_none_of_ours_is_refused() {
    let name = "cores::a_core_of_a_process_that_is_none_of_ours_is_refused";
    in_every_mode(name, |mode| {
        let folder = RunFolder::new(&format!("core-refused-{mode}"))?;
        let mut ended = Command::new("true").spawn()?;
        ended.wait()?;
        let refuse = |pid: u32| run_badly(&folder, &["core", &pid.to_string(), "-o", "x"]);
        ensure!(refuse(ended.id())?.contains("there is no process"));
        ensure!(refuse(std::process::id())?.contains("does not run under raddle"));
        ensure!(!folder.path().join("x").exists());
        Ok(())
    });
}

#[test]
fn what_exists_is_not_overwritten_and_nothing_partial_is_left() {
    let name = "cores::what_exists_is_not_overwritten_and_nothing_partial_is_left";
    with_program(name, &["2"], |running, folder| {
        let pid = running.pid().to_string();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("precious"), "kept")?;
        symlink("precious", path("link"))?;
        run_badly(folder, &["core", &pid, "-o", "precious"])?;
        run_badly(folder, &["core", &pid, "-o", "link", "--force"])?;
        run_badly(folder, &["core", &pid, "-o", "nowhere/core"])?;
        ensure!(fs::read(path("precious"))? == b"kept");
        // No room: the limit is as a full disk.
        let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" core \"$1\" -o small";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(raddle()?).arg(&pid);
        let output = shell.current_dir(folder.path()).output()?;
        let sentence = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2), "{sentence}");
        ensure!(sentence.contains("small can't be written"), "{sentence}");
        let names: Vec<_> = fs::read_dir(folder.path())?.flatten().collect();
        ensure!(names.len() == 2, "{names:?}");
        run_well(folder, &["core", &pid, "-o", "precious", "--force"])?;
        ensure!(fs::read(path("precious"))?.starts_with(b"\x7fELF"));
        Ok(())
    });
}
