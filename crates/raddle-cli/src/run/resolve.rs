//! Finds a command as a POSIX shell finds it: a name with a slash is a path, any other is looked
//! up in `PATH`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND};

/// The search path of `execvp` when `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Returns the file that `name` means.
///
/// # Errors
/// Status 126 when there is a file that can't be executed, 127 when there is none.
pub(crate) fn resolve(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return executable(&file).map(|()| file);
    }
    let mut refusal = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        let file = if folder.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            folder.join(name)
        };
        match executable(&file) {
            _ if file.is_dir() => {}
            Ok(()) => return Ok(file),
            Err(failure) if failure.status == NOT_EXECUTABLE => {
                refusal.get_or_insert(failure);
            }
            Err(_) => {}
        }
    }
    Err(refusal.unwrap_or_else(|| {
        Failure::new(
            NOT_FOUND,
            format!("{}: command not found", name.display()),
            "check the spelling, or give the program's path",
        )
    }))
}

/// Asks the kernel whether it would execute `file`.
fn executable(file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let not_found = || {
        Failure::new(
            NOT_FOUND,
            format!("{shown}: no such file"),
            "check the path",
        )
    };
    let refused = |what: &str, cure: String| {
        Err(Failure::new(
            NOT_EXECUTABLE,
            format!("{shown}: {what}"),
            cure,
        ))
    };
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return refused("permission denied", "ask for access to its folder".into());
        }
        Err(_) => return Err(not_found()),
    };
    if metadata.is_dir() {
        return refused("is a folder", "name a program in it".into());
    }
    if !metadata.is_file() {
        return refused("is no regular file", "name a program".into());
    }
    match accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => refused(
            "permission denied",
            format!("make it executable: chmod +x {shown}"),
        ),
        // A filter may refuse the question: then `execve` tells.
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("raddle-resolve-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn file(path: &Path, mode: u32) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_name_without_a_slash_is_searched_in_order_past_what_is_not_executable() {
        let root = folder("order");
        for part in ["a", "b", "c"] {
            fs::create_dir_all(root.join(part)).unwrap();
        }
        file(&root.join("a/tool"), 0o644);
        fs::create_dir_all(root.join("b/tool")).unwrap();
        file(&root.join("c/tool"), 0o755);
        let path = std::env::join_paths(["a", "b", "c"].map(|part| root.join(part))).unwrap();
        assert_eq!(
            resolve(OsStr::new("tool"), Some(&path)).unwrap(),
            root.join("c/tool")
        );
        let path = std::env::join_paths([root.join("a"), root.join("b")]).unwrap();
        let failure = resolve(OsStr::new("tool"), Some(&path)).unwrap_err();
        assert_eq!(failure.status, NOT_EXECUTABLE);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_name_with_a_slash_is_never_searched() {
        let root = folder("slash");
        file(&root.join("tool"), 0o755);
        let failure = resolve(OsStr::new("./tool"), Some(root.as_os_str())).unwrap_err();
        assert_eq!(failure.status, NOT_FOUND);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn without_a_path_variable_the_usual_folders_are_searched() {
        assert!(resolve(OsStr::new("sh"), None).is_ok());
        assert_eq!(resolve(OsStr::new(""), None).unwrap_err().status, NOT_FOUND);
    }
}
