//! The code that a process has mapped, from `/proc/PID/maps`: files, the vDSO, and code without a
//! file, which compilers at run time write.

mod changes;
mod held;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::elf::Image;
use crate::memory::Memory;
pub use changes::MappedCode;
use held::Held;

/// The most ranges of code that are kept.
const RANGES_MAX: usize = 1 << 20;

/// No code is below.
const LEAST_CODE: u64 = 1 << 16;

/// The most bytes of unwind tables that are read of one process.
const TABLES_MAX: u64 = 160 << 20;

/// All code of a process.
pub struct Modules {
    pub modules: Vec<Module>,
    /// Ranges of code, sorted, with the module of each; none for code without a file.
    ranges: Vec<Code>,
    /// Ranges of files that hold no code, and of the zeroed memory behind them, with their modules.
    data: Vec<(Range<u64>, usize)>,
    /// Bytes of unwind tables that may still be read.
    budget: Cell<u64>,
    /// Code without a file that was mapped later, sorted.
    later: RefCell<Vec<Range<u64>>>,
    /// A stack had an address that is in no code, as far as is known here.
    has_strays: Cell<bool>,
}

/// A range of code.
#[derive(Clone)]
struct Code {
    range: Range<u64>,
    /// Its module's position; none for code without a file.
    module: Option<usize>,
    /// Where in the file it begins.
    offset: u64,
}

/// A file, or the vDSO, as it is mapped.
#[derive(Clone)]
pub struct Module {
    /// As the process names it; the vDSO is `[vdso]`.
    pub path: String,
    /// As this process reaches it: by the other one's root.
    pub file: PathBuf,
    /// True if another file has the path by now, or none.
    pub is_deleted: bool,
    /// Where the file's first byte is mapped.
    start: u64,
    /// See [`Modules::has_file`].
    is_native: bool,
    /// The file's number in its file system; 0 if it has none.
    inode: u64,
    image: Arc<OnceLock<Option<Image>>>,
    /// The file, kept open: see [`Modules::after`].
    held: Option<Arc<Held>>,
}

/// A line of the file that matters.
struct Line<'a> {
    range: Range<u64>,
    is_code: bool,
    offset: u64,
    inode: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let mut fields = rest.splitn(5, ' ');
        let rights = fields.next()?;
        let offset = hexadecimal(fields.next()?)?;
        let inode = fields.nth(1).and_then(|word| word.parse().ok());
        let path = fields.next().unwrap_or("").trim_start();
        Some(Line {
            range: hexadecimal(from)?..hexadecimal(to)?,
            is_code: rights.as_bytes().get(2) == Some(&b'x'),
            offset,
            inode: inode.unwrap_or(0),
            path,
        })
    }
}

impl Modules {
    /// Reads the code of a process.
    ///
    /// # Errors
    /// If the kernel doesn't show it.
    pub fn of(pid: u32) -> io::Result<Modules> {
        let maps = fs::File::open(format!("/proc/{pid}/maps"))?;
        Modules::parse(io::BufReader::new(maps), &format!("/proc/{pid}/root"))
    }

    fn none() -> Modules {
        Modules {
            modules: Vec::new(),
            ranges: Vec::new(),
            data: Vec::new(),
            budget: Cell::new(TABLES_MAX),
            later: RefCell::default(),
            has_strays: Cell::new(false),
        }
    }

