//! The one door to the project: `cargo xtask COMMAND`.
//!
//! Nouns: a *lane* is one group of checks with a count of its cases; a *check* of tidy is a pure
//! function from the tree's text to violations; a *dependency* is a Debian package that a lane
//! needs, with the means to see whether it is there.
//!
//! Rejected: shell scripts (no types, no tests, and the tidy checks need a parser) and a CI file
//! with the lanes in it (then only CI can run what CI runs).

mod conformance;
mod demo;
mod deps;
mod install;
mod lanes;
mod shell;
mod tally;
mod tidy;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Builds, tests, checks, demonstrates and installs Raddle.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the release: the `raddle` command and the library that it preloads
    Build,
    /// Installs what the tests need, then runs every lane but chaos, or the lanes named
    Test {
        /// fmt, clippy, tidy, unit, loom, shuttle, sim, real, chaos; all but the last when none is
        /// named
        lanes: Vec<String>,
        /// Leaves the machine's packages alone
        #[arg(long)]
        no_install: bool,
    },
    /// Checks dependency directions, sizes, words, links and the preloaded library's purity
    Tidy {
        /// Lowers the recorded sizes to what they are now; never raises one
        #[arg(long)]
        update: bool,
    },
    /// Runs the model checkers' lanes: loom and shuttle
    Loom,
    /// Builds the release and runs `raddle bench` (all of it when no argument is given)
    Bench {
        /// Arguments for `raddle bench`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Prints the packages that the tests need and installs those that are missing
    Deps {
        /// Also those that only `conformance` needs
        #[arg(long)]
        conformance: bool,
        /// Only prints
        #[arg(long)]
        dry_run: bool,
    },
    /// Runs the Open POSIX Test Suite natively and under raddle, and compares
    Posix {
        /// The suite: a folder with `conformance/interfaces` in it, or LTP's checkout
        #[arg(long)]
        suite: PathBuf,
        /// Where its programs are built; they stay there
        #[arg(long)]
        build: Option<PathBuf>,
        /// Only cases whose group/name contains this
        #[arg(long)]
        only: Option<String>,
        /// Seconds after which a program counts as hung
        #[arg(long, default_value_t = 60)]
        limit: u64,
    },
    /// Runs CPython's own tests and stress-ng's stressors natively and under raddle, and compares
    Conformance {
        /// Only modules or stressors whose name contains this
        #[arg(long)]
        only: Option<String>,
        /// Leaves the machine's packages alone
        #[arg(long)]
        no_install: bool,
    },
    /// Runs ping-pong programs native and under raddle, and prints a table
    Demo,
    /// Builds the release and installs it
    Install {
        /// The folder that gets bin/, lib/ and share/
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// A staging folder put before the prefix, for packagers
        #[arg(long, default_value = "")]
        destdir: String,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command; `false` says that it ran to its end and found something wrong.
fn run(command: Command) -> Result<bool> {
    let workspace = Workspace::load()?;
    match command {
        Command::Build => workspace.build_release().map(|()| true),
        Command::Test { lanes, no_install } => {
            lanes::check_names(&lanes)?;
            let missing = deps::ensure(!no_install);
            lanes::run(&workspace, &lanes, missing)
        }
        Command::Tidy { update: true } => tidy::update(&workspace).map(|()| true),
        Command::Tidy { update: false } => Ok(tidy::run(&workspace)?.is_clean()),
        Command::Loom => lanes::run(&workspace, &["loom".into(), "shuttle".into()], 0),
        Command::Bench { arguments } => bench(&workspace, arguments),
        Command::Deps {
            dry_run,
            conformance,
        } => {
            let mut missing = deps::ensure(!dry_run);
            if conformance {
                missing += deps::ensure_optional(!dry_run);
            }
            Ok(missing == 0)
        }
        Command::Posix {
            suite,
            build,
            only,
            limit,
        } => {
            let limit = Duration::from_secs(limit);
            conformance::posix::run(
                &workspace,
                &conformance::posix::Options {
                    suite,
                    build,
                    only,
                    limit,
                },
            )
        }
        Command::Conformance { only, no_install } => {
            deps::ensure_optional(!no_install);
            conformance::run(&workspace, only.as_deref())
        }
        Command::Demo => demo::run(&workspace),
        Command::Install { prefix, destdir } => {
            install::run(&workspace, &prefix, &destdir).map(|()| true)
        }
    }
}

fn bench(workspace: &Workspace, mut arguments: Vec<String>) -> Result<bool> {
    workspace.build_release()?;
    let example = ["--package", "raddle", "--example", "pool_bench"];
    shell::run(
        shell::cargo(&workspace.root)
            .args(["build", "--release"])
            .args(example),
    )?;
    if arguments.is_empty() {
        arguments.push("all".into());
    }
    if arguments
        .iter()
        .any(|name| name == "all" || name == "handles")
    {
        workspace.build_example("raddle", "handles")?;
    }
    let mut command = std::process::Command::new(workspace.raddle());
    Ok(command.arg("bench").args(arguments).status()?.success())
}
