//! The tables that say which line of the source an instruction belongs to.
//!
//! Formats: CPython's `Objects/lnotab_notes.txt` (3.9 and 3.10) and `InternalDocs/code_objects.md`
//! (from 3.11 on).

/// Which format a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `co_lnotab`: a step of the address, then the step of the line from there on.
    Pairs,
    /// `co_linetable` of 3.10: the length of a range, and its line's difference to the last one.
    Ranges,
    /// `co_linetable` from 3.11 on: entries of different lengths.
    Locations,
}

/// Returns the line of the instruction at `offset`, in bytes; `None` if it has none.
pub(super) fn line(format: Format, table: &[u8], first: i32, offset: i64) -> Option<u32> {
    // A function that hasn't begun is at its first line.
    let line = match (format, offset) {
        (_, ..0) => Some(first),
        (Format::Pairs, _) => by_pairs(table, first, offset),
        (Format::Ranges, _) => by_ranges(table, first, offset),
        (Format::Locations, _) => by_locations(table, first, offset),
    };
    line.and_then(|line| u32::try_from(line).ok())
}

fn by_pairs(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let (mut line, mut at) = (first, 0);
    for pair in table.chunks_exact(2) {
        at += i64::from(pair[0]);
        if at > offset {
            break;
        }
        line = line.wrapping_add((pair[1] as i8).into());
    }
    Some(line)
}

fn by_ranges(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (first, 0);
    for pair in table.chunks_exact(2) {
        let step = pair[1] as i8;
        if step != NO_LINE {
            line = line.wrapping_add(step.into());
        }
        end += i64::from(pair[0]);
        if offset < end {
            return (step != NO_LINE).then_some(line);
        }
    }
    None
}

fn by_locations(table: &[u8], first: i32, offset: i64) -> Option<i32> {
    let mut bytes = table.iter().copied().peekable();
    let (mut line, mut end) = (first, 0);
    while let Some(head) = bytes.next() {
        let step = match head >> 3 & 15 {
            15 => None,
            13 | 14 => Some(signed(&mut bytes)),
            code @ 10..=12 => Some(i32::from(code) - 10),
            _ => Some(0),
        };
        line = line.wrapping_add(step.unwrap_or(0));
        // Columns: only the first byte of an entry has its uppermost bit set.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        /// An instruction and each of its caches have two bytes.
        const UNIT_BYTES: i64 = 2;
        end += (i64::from(head & 7) + 1) * UNIT_BYTES;
        if offset < end {
            return step.map(|_| line);
        }
    }
    None
}

/// Reads a number of six bits a byte, of which the lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> i32 {
    let (mut value, mut shift) = (0u32, 0);
    for byte in bytes.by_ref().take(6) {
        value |= u32::from(byte & 0x3f).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let size = (value >> 1) as i32;
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `compile("a = 1\n\n\nb = f(\n  2)\n", ...)` of each version has.
    #[test]
    fn lines_are_those_of_the_source() {
        // 3.9: four bytes of line 1, then line 5, then line 4.
        let pairs = [4, 3, 2, 1, 2, 255];
        let at = |offset| line(Format::Pairs, &pairs, 1, offset);
        assert_eq!([0, 2, 4, 6, 8, 40].map(at), [1, 1, 4, 5, 4, 4].map(Some));
        let ranges = [4, 0, 2, 3, 2, 128, 2, 255];
        let at = |offset| line(Format::Ranges, &ranges, 1, offset);
        assert_eq!([0, 2, 4, 8].map(at), [1, 1, 4, 3].map(Some));
        assert_eq!([6, 10].map(at), [None, None]);
    }

    #[test]
    fn locations_are_of_all_kinds() {
        // Two units of line 10 with short columns; one of line 12 with columns; one without a line;
        // eight at the line 36 above (a long form: -36 has two bytes); one at the next line.
        let long = [0x80 | 14 << 3 | 7, 0x40 | 9, 1, 0, 1, 2];
        let mut table = vec![0x80 | 1, 0x10, 0x80 | 12 << 3, 0, 0, 0x80 | 15 << 3];
        table.extend(long);
        table.extend([0x80 | 13 << 3, 2]);
        let at = |offset| line(Format::Locations, &table, 10, offset);
        assert_eq!([0, 2, 4].map(at), [10, 10, 12].map(Some));
        assert_eq!(at(6), None);
        assert_eq!([8, 22].map(at), [None, None]); // above the file's first line
        let at = |offset| line(Format::Locations, &table, 100, offset);
        assert_eq!([8, 22, 24].map(at), [66, 66, 67].map(Some));
        assert_eq!(at(26), None);
        assert_eq!(line(Format::Locations, &table, 10, -2), Some(10));
    }

    #[test]
    fn tables_of_rubbish_end() {
        let rubbish: Vec<u8> = (0..=255).rev().collect();
        for format in [Format::Pairs, Format::Ranges, Format::Locations] {
            for length in 0..rubbish.len() {
                line(format, &rubbish[..length], i32::MAX, i64::MAX);
            }
        }
    }
}
