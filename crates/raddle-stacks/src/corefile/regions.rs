//! The memory of a process, and how much of each part belongs into a core: what the kernel would
//! write by `/proc/PID/coredump_filter` (core(5)), and files that nothing leads to any more.

use std::fs;
use std::io::{self, BufRead};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::format::PAGE;

/// The most regions that are kept.
const REGIONS_MAX: usize = 1 << 20;

/// Bits of `coredump_filter`.
const ANONYMOUS_PRIVATE: u32 = 1;
const ANONYMOUS_SHARED: u32 = 1 << 1;
const FILE_PRIVATE: u32 = 1 << 2;
const FILE_SHARED: u32 = 1 << 3;
const ELF_HEADERS: u32 = 1 << 4;
const HUGE_PRIVATE: u32 = 1 << 5;
const HUGE_SHARED: u32 = 1 << 6;
/// The kernel's default.
const DEFAULT_FILTER: u32 = ANONYMOUS_PRIVATE | ANONYMOUS_SHARED | ELF_HEADERS | HUGE_PRIVATE;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub range: Range<u64>,
    /// As in a program header: 4 read, 2 write, 1 execute.
    pub flags: u32,
    /// Where it begins in its file.
    pub offset: u64,
    /// Empty without a file.
    pub path: Vec<u8>,
    /// How many bytes from its start on belong into the core.
    pub dumped: u64,
    /// True if pages that aren't there are zero: they needn't be read.
    pub is_anonymous: bool,
}

/// A line of the kernel's list, and what follows it.
#[derive(Default)]
struct Mapping {
    range: Range<u64>,
    rights: [u8; 4],
    offset: u64,
    path: Vec<u8>,
    anonymous_kib: u64,
    flags: String,
}

/// Returns the memory of a process, by its addresses.
///
/// # Errors
/// If the kernel doesn't show it.
pub fn regions(pid: u32) -> io::Result<Vec<Region>> {
    let filter = fs::read_to_string(format!("/proc/{pid}/coredump_filter"));
    let filter = filter
        .ok()
        .and_then(|it| u32::from_str_radix(it.trim(), 16).ok());
    let list = fs::File::open(format!("/proc/{pid}/smaps"))?;
    parse(io::BufReader::new(list), filter.unwrap_or(DEFAULT_FILTER))
}

fn parse(list: impl BufRead, filter: u32) -> io::Result<Vec<Region>> {
    let mut regions: Vec<Region> = Vec::new();
    let mut current: Option<Mapping> = None;
    for line in list.split(b'\n') {
        let line = line?;
        if let Some(mapping) = Mapping::parse(&line) {
            let before = current.replace(mapping);
            add(&mut regions, before, filter);
        } else if let Some(mapping) = &mut current {
            mapping.detail(&line);
        }
    }
    add(&mut regions, current, filter);
    Ok(regions)
}

fn add(regions: &mut Vec<Region>, mapping: Option<Mapping>, filter: u32) {
    let Some(region) = mapping.and_then(|mapping| mapping.region(filter)) else {
        return;
    };
    let is_plain = |it: &Region| {
        it.path.is_empty() && it.is_anonymous && it.dumped == it.range.end - it.range.start
    };
    let is_full = regions.len() == REGIONS_MAX;
    match regions.last_mut() {
        // Stacks beside stacks are one region.
        Some(last)
            if last.range.end == region.range.start
                && last.flags == region.flags
                && is_plain(last)
                && is_plain(&region) =>
        {
            last.range.end = region.range.end;
            last.dumped += region.dumped;
        }
        _ if is_full => {}
        _ => regions.push(region),
    }
}

impl Mapping {
    fn parse(line: &[u8]) -> Option<Mapping> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let mut text = || std::str::from_utf8(fields.next()?).ok();
        let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
        let (from, to) = text()?.split_once('-')?;
        let rights = *text()?.as_bytes().first_chunk()?;
        let offset = hexadecimal(text()?)?;
        let (_device, _inode) = (text()?, text()?);
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        Some(Mapping {
            range: hexadecimal(from)?..hexadecimal(to)?,
            rights,
            offset,
            path: path.to_vec(),
            ..Mapping::default()
        })
    }

    fn detail(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if let Some(rest) = line.strip_prefix("Anonymous:") {
            let word = rest.split_whitespace().next();
            self.anonymous_kib = word.and_then(|it| it.parse().ok()).unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix("VmFlags:") {
            self.flags = rest.trim().to_owned();
        }
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.flags.split(' ').any(|it| it == flag)
    }

    /// `None` for what is no memory of the process.
    fn region(self, filter: u32) -> Option<Region> {
        /// Where the kernel's half of the addresses begins.
        const KERNEL: u64 = 1 << 63;
        if self.range.start >= KERNEL || self.range.is_empty() {
            return None;
        }
        let has_file = self.path.starts_with(b"/");
        let right = |place: usize, letter, flag| {
            if self.rights[place] == letter {
                flag
            } else {
                0
            }
        };
        let flags = right(0, b'r', 4) | right(1, b'w', 2) | right(2, b'x', 1);
        let size = self.range.end - self.range.start;
        Some(Region {
            dumped: self.dumped(filter, has_file, size),
            is_anonymous: !has_file && self.path != b"[vdso]",
            offset: if has_file { self.offset } else { 0 },
            path: if has_file { self.path } else { Vec::new() },
            range: self.range,
            flags,
        })
    }

    fn dumped(&self, filter: u32, has_file: bool, size: u64) -> u64 {
        let is_shared = self.rights[3] == b's';
        if self.path == b"[vdso]" {
            return size;
        }
        let is_device = self.has_flag("io") || self.has_flag("pf");
        let is_special = self.path.starts_with(b"[vvar") || self.path.starts_with(b"[vsyscall");
        if self.rights[0] != b'r' || is_device || is_special || self.has_flag("dd") {
            return 0;
        }
        let is_wanted = |bit| filter & bit != 0;
        let is_lost = self.path.ends_with(b" (deleted)");
        let is_whole = match (has_file, is_shared) {
            _ if self.has_flag("ht") => {
                is_wanted(if is_shared { HUGE_SHARED } else { HUGE_PRIVATE })
            }
            (false, false) => is_wanted(ANONYMOUS_PRIVATE),
            // A memory file, as of memfd_create or shmget, has a path that leads nowhere.
            (false, true) => is_wanted(ANONYMOUS_SHARED),
            (true, true) => is_wanted(if is_lost {
                ANONYMOUS_SHARED
            } else {
                FILE_SHARED
            }),
            (true, false) => {
                let is_changed = self.anonymous_kib != 0 && is_wanted(ANONYMOUS_PRIVATE);
                is_changed || is_lost || is_wanted(FILE_PRIVATE)
            }
        };
        let has_header = has_file && self.offset == 0 && is_wanted(ELF_HEADERS);
        match (is_whole, has_header) {
            (true, _) => size,
            (false, true) => size.min(PAGE),
            (false, false) => 0,
        }
    }
}

