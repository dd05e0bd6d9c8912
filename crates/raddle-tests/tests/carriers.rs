//! Carriers that come and go: few at low load, none too many after a rush, and the reports about
//! those that sit in the kernel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};

/// The limit for events that come sooner or later, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn program(source: &str) -> Result<OsString> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    let [path] = variant.command.as_slice() else {
        bail!("{source} is started by its path");
    };
    Ok(path.clone())
}

fn dump(pid: u32, options: &[&str]) -> Result<String> {
    let mut command = Command::new(raddle()?);
    let output = command
        .args(["dump", &pid.to_string()])
        .args(options)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// How many switches each carrier has made, by its number.
fn switches(pid: u32) -> Result<BTreeMap<String, u64>> {
    let text = dump(pid, &["--stats"])?;
    let carriers = text
        .lines()
        .filter_map(|line| line.strip_prefix("carrier "));
    let count = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next()?.to_owned();
        let count = words.find_map(|word| word.strip_prefix("active="))?;
        Some((number, count.parse().ok()?))
    };
    carriers
        .map(|line| count(line).context("a carrier has a count"))
        .collect()
}

/// Waits until twenty runs in a row were on one carrier. If the machine keeps a carrier from
/// running for milliseconds, another rightly takes over; so there are many tries.
fn ensure_one_carrier_suffices(running: &Running) -> Result<()> {
    const RUNS: u64 = 20;
    let started = Instant::now();
    let mut before = switches(running.pid())?;
    loop {
        sleep(Duration::from_millis(20));
        let now = switches(running.pid())?;
        let made = |(number, count): (&String, &u64)| {
            count - before.get(number).copied().unwrap_or_default()
        };
        let ran: Vec<u64> = now.iter().map(made).filter(|&count| count != 0).collect();
        if ran.len() == 1 && ran[0] >= RUNS {
            return Ok(());
        }
        ensure!(started.elapsed() < LIMIT, "{before:?}, then {now:?}");
        if ran.len() > 1 {
            before = now;
        }
    }
}

fn one_carrier_suffices(kind: &str) {
    let name = format!("carriers::few_at_low_load_by_{kind}");
    in_every_mode(&name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("low-load-{kind}-{mode}"))?;
        let mut command = mode.command(&[program("low_load.c")?, kind.into()])?;
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        running.wait_until_it_says("quiet\n")?;
        ensure_one_carrier_suffices(&running)?;
        running.terminate()
    });
}

#[test]
fn few_at_low_load_by_timer() {
    one_carrier_suffices("timer");
}

#[test]
fn few_at_low_load_by_request() {
    one_carrier_suffices("request");
}

#[test]
fn few_at_low_load_by_disk() {
    one_carrier_suffices("disk");
}

/// Kernel threads of a process.
fn kernel_threads(pid: u32) -> Result<Vec<PathBuf>> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"))?;
    let paths = folder.map(|entry| Ok(entry?.path()));
    paths.collect()
}

/// Descriptors in the largest table: sysmon has one of its own. A kernel thread may end meanwhile.
fn descriptors(pid: u32) -> Result<usize> {
    let threads = kernel_threads(pid)?;
    let open = |thread: &PathBuf| fs::read_dir(thread.join("fd")).map_or(0, Iterator::count);
    Ok(threads.iter().map(open).max().unwrap_or_default())
}

/// Kilobytes of address space.
fn address_space(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("a status has a size")?.parse()?)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(started.elapsed() < LIMIT, "{what} didn't come about");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Threads that are stuck at once.
const STUCK: usize = 200;
/// Spare carriers that stay, and the runtime's other kernel threads.
const STAY: usize = 4 + 4;
/// The stacks that are left exceed this only if they aren't given back: a carrier's has 64 KB.
const STACKS_KB: u64 = STUCK as u64 / 2 * 64;