    /// Reads the lines of such a file; `root` is where its paths begin.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn parse(maps: impl BufRead, root: &str) -> io::Result<Modules> {
        let mut all = Modules::none();
        // The file that is mapped in these lines, and the address of its first byte.
        let mut current: Option<(String, u64)> = None;
        let mut data: Vec<(Range<u64>, String, u64)> = Vec::new();
        let mut end = 0;
        let mut numbers = HashMap::new();
        for line in maps.split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            let Some(line) = Line::parse(&line) else {
                continue;
            };
            let has_file = line.path.starts_with('/') || line.path == "[vdso]";
            let is_same = current.as_ref().is_some_and(|(path, _)| path == line.path);
            if has_file && (line.offset == 0 || !is_same) {
                let start = line.range.start.wrapping_sub(line.offset);
                current = Some((line.path.to_owned(), start));
            }
            // Zeroed variables follow those of the file.
            let follows = line.path.is_empty() && line.range.start == end;
            if let Some((path, start)) = &current
                && (has_file || follows)
                && !line.is_code
                && data.len() < RANGES_MAX
            {
                data.push((line.range.clone(), path.clone(), *start));
                end = line.range.end;
            }
            if !line.is_code || all.ranges.len() == RANGES_MAX {
                continue;
            }
            let module = has_file.then_some(current.as_ref()).flatten().map(|file| {
                let add = || all.module(&file.0, file.1, line.inode, root);
                *numbers.entry(file.clone()).or_insert_with(add)
            });
            all.ranges.push(Code {
                range: line.range,
                module,
                offset: line.offset,
            });
        }
        all.ranges.sort_by_key(|code| code.range.start);
        // Of files without code no variables are wanted.
        for (range, path, start) in data {
            if let Some(&index) = numbers.get(&(path, start)) {
                all.data.push((range, index));
            }
        }
        all.data.sort_by_key(|(range, _)| range.start);
        Ok(all)
    }

    /// Returns the data of files with code that have `name` in their names.
    pub(crate) fn data_of(&self, name: &str) -> Vec<Range<u64>> {
        let is_it = |(_, index): &&(Range<u64>, usize)| {
            let module = self.modules.get(*index);
            module.is_some_and(|it| it.name().contains(name))
        };
        let data = self.data.iter().filter(is_it);
        data.map(|(range, _)| range.clone()).collect()
    }

    /// Adds a module, and returns its number.
    fn module(&mut self, path: &str, start: u64, inode: u64, root: &str) -> usize {
        let plain = path.strip_suffix(" (deleted)");
        // The kernel writes a line feed in a path so, and nothing else.
        let name = plain.unwrap_or(path).replace("\\012", "\n");
        let is_assembly = name.ends_with(".dll") || name.ends_with(".exe");
        self.modules.push(Module {
            path: path.to_owned(),
            file: PathBuf::from(format!("{root}{name}")),
            is_deleted: plain.is_some(),
            start,
            is_native: !is_assembly && !path.starts_with("/memfd:"),
            inode,
            image: Arc::default(),
            held: None,
        });
        self.modules.len() - 1
    }

    /// Returns true if the address is in code.
    pub fn is_code(&self, address: u64) -> bool {
        self.find(address).is_some()
    }

    /// Returns true if the address is in native code of a file. .NET has code in its assemblies and
    /// writes code into a file that is in memory only: these count as none.
    pub(crate) fn has_file(&self, address: u64) -> bool {
        self.at(address).is_some_and(|module| module.is_native)
    }

    /// Returns the module at an address; `Some(None)` for code without a file.
    pub fn find(&self, address: u64) -> Option<Option<usize>> {
        match self.code_at(address) {
            Some(code) => Some(code.module),
            None => self.is_later(address).then_some(None),
        }
    }

    fn code_at(&self, address: u64) -> Option<&Code> {
        let after = self
            .ranges
            .partition_point(|code| code.range.start <= address);
        let last = self.ranges.get(after.checked_sub(1)?)?;
        last.range.contains(&address).then_some(last)
    }

    fn is_later(&self, address: u64) -> bool {
        let later = self.later.borrow();
        let after = later.partition_point(|range| range.start <= address);
        let last = after.checked_sub(1).and_then(|last| later.get(last));
        last.is_some_and(|range| range.contains(&address))
    }

    /// Notes an address of code on a stack that is in no code which is known here.
    pub(crate) fn note_stray(&self, address: u64) {
        if address >= LEAST_CODE {
            self.has_strays.set(true);
        }
    }

    /// Returns true if a stack has had an address that is in no known code, since the last call:
    /// the process may have mapped other code.
    pub fn take_strays(&self) -> bool {
        self.has_strays.take()
    }

    /// Takes code without a file that has been mapped meanwhile from the lines of such a file;
    /// files stay as they are. Returns true if there is more than before.
    ///
    /// # Errors
    /// If they can't be read.
    pub fn add_later(&self, maps: impl BufRead) -> io::Result<bool> {
        let mut later = Vec::new();
        for line in maps.split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            if let Some(line) = Line::parse(&line)
                && line.is_code
                && line.path.is_empty()
                && later.len() < RANGES_MAX
            {
                later.push(line.range);
            }
        }
        later.sort_by_key(|range| range.start);
        let is_new = |range: &Range<u64>| {
            self.find(range.start).is_none() || self.find(range.end - 1).is_none()
        };
        let is_more = later.iter().any(is_new);
        self.later.replace(later);
        Ok(is_more)
    }

    /// Returns the number of the module that has variables at an address.
    pub(crate) fn data_at(&self, address: u64) -> Option<usize> {
        let after = self
            .data
            .partition_point(|(range, _)| range.start <= address);
        let (range, module) = self.data.get(after.checked_sub(1)?)?;
        range.contains(&address).then_some(*module)
    }

    /// Returns a module's headers and unwind tables, as they are in the process's memory.
    pub fn image<'a>(&'a self, module: &'a Module, memory: &dyn Memory) -> Option<&'a Image> {
        let read = || Image::read(memory, module.start, &self.budget);
        module.image.get_or_init(read).as_ref()
    }

    /// Returns the module at an address.
    pub fn at(&self, address: u64) -> Option<&Module> {
        self.modules.get(self.find(address)??)
    }
}

