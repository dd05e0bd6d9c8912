//! Runs the cases of a file: natively, or under `raddle run`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use raddle_fuzz::execute::{Options, serve};

#[derive(Parser)]
struct Arguments {
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
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let options = Options {
        slots: arguments.slots,
        limit_ms: arguments.limit_ms,
        folder: arguments.folder,
        patched: arguments.patched,
    };
    serve(&arguments.cases, &arguments.results, &options)
}
