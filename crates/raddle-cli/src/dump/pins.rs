//! Pinning events as text: what held carriers in the kernel, and in which function of which file.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use super::symbols;
use raddle_inspect::{PinRecord, Pins};

/// What is mapped in the process: where code comes from.
pub struct Places {
    mapped: Vec<Mapped>,
    /// Where the process's files are, as we see them.
    root: PathBuf,
}

struct Mapped {
    addresses: Range<u64>,
    /// Of the first address in the file.
    offset: u64,
    path: String,
}

impl Places {
    pub fn of(pid: u32) -> Places {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Places {
            mapped: maps.lines().filter_map(parse).collect(),
            root: format!("/proc/{pid}/root").into(),
        }
    }

    /// `libc.so.6+0xfe6a0 (read+0x10)`: the file, the offset in it, and the function if a symbol
    /// says; `None` where no file is mapped.
    pub fn find(&self, address: u64) -> Option<String> {
        let inside = |mapped: &&Mapped| mapped.addresses.contains(&address);
        let mapped = self.mapped.iter().find(inside)?;
        let offset = address - mapped.addresses.start + mapped.offset;
        let name = mapped.path.rsplit('/').next().unwrap_or(&mapped.path);
        let place = format!("{name}+{offset:#x}");
        let file = self.root.join(mapped.path.trim_start_matches('/'));
        Some(match symbols::name(&file, offset) {
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
    let offset = words.nth(1)?;
    let path = words.nth(2)?;
    let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
    Some(Mapped {
        addresses: hexadecimal(from)?..hexadecimal(to)?,
        offset: hexadecimal(offset)?,
        path: path.to_owned(),
    })
}

/// Columns, one row an event.
pub fn rows(pins: &Pins, places: &Places, now_ns: u64) -> Vec<Vec<String>> {
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

/// What held the carrier.
pub fn reason(pin: &PinRecord) -> String {
    match pin.call {
        PinRecord::FAULT => "a page fault, or a stop".into(),
        PinRecord::UNKNOWN => "unknown".into(),
        call => format!("system call {call}"),
    }
}

/// Where in the program.
pub fn place(pin: &PinRecord, places: &Places) -> Option<String> {
    (pin.address != 0).then(|| places.name(pin.address))
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
