//! Exclude patterns: which threads keep a kernel thread of their own.

use std::fmt;

use crate::cli::EXCLUDE_SEPARATOR;

/// `name:GLOB`, `lib:GLOB` or `start:SYMBOL`, checked; the runtime in the program matches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(String);

const CURE: &str = "write name:GLOB, lib:GLOB or start:SYMBOL";

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let Some((kind, what)) = text.split_once(':') else {
            return Err(CURE.into());
        };
        let well_formed = match kind {
            "name" | "lib" => !what.is_empty() && !what.contains([EXCLUDE_SEPARATOR, '\0', '\n']),
            "start" => is_symbol(what),
            _ => false,
        };
        if well_formed {
            Ok(Pattern(text.into()))
        } else {
            Err(CURE.into())
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns whether compilers make symbols of this form: C, C++ and Rust names, versions and clones.
fn is_symbol(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '@');
    !text.is_empty() && text.chars().all(plain) && !text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_kinds_are_accepted() {
        for text in [
            "name:GC*",
            "name:C2 Compiler?",
            "lib:libcuda.so*",
            "lib:*/[ab]:c",
            "start:main",
            "start:_ZN3foo3barEv",
        ] {
            assert_eq!(
                Pattern::parse(text).map(|pattern| pattern.to_string()),
                Ok(text.into())
            );
        }
    }

    #[test]
    fn everything_else_is_refused_with_the_cure() {
        for text in [
            "",
            "GC*",
            "name",
            "name:",
            "lib:",
            "start:",
            "thread:x",
            "Name:x",
            "start:a b",
            "start:f*",
            "start:1x",
            "name:a;b",
            ":x",
        ] {
            assert_eq!(Pattern::parse(text), Err(CURE.into()), "{text}");
        }
    }
}
