//! Runs the cases of a file: natively, or under `raddle run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use raddle_fuzz::execute::{Options, contain, describe, serve};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs cases
    Serve(Serve),
    /// Describes the process: what a case's `execve` starts
    AfterExec,
    /// Runs a command in namespaces of its own
    Contain {
        /// The only folder that can be written
        writable: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct Serve {
    /// The cases
    cases: PathBuf,
    /// Where the traces go
    results: PathBuf,
    /// A folder that the cases' own folders are made in
    folder: PathBuf,
    /// Cases at a time
    #[arg(long, default_value_t = 8)]
    slots: usize,
    /// Milliseconds after which a call counts as one that waits for ever
    #[arg(long, default_value_t = 100)]
    limit_ms: u64,
    /// Fails unless the program's own system calls are patched
    #[arg(long)]
    patched: bool,
    /// Delays agents at random, by this seed
    #[arg(long)]
    delays: Option<u64>,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Contain { writable, command } => contain(&writable, &command),
        Command::AfterExec => {
            describe()?;
            Ok(ExitCode::from(33))
        }
        Command::Serve(arguments) => {
            let options = Options {
                slots: arguments.slots,
                limit_ms: arguments.limit_ms,
                folder: arguments.folder,
                patched: arguments.patched,
                delays: arguments.delays,
            };
            serve(&arguments.cases, &arguments.results, &options)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
