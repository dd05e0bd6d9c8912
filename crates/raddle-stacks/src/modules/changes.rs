//! Code that comes and goes while a process is watched.
//!
//! What was mapped once stays known, until other code is mapped in its place: a stack that was
//! copied before a library was unmapped is read after it. So the files of code that came later are
//! kept open, and their unwind tables are read at once.

use std::collections::HashMap;
use std::io::{self, BufRead};
use std::ops::Range;

use super::held::Held;
use super::{Code, Line, Module, Modules, RANGES_MAX};
use crate::elf::Image;
use crate::memory::ProcessMemory;

/// Code of a file that a process has mapped at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    /// By CLOCK_BOOTTIME.
    pub boot_ns: u64,
    pub range: Range<u64>,
    /// Where in the file the range begins.
    pub offset: u64,
    pub inode: u64,
    pub path: String,
}

/// The path of a file that is not known.
const UNKNOWN: &str = "/[unknown file]";

impl MappedCode {
    fn line(&self) -> Line<'_> {
        Line {
            range: self.range.clone(),
            is_code: true,
            offset: self.offset,
            inode: self.inode,
            path: &self.path,
        }
    }
}

impl Modules {
    /// Returns true if this code is known already.
    pub fn knows(&self, code: &MappedCode) -> bool {
        self.has(&code.line())
    }

