//! The ways in which a case runs: natively, and under raddle with some number of carriers.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Native,
    Raddle { carriers: u16 },
}

/// One carrier shows starvation, two show races, three show what neither shows by luck.
const CARRIERS: [u16; 3] = [1, 2, 3];

/// Natively first, because the other modes are compared with that.
pub fn modes() -> Vec<Mode> {
    let mut modes = vec![Mode::Native];
    if !builds_only() && wanted().as_deref() != Some(OsStr::new("native")) {
        modes.extend(CARRIERS.map(|carriers| Mode::Raddle { carriers }));
    }
    modes
}

/// Returns true if cases compile their programs and run nothing.
pub(crate) fn builds_only() -> bool {
    wanted().as_deref() == Some(OsStr::new("build"))
}

fn wanted() -> Option<OsString> {
    env::var_os("RADDLE_TESTS")
}

/// Names a seed: the programs run under chaos (`RADDLE_CHAOS`).
const CHAOS: &str = "RADDLE_TEST_CHAOS";
/// Names milliseconds: the programs run with a watch for deadlocks at such intervals, and a report
/// fails the case.
const WATCH: &str = "RADDLE_TEST_WATCH";
/// Names a policy: the programs run under it (`RADDLE_POLICY`).
const POLICY: &str = "RADDLE_TEST_POLICY";

impl Mode {
    /// A command that runs `arguments` in this mode, with none of raddle's variables inherited.
    pub fn command<S: AsRef<OsStr>>(self, arguments: &[S]) -> Result<Command> {
        let [program, rest @ ..] = arguments else {
            anyhow::bail!("a command needs a program");
        };
        let mut command = match self {
            Mode::Native => Command::new(program),
            Mode::Raddle { carriers } => {
                let mut command = Command::new(raddle()?);
                let carriers = carriers.to_string();
                command.args(["run", "-n", &carriers, "--cpus", "machine"]);
                if let Some(ms) = env::var_os(WATCH) {
                    let mut flag = OsString::from("--watch-deadlocks=");
                    flag.push(ms);
                    command.arg(flag);
                }
                command.arg("--").arg(program);
                command
            }
        };
        command.args(rest).env("LC_ALL", "C");
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"RADDLE_") {
                command.env_remove(name);
            }
        }
        if let Some(seed) = env::var_os(CHAOS) {
            command.env("RADDLE_CHAOS", seed);
        }
        if let Some(policy) = env::var_os(POLICY) {
            command.env("RADDLE_POLICY", policy);
        }
        Ok(command)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Native => f.write_str("native"),
            Mode::Raddle { carriers } => write!(f, "raddle-{carriers}"),
        }
    }
}

/// The command under test: `RADDLE_BIN`, else the release of the target folder in use.
pub fn raddle() -> Result<PathBuf> {
    let path = match env::var_os("RADDLE_BIN") {
        Some(path) => PathBuf::from(path),
        None => target_folder()?.join("release/raddle"),
    };
    ensure!(
        path.is_file(),
        "{} is not there: build it first: cargo build --release",
        path.display()
    );
    Ok(path)
}

/// Cargo puts a test at `TARGET/PROFILE/deps/NAME-HASH`.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let test = env::current_exe()?;
    let folder = test.ancestors().nth(3);
    ensure!(
        folder.is_some(),
        "{} is not in a target folder",
        test.display()
    );
    Ok(folder.map(PathBuf::from).unwrap_or_default())
}
