//! Other Linux kernels: Debian's own, booted in an emulator with 1, 2 and 4 CPUs. A fixed part of
//! the tests on real programs runs there, natively and under raddle.
//!
//! Nouns: a *guest* is one boot of a kernel; a *machine* is a kernel, a processor of the emulator
//! and a number of CPUs; the *manifest* `xtask/vm.toml` names all of them, the test files and what
//! is known of cases; the *image* is the guest's disk; the *report* is what a guest writes to its
//! second serial port.
//!
//! Protocol: (1) the test executables and their programs are built here; (2) the image gets them,
//! with the libraries that they need, at the paths that they have here; (3) each kernel is fetched
//! from its Debian suite; (4) each machine boots with the image, runs the tests and reports;
//! changes of the image are dropped after it; (5) every case that was to run is judged, the table
//! and `vm/results.json` in the target folder tell the result.
//!
//! Rejected: see `docs/design/0053-other-kernels.md`.

mod cpio;
mod emulator;
mod executables;
mod guest;
mod image;
mod kernel;
mod manifest;
mod modules;
mod report;
mod results;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::deps;
use crate::workspace::Workspace;
pub(crate) use emulator::PROGRAM as EMULATOR;
use executables::Executable;
use image::Image;
use manifest::{Machine, Manifest, Selection};
use report::Report;
use results::Row;

/// Selects the machines and cases.
pub(crate) struct Options {
    /// Kernels of the manifest; all when there is none.
    pub kernels: Vec<String>,
    /// Numbers of CPUs; the manifest's when there is none.
    pub cpus: Vec<u32>,
    /// Processors of the manifest; all when there is none.
    pub processors: Vec<String>,
    /// Only cases that have this in `FILE/CASE`.
    pub test: Option<String>,
    /// Leaves the machine's packages alone.
    pub no_install: bool,
}

/// Room for the image, three kernels and their unpacked packages.
const ROOM_BYTES: u64 = 4 << 30;

/// Boots the selected machines and runs the tests there. Returns false if a case fails without a
/// documented reason.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<bool> {
    let manifest = Manifest::load(workspace)?;
    let machines = manifest.machines(&Selection {
        kernels: options.kernels.clone(),
        cpus: options.cpus.clone(),
        processors: options.processors.clone(),
    })?;
    deps::ensure_emulator(&workspace.target, !options.no_install)?;
    let folder = workspace.target.join("vm");
    fs::create_dir_all(&folder)?;
    check_room(&folder)?;
    workspace.build_release()?;
    let executables = executables::build(workspace, &manifest, options.test.as_deref())?;
    executables::build_programs(&executables)?;
    let bench = Bench {
        busybox: kernel::busybox(workspace, &manifest.kernels[0])?,
        workspace,
        manifest: &manifest,
        executables: &executables,
        folder,
    };
    let mut rows = Vec::new();
    for machine in machines {
        let row = bench.boot(machine)?;
        row.print_differences();
        rows.push(row);
        results::write(workspace, &rows)?;
    }
    Ok(results::judge(&rows))
}

fn check_room(folder: &Path) -> Result<()> {
    let file_system = rustix::fs::statvfs(folder)?;
    let free = file_system.f_bavail * file_system.f_frsize;
    ensure!(
        free >= ROOM_BYTES,
        "{} has {} MiB left and {} are needed: delete something",
        folder.display(),
        free >> 20,
        ROOM_BYTES >> 20
    );
    Ok(())
}

/// State that all machines share.
struct Bench<'a> {
    workspace: &'a Workspace,
    manifest: &'a Manifest,
    executables: &'a [Executable<'a>],
    busybox: PathBuf,
    folder: PathBuf,
}

impl Bench<'_> {
    /// Boots one machine and judges its report.
    fn boot(&self, machine: Machine<'_>) -> Result<Row> {
        let (kernel, model) = (&machine.kernel.name, &machine.processor.model);
        println!("--- {kernel} {model} {} CPUs", machine.cpus);
        let runs = |it: &&Executable<'_>| machine.processor.runs(it.test);
        let executables: Vec<_> = self.executables.iter().filter(runs).collect();
        let files = kernel::fetch(self.workspace, machine.kernel)?;
        let guest = &self.manifest.guest;
        let modules = modules::load(&files.modules, &guest.modules)?;
        let busybox = fs::read(&self.busybox)?;
        let initial_root = self.folder.join("initial-root.cpio");
        fs::write(&initial_root, guest::initial_root(&busybox, &modules))?;
        let disk = self.disk(&executables)?;
        let logs = self.folder.join("logs");
        fs::create_dir_all(&logs)?;
        let log = |kind: &str| logs.join(format!("{kernel}-{model}-{}.{kind}", machine.cpus));
        let (console, report) = (log("console"), log("report"));
        let twice: u64 = executables.iter().map(|it| 2 * it.test.limit_s).sum();
        let started = Instant::now();
        let ended = emulator::run(
            machine,
            guest.memory_mib,
            &emulator::Files {
                kernel: &files.image,
                initial_root: &initial_root,
                disk: &disk,
                console: &console,
                report: &report,
            },
            guest.boot_limit() + Duration::from_secs(twice),
        )?;
        let text = fs::read(&report).unwrap_or_default();
        let text = Report::parse(&String::from_utf8_lossy(&text));
        if !ended || !text.is_complete {
            let last = emulator::last_lines(&console);
            println!("the guest did not come to its end; its console:\n{last}");
        }
        let took = started.elapsed();
        Ok(Row::new(self.manifest, machine, &executables, &text, took))
    }

    /// Makes the disk's image, with the script of these executables.
    fn disk(&self, executables: &[&Executable<'_>]) -> Result<PathBuf> {
        let mut image = Image::new(self.folder.join("image"))?;
        let guest = &self.manifest.guest;
        executables::stage(self.workspace, guest, self.executables, &mut image)?;
        let busybox = fs::read(&self.busybox)?;
        image.write_bytes(guest::BUSYBOX, 0o755, &busybox)?;
        let path = env::var("PATH").context("there is no PATH")?;
        let raddle = self.workspace.raddle();
        let script = guest::script(
            &path,
            &raddle.to_string_lossy(),
            guest.case_limit_s,
            executables,
        );
        image.write(guest::SCRIPT, 0o755, &script)?;
        let file = self.folder.join("disk.ext4");
        image.finish(&file)?;
        Ok(file)
    }
}