    /// Returns true if all code of files in the lines of `/proc/PID/maps` is known, and no code
    /// without a file is in the place of a file's.
    ///
    /// # Errors
    /// If the lines can't be read.
    pub fn knows_all(&self, maps: impl BufRead) -> io::Result<bool> {
        for line in maps.split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let Some(line) = Line::parse(&line).filter(|line| line.is_code) else {
                continue;
            };
            let is_known = if line.path.starts_with('/') {
                self.has(&line)
            } else {
                let mut files = self.code_in(&line.range);
                files.all(|code| self.module_of(code).is_none_or(|it| it.path == line.path))
            };
            if !is_known {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the code that has an address in the range.
    fn code_in(&self, range: &Range<u64>) -> impl Iterator<Item = &Code> {
        let from = self
            .ranges
            .partition_point(|it| it.range.end <= range.start);
        let end = range.end;
        let within = self.ranges[from..].iter();
        within.take_while(move |it| it.range.start < end)
    }

    /// Returns the module of code, if it is a file's.
    fn module_of(&self, code: &Code) -> Option<&Module> {
        self.modules.get(code.module?)
    }

    fn has(&self, line: &Line<'_>) -> bool {
        let mut at = line.range.start;
        for code in self.code_in(&line.range) {
            let is_same = self.module_of(code).is_some_and(|module| {
                module.inode == line.inode && plain(&module.path) == plain(line.path)
            });
            let begins = code.offset.wrapping_sub(code.range.start);
            if !is_same
                || code.range.start > at
                || begins != line.offset.wrapping_sub(line.range.start)
            {
                return false;
            }
            at = code.range.end;
        }
        at >= line.range.end
    }

    /// Returns the code that was mapped at `address`, if code of that file is known. Of the file's
    /// inode only the low half is given; code at the same address is preferred.
    pub fn again(&self, inode: u32, address: u64, boot_ns: u64) -> Option<MappedCode> {
        let is_it = |module: &Module| module.inode != 0 && module.inode as u32 == inode;
        let of_file = |code: &&Code| self.module_of(code).is_some_and(is_it);
        let here = self.code_at(address).filter(of_file);
        let here = here.filter(|code| code.range.start == address);
        let code = here.or_else(|| self.ranges.iter().find(of_file))?;
        let module = self.module_of(code)?;
        let mut parts = self.ranges.iter().filter(|it| it.module == code.module);
        let end = parts.next_back().map_or(code.range.end, |it| it.range.end);
        let bytes = end - code.range.start;
        Some(MappedCode {
            boot_ns,
            range: address..address.checked_add(bytes)?,
            offset: code.offset,
            inode: module.inode,
            path: plain(&module.path).to_owned(),
        })
    }

    /// Returns code of a file that is not known, with this low half of its inode, which was mapped
    /// at `address` in place of code that is known. It has no names.
    pub fn unknown(&self, inode: u32, address: u64, boot_ns: u64) -> Option<MappedCode> {
        let here = self.code_at(address)?.module?;
        let parts = self.ranges.iter().filter(|it| it.module == Some(here));
        let end = parts.map(|it| it.range.end).max()?;
        Some(MappedCode {
            boot_ns,
            range: address..end,
            offset: 0,
            inode: inode.into(),
            path: UNKNOWN.to_owned(),
        })
    }

    /// Keeps the files open, reads the unwind tables from the process's memory, and adds what was
    /// known before and is not mapped any more.
    pub fn keep(&mut self, before: Option<&Modules>, pid: u32) {
        for (number, module) in self.modules.iter_mut().enumerate() {
            let mut known = before.iter().flat_map(|it| it.modules.iter());
            let is_it = |it: &&Module| {
                it.start == module.start && it.inode == module.inode && it.path == module.path
            };
            match known.find(is_it) {
                Some(known) => {
                    module.held.clone_from(&known.held);
                    if matches!(known.image.get(), Some(Some(_))) {
                        module.image = known.image.clone();
                    }
                }
                None => {
                    let mut code = self.ranges.iter();
                    let range = code.find(|it| it.module == Some(number));
                    let range = range.map_or(0..0, |it| it.range.clone());
                    module.held = Held::open(&module.file, module.inode, (pid, range));
                }
            }
        }
        let memory = ProcessMemory::of(pid);
        for module in &self.modules {
            self.image(module, &memory);
        }
        if let Some(before) = before {
            self.take_over(before);
        }
    }

    /// Returns what is known once a process has mapped this code in place of what was there. `root`
    /// is where its path begins.
    pub fn after(&self, code: &MappedCode, pid: u32, root: &str) -> Modules {
        let mut all = Modules::none();
        all.budget.set(self.budget.get());
        all.later.replace(self.later.borrow().clone());
        let place = &code.range;
        let is_left = |range: &Range<u64>| range.end <= place.start || range.start >= place.end;
        let without_file = self.ranges.iter().filter(|it| it.module.is_none());
        let without_file = without_file.filter(|it| is_left(&it.range));
        all.ranges.extend(without_file.cloned());
        let known = self
            .modules
            .iter()
            .find(|it| it.inode == code.inode && plain(&it.path) == code.path);
        let path = &code.path;
        let number = all.module(
            path,
            code.range.start.wrapping_sub(code.offset),
            code.inode,
            root,
        );
        all.ranges.push(Code {
            range: code.range.clone(),
            module: Some(number),
            offset: code.offset,
        });
        all.ranges.sort_by_key(|code| code.range.start);
        let budget = &all.budget;
        let module = &mut all.modules[number];
        let held = known.and_then(|it| it.held.clone());
        let place = (pid, code.range.clone());
        module.held = held.or_else(|| Held::open(&module.file, code.inode, place));
        let held = module.held.clone();
        if let Some(file) = held
            .as_ref()
            .and_then(|held| held.mapped(code.range.start, code.offset))
        {
            module.start = file.start;
            module
                .image
                .get_or_init(|| Image::read(&file, file.start, budget));
        }
        all.take_over(self);
        all
    }

    /// Adds the files' code and data of other modules, as far as nothing else is in its place.
    fn take_over(&mut self, from: &Modules) {
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut added = Vec::new();
        for code in &from.ranges {
            let Some(number) = code.module else { continue };
            let room = RANGES_MAX.saturating_sub(self.ranges.len() + added.len());
            if room == 0 || self.code_in(&code.range).next().is_some() {
                continue;
            }
            let number = *numbers.entry(number).or_insert_with(|| {
                self.modules.push(from.modules[number].clone());
                self.modules.len() - 1
            });
            added.push(Code {
                module: Some(number),
                ..code.clone()
            });
        }
        self.ranges.extend(added);
        self.ranges.sort_by_key(|code| code.range.start);
        let mut data = Vec::new();
        for (range, number) in &from.data {
            let is_taken =
                self.data_at(range.start).is_some() || self.data_at(range.end - 1).is_some();
            if let Some(&number) = numbers.get(number)
                && !is_taken
            {
                data.push((range.clone(), number));
            }
        }
        self.data.extend(data);
        self.data.sort_by_key(|(range, _)| range.start);
    }
}

/// Returns a path without the kernel's mark of a file that was removed.
fn plain(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
1000-2000 r--p 00000000 08:01 12 /usr/bin/program
2000-4000 r-xp 00001000 08:01 12 /usr/bin/program
8000-9000 r--p 00000000 08:01 13 /lib/first.so
9000-b000 r-xp 00001000 08:01 13 /lib/first.so
f000-f800 rwxp 00000000 00:00 0
";

    fn modules(maps: &str) -> Modules {
        Modules::parse(maps.as_bytes(), "/nowhere").unwrap()
    }

    #[test]
    fn a_file_that_is_not_known_takes_the_place_of_one_that_is() {
        let before = modules(BEFORE);
        assert!(before.again(77, 0x9000, 5).is_none());
        let code = before.unknown(77, 0x9000, 5).unwrap();
        assert_eq!((code.range.clone(), code.boot_ns), (0x9000..0xb000, 5));
        assert!(!before.knows(&code));
        let after = before.after(&code, std::process::id(), "/nowhere");
        assert!(after.knows(&code));
        let name = |address| {
            let code = after.code_at(address).unwrap();
            after.module_of(code).unwrap().name().to_owned()
        };
        assert_eq!(name(0x9800), "[unknown file]");
        assert_eq!(name(0x2800), "program");
        assert!(before.unknown(77, 0x5000, 5).is_none(), "nothing is there");
    }

    fn code(range: Range<u64>, inode: u64, path: &str) -> MappedCode {
        MappedCode {
            boot_ns: 1,
            range,
            offset: 0x1000,
            inode,
            path: path.to_owned(),
        }
    }

    fn name(modules: &Modules, address: u64) -> Option<&str> {
        Some(modules.at(address)?.name())
    }

    #[test]
    fn code_that_is_known_is_told_from_other_code() {
        let modules = modules(BEFORE);
        assert!(modules.knows(&code(0x9000..0xb000, 13, "/lib/first.so")));
        for other in [
            code(0x9000..0xb000, 14, "/lib/first.so"),
            code(0x9000..0xb000, 13, "/lib/second.so"),
            code(0xa000..0xb000, 13, "/lib/first.so"),
            code(0x9000..0xc000, 13, "/lib/first.so"),
            code(0xc000..0xd000, 13, "/lib/first.so"),
        ] {
            assert!(!modules.knows(&other), "{other:?}");
        }
        let knows_all = |maps: &str| modules.knows_all(maps.as_bytes()).unwrap();
        assert!(knows_all(BEFORE));
        assert!(knows_all(&BEFORE[..140]), "what is unmapped stays known");
        assert!(knows_all(&BEFORE.replace("first.so", "first.so (deleted)")));
        assert!(!knows_all("9000-b000 rwxp 00000000 00:00 0"));
        assert!(!knows_all(
            "20000-21000 r-xp 00000000 08:01 15 /lib/third.so"
        ));
        assert!(knows_all(
            "20000-21000 r--p 00000000 08:01 15 /lib/third.so"
        ));
        let split = "9000-a000 r-xp 00001000 08:01 13 /lib/first.so\n\
                     a000-b000 r-xp 00002000 08:01 13 /lib/first.so\n";
        assert!(knows_all(split));
    }

    #[test]
    fn code_stays_known_until_other_code_is_in_its_place() {
        let before = modules(BEFORE);
        let beside = before.after(&code(0xc000..0xd000, 14, "/lib/second.so"), 0, "");
        assert_eq!(name(&beside, 0x9010), Some("first.so"));
        assert_eq!(name(&beside, 0xc010), Some("second.so"));
        assert_eq!(beside.find(0xf010), Some(None));
        let over = beside.after(&code(0xa000..0xd000, 15, "/lib/third.so"), 0, "");
        assert_eq!(name(&over, 0x2010), Some("program"));
        assert_eq!(name(&over, 0x9010), None, "a part of it is gone");
        assert_eq!(name(&over, 0xc010), Some("third.so"));
        let mut now = modules("2000-4000 r-xp 00001000 08:01 12 /usr/bin/program\n");
        now.keep(Some(&over), 0);
        assert_eq!(name(&now, 0x2010), Some("program"));
        assert_eq!(name(&now, 0xc010), Some("third.so"));
        assert_eq!(
            now.find(0xf010),
            None,
            "code without a file is as it is now"
        );
    }

    #[test]
    fn a_file_that_is_mapped_again_is_known_by_its_inode() {
        let modules = modules(BEFORE);
        let again = modules.again(13, 0x2_0000, 1);
        assert_eq!(again, Some(code(0x2_0000..0x2_2000, 13, "/lib/first.so")));
        assert_eq!(modules.again(16, 0x2_0000, 1), None);
        assert_eq!(modules.again(0, 0x2_0000, 1), None);
        assert_eq!(modules.again(13, u64::MAX, 1), None);
    }
}
