//! One style of modules: the file of module `x` is `x.rs`, beside its folder `x`.
//!
//! In `tests` and `examples`, where each file is a program, a module that several programs share
//! needs `mod.rs`.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files = subject.tree.files.iter();
    let files: Vec<_> = files.filter(|file| file.extension() == "rs").collect();
    Ok(Findings {
        looked_at: files.len(),
        violations: files.iter().filter_map(|file| violation(file)).collect(),
    })
}

fn violation(file: &TextFile) -> Option<Violation> {
    let folder = file.path.strip_suffix("/mod.rs")?;
    let is_shared = folder
        .split('/')
        .any(|part| part == "tests" || part == "examples");
    (!is_shared).then(|| Violation::new(&*file.path, format!("is to be {folder}.rs")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mod_file_is_found_outside_of_tests() {
        let is_found = |path: &str| violation(&TextFile::new(path, "")).is_some();
        assert!(is_found("crates/a/src/b/mod.rs"));
        assert!(!is_found("crates/a/src/b.rs"));
        assert!(!is_found("crates/a/tests/common/mod.rs"));
    }
}
