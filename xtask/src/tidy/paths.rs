//! No absolute path of one machine: the tree must read and build the same anywhere.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

/// First parts of paths under which people keep their files and checkouts.
const PERSONAL: [&str; 6] = ["home", "root", "Users", "work", "workspace", "mnt"];

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files = &subject.tree.files;
    let violations = files.iter().flat_map(personal_paths).collect();
    Ok(Findings {
        looked_at: files.len(),
        violations,
    })
}

fn personal_paths(file: &TextFile) -> Vec<Violation> {
    let found = file.lines().filter_map(|(number, line)| {
        let part = PERSONAL.iter().find(|part| names_path_under(line, part))?;
        let place = format!("{}:{number}", file.path);
        Some(Violation::new(
            place,
            format!("names an absolute path below {part}"),
        ))
    });
    found.collect()
}

/// Returns whether `line` has an absolute path that starts with `part` and goes on below it.
fn names_path_under(line: &str, part: &str) -> bool {
    let start = format!("/{part}/");
    line.match_indices(&start).any(|(at, _)| {
        let relative = line[..at].chars().next_back().is_some_and(|c| {
            c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '}' | ')' | '*' | '~')
        });
        let below = line[at + start.len()..].chars().next();
        !relative && below.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '$'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_somebodys_home_is_found() {
        let path = ["", "home", "someone", "raddle"].join("/");
        let file = TextFile::new("a.md", &format!("first\nsee {path}\n"));
        let found = personal_paths(&file);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "a.md:2");
    }

    #[test]
    fn relative_paths_and_addresses_are_not() {
        for text in [
            "src/work/queue.rs",
            "https://example.org/home/x",
            "./root/x",
            "/usr/lib",
        ] {
            assert!(
                personal_paths(&TextFile::new("a.md", text)).is_empty(),
                "{text}"
            );
        }
    }
}