/// Which pages of a process are there.
pub struct PresentPages {
    /// One word for each page of the addresses; none if the kernel doesn't show it.
    map: Option<fs::File>,
}

impl PresentPages {
    pub fn of(pid: u32) -> PresentPages {
        PresentPages {
            map: fs::File::open(format!("/proc/{pid}/pagemap")).ok(),
        }
    }

    /// Returns whether each page of a range is in memory or swapped out; `None` if that isn't
    /// known.
    pub fn of_range(&self, range: Range<u64>) -> Option<Vec<bool>> {
        const WORD: u64 = 8;
        const PRESENT_OR_SWAPPED: u64 = 3 << 62;
        let pages = (range.end - range.start).div_ceil(PAGE);
        let mut words = vec![0; (pages * WORD) as usize];
        let at = range.start / PAGE * WORD;
        self.map.as_ref()?.read_exact_at(&mut words, at).ok()?;
        let is_there =
            |word: &[u8; WORD as usize]| u64::from_le_bytes(*word) & PRESENT_OR_SWAPPED != 0;
        Some(words.as_chunks().0.iter().map(is_there).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
1000-3000 r--p 00000000 08:01 12                         /usr/bin/a program
Anonymous:             0 kB
VmFlags: rd mr mw me sd
3000-5000 r-xp 00002000 08:01 12                         /usr/bin/a program
5000-7000 rw-p 00004000 08:01 12                         /usr/bin/a program
Anonymous:             4 kB
10000-12000 rw-p 00000000 00:00 0
12000-14000 rw-p 00000000 00:00 0
14000-15000 ---p 00000000 00:00 0
20000-30000 rw-p 00000000 00:00 0
VmFlags: rd wr dd
30000-31000 rw-s 00000000 00:01 7                        /dev/mem
VmFlags: rd wr io pf
40000-41000 r--p 00000000 00:00 0                        [vvar]
41000-42000 r-xp 00000000 00:00 0                        [vdso]
50000-52000 r-xp 00000000 08:01 13                       /lib/gone.so (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]
";

    fn dumped(filter: u32) -> Vec<(u64, u64)> {
        let regions = parse(LIST.as_bytes(), filter).unwrap();
        regions
            .iter()
            .map(|it| (it.range.start, it.dumped))
            .collect()
    }

    #[test]
    fn what_the_kernel_would_write_is_written() {
        let expected = [
            (0x1000, 0x1000), // the ELF header
            (0x3000, 0),
            (0x5000, 0x2000),
            (0x10000, 0x4000), // two, as one
            (0x14000, 0),
            (0x20000, 0), // MADV_DONTDUMP
            (0x30000, 0),
            (0x40000, 0),
            (0x41000, 0x1000),
            (0x50000, 0x2000), // has no file any more
        ];
        assert_eq!(dumped(DEFAULT_FILTER), expected);
    }

    #[test]
    fn the_filter_chooses() {
        let none = dumped(0);
        assert_eq!(none[0], (0x1000, 0));
        assert_eq!(none[3], (0x10000, 0));
        let files = dumped(FILE_PRIVATE);
        assert_eq!(files[1], (0x3000, 0x2000));
    }

    #[test]
    fn pages_are_there_once_they_are_written() {
        let mut memory = vec![0u8; 4 * PAGE as usize];
        let from = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        memory[PAGE as usize] = 1; // on the first or the second of those pages
        let pages = PresentPages::of(std::process::id());
        let present = pages.of_range(from..from + 2 * PAGE).unwrap();
        assert!(present.len() == 2 && present.contains(&true));
        assert_eq!(pages.of_range(0..PAGE), Some(vec![false]));
    }

    #[test]
    fn own_memory_is_listed() {
        let regions = regions(std::process::id()).unwrap();
        let here = std::ptr::from_ref(&regions) as u64;
        let found = regions.iter().find(|it| it.range.contains(&here)).unwrap();
        assert!(found.dumped > 0 && found.flags == 6);
    }
}