#[test]
fn those_that_replaced_stuck_ones_end_when_nobody_needs_them() {
    let name = "carriers::those_that_replaced_stuck_ones_end_when_nobody_needs_them";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        let most = usize::from(carriers) + STAY;
        let folder = RunFolder::new(&format!("many-stuck-{mode}"))?;
        let mut command = mode.command(&[program("many_stuck.c")?])?;
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        let pid = running.pid();
        let mut first_kb = u64::MAX / 2;
        let rounds = [
            ("stuck\n", "let go"),
            ("stuck\nfree\nstuck\n", "let go again"),
        ];
        for (said, end) in rounds {
            running.wait_until_it_says(said)?;
            wait_until("a kernel thread for each call", || {
                Ok(kernel_threads(pid)?.len() >= STUCK)
            })?;
            let full_kb = address_space(pid)?;
            fs::write(folder.path().join(end), "")?;
            running.wait_until_it_says(&format!("{said}free\n"))?;
            wait_until("the end of carriers", || {
                Ok(kernel_threads(pid)?.len() <= most && descriptors(pid)? <= most + STAY)
            })?;
            // The second time as many are left as the first time.
            wait_until("the end of stacks", || {
                let now_kb = address_space(pid)?;
                Ok(now_kb + STACKS_KB <= full_kb && now_kb < first_kb + STACKS_KB)
            })?;
            first_kb = address_space(pid)?;
            fs::write(folder.path().join("again"), "")?;
        }
        // A dump shows that nothing is left of them.
        let shown = switches(pid)?.len();
        ensure!(shown <= most, "{shown} carriers are shown");
        running.terminate()
    });
}

/// The program's frames are in this order below a line with `head`, from the inside out.
fn ensure_stack(text: &str, head: &str, names: &[&str]) -> Result<()> {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains(head));
    let at = at.with_context(|| format!("no {head:?} in\n{text}"))?;
    let mut frames = lines[at + 1..]
        .iter()
        .take_while(|line| line.starts_with("    "));
    for name in names {
        let found = frames.any(|frame| frame.contains(name));
        ensure!(found, "no {name} in its place below {head:?} in\n{text}");
    }
    Ok(())
}

const SITTING: &str = "sits in the kernel: system call 0";
const FRAMES: [&str; 3] = ["(get_stuck+", "(call_it+", "(run_it+"];

#[test]
fn who_sits_in_the_kernel_is_shown_with_its_stack() {
    let name = "carriers::who_sits_in_the_kernel_is_shown_with_its_stack";
    in_every_mode(name, |mode| {
        // With more carriers the threads may not need that one's place.
        let Mode::Raddle { carriers: 1 } = mode else {
            return Ok(());
        };
        let running = Running::start(mode, mode.command(&[program("stuck.c")?])?, None)?;
        running.wait_until_it_says("stuck\n")?;
        ensure_stack(&dump(running.pid(), &[])?, SITTING, &FRAMES)?;
        let stats = dump(running.pid(), &["--stats"])?;
        ensure_stack(&stats, ": system call 0", &FRAMES)?;
        ensure!(stats.contains("the most frequent places:"), "{stats}");
        let document: serde_json::Value =
            serde_json::from_str(&dump(running.pid(), &["--stats", "--json"])?)?;
        let frames = document["pinning"]["places"][0]["stack"].as_array();
        let frames = frames.context("a place has a stack")?;
        let is_in = |name: &str| {
            frames
                .iter()
                .any(|it| it.as_str().is_some_and(|it| it.contains(name)))
        };
        ensure!(FRAMES.iter().all(|name| is_in(name)), "{frames:?}");
        running.terminate()
    });
}

/// How soon the other threads go on, with looks 0.8 ms apart: sometimes a look comes just in time.
const SOON_US: &str = "500";

