//! The library of a program that carries its runtime: mapped from a file in memory, which a core of
//! the kernel has the first page of. The same bytes are in a file that the program was made of.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The path of such a mapping.
pub(super) const CARRIED: &str = "/memfd:raddle (deleted)";
/// The most bytes of a file that are searched, and how many at a time.
const SEARCHED_MAX: u64 = 1 << 29;
const PIECE: usize = 1 << 20;
/// The bytes by which a place is found that is then looked at: the header, which says where the
/// library's tables are.
const HEADER: usize = 64;

/// Returns where the library that begins with `first` is in a file.
pub(super) fn place(file: &File, first: &[u8]) -> Option<u64> {
    let header = first.get(..HEADER)?;
    let mut bytes = vec![0; PIECE + HEADER];
    let mut found = vec![0; first.len()];
    let mut at = 0;
    while at < SEARCHED_MAX {
        let got = file.read_at(&mut bytes, at).ok()?;
        let mut from = 0;
        while let Some(place) = find(&bytes[from..got], header) {
            let start = at + (from + place) as u64;
            let there = file.read_at(&mut found, start).ok()?;
            if found[..there] == *first {
                return Some(start);
            }
            from += place + 1;
        }
        if got <= HEADER {
            return None;
        }
        // A header may be at the border.
        at += (got - HEADER + 1) as u64;
    }
    None
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut places = bytes.windows(wanted.len());
    places.position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("raddle-carried-{}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    #[test]
    fn a_library_is_found_at_borders_and_behind_others_with_its_header() {
        let library: Vec<u8> = (0..4096u32).map(|it| (it % 251) as u8 + 1).collect();
        for before in [0, 1, PIECE - 1, PIECE, PIECE + HEADER - 1, 2 * PIECE + 5] {
            let mut bytes = vec![0; before];
            bytes.extend(&library);
            assert_eq!(place(&file(&bytes), &library), Some(before as u64));
        }
        let mut bytes = library[..HEADER].to_vec();
        bytes.extend([7; 100]);
        assert_eq!(place(&file(&bytes), &library), None);
        bytes.extend(&library);
        assert_eq!(place(&file(&bytes), &library), Some(164));
        assert_eq!(place(&file(&library[..100]), &library), None);
        assert_eq!(place(&file(b""), &library), None);
    }
}
