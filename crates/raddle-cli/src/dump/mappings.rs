//! The mappings of a process, which name the addresses in its files' code.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use super::symbols::{self, Tables};

/// The files that are mapped in a process, and where.
pub(super) struct Mappings {
    mapped: Vec<Mapped>,
    /// The root of the process's files, as this command sees it.
    root: PathBuf,
    /// The unwind tables of files that were asked for, by path.
    tables: RefCell<HashMap<String, Option<Rc<Tables>>>>,
}

struct Mapped {
    addresses: Range<u64>,
    is_code: bool,
    /// The offset of the first address in the file.
    offset: u64,
    path: String,
}

impl Mappings {
    pub(super) fn of(pid: u32) -> Mappings {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Mappings::parse(&maps, format!("/proc/{pid}/root").into())
    }

    /// Reads the lines of `/proc/PID/maps`.
    pub(super) fn parse(maps: &str, root: PathBuf) -> Mappings {
        Mappings {
            mapped: maps.lines().filter_map(parse).collect(),
            root,
            tables: RefCell::default(),
        }
    }

    fn mapped(&self, address: u64) -> Option<&Mapped> {
        let inside = |mapped: &&Mapped| mapped.addresses.contains(&address);
        self.mapped.iter().find(inside)
    }

    fn file(&self, mapped: &Mapped) -> PathBuf {
        self.root.join(mapped.path.trim_start_matches('/'))
    }

    /// Returns true if a file's code is mapped at the address.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.mapped(address).is_some_and(|mapped| mapped.is_code)
    }

    /// Returns the unwind tables of the file that is mapped at this address, and the address in the
    /// file's own terms.
    pub(super) fn tables(&self, address: u64) -> Option<(Rc<Tables>, u64)> {
        let mapped = self.mapped(address).filter(|mapped| mapped.is_code)?;
        let mut all = self.tables.borrow_mut();
        let tables = all
            .entry(mapped.path.clone())
            .or_insert_with(|| Tables::of(&self.file(mapped)).map(Rc::new));
        let tables = tables.clone()?;
        let offset = address - mapped.addresses.start + mapped.offset;
        let within = tables.address_of(offset)?;
        Some((tables, within))
    }

    /// Returns true if a call can have returned to the address: a call instruction ends before it.
    pub(super) fn follows_call(&self, address: u64) -> bool {
        /// Relative; or through a register or memory, `ff /2` in its lengths.
        fn is_call(bytes: &[u8; 7]) -> bool {
            let indirect =
                |length: usize| bytes[7 - length] == 0xff && bytes[8 - length] & 0x38 == 0x10;
            bytes[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
        }
        let Some(mapped) = address.checked_sub(7).and_then(|from| self.mapped(from)) else {
            return false;
        };
        if !mapped.is_code {
            return false;
        }
        let mut bytes = [0; 7];
        let offset = address - 7 - mapped.addresses.start + mapped.offset;
        let read =
            File::open(self.file(mapped)).and_then(|it| it.read_exact_at(&mut bytes, offset));
        read.is_ok() && is_call(&bytes)
    }

    /// As [`Mappings::find`], for a frame that a call returns to.
    pub(super) fn name_frame(&self, address: u64, is_caller: bool) -> String {
        let within = address - u64::from(is_caller);
        self.find(within).unwrap_or_else(|| format!("{address:#x}"))
    }

    /// Returns `libc.so.6+0xfe6a0 (read+0x10)`: the file, the offset in it, and the function if a
    /// symbol names it; `None` where no file is mapped.
    pub(super) fn find(&self, address: u64) -> Option<String> {
        let mapped = self.mapped(address)?;
        let offset = address - mapped.addresses.start + mapped.offset;
        let name = mapped.path.rsplit('/').next().unwrap_or(&mapped.path);
        let position = format!("{name}+{offset:#x}");
        Some(match symbols::name(&self.file(mapped), offset) {
            Some(function) => format!("{position} ({function})"),
            None => position,
        })
    }

    /// As [`Mappings::find`]; the bare address where no file is mapped.
    pub(super) fn name(&self, address: u64) -> String {
        self.find(address)
            .unwrap_or_else(|| format!("{address:#x}"))
    }
}

/// A line of `/proc/PID/maps` that names a file.
fn parse(line: &str) -> Option<Mapped> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let offset = words.next()?;
    let path = words.nth(2)?;
    let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
    Some(Mapped {
        addresses: hexadecimal(from)?..hexadecimal(to)?,
        is_code: rights.contains('x'),
        offset: hexadecimal(offset)?,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000-55e000 r--p 00000000 08:01 12 /usr/bin/program
55e000-560000 r-xp 00001000 08:01 12 /usr/bin/program
7f0000-7f1000 rw-p 00000000 00:00 0
";

    #[test]
    fn an_address_is_named_by_its_file() {
        let mappings = Mappings::parse(MAPS, "/nowhere".into());
        assert_eq!(mappings.name(0x55e010), "program+0x1010");
        assert_eq!(mappings.name(0x7f0010), "0x7f0010");
        assert_eq!(mappings.name(0x10), "0x10");
    }
}
