//! Texts of a program's own choice, as a terminal may have them.

use std::fmt::Write;

/// Returns a text in one line. What could control the terminal, turn the direction of the text or
/// stay unseen is escaped: `\u{202e}`.
///
/// # Examples
/// ```
/// use raddle_record::text::plain;
/// assert_eq!(plain("größe\t\u{1b}[2J\u{202e}x"), "größe\\t\\u{1b}[2J\\u{202e}x");
/// ```
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        put(character, &mut plain);
    }
    plain
}

/// Returns a name in quotes.
pub fn quoted(name: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for character in String::from_utf8_lossy(name).chars() {
        if matches!(character, '"' | '\\') {
            quoted.push('\\');
        }
        put(character, &mut quoted);
    }
    quoted + "\""
}

fn put(character: char, to: &mut String) {
    if is_harmless(character) {
        to.push(character);
    } else {
        let _ = write!(to, "{}", character.escape_default());
    }
}

/// Returns false for control characters, separators of lines and of paragraphs, and for what
/// Unicode calls format characters: marks of direction, and others without a width.
fn is_harmless(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    );
    !is_format && !character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_or_hides_text_is_escaped() {
        assert_eq!(plain("a\nb\u{9b}31m"), "a\\nb\\u{9b}31m");
        for odd in ['\u{202e}', '\u{2066}', '\u{61c}', '\u{200d}', '\u{feff}'] {
            let escaped = format!("x\\u{{{:x}}}y", u32::from(odd));
            assert_eq!(plain(&format!("x{odd}y")), escaped);
        }
        let harmless = "größe<T> 名前 \u{1f980}";
        assert_eq!(plain(harmless), harmless);
        // A text that is plain already stays as it is.
        assert_eq!(plain(&plain("a\u{202e}")), "a\\u{202e}");
    }

    #[test]
    fn a_quoted_name_is_told_from_what_is_around_it() {
        assert_eq!(quoted(b"io\x1b[2J"), "\"io\\u{1b}[2J\"");
        assert_eq!(quoted(b"a\" \\u"), "\"a\\\" \\\\u\"");
        assert_eq!(quoted("\u{202e}".as_bytes()), "\"\\u{202e}\"");
    }
}
