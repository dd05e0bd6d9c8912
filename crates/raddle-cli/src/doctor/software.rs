//! The libc that programs use, and the library that is preloaded into them.

use std::fs;

use super::Finding;
use crate::machine;
use crate::run::elf::GLIBC_FLOOR;
use crate::run::preload;

pub(super) fn libc() -> Finding {
    let version = machine::libc_version();
    judge_libc(&version, &libc_path())
}

fn judge_libc(version: &str, path: &str) -> Finding {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let release = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let seen = format!("glibc {version}, {path}");
    if release >= GLIBC_FLOOR {
        Finding::ok("libc", seen)
    } else {
        Finding::broken(
            "libc",
            seen,
            "pthread code is in a library of its own before 2.34",
            "use a distribution of 2022 or later",
        )
    }
}

/// Returns the path of this process's libc.
fn libc_path() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6"));
    let path = line.and_then(|line| line.split_whitespace().last());
    path.unwrap_or("at an unknown place").to_owned()
}

pub(super) fn preload() -> Finding {
    match preload::find() {
        Ok(path) => Finding::ok("preload", path.display().to_string()),
        Err(failure) => Finding::broken(
            "preload",
            failure.what,
            "raddle run refuses to start programs",
            failure.cure,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    #[test]
    fn libc_is_judged_by_number() {
        assert_eq!(judge_libc("2.34", "x").state, State::Ok);
        assert_eq!(judge_libc("2.9", "x").state, State::Broken);
        assert_eq!(judge_libc("3.0", "x").state, State::Ok);
        assert_eq!(judge_libc("2.33.9000", "x").state, State::Broken);
        assert!(libc_path().starts_with('/'));
    }
}
