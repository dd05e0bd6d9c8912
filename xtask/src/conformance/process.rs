//! Running one program of a suite: with a time limit, in a process group and a folder of its own.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{Case, Mode};

/// The time between two checks whether a program has ended.
const LOOK: Duration = Duration::from_millis(5);

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
    Hung,
}

/// Where programs run, and the command that runs them under raddle.
pub(crate) struct Runner {
    raddle: PathBuf,
    folder: PathBuf,
    carriers: Vec<u32>,
}

impl Runner {
    pub(crate) fn new(raddle: PathBuf, folder: PathBuf, carriers: Vec<u32>) -> Result<Runner> {
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("can't make {}", folder.display()))?;
        Ok(Runner {
            raddle,
            folder,
            carriers,
        })
    }

    /// The numbers of carriers that cases run with.
    pub(crate) fn carriers(&self) -> &[u32] {
        &self.carriers
    }

    /// Runs a program natively and, if that passes, with each number of carriers.
    pub(crate) fn compare(
        &self,
        group: &str,
        name: &str,
        once: impl Fn(Mode) -> Result<Result<(), String>>,
    ) -> Result<Case> {
        let native = once(Mode::Native)?;
        let mut raddle = Vec::new();
        if native.is_ok() {
            for &carriers in &self.carriers {
                raddle.push((carriers, once(Mode::Raddle(carriers))?));
            }
        }
        Ok(Case {
            group: group.to_owned(),
            name: name.to_owned(),
            native,
            raddle,
        })
    }

    /// Runs `program`; its output goes to `NAME.MODE.log` in the folder.
    pub(crate) fn run(
        &self,
        mode: Mode,
        name: &str,
        program: &Path,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<End> {
        let mut command = self.command(mode, program);
        command.args(arguments).current_dir(&self.folder);
        self.end_of(mode, name, &mut command, limit)
    }

    /// Runs a command of [`Runner::command`] in a process group of its own; its output goes to
    /// `NAME.MODE.log`.
    pub(crate) fn end_of(
        &self,
        mode: Mode,
        name: &str,
        command: &mut Command,
        limit: Duration,
    ) -> Result<End> {
        let log = self.log(mode, name);
        let output = File::create(&log).with_context(|| format!("can't make {}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} did not start", command.get_program().display()))?;
        let group = Pid::from_child(&child);
        let deadline = Instant::now() + limit;
        let end = loop {
            if let Some(status) = child.try_wait()? {
                let by_signal = || End::Signal(status.signal().unwrap_or_default());
                break status.code().map_or_else(by_signal, End::Code);
            }
            if Instant::now() >= deadline {
                break End::Hung;
            }
            std::thread::sleep(LOOK);
        };
        // Processes that the program left behind are in its group, and keep the number from others;
        // an empty group's number is not given out again so soon.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
        Ok(end)
    }

    pub(crate) fn log(&self, mode: Mode, name: &str) -> PathBuf {
        let mode = match mode {
            Mode::Native => "native".into(),
            Mode::Raddle(carriers) => format!("raddle-{carriers}"),
        };
        let name = name.replace('/', "-");
        self.folder.join(format!("{name}.{mode}.log"))
    }

    /// The command that runs `program` in a mode.
    pub(crate) fn command(&self, mode: Mode, program: &Path) -> Command {
        let Mode::Raddle(carriers) = mode else {
            return Command::new(program);
        };
        let mut command = Command::new(&self.raddle);
        command.args(["run", "-n", &carriers.to_string(), "--"]);
        command.arg(program);
        command
    }
}

/// Calls `job` with each of `items` on one of `threads` threads. The results are in the items'
/// order.
pub(crate) fn parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    job: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let result = job(item);
                    let mut results = results.lock().expect("no job panics with the lock");
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no job panics with the lock");
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}

pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let doubled = parallel(3, &[1, 2, 3, 4, 5], |item| item * 2);
        assert_eq!(doubled, [2, 4, 6, 8, 10]);
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_the_limit() {
        let folder = std::env::temp_dir().join("raddle-conformance-process");
        let runner = Runner::new("/no/raddle".into(), folder, vec![1]).expect("a folder");
        let limit = Duration::from_millis(50);
        let sleep = Path::new("/bin/sleep");
        let end = runner.run(Mode::Native, "a", sleep, &["20"], limit);
        assert_eq!(end.expect("it starts"), End::Hung);
        let end = runner.run(Mode::Native, "b", Path::new("/bin/false"), &[], 20 * limit);
        assert_eq!(end.expect("it starts"), End::Code(1));
    }
}