#[test]
fn where_perf_events_are_refused_others_go_on_soon_and_it_is_said() {
    let name = "carriers::where_perf_events_are_refused_others_go_on_soon_and_it_is_said";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 1 } = mode else {
            return Ok(());
        };
        let (filter, raddle) = (program("refused.c")?, raddle()?.into_os_string());
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let mut line = vec![filter.clone(), raddle.clone()];
        line.extend(words(&["run", "-n", "1", "--"]));
        line.extend([program("hand_off.c")?, SOON_US.into()]);
        let running = Running::start(mode, Mode::Native.command(&line)?, None)?;
        running.wait_until_it_says("soon\n")?;
        let stats = dump(running.pid(), &["--stats"])?;
        ensure!(
            stats.contains("sysmon looks, without perf events"),
            "{stats}"
        );
        running.terminate()?;
        let doctor = Command::new(&filter).arg(&raddle).arg("doctor").output()?;
        let said = String::from_utf8(doctor.stdout)?;
        let finding = said.lines().find(|line| line.contains("perf events"));
        let finding = finding.context("doctor looks for perf events")?;
        ensure!(!finding.starts_with("ok"), "{finding}");
        Ok(())
    });
}

#[test]
fn others_go_on_soon_with_perf_events_too() {
    let name = "carriers::others_go_on_soon_with_perf_events_too";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        let line = [program("hand_off.c")?, SOON_US.into()];
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("soon\n")?;
        if carriers == 1 {
            // No table describes generated code: its caller is guessed.
            wait_until("a guess", || {
                let stats = dump(running.pid(), &["--stats"])?;
                let mut frames = stats.lines().filter(|line| line.starts_with("    "));
                Ok(frames.any(|it| it.contains("(get_stuck+") && it.ends_with(", guessed")))
            })?;
        }
        running.terminate()
    });
}

/// Makes a folder that looks like version 2 of control groups to what is started after it, and
/// starts eight threads that compute.
const VERSION_2: &str = "mount -t tmpfs none /sys/fs/cgroup && \
     echo 'max 100000' > /sys/fs/cgroup/cpu.max && exec \"$0\" \"$@\"";
/// What a container's resize may take.
const RESIZE: Duration = Duration::from_secs(5);

#[test]
fn they_follow_a_quota_of_version_2() {
    let name = "carriers::they_follow_a_quota_of_version_2";
    in_every_mode(name, |mode| {
        let allowed = rustix::thread::sched_getaffinity(None)?.count();
        if mode != (Mode::Raddle { carriers: 2 }) || allowed < 2 {
            return Ok(());
        }
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let enters = Command::new("unshare")
            .args(["-m", "sh", "-c", VERSION_2, "true"])
            .status();
        if !groups.lines().any(|line| line.starts_with("0::")) || !enters?.success() {
            eprintln!("no folder can be mounted there, or the kernel has no version 2");
            return Ok(());
        }
        let mut line: Vec<OsString> = ["unshare", "-m", "sh", "-c", VERSION_2]
            .map(Into::into)
            .into();
        line.push(raddle()?.into_os_string());
        line.extend(["run", "--"].map(Into::into));
        line.push(program("computing.c")?);
        let running = Running::start(mode, Mode::Native.command(&line)?, None)?;
        running.wait_until_it_says("computing\n")?;
        let root = PathBuf::from(format!("/proc/{}/root/sys/fs/cgroup", running.pid()));
        for (quota, count) in [
            ("100000 100000\n", 1),
            ("150000 100000\n", 2),
            ("25000 50000\n", 1),
            ("max 100000\n", allowed as usize),
        ] {
            allow(&root, quota)?;
            let started = Instant::now();
            while active(running.pid())? != count {
                let took = started.elapsed();
                ensure!(
                    took < RESIZE,
                    "{quota:?}: not {count} carriers after {took:?}"
                );
                sleep(Duration::from_millis(50));
            }
        }
        running.terminate()
    });
}

/// Sets the quota at once, as the kernel does: no reader sees half of it.
fn allow(root: &Path, quota: &str) -> Result<()> {
    let new = root.join("new");
    fs::write(&new, quota)?;
    Ok(fs::rename(new, root.join("cpu.max"))?)
}

/// Carriers that aren't spare.
fn active(pid: u32) -> Result<usize> {
    let text = dump(pid, &[])?;
    let is_active = |line: &&str| line.starts_with("carrier ") && !line.contains(" spare ");
    Ok(text.lines().filter(is_active).count())
}
