//! The emulator: one run of qemu, from the start of a kernel to the guest's end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::manifest::Machine;

pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Mitigations protect nothing in an emulator and cost time. The time-stamp counter is the build
/// machine's own, and the kernel's measurement of it fails under load.
const PARAMETERS: &str = "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable";
/// One host's thread emulates all CPUs. With a thread for each, qemu 7.2 executes breakpoints that
/// the kernel has taken out of its own code again, and the kernel panics.
const ACCELERATOR: &str = "tcg,thread=single";
const STEP: Duration = Duration::from_millis(100);
/// Lines of the console that an error shows.
const LAST: usize = 12;

/// The files of one run.
pub(super) struct Files<'a> {
    pub kernel: &'a Path,
    pub initial_root: &'a Path,
    /// The disk's image. The guest's writes are dropped.
    pub disk: &'a Path,
    pub console: &'a Path,
    pub report: &'a Path,
}

/// Runs a guest to its end, or to the end of its time. Returns whether it ended by itself.
pub(super) fn run(
    machine: Machine<'_>,
    memory_mib: u32,
    files: &Files<'_>,
    limit: Duration,
) -> Result<bool> {
    let mut command = command(machine, memory_mib, files);
    let mut child = command
        .spawn()
        .with_context(|| format!("{PROGRAM} did not start"))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("{PROGRAM} failed: {status}");
            }
            return Ok(true);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        sleep(STEP);
    }
}

fn command(machine: Machine<'_>, memory_mib: u32, files: &Files<'_>) -> Command {
    let serial = |path: &Path| format!("file:{}", path.display());
    let drive = format!(
        "file={},if=virtio,format=raw,snapshot=on",
        files.disk.display()
    );
    let mut command = Command::new(PROGRAM);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none", "-accel", ACCELERATOR]);
    command.args(["-cpu", &processor(machine)]);
    command.args(["-smp", &machine.cpus.to_string()]);
    command.args(["-m", &memory_mib.to_string()]);
    command.arg("-kernel").arg(files.kernel);
    command.arg("-initrd").arg(files.initial_root);
    command.args(["-append", PARAMETERS, "-drive", &drive]);
    command.args(["-serial", &serial(files.console)]);
    command.args(["-serial", &serial(files.report)]);
    command.stdin(std::process::Stdio::null());
    command
}

/// `max,-cx16`.
fn processor(machine: Machine<'_>) -> String {
    let without = machine.processor.without.iter();
    let without: String = without.map(|feature| format!(",-{feature}")).collect();
    machine.processor.model.clone() + &without
}

/// The last lines that a guest printed on its console.
pub(super) fn last_lines(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n")
}
