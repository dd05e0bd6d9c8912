//! Text in columns that are as wide as their widest cell.

use std::io::{self, Write};

/// Between columns.
const GAP: &str = "  ";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells; a row may have fewer cells than there are columns.
pub(crate) struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[Align]) -> Table {
        Table {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        write_rows(&self.columns, out, || self.rows.iter().cloned())
    }
}

/// Writes rows that are made twice, once for the widths: a table of a million rows is never in
/// memory.
pub(crate) fn write_rows<R: Iterator<Item = Vec<String>>>(
    columns: &[Align],
    out: &mut impl Write,
    rows: impl Fn() -> R,
) -> io::Result<()> {
    let mut widths = vec![0; columns.len()];
    for row in rows() {
        for (width, cell) in widths.iter_mut().zip(&row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows() {
        let mut line = String::new();
        for ((cell, align), &width) in row.iter().zip(columns).zip(&widths) {
            if !line.is_empty() {
                line += GAP;
            }
            line += &match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
        table.row(["a", "1", "x"]);
        table.row(["long", "1000"]);
        let mut text = Vec::new();
        table.write(&mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "a        1  x\nlong  1000\n"
        );
    }
}
