//! Threads that the user wants on kernel threads of their own: bound threads.
//!
//! Rules come from `--exclude`: `name:GLOB` is looked at when a thread is named (it is bound from
//! then on), `lib:GLOB` and `start:SYMBOL` when it is created (by the symbol layer, which knows the
//! start function).

use super::{Rules, matches};

/// `RADDLE_EXCLUDE`.
static RULES: Rules = Rules::new();

/// Sets the rules.
pub fn set_rules(rules: &'static [u8]) {
    RULES.set(rules);
}

/// Returns true if there are rules at all.
#[inline(always)]
pub fn any() -> bool {
    RULES.any()
}

/// The patterns of one kind (`name:`, `lib:`, `start:`).
pub fn patterns(kind: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    RULES.each().filter_map(move |rule| rule.strip_prefix(kind))
}

/// Returns true if a rule names the thread.
pub fn excludes_name(name: &[u8]) -> bool {
    any() && patterns(b"name:").any(|glob| matches(glob, name))
}
