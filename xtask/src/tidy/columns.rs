//! Lines of at most 100 columns. A table row or an address in a document can't be broken.

use anyhow::Result;

use super::tree::TextFile;
use super::{Findings, Subject, Violation};

const LIMIT_COLUMNS: usize = 100;

pub(super) fn check(subject: &Subject<'_>) -> Result<Findings> {
    let files = subject.tree.files.iter().filter(|file| applies(file));
    let mut findings = Findings {
        looked_at: 0,
        violations: Vec::new(),
    };
    for file in files {
        findings.looked_at += 1;
        findings.violations.extend(long_lines(file));
    }
    Ok(findings)
}

fn applies(file: &TextFile) -> bool {
    // A list of sentences in a format that has no line continuation.
    let lists = ["known-failures.toml", "conformance.toml"];
    let list = lists.iter().any(|name| file.path.ends_with(name));
    let text = matches!(file.extension(), "md" | "toml") && !list;
    file.is_source() || text || file.path == "Makefile"
}

fn long_lines(file: &TextFile) -> Vec<Violation> {
    let breakable = |line: &str| {
        let row = file.extension() == "md" && line.trim_start().starts_with('|');
        !row && !line.contains("://")
    };
    file.lines()
        .map(|(number, line)| (number, line, line.chars().count()))
        .filter(|&(_, line, columns)| columns > LIMIT_COLUMNS && breakable(line))
        .map(|(number, _, columns)| {
            Violation::new(
                format!("{}:{number}", file.path),
                format!("{columns} columns"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_found_and_columns_are_characters() {
        let long = "x".repeat(101);
        assert_eq!(
            long_lines(&TextFile::new("a.rs", &format!("ok\n{long}\n"))).len(),
            1
        );
        assert!(long_lines(&TextFile::new("a.rs", &"ä".repeat(100))).is_empty());
    }

    #[test]
    fn only_documents_may_have_long_table_rows() {
        let row = format!("| {} |", "x".repeat(100));
        assert!(long_lines(&TextFile::new("a.md", &row)).is_empty());
        assert_eq!(long_lines(&TextFile::new("a.rs", &row)).len(), 1);
    }

    #[test]
    fn an_address_may_be_long() {
        let address = format!("// https://example.org/{}", "x".repeat(100));
        assert!(long_lines(&TextFile::new("a.rs", &address)).is_empty());
    }
}
