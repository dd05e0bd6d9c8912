//! `raddle report`: recordings that were written, shown and compared.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use raddle_record::outputs::comparison::{self, Comparison};
use raddle_record::outputs::document::Document;
use raddle_record::outputs::pprof::{self, ReadError};
use raddle_record::outputs::summary;
use raddle_record::profile::Profile;
use serde::Serialize;

use crate::cli::ReportArguments;
use crate::failure::Failure;
use crate::output::Output;
use crate::record::formats::Files;
use crate::stdout::{print, stdout, width};

pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode> {
    match arguments.files.as_slice() {
        [before, after] => compare(arguments, &read(before)?, &read(after)?)?,
        files => {
            for file in files {
                show(arguments, &read(file)?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one recording.
fn show(arguments: &ReportArguments, profile: &Profile) -> Result<()> {
    let (_, failure) = Files::create(&arguments.output, arguments.force)?.write(profile);
    failure.map_or(Ok(()), Err)?;
    if arguments.json {
        return print_json(&Document::of(profile));
    }
    Ok(print(&summary::text(profile, width()))?)
}

/// Shows what differs between two recordings.
fn compare(arguments: &ReportArguments, before: &Profile, after: &Profile) -> Result<()> {
    let mut outputs = Vec::new();
    for path in &arguments.output {
        let writer = writer(path)?;
        outputs.push((Output::create(path, arguments.force)?, writer));
    }
    for (output, write) in outputs {
        let mut file = BufWriter::new(output.file());
        let written = write(before, after, &mut file).and_then(|()| file.flush());
        drop(file);
        written.map_err(|error| output.failed(&error))?;
        output.keep()?;
    }
    let comparison = Comparison::of(before, after);
    if arguments.json {
        return print_json(&comparison);
    }
    Ok(print(&comparison.text(width()))?)
}

type Writer = fn(&Profile, &Profile, &mut dyn Write) -> io::Result<()>;

/// Returns what writes a comparison in the format that a name says.
fn writer(path: &Path) -> Result<Writer, Failure> {
    let name = path.to_string_lossy();
    if name.ends_with(".html") {
        return Ok(comparison::write_html);
    }
    if name.ends_with(".folded") {
        return Ok(comparison::write_folded);
    }
    Err(Failure::input(
        format!("the name {name} says no format of a comparison"),
        "end it with .html or .folded",
    ))
}

fn read(path: &Path) -> Result<Profile, Failure> {
    let mut file = File::open(path).map_err(|error| failed(path, &ReadError::Io(error)))?;
    pprof::read(&mut file).map_err(|error| failed(path, &error))
}

/// Explains why a file can't be read.
fn failed(path: &Path, error: &ReadError) -> Failure {
    let cure = match error {
        ReadError::Io(_) => "name a file that this user may read",
        ReadError::NotAProfile => "name one that raddle record -o FILE.pb.gz has written",
        ReadError::Damaged => "copy it again, or record anew",
        ReadError::TooLarge => "record for less time, or fewer threads",
        ReadError::NoTimes => "name a profile of CPU time, wall time or waits",
        ReadError::Newer { .. } => "use the raddle that has written it, or a later one",
    };
    Failure::input(format!("{} {error}", path.display()), cure)
}

fn print_json(document: &impl Serialize) -> Result<()> {
    let mut out = BufWriter::new(stdout());
    serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}
