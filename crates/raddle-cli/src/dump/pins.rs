//! Pinning events as text: the cause that held a carrier in the kernel, and the function and file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use super::symbols::{self, Tables};
use super::unwind::{self, Stack};
use raddle_inspect::{PinPlace, PinRecord, Pins};

/// The mappings of the process, which name the places of its code.
pub(super) struct Places {
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

impl Places {
    pub(super) fn of(pid: u32) -> Places {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Places {
            mapped: maps.lines().filter_map(parse).collect(),
            root: format!("/proc/{pid}/root").into(),
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

    /// As [`Places::find`], for a frame that a call returns to.
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
        let place = format!("{name}+{offset:#x}");
        Some(match symbols::name(&self.file(mapped), offset) {
            Some(function) => format!("{place} ({function})"),
            None => place,
        })
    }

    fn name(&self, address: u64) -> String {
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

/// Makes a row of columns for each event.
pub(super) fn rows(pins: &Pins, places: &Places, now_ns: u64) -> Vec<Vec<String>> {
    let row = |pin: &PinRecord| {
        let ago_ns = now_ns.saturating_sub(pin.at_ns);
        vec![
            format!("{:.3}s ago", ago_ns as f64 / 1e9),
            match pin.tid {
                0 => "a thread".into(),
                tid => format!("#{tid}"),
            },
            reason(pin),
            format!("at {}", place(pin, places).unwrap_or("unknown".into())),
        ]
    };
    pins.latest().iter().map(row).collect()
}

/// Names the cause that held the carrier.
pub(super) fn reason(pin: &PinRecord) -> String {
    match pin.call {
        PinRecord::FAULT => "a page fault, or a stop".into(),
        PinRecord::UNKNOWN => "unknown".into(),
        call => format!("system call {call}"),
    }
}

/// Names the place in the program.
pub(super) fn place(pin: &PinRecord, places: &Places) -> Option<String> {
    (pin.address != 0).then(|| places.name(pin.address))
}

/// A thread that sits in the kernel now.
pub(super) struct Sitting {
    pub call: i64,
    /// From the inside out.
    pub frames: Vec<String>,
}

/// Most of a stack that is read, in words.
const STACK_WORDS: usize = 1 << 15;

impl Sitting {
    /// Reads the kernel's view of a kernel thread; `None` if it has come back, or may not be read.
    pub(super) fn of(pid: u32, kernel_tid: u32, places: &Places) -> Option<Sitting> {
        let line = || fs::read_to_string(format!("/proc/{pid}/task/{kernel_tid}/syscall")).ok();
        let before = line()?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let hexadecimal =
            |word: &&str| u64::from_str_radix(word.strip_prefix("0x").unwrap_or("?"), 16).ok();
        let [call, .., pointer, address] = words.as_slice() else {
            return None;
        };
        let (call, pointer) = (call.parse().ok()?, hexadecimal(pointer)?);
        let address = hexadecimal(address)?;
        let stack = read_stack(pid, pointer);
        if line()? != before {
            return None;
        }
        let frames = unwind::frames(address, &stack, places);
        Some(Sitting {
            call,
            frames: unwind::lines(&frames, places),
        })
    }

    pub(super) fn reason(&self) -> String {
        reason(&PinRecord {
            call: self.call,
            ..PinRecord::default()
        })
    }
}

/// Reads the stack from `pointer` on, as far as it is readable.
fn read_stack(pid: u32, pointer: u64) -> Stack {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    if let Ok(memory) = File::open(format!("/proc/{pid}/mem")) {
        while bytes.len() < STACK_WORDS * 8 {
            let at = pointer + bytes.len() as u64;
            let length = piece.len() - (at % 4096) as usize; // whole pages only
            match memory.read_at(&mut piece[..length], at) {
                Ok(got) if got == length => bytes.extend_from_slice(&piece[..length]),
                _ => break,
            }
        }
    }
    let words = bytes.chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    Stack {
        pointer,
        words: words.collect(),
    }
}

/// Returns the used places, the most frequent first.
pub(super) fn by_count(places: &[PinPlace]) -> Vec<&PinPlace> {
    let mut known: Vec<_> = places.iter().filter(|place| place.count != 0).collect();
    known.sort_by_key(|place| std::cmp::Reverse(place.count));
    known
}

/// The frames at a place, as far as its stack was kept.
pub(super) fn frames(place: &PinPlace, places: &Places) -> Vec<String> {
    let stack = Stack {
        pointer: place.stack_pointer,
        words: place.stack().to_vec(),
    };
    unwind::lines(&unwind::frames(place.address, &stack, places), places)
}

/// `12 times, last 0.5s ago by #7: system call 0`.
pub(super) fn headline(place: &PinPlace, now_ns: u64) -> String {
    let pin = PinRecord {
        call: place.call,
        ..PinRecord::default()
    };
    let times = if place.count == 1 { "time" } else { "times" };
    let ago_ns = now_ns.saturating_sub(place.at_ns);
    format!(
        "{} {times}, last {:.3}s ago by #{}: {}",
        place.count,
        ago_ns as f64 / 1e9,
        place.tid,
        reason(&pin)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000-55e000 r--p 00000000 08:01 12 /usr/bin/program
55e000-560000 r-xp 00001000 08:01 12 /usr/bin/program
7f0000-7f1000 rw-p 00000000 00:00 0
";

    fn places() -> Places {
        Places {
            mapped: MAPS.lines().filter_map(parse).collect(),
            root: "/nowhere".into(),
            tables: RefCell::default(),
        }
    }

    #[test]
    fn an_address_is_named_by_its_file() {
        let places = places();
        assert_eq!(places.name(0x55e010), "program+0x1010");
        assert_eq!(places.name(0x7f0010), "0x7f0010");
        assert_eq!(places.name(0x10), "0x10");
    }

    #[test]
    fn a_row_says_who_was_held_by_what_and_where() {
        let mut pins = Pins {
            total: 2,
            ..Pins::NONE
        };
        pins.latest[0] = PinRecord {
            at_ns: 500_000_000,
            address: 0x55e010,
            call: 0,
            tid: 7,
        };
        pins.latest[1] = PinRecord {
            call: PinRecord::FAULT,
            ..PinRecord::default()
        };
        let rows = rows(&pins, &places(), 1_000_000_000);
        assert_eq!(
            rows[0].join(" "),
            "0.500s ago #7 system call 0 at program+0x1010"
        );
        assert_eq!(
            rows[1].join(" "),
            "1.000s ago a thread a page fault, or a stop at unknown"
        );
    }
}
