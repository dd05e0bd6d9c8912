//! The tree's text files, read once, with the small text tools that several checks share.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

pub(super) struct Tree {
    pub files: Vec<TextFile>,
}

pub(super) struct TextFile {
    /// Relative to the root, with `/` between the parts.
    pub path: String,
    pub text: String,
}

/// Hidden folders that belong to the project.
const HIDDEN_BUT_OURS: [&str; 2] = [".cargo", ".ci"];

impl Tree {
    /// Reads every text file below `root`, except those that Cargo or git makes.
    pub(super) fn load(root: &Path) -> Result<Tree> {
        let mut tree = Tree { files: Vec::new() };
        tree.read_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    pub(super) fn file(&self, path: &str) -> Result<&TextFile> {
        let found = self.files.iter().find(|file| file.path == path);
        found.with_context(|| format!("{path} is missing"))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() && is_ours(&name) {
                self.read_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && name != "Cargo.lock" {
                // A file that another build step removed meanwhile, or that is not text, is no part
                // of the tree's text.
                let Ok(text) = fs::read_to_string(entry.path()) else {
                    continue;
                };
                self.files.push(TextFile { path, text });
            }
        }
        Ok(())
    }
}

fn is_ours(folder: &str) -> bool {
    HIDDEN_BUT_OURS.contains(&folder)
        || !(folder.starts_with('.') || folder.starts_with("target") || folder == "__pycache__")
}

impl TextFile {
    #[cfg(test)]
    pub(super) fn new(path: &str, text: &str) -> TextFile {
        TextFile {
            path: path.into(),
            text: text.into(),
        }
    }

    pub(super) fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Returns whether this is a program's text, in any language.
    pub(super) fn is_source(&self) -> bool {
        const LANGUAGES: [&str; 10] = ["rs", "c", "cc", "h", "S", "py", "java", "cs", "go", "sh"];
        LANGUAGES.contains(&self.extension())
    }

    /// Returns whether this is the text of a crate's library or program: `crates/NAME/src/...`.
    pub(super) fn is_crate_source(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.next() == Some("crates") && parts.nth(1) == Some("src") && self.extension() == "rs"
    }

    /// Lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

/// Brings identifiers and prose to one form: `GreenThread`, `green_thread` and `Green-thread` all
/// become ` green thread `. Other punctuation becomes ` . `, so that a phrase never spans it.
pub(super) fn words(text: &str) -> String {
    let mut out = String::from(" ");
    let mut previous_lower = false;
    for c in text.chars() {
        if c.is_alphanumeric() {
            if c.is_uppercase() && previous_lower {
                out.push(' ');
            }
            out.extend(c.to_lowercase());
        } else if !matches!(c, '_' | '-') && !c.is_whitespace() {
            out.push_str(" . ");
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
        previous_lower = c.is_lowercase();
    }
    out.push(' ');
    out
}

/// Returns whether `text`, already in the form of [`words`], contains `phrase` in the singular or
/// plural.
pub(super) fn has_phrase(text: &str, phrase: &str) -> bool {
    let phrase = words(phrase).trim_end().to_owned();
    text.contains(&format!("{phrase} ")) || text.contains(&format!("{phrase}s "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_bring_identifiers_and_prose_together() {
        assert_eq!(words("GreenThread"), " green thread ");
        assert_eq!(words("green_thread"), " green thread ");
        assert!(has_phrase(&words("two hand-offs a second"), "hand-off"));
        assert!(has_phrase(&words("fn run_queue()"), "run queue"));
    }

    #[test]
    fn phrases_end_at_punctuation_and_at_word_borders() {
        assert!(!has_phrase(&words("the run. Queue"), "run queue"));
        assert!(!has_phrase(&words("prerun queue"), "run queue"));
    }

    #[test]
    fn folders_that_tools_make_are_not_ours() {
        assert!(is_ours("crates") && is_ours(".ci"));
        assert!(!is_ours(".git") && !is_ours("target") && !is_ours("target-fuzz"));
    }

    #[test]
    fn crate_sources_are_told_from_tests_and_programs() {
        assert!(TextFile::new("crates/raddle-sys/src/mem.rs", "").is_crate_source());
        assert!(!TextFile::new("crates/raddle-sys/tests/mem.rs", "").is_crate_source());
        assert!(!TextFile::new("xtask/src/main.rs", "").is_crate_source());
    }
}
