//! The one door to the project: `cargo xtask COMMAND`.
//!
//! Nouns: a *lane* is one group of checks with a count of its cases; a *check* of tidy is a pure
//! function from the tree's text to violations; a *dependency* is a Debian package that a lane
//! needs, with the means to see whether it is there.
//!
//! Rejected: shell scripts (no types, no tests, and the tidy checks need a parser) and a CI file
//! with the lanes in it (then only CI can run what CI runs).

mod abi;
mod apt;
mod c_library;
mod conformance;
mod demo;
mod deny;
mod deps;
mod failures;
mod free_threaded;
mod fuzz;
mod glibc;
mod install;
mod lanes;
mod shell;
mod suites;
mod tally;
mod tidy;
mod vm;
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
        /// fmt, clippy, tidy, doc, deny, unit, loom, shuttle, sim, real, api, c-api, policies,
        /// conformance, fuzz, chaos; all but the last when none is named
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
        /// Only prints
        #[arg(long)]
        dry_run: bool,
    },
    /// Runs the Open POSIX Test Suite natively and under raddle, and compares
    Posix {
        /// The suite: a folder with `conformance/interfaces` in it, or LTP's checkout
        #[arg(long)]
        suite: PathBuf,
        #[command(flatten)]
        posix: PosixOptions,
        #[command(flatten)]
        part: Part,
    },
    /// Runs our own tests, CPython's and stress-ng's natively and under raddle, and compares
    Conformance {
        /// The Open POSIX Test Suite as well, which is here
        #[arg(long)]
        suite: Option<PathBuf>,
        #[command(flatten)]
        posix: PosixOptions,
        #[command(flatten)]
        part: Part,
        /// Leaves the machine's packages alone
        #[arg(long)]
        no_install: bool,
    },
    /// Fetches, builds and runs outside test suites natively and under raddle, and compares
    Suites {
        /// Suites or families of xtask/suites.toml; all when none is named
        names: Vec<String>,
        /// Only the groups, test binaries or modules that have this in their names
        #[arg(long)]
        only: Option<String>,
        /// The numbers of carriers, as 1,2
        #[arg(short = 'n', long, value_delimiter = ',', default_value = "2")]
        carriers: Vec<u32>,
        /// Only prints what is in the manifest
        #[arg(long)]
        list: bool,
    },
    /// Runs the tests on C and C++ programs with another glibc than the machine's
    Glibc {
        /// The Debian suite to fetch libc6 from
        #[arg(long, default_value = "sid")]
        suite: String,
        /// A folder with libc.so.6 and its ld.so, instead
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// Boots other Linux kernels in an emulator and runs a part of the tests there
    Vm {
        /// Kernels of xtask/vm.toml; all when none is named
        kernels: Vec<String>,
        /// The numbers of CPUs, as 1,2; the manifest's when none is given
        #[arg(long, value_delimiter = ',')]
        cpus: Vec<u32>,
        /// The processors of the manifest, as max
        #[arg(long = "processor", value_delimiter = ',')]
        processors: Vec<String>,
        /// Only the cases that have this in FILE/CASE
        #[arg(long)]
        test: Option<String>,
        /// Leaves the machine's packages alone
        #[arg(long)]
        no_install: bool,
    },
    /// Makes the same system calls natively and under raddle, and compares
    ///
    /// What: `calls`. Everything behind it is for the fuzzer: `--calls N`, `--seed N`, `--call
    /// NAME`, `--carriers 1,2`, `--quantum-us 100`, `--chaos SEED`, `--replay SEED-OR-FILE`.
    Fuzz {
        what: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs ping-pong programs native and under raddle, and prints a table
    Demo,
    /// Checks that the C header, what libraddle exports and the committed list agree
    Abi {
        /// Writes the list anew
        #[arg(long)]
        update: bool,
    },
    /// Builds the release and installs it
    Install {
        /// The folder that gets bin/, include/, lib/ and share/
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// A staging folder put before the prefix, for packagers
        #[arg(long, default_value = "")]
        destdir: String,
    },
}

/// Which cases run, and how.
#[derive(clap::Args)]
struct Part {
    /// Only what has this in its name: a test file, a module, a stressor, a program
    #[arg(long)]
    only: Option<String>,
    /// Only these numbers of carriers, as 1,2
    #[arg(long, value_delimiter = ',')]
    carriers: Vec<u32>,
}

impl From<Part> for conformance::Settings {
    fn from(part: Part) -> Self {
        Self {
            only: part.only,
            carriers: part.carriers,
        }
    }
}

/// The Open POSIX Test Suite.
#[derive(clap::Args)]
struct PosixOptions {
    /// Where the Open POSIX Test Suite's programs are built; they stay there
    #[arg(long)]
    build: Option<PathBuf>,
    /// Seconds after which one of these programs counts as hung
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

impl PosixOptions {
    fn of(self, suite: PathBuf) -> conformance::Posix {
        conformance::Posix {
            suite,
            build: self.build,
            limit: Duration::from_secs(self.limit),
        }
    }
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
            let missing = deps::ensure(&workspace.target, !no_install);
            lanes::run(&workspace, &lanes, missing)
        }
        Command::Tidy { update: true } => tidy::update(&workspace).map(|()| true),
        Command::Tidy { update: false } => Ok(tidy::run(&workspace)?.is_clean()),
        Command::Loom => lanes::run(&workspace, &["loom".into(), "shuttle".into()], 0),
        Command::Bench { arguments } => bench(&workspace, arguments),
        Command::Deps { dry_run } => Ok(deps::ensure(&workspace.target, !dry_run) == 0),
        Command::Posix { suite, posix, part } => {
            conformance::run_posix(&workspace, &part.into(), &posix.of(suite))
        }
        Command::Conformance {
            suite,
            posix,
            part,
            no_install,
        } => {
            deps::ensure(&workspace.target, !no_install);
            let posix = suite.map(|suite| posix.of(suite));
            conformance::run(&workspace, &part.into(), posix.as_ref())
        }
        Command::Suites {
            names,
            only,
            carriers,
            list,
        } => suites::run(
            &workspace,
            &suites::Options {
                names,
                only,
                carriers,
                list,
            },
        ),
        Command::Glibc { suite, folder } => glibc::run(&workspace, &suite, folder),
        Command::Vm {
            kernels,
            cpus,
            processors,
            test,
            no_install,
        } => vm::run(
            &workspace,
            &vm::Options {
                kernels,
                cpus,
                processors,
                test,
                no_install,
            },
        ),
        Command::Fuzz { what, arguments } => fuzz::run(&workspace, &what, &arguments),
        Command::Demo => demo::run(&workspace),
        Command::Abi { update } => abi::run(&workspace, update),
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
