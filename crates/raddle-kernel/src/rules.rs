//! Lists of rules about threads from the user's environment: separated by semicolons, with globs.

pub mod exclusion;
pub mod shares;

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A list that is written once, at start-up.
pub struct Rules {
    at: AtomicPtr<u8>,
    len: AtomicUsize,
}

impl Rules {
    /// No rules.
    pub const fn new() -> Self {
        Self {
            at: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicUsize::new(0),
        }
    }

    /// Sets the rules.
    pub fn set(&self, rules: &'static [u8]) {
        self.len.store(rules.len(), Ordering::Relaxed);
        self.at.store(rules.as_ptr().cast_mut(), Ordering::Release);
    }

    /// Returns true if there are rules at all.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.at.load(Ordering::Relaxed).is_null()
    }

    /// Each rule, as it was written.
    pub fn each(&self) -> impl Iterator<Item = &'static [u8]> {
        let at = self.at.load(Ordering::Acquire);
        let rules: &'static [u8] = if at.is_null() {
            &[]
        } else {
            // SAFETY: `set` was given a slice that lives for ever.
            unsafe { core::slice::from_raw_parts(at, self.len.load(Ordering::Relaxed)) }
        };
        rules.split(|&byte| byte == b';')
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns true if a library's path, or the file's name alone, fits `glob`.
pub fn matches_library(glob: &[u8], path: &[u8]) -> bool {
    let file = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    matches(glob, file) || matches(glob, path)
}

/// Returns true if `text` fits `glob`: `*` is any text, `?` one character.
pub fn matches(glob: &[u8], text: &[u8]) -> bool {
    match (glob.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        (Some((b'?', rest)), Some((_, tail))) => matches(rest, tail),
        (Some((a, rest)), Some((b, tail))) if a == b => matches(rest, tail),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (glob, text, expected) in [
            ("*", "", true),
            ("GC*", "GC Thread#0", true),
            ("GC*", "G1", false),
            ("?1 *", "G1 Service", true),
            ("*.so*", "libjvm.so", true),
            ("abc", "abcd", false),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "a__c__b", false),
        ] {
            assert_eq!(
                matches(glob.as_bytes(), text.as_bytes()),
                expected,
                "{glob} {text}"
            );
        }
    }
}
