//! Tables in text: numbers to the right, then a text that is cut where the line ends.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The columns of a terminal that a line fills at most.
pub(super) const WIDTH: usize = 100;
const GAP: &str = "  ";
const CUT: &str = "...";

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

    /// Writes the heads and the rows.
    pub(super) fn write(&self, out: &mut String) {
        let heads: Vec<String> = self.heads.iter().map(|&head| head.into()).collect();
        let mut widths = vec![0; heads.len()];
        for row in self.rows.iter().chain([&heads]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        write_row(&heads, &widths, out);
        let indent: usize = widths.iter().rev().skip(1).map(|it| it + GAP.len()).sum();
        for (position, row) in self.rows.iter().enumerate() {
            write_row(row, &widths, out);
            if let Some(note) = self.notes.get(&position) {
                let note = cut(note, WIDTH.saturating_sub(indent + GAP.len()));
                let _ = writeln!(out, "{:indent$}{GAP}{note}", "");
            }
        }
    }
}

fn write_row(row: &[String], widths: &[usize], out: &mut String) {
    let last = row.len().saturating_sub(1);
    let mut used = 0;
    for (index, (cell, &width)) in row.iter().zip(widths).enumerate() {
        if index == last {
            out.push_str(cut(cell, WIDTH.saturating_sub(used)).trim_end());
        } else {
            let _ = write!(out, "{cell:>width$}{GAP}");
            used += width + GAP.len();
        }
    }
    out.push('\n');
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
        let mut text = String::new();
        rows.write(&mut text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "    time  where");
        assert_eq!(lines[1].chars().count(), WIDTH);
        assert!(lines[1].starts_with("   1.0us  é") && lines[1].ends_with("é..."));
        assert_eq!(lines[2], "100.000s  main");
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
