//! Pinning events as text: what held carriers in the kernel, and in which file's code.

use std::fs;

use raddle_inspect::{PinRecord, Pins};

/// What is mapped in the process: where code comes from.
pub struct Places {
    /// First and last address, offset in the file, the file's name.
    mapped: Vec<(u64, u64, u64, String)>,
}

impl Places {
    pub fn of(pid: u32) -> Places {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Places::parse(&maps)
    }

    fn parse(maps: &str) -> Places {
        let parse_line = |line: &str| {
            let mut words = line.split_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let path = words.nth(2)?;
            let name = path.rsplit('/').next().unwrap_or(path);
            let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
            Some((
                hexadecimal(from)?,
                hexadecimal(to)?,
                hexadecimal(offset)?,
                name.to_owned(),
            ))
        };
        Places {
            mapped: maps.lines().filter_map(parse_line).collect(),
        }
    }

    /// `libc.so.6+0xfe6a0`: the file, and the offset in it.
    fn name(&self, address: u64) -> String {
        let inside = |(from, to, ..): &&(u64, u64, u64, String)| (*from..*to).contains(&address);
        match self.mapped.iter().find(inside) {
            Some((from, _, offset, name)) => format!("{name}+{:#x}", address - from + offset),
            None => format!("{address:#x}"),
        }
    }
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

    #[test]
    fn an_address_is_named_by_its_file() {
        let places = Places::parse(MAPS);
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
        let rows = rows(&pins, &Places::parse(MAPS), 1_000_000_000);
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
