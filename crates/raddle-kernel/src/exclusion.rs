//! Threads that the user wants on kernel threads of their own: bound threads.
//!
//! Rules come from `--exclude`: `name:GLOB` is looked at when a thread is named (it is bound from
//! then on), `lib:GLOB` and `start:SYMBOL` when it is created (by the symbol layer, which knows the
//! start function). A glob has `*` for any text and `?` for one character.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// `RADDLE_EXCLUDE`: rules separated by semicolons. Written once at start-up.
static RULES: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static RULES_LEN: AtomicUsize = AtomicUsize::new(0);

/// Sets the rules.
pub fn set_rules(rules: &'static [u8]) {
    RULES_LEN.store(rules.len(), Ordering::Relaxed);
    RULES.store(rules.as_ptr().cast_mut(), Ordering::Release);
}

/// True if there are rules at all.
#[inline(always)]
pub fn any() -> bool {
    !RULES.load(Ordering::Relaxed).is_null()
}

/// The patterns of one kind (`name:`, `lib:`, `start:`).
pub fn patterns(kind: &'static [u8]) -> impl Iterator<Item = &'static [u8]> {
    let at = RULES.load(Ordering::Acquire);
    let len = RULES_LEN.load(Ordering::Relaxed);
    let rules: &'static [u8] = if at.is_null() {
        &[]
    } else {
        // SAFETY: set_rules was given a slice that lives for ever.
        unsafe { core::slice::from_raw_parts(at, len) }
    };
    rules
        .split(|&byte| byte == b';')
        .filter_map(move |rule| rule.strip_prefix(kind))
}

/// True if a rule names the thread.
pub fn excludes_name(name: &[u8]) -> bool {
    any() && patterns(b"name:").any(|glob| matches(glob, name))
}

/// True if `text` fits `glob`.
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
