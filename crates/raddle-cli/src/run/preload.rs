//! The place of the preloaded library.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::own_path;

const FILE_NAME: &str = "libraddle_preload.so";
const VARIABLE: &str = "RADDLE_PRELOAD";

/// Separators of `LD_PRELOAD`, which has no way to escape them.
const SEPARATORS: [u8; 2] = [b' ', b':'];

/// Finds the library: `RADDLE_PRELOAD`, else beside this executable, else in `../lib/raddle` from
/// there. The path is absolute: the program and its children may run in any folder.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let found = match named {
        Some(path) => named_by_variable(path)?,
        None => beside_executable()?,
    };
    check(&found)?;
    Ok(found)
}

fn named_by_variable(path: OsString) -> Result<PathBuf, Failure> {
    let path = PathBuf::from(path);
    let exists = path.metadata();
    exists.map(|_| own_path::resolved(&path)).map_err(|error| {
        let what = format!(
            "{VARIABLE} names {}, which can't be used ({error})",
            path.display()
        );
        Failure::input(
            what,
            format!("set it to the path of {FILE_NAME}, or unset it"),
        )
    })
}

fn beside_executable() -> Result<PathBuf, Failure> {
    let own = own_path::executable().map_err(|error| {
        let what =
            format!("this command can't tell its own path, beside which is {FILE_NAME} ({error})");
        Failure::input(what, format!("mount /proc, or set {VARIABLE} to its path"))
    })?;
    let own = own_path::resolved(&own);
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [
        folder.join(FILE_NAME),
        folder.join("../lib/raddle").join(FILE_NAME),
    ];
    let found = candidates.iter().find(|candidate| candidate.exists());
    found.map(|path| own_path::resolved(path)).ok_or_else(|| {
        let what = format!(
            "{FILE_NAME} is neither in {} nor in ../lib/raddle from there",
            folder.display()
        );
        Failure::input(
            what,
            format!("install raddle again, or set {VARIABLE} to its path"),
        )
    })
}

/// Makes ld.so's checks beforehand, so that ld.so does not complain in the program's name.
fn check(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| SEPARATORS.contains(byte))
    {
        return Err(Failure::input(
            format!("{shown} has a space or a colon in it, and LD_PRELOAD can't hold that"),
            "install raddle in another folder",
        ));
    }
    let mut start = [0; 20];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match read {
        Ok(()) if is_x86_64_library(&start) => Ok(()),
        Ok(()) => Err(not_a_library(&format!(
            "{shown} is no x86-64 shared library"
        ))),
        Err(error) => Err(not_a_library(&format!("{shown} can't be read ({error})"))),
    }
}

fn not_a_library(what: &str) -> Failure {
    Failure::input(
        what,
        format!("install raddle again, or set {VARIABLE} to another path"),
    )
}

/// Magic, 64 bits, little-endian; at 16 and 18 the type (3: shared object) and machine (62).
fn is_x86_64_library(start: &[u8; 20]) -> bool {
    start.starts_with(b"\x7fELF\x02\x01") && start[16..20] == [3, 0, 62, 0]
}
