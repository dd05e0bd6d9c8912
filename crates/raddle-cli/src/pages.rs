//! Completion scripts and manual pages, generated from the one definition of the command line.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{CompletionsArguments, ManArguments, definition};
use crate::failure::Failure;
use crate::stdout::stdout;

pub(crate) fn completions(arguments: &CompletionsArguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "raddle", &mut script);
    stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `raddle.1` and a page for each command.
pub(crate) fn manual(arguments: &ManArguments) -> Result<ExitCode> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(definition(), folder));
    match written {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::input(
            format!("{}: {error}", folder.display()),
            "name a folder that you can write to",
        )
        .into()),
    }
}
