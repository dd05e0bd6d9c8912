//! `raddle dump`: asks a process under Raddle for a snapshot, and shows it as lines or as JSON.
//!
//! `raddle-inspect` has the protocol. What is not trusted: that the socket of a process belongs to
//! that process (anybody may bind a name), and that the bytes make sense.

mod connect;
mod document;
mod lines;
mod process;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use raddle_inspect::Snapshot;

use crate::cli::DumpArguments;
use crate::failure::Failure;

pub fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    let pid = arguments.pid;
    let bytes = connect::fetch(pid)?;
    let snapshot = Snapshot::parse(&bytes).map_err(|error| {
        Failure::input(
            format!("the answer of process {pid} can't be understood, because {error}"),
            "use the raddle that started it",
        )
    })?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match arguments.json {
        true => {
            let document = document::Document::new(pid, &snapshot);
            serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        false => lines::write(pid, &snapshot, &mut out)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
