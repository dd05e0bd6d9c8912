//! Relative links in the documents lead to files that exist, and every crate is on the map.

use std::path::{Component, Path, PathBuf};

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let root = &subject.workspace.root;
    let documents = subject
        .tree
        .files
        .iter()
        .filter(|file| file.extension() == "md");
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for document in documents {
        findings.looked_at += 1;
        findings
            .violations
            .extend(dead_links(document, |path| root.join(path).exists()));
    }
    let map = subject.tree.file("ARCHITECTURE.md")?;
    let packages = subject
        .workspace
        .packages
        .iter()
        .map(|package| package.name.as_str());
    findings.violations.extend(off_the_map(map, packages));
    Ok(findings)
}

fn dead_links(document: &TextFile, exists: impl Fn(&Path) -> bool) -> Vec<Violation> {
    let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
    let mut violations = Vec::new();
    for (number, line) in document.lines() {
        for target in targets(line) {
            if !exists(&normal(&folder.join(target))) {
                let place = format!("{}:{number}", document.path);
                violations.push(Violation::new(
                    place,
                    format!("the link to {target} is dead"),
                ));
            }
        }
    }
    violations
}

/// The files that `[text](file#section)` links of this line name; addresses are left out.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let file = target.split('#').next().unwrap_or_default();
        (!file.is_empty() && !target.contains(':')).then_some(file)
    })
}

/// `a/../b` as `b`, without asking the file system.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

fn off_the_map<'a>(map: &TextFile, packages: impl Iterator<Item = &'a str>) -> Vec<Violation> {
    let missing = packages.filter(|name| !map.text.contains(&format!("`{name}`")));
    missing
        .map(|name| Violation::new(&map.path, format!("does not mention `{name}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found_and_a_live_one_or_an_address_is_not() {
        let text = "[a](../README.md#top) [b](gone.md) [c](https://example.org) [d](#here)";
        let found = dead_links(&TextFile::new("docs/x.md", text), |path| {
            path == Path::new("README.md")
        });
        assert_eq!(
            found,
            [Violation::new("docs/x.md:1", "the link to gone.md is dead")]
        );
    }

    #[test]
    fn a_crate_that_the_map_forgets_is_found() {
        let map = TextFile::new("ARCHITECTURE.md", "| `raddle-sys` | raw Linux |");
        assert_eq!(
            off_the_map(&map, ["raddle-sys", "raddle-new"].into_iter()).len(),
            1
        );
    }
}
