//! Differences that are explained: which, and why.
//!
//! `explanations.toml` holds them. Each names lines by patterns, in which `*` stands for anything,
//! and quotes a row of the page on compatibility, so that only documented differences are allowed.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::trace::Difference;
use crate::case::{Case, to_text};

#[derive(Deserialize)]
pub struct Explanation {
    /// The call, or `end` for the state at the end; a pattern.
    pub call: String,
    /// The line of the native trace.
    pub native: String,
    /// The line of the other trace.
    pub other: String,
    /// The call of the step, during which other agents may call.
    #[serde(default = "anything")]
    pub step: String,
    /// A text that the case's text must contain.
    #[serde(default = "anything")]
    pub case: String,
    /// The agent that has the lines in its trace.
    #[serde(default = "anything")]
    pub agent: String,
    /// How both processes end.
    #[serde(default = "anything")]
    pub end: String,
    /// The words of the lines, counted from 0, that may differ; any if none is named.
    #[serde(default)]
    pub words: Vec<usize>,
    /// The rest of the case is compared all the same.
    #[serde(default)]
    pub harmless: bool,
    pub reason: String,
    /// A piece of the page on compatibility.
    pub row: String,
}

fn anything() -> String {
    "*".into()
}

#[derive(Default, Deserialize)]
pub struct Explanations {
    #[serde(default, rename = "explanation")]
    list: Vec<Explanation>,
}

impl Explanations {
    /// Without any.
    pub fn none() -> Self {
        Self::default()
    }

    /// # Errors
    /// A file that can't be read, or is no list of explanations.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{}", path.display()))
    }

    /// The first explanation for a difference.
    pub(super) fn find(
        &self,
        case: &Case,
        difference: &Difference,
        ends: [&str; 2],
    ) -> Option<usize> {
        if self.list.is_empty() {
            return None;
        }
        let call = difference.call(case);
        let step = case.steps.get(difference.step as usize);
        let step = step.map_or("end", |step| step.call.spec.name);
        let fits = |explanation: &Explanation| {
            matches(&explanation.call, call)
                && matches(&explanation.step, step)
                && matches(&explanation.native, &difference.native)
                && matches(&explanation.other, &difference.other)
                && matches(&explanation.agent, &difference.agent)
                && ends.iter().all(|end| matches(&explanation.end, end))
                && differ_in(&explanation.words, difference)
                && (explanation.case == "*" || matches(&explanation.case, &to_text(case)))
        };
        self.list.iter().position(fits)
    }

    pub(super) fn is_harmless(&self, index: usize) -> bool {
        self.list[index].harmless
    }

    pub fn get(&self, index: usize) -> &Explanation {
        &self.list[index]
    }
}

/// Returns true if the lines differ in these words alone; any may differ if there are none.
fn differ_in(words: &[usize], difference: &Difference) -> bool {
    let [native, other]: [Vec<_>; 2] =
        [&difference.native, &difference.other].map(|line| line.split(' ').collect());
    let mut pairs = native.iter().zip(&other).enumerate();
    words.is_empty()
        || native.len() == other.len()
            && pairs.all(|(at, (native, other))| native == other || words.contains(&at))
}

/// Returns true if `text` matches `pattern`; `*` stands for any text, `|` at the top separates
/// patterns.
fn matches(pattern: &str, text: &str) -> bool {
    pattern
        .split(" | ")
        .any(|pattern| matches_one(pattern, text))
}

fn matches_one(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            rest.is_empty() || ends.into_iter().any(|at| matches_one(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("* rseq = *", "3 rseq = EINVAL"));
        assert!(matches("a | b*", "bc"));
        assert!(!matches("* rseq = 0", "3 rseq = EINVAL"));
        assert!(matches("", "") && !matches("", "x"));
    }

    #[test]
    fn every_explanation_quotes_the_page_on_compatibility() -> Result<()> {
        let page = std::fs::read_to_string(folder().join("../../docs/compatibility.md"))?;
        for explanation in Explanations::load(&folder().join("explanations.toml"))?.list {
            assert!(
                page.contains(&explanation.row),
                "not on the page: {}",
                explanation.row
            );
            assert!(!explanation.reason.is_empty());
        }
        Ok(())
    }
}
