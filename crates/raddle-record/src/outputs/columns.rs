//! Tables in text: numbers to the right, then a text that is cut where the line ends.

use std::collections::BTreeMap;

/// The columns of a text that is for no terminal, as in a file.
pub const WIDTH: usize = 100;
/// The least columns that the last text of a row has: rather than fewer, numbers are left out.
const TEXT_LEAST: usize = 16;
const GAP: &str = "  ";
const CUT: &str = "...";

/// A text in lines of limited width.
pub(super) struct Page {
    text: String,
    width: usize,
}

impl Page {
    pub(super) fn new(width: usize) -> Page {
        Page {
            text: String::new(),
            width,
        }
    }

    /// Adds a line, which is cut where it is too long.
    pub(super) fn line(&mut self, line: &str) {
        self.text.push_str(cut(line, self.width).trim_end());
        self.text.push('\n');
    }

    /// Adds an empty line.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Adds a sentence, in as many lines as it needs; those behind the first are indented.
    pub(super) fn sentence(&mut self, text: &str) {
        let mut line = String::new();
        for word in text.split(' ') {
            let is_first = line.trim_start().is_empty();
            let longer = line.chars().count() + 1 + word.chars().count();
            if !is_first && longer > self.width {
                self.line(&line);
                line = " ".into();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&line);
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Rows of numbers with a text behind each.
pub(super) struct Rows {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Texts below rows, by the position of the row.
    notes: BTreeMap<usize, String>,
}

impl Rows {
    /// A table with these heads; the last one is that of the text.
    pub(super) fn new(heads: &[&'static str]) -> Rows {
        Rows {
            heads: heads.to_vec(),
            rows: Vec::new(),
            notes: BTreeMap::new(),
        }
    }

    /// Adds a row, with a cell for each head.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Adds a text below the last row.
    pub(super) fn note(&mut self, text: String) {
        self.notes.insert(self.rows.len().saturating_sub(1), text);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes the heads and the rows. On a narrow page the last numbers are left out.
    pub(super) fn write(&self, page: &mut Page) {
        let heads: Vec<String> = self.heads.iter().map(|&head| head.into()).collect();
        let mut widths = vec![0; heads.len()];
        for row in self.rows.iter().chain([&heads]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths.pop();
        let used = |widths: &[usize]| -> usize { widths.iter().map(|it| it + GAP.len()).sum() };
        while widths.len() > 1 && used(&widths) + TEXT_LEAST > page.width {
            widths.pop();
        }
        let indent = used(&widths);
        write_row(&heads, &widths, page);
        for (position, row) in self.rows.iter().enumerate() {
            write_row(row, &widths, page);
            if let Some(note) = self.notes.get(&position) {
                page.line(&format!("{:indent$}{GAP}{note}", ""));
            }
        }
    }
}

/// Writes the first cells with these widths, and the last one.
fn write_row(row: &[String], widths: &[usize], page: &mut Page) {
    let numbers = row.iter().zip(widths);
    let numbers = numbers.map(|(cell, &width)| format!("{cell:>width$}{GAP}"));
    let text = row.last().map_or("", |it| it);
    page.line(&(numbers.collect::<String>() + text));
}

/// Returns the text, or its begin if it has more than `width` characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    let begin: String = text.chars().take(width.saturating_sub(CUT.len())).collect();
    begin + CUT
}

/// Returns a time with the unit that suits it; a dash for none.
pub(super) fn time(ns: u128) -> String {
    if ns == 0 {
        return "-".into();
    }
    let ns = ns as f64;
    if ns >= 1e9 {
        format!("{:.3}s", ns / 1e9)
    } else if ns >= 1e6 {
        format!("{:.2}ms", ns / 1e6)
    } else {
        format!("{:.1}us", ns / 1e3)
    }
}

/// Returns a number of things: `1 thread`, `2 threads`.
pub(super) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Returns a part of a whole in percent.
pub(super) fn percent(part: u128, whole: u128) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_a_long_text_is_cut() {
        let mut rows = Rows::new(&["time", "where"]);
        rows.row(vec!["1.0us".into(), "é".repeat(200)]);
        rows.row(vec!["100.000s".into(), "main".into()]);
        let mut page = Page::new(WIDTH);
        rows.write(&mut page);
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "    time  where");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("   1.0us  é") && lines[1].ends_with("é..."));
        assert_eq!(lines[2], "100.000s  main");
    }

    #[test]
    fn a_narrow_page_has_the_first_numbers_and_the_text() {
        let mut rows = Rows::new(&["time", "share", "times", "where"]);
        rows.row(vec![
            "100.000s".into(),
            "12.5%".into(),
            "7".into(),
            "main".into(),
        ]);
        rows.note("woken by main".into());
        let text = |width| {
            let mut page = Page::new(width);
            rows.write(&mut page);
            page.into_text()
        };
        let wide = "    time  share  times  where\n100.000s  12.5%      7  main\n";
        assert!(text(40).starts_with(wide), "{}", text(40));
        let narrow = "    time  where\n100.000s  main\n            woken by main\n";
        assert_eq!(text(28), narrow);
    }

    #[test]
    fn a_sentence_has_as_many_lines_as_it_needs() {
        let mut page = Page::new(12);
        page.sentence("one two three four averylongwordindeed five");
        page.sentence("");
        let expected = "one two\n  three four\n  averylo...\n  five\n\n";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!(time(0), "-");
        assert_eq!(time(1_500_000), "1.50ms");
        assert_eq!(time(u128::from(u64::MAX)), "18446744073.710s");
        assert_eq!(percent(1, 8), "12.5%");
        assert_eq!(percent(1, 0), "-");
        assert_eq!(
            (count(1, "thread"), count(2, "thread")),
            ("1 thread".into(), "2 threads".into())
        );
    }
}