impl Module {
    /// Returns where the file's first byte is mapped.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the last part of its path.
    pub fn name(&self) -> &str {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns true if its file is open, so that no other one can be taken for it.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the path by which its file is read.
    pub(crate) fn readable(&self) -> PathBuf {
        match &self.held {
            Some(held) => held.path(&self.file, self.inode),
            None => self.file.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000-55e000 r--p 00000000 08:01 12 /usr/bin/a program
55e000-560000 r-xp 00001000 08:01 12                         /usr/bin/a program
560000-561000 rw-p 00003000 08:01 12                         /usr/bin/a program
7e0000-7f0000 rwxp 00000000 00:00 0
7f0000-7f1000 r-xp 00000000 08:01 13                         /lib/gone.so (deleted)
7fff00-7fff10 r-xp 00000000 00:00 0                          [vdso]
7fff20-7fff30 rw-p 00000000 00:00 0                          [stack]
nonsense
";

    #[test]
    fn code_without_a_file_may_come_later() {
        let modules = Modules::parse(MAPS.as_bytes(), "/proc/1/root").unwrap();
        modules.note_stray(0);
        assert!(!modules.take_strays(), "the end of a stack");
        modules.note_stray(0x7f_8010);
        assert!(modules.take_strays() && !modules.take_strays());
        assert!(!modules.add_later(MAPS.as_bytes()).unwrap());
        let more = "7e0000-7f0000 rwxp 0 0 0\n7f8000-7f9000 rwxp";
        let grown = MAPS.replace("7e0000-7f0000 rwxp", more);
        assert!(modules.add_later(grown.as_bytes()).unwrap());
        assert_eq!(modules.find(0x7f_8010), Some(None));
        assert_eq!(modules.find(0x7e_0010), Some(None));
        assert_eq!(modules.find(0x7f_9010), None);
        assert!(!modules.add_later(grown.as_bytes()).unwrap());
    }

    #[test]
    fn code_is_found_by_its_address() {
        let modules = Modules::parse(MAPS.as_bytes(), "/proc/1/root").unwrap();
        assert_eq!(modules.find(0x55d010), None);
        let program = modules.at(0x55e010).unwrap();
        assert_eq!((program.name(), program.start), ("a program", 0x55d000));
        assert_eq!(
            program.file.to_str(),
            Some("/proc/1/root/usr/bin/a program")
        );
        assert_eq!(modules.find(0x7e0000), Some(None));
        let gone = modules.at(0x7f0000).unwrap();
        assert!(gone.is_deleted && gone.name() == "gone.so");
        assert_eq!(modules.at(0x7fff00).unwrap().name(), "[vdso]");
        assert_eq!(modules.find(0x7fff20), None);
        assert_eq!(modules.find(u64::MAX), None);
        assert_eq!(modules.data_at(0x560010), modules.find(0x55e010).unwrap());
        assert_eq!(modules.data_at(0x55e010), None);
        assert_eq!(modules.data_at(0x7fff20), None);
    }
}
