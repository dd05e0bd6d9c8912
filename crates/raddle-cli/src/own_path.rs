//! The path of this command's own file.
//!
//! The kernel tells it by `/proc/self/exe`, which follows links and names no other file. Without
//! `/proc`, and where a filter refuses `readlink(2)`, there is the path that was executed, which
//! the kernel passes at the start (`AT_EXECFN` of getauxval(3)), and then the name by which the
//! caller says to have executed it. The caller chooses both: by a link to this file in a folder of
//! its own it would choose what lies beside. So a command that runs with other privileges than its
//! caller uses the kernel's answer only.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the path of this command's file: absolute, and without links where these can be read.
///
/// # Errors
/// The error of `/proc/self/exe`, if nothing else tells the path either.
pub(crate) fn executable() -> io::Result<PathBuf> {
    std::env::current_exe().or_else(|error| {
        let executed = (!has_other_privileges()).then(executed_path);
        executed.flatten().ok_or(error)
    })
}

/// Returns what `path` means, without links where these can be read.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = || std::path::absolute(path);
    let resolved = path.canonicalize().or_else(|_| absolute());
    resolved.unwrap_or_else(|_| path.to_path_buf())
}

fn executed_path() -> Option<PathBuf> {
    // SAFETY: no pointer is passed.
    let passed = unsafe { libc::getauxval(libc::AT_EXECFN) };
    let passed = (passed != 0).then(|| {
        // SAFETY: the kernel has put a string there, which stays.
        unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance(passed as usize)) }
    });
    let passed = passed.map(|path| PathBuf::from(OsStr::from_bytes(path.to_bytes())));
    let named = || by_name(&std::env::args_os().next()?, std::env::var_os("PATH")?);
    let file = passed.filter(|path| path.is_file()).or_else(named)?;
    Some(resolved(&file))
}

/// Returns the file that a caller executes by `name`. Relative folders of the search path depend on
/// where the caller was, and don't count.
fn by_name(name: &OsStr, search: OsString) -> Option<PathBuf> {
    let is_path = name.as_bytes().contains(&b'/');
    if is_path {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let folders = std::env::split_paths(&search).filter(|folder| folder.is_absolute());
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns true if the kernel has given this command rights that its caller lacks.
fn has_other_privileges() -> bool {
    // SAFETY: no pointer is passed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executed_path_is_the_kernels() {
        let told = std::env::current_exe().expect("/proc is there");
        assert_eq!(
            executed_path(),
            Some(told.canonicalize().expect("it exists"))
        );
    }

    #[test]
    fn a_name_is_looked_up_in_absolute_folders_only() {
        let own = std::env::current_exe().expect("/proc is there");
        let (folder, name) = (
            own.parent().expect("a folder"),
            own.file_name().expect("a name"),
        );
        let search = |text: &OsStr| by_name(name, text.to_owned());
        assert_eq!(search(folder.as_os_str()), Some(own.clone()));
        assert_eq!(search(OsStr::new(".:target:/")), None);
        assert_eq!(by_name(own.as_os_str(), OsString::new()), Some(own.clone()));
    }
}
