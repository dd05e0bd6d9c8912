//! The file in which a runtime that compiles code writes where its functions are:
//! `/tmp/perf-PID.map`, lines of a start and a size in hexadecimal, and a name.
//!
//! The file is in the process's own `/tmp` and under its own number. It counts if it is a file of
//! the process's user: all users may write to `/tmp`.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use crate::modules::Modules;

/// The most bytes of a map that are read.
const BYTES_MAX: u64 = 256 << 20;
/// The most functions that are kept.
const FUNCTIONS_MAX: usize = 1 << 21;

/// Functions by their places.
#[derive(Default)]
pub(crate) struct PerfMap {
    /// The first address, the one behind the last, and the name; sorted by the first.
    functions: Vec<(u64, u64, Box<str>)>,
    /// The length of the file that it was read from.
    bytes: u64,
}

impl PerfMap {
    /// Reads the map of a process; an empty one if there is none.
    pub(crate) fn of(pid: u32) -> PerfMap {
        PerfMap::open(pid)
            .and_then(PerfMap::read)
            .unwrap_or_default()
    }

    /// Reads the map again if it has grown, as it does while the runtime compiles.
    pub(crate) fn renew(&mut self, pid: u32) {
        if let Some((file, bytes)) = PerfMap::open(pid)
            && bytes != self.bytes
            && let Some(map) = PerfMap::read((file, bytes))
        {
            *self = map;
        }
    }

    fn read((file, length): (File, u64)) -> Option<PerfMap> {
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(PerfMap {
            bytes: length,
            ..PerfMap::parse(&String::from_utf8_lossy(&bytes))
        })
    }

    /// Opens the file, and tells its length.
    fn open(pid: u32) -> Option<(File, u64)> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let words = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find_map(|line| line.strip_prefix(name))?;
            Some(line.split_whitespace().collect::<Vec<_>>())
        };
        let own_pid = *words("NSpid:")?.last()?;
        let user: u32 = words("Uid:")?.get(1)?.parse().ok()?;
        let path = format!("/proc/{pid}/root/tmp/perf-{own_pid}.map");
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .ok()?;
        let facts = file.metadata().ok()?;
        if !facts.is_file() || facts.uid() != user {
            return None;
        }
        Some((file, facts.len()))
    }

    fn parse(text: &str) -> PerfMap {
        let function = |line: &str| {
            let hexadecimal = |word: &str| {
                let digits = word.strip_prefix("0x").unwrap_or(word);
                u64::from_str_radix(digits, 16).ok()
            };
            let mut words = line.splitn(3, ' ');
            let start = hexadecimal(words.next()?)?;
            let end = start.checked_add(hexadecimal(words.next()?)?)?;
            Some((start, end, words.next()?.trim().into()))
        };
        let mut functions: Vec<_> = text
            .lines()
            .filter_map(function)
            .take(FUNCTIONS_MAX)
            .collect();
        // Of two at the same place the later one counts: the place was used again.
        functions.reverse();
        functions.sort_by_key(|(start, ..)| *start);
        functions.dedup_by_key(|(start, ..)| *start);
        PerfMap {
            functions,
            bytes: 0,
        }
    }

    /// Returns the name of the function at an address.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self
            .functions
            .partition_point(|(start, ..)| *start <= address);
        let (_, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

/// Returns what makes a process's runtime write a map.
pub(crate) fn cure(modules: &Modules) -> &'static str {
    let has = |start: &str| {
        let mut names = modules.modules.iter().map(|module| module.name());
        names.any(|name| name.starts_with(start))
    };
    match () {
        () if has("libjvm.so") => "code of the Java virtual machine",
        () if has("libcoreclr.so") => {
            "managed code without a map: DOTNET_PerfMapEnabled=1 makes one"
        }
        () if has("mono") || has("libmono") => {
            "managed code without a map: mono --jitmap makes one"
        }
        () if has("node") || has("libnode") => {
            "managed code without a map: node --perf-basic-prof makes one"
        }
        () => "code without a file or a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_places() {
        let text = "1000 10 first\n0x2000 0x20 a name of words\nrubbish\n2000 8 newer\n3000 x y\n";
        let map = PerfMap::parse(text);
        assert_eq!(map.name(0x100f), Some("first"));
        assert_eq!(map.name(0x1010), None);
        assert_eq!(map.name(0x2007), Some("newer"));
        assert_eq!(map.name(0x2008), None);
        assert_eq!(map.name(0), None);
        assert_eq!(PerfMap::of(0).name(0x1000), None);
    }
}
