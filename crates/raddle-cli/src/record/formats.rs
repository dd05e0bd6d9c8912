//! The files of a recording, each in the format that its name says.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;
use raddle_record::outputs::{firefox, folded, html, pprof, speedscope, wakers};
use raddle_record::profile::Profile;

use crate::failure::Failure;
use crate::output::Output;

type Writer = fn(&Profile, &mut dyn Write) -> io::Result<()>;

/// The ends of names, and what writes such files; the first end that fits counts.
const FORMATS: [(&str, Writer); 6] = [
    (".html", html::write),
    (".pb.gz", pprof::write),
    (".speedscope.json", speedscope::write),
    (".json", firefox::write),
    (".wakers.folded", wakers::write),
    (".folded", folded::write),
];

/// The files, which have no names before they are whole.
pub(crate) struct Files(Vec<(Output, Writer, PathBuf)>);

impl Files {
    pub(crate) fn create(paths: &[PathBuf], force: bool) -> Result<Files, Failure> {
        let mut files = Vec::new();
        for (number, path) in paths.iter().enumerate() {
            if paths[..number].contains(path) {
                let what = format!("{} is given twice", path.display());
                return Err(Failure::input(what, "give each file once"));
            }
            let writer = writer(path)?;
            files.push((Output::create(path, force)?, writer, path.clone()));
        }
        Ok(Files(files))
    }

    /// Writes the files. Returns the names of those that are whole, and the first failure: one does
    /// not keep the others from being written.
    pub(crate) fn write(self, profile: &Profile) -> (Vec<PathBuf>, Option<Failure>) {
        let (mut written, mut failure) = (Vec::new(), None);
        for (output, writer, path) in self.0 {
            match write(output, writer, profile) {
                Ok(()) => written.push(path),
                Err(why) => drop(failure.get_or_insert(why)),
            }
        }
        (written, failure)
    }
}

fn write(output: Output, writer: Writer, profile: &Profile) -> Result<(), Failure> {
    let mut file = BufWriter::new(output.file());
    let outcome = writer(profile, &mut file).and_then(|()| file.flush());
    drop(file);
    outcome.map_err(|error| output.failed(&error))?;
    output.keep()
}

fn writer(path: &Path) -> Result<Writer, Failure> {
    let name = path.to_string_lossy();
    let format = FORMATS.iter().find(|(end, _)| name.ends_with(end));
    let ends = FORMATS.map(|(end, _)| end).join(", ");
    format.map(|(_, writer)| *writer).ok_or_else(|| {
        let what = format!("the name {name} says no format");
        Failure::input(what, format!("end it with one of {ends}"))
    })
}
