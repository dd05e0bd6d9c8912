//! Files of code that stay open, so that they can be read after the process has unmapped and
//! removed them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::{PT_LOAD, ProgramHeader, program_headers};
use crate::memory::Memory;

/// The most files that are kept open.
const HELD_MAX: usize = 256;
static HELD: AtomicUsize = AtomicUsize::new(0);

const PAGE: u64 = 4096;

/// A file that is open. Its number is no other file's meanwhile.
pub(super) struct Held(File);

impl Held {
    /// Opens a file if it has this number. A file that was removed is opened by the place where the
    /// process has mapped it, which the kernel permits to administrators.
    pub(super) fn open(path: &Path, inode: u64, place: (u32, Range<u64>)) -> Option<Arc<Held>> {
        let (pid, Range { start, end }) = place;
        let place = PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
        let open = |path: &Path| open(path, inode).filter(|_| inode != 0);
        let file = open(path).or_else(|| open(&place))?;
        if HELD.fetch_add(1, Ordering::Relaxed) >= HELD_MAX {
            HELD.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Arc::new(Held(file)))
    }

    /// Returns the file's path if it still leads there: debug information is looked for beside it.
    /// Else one that leads to the open file.
    pub(super) fn path(&self, path: &Path, inode: u64) -> PathBuf {
        if fs::metadata(path).is_ok_and(|it| it.ino() == inode) {
            return path.to_owned();
        }
        let (pid, fd) = (std::process::id(), self.0.as_raw_fd());
        PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
    }

    /// Returns the file as it is mapped if the byte at `offset` is at `address`.
    pub(super) fn mapped(&self, address: u64, offset: u64) -> Option<MappedFile<'_>> {
        let whole = |at: u64, to: &mut [u8]| self.0.read_at(to, at).unwrap_or(0);
        let mut header = [0; 64];
        if whole(0, &mut header) != header.len() {
            return None;
        }
        let headers = program_headers(&FileBytes(&self.0), 0, &header)?;
        let mut loads = headers.into_iter().filter(|it| it.kind == PT_LOAD);
        let first = loads.next()?;
        let loads: Vec<ProgramHeader> = [first].into_iter().chain(loads).collect();
        let begin = |it: &ProgramHeader| it.offset & !(PAGE - 1);
        let is_it = |it: &&ProgramHeader| {
            let bytes = it.offset.saturating_add(it.file_size);
            (begin(it)..bytes.max(begin(it) + 1)).contains(&offset)
        };
        // The last one: the end of a segment and the begin of the next may share a page.
        let load = loads.iter().rfind(is_it)?;
        let bias = address
            .wrapping_sub(offset.wrapping_sub(begin(load)))
            .wrapping_sub(load.address & !(PAGE - 1));
        let start = bias.wrapping_add(loads.first()?.address & !(PAGE - 1));
        Some(MappedFile {
            file: &self.0,
            start,
            bias,
            loads,
        })
    }
}

/// Opens a file with this number. The kernel tells another device for a file of an overlay, so that
/// devices aren't compared.
fn open(path: &Path, inode: u64) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && found.ino() == inode).then_some(file)
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bytes of a file by their places.
struct FileBytes<'a>(&'a File);

impl Memory for FileBytes<'_> {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        read_at(self.0, address, to).unwrap_or(0)
    }
}

fn read_at(file: &File, offset: u64, to: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < to.len() {
        match file.read_at(&mut to[got..], offset.saturating_add(got as u64))? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

/// What a file's segments hold where they are mapped.
pub(super) struct MappedFile<'a> {
    file: &'a File,
    /// Where its first byte is mapped.
    pub start: u64,
    bias: u64,
    loads: Vec<ProgramHeader>,
}

impl MappedFile<'_> {
    /// The bytes of a segment from an address of its own on.
    fn within(&self, address: u64) -> Option<Range<u64>> {
        let address = address.wrapping_sub(self.bias);
        self.loads.iter().find_map(|load| {
            let from = load.address & !(PAGE - 1);
            let before = load.address - from;
            let end = load.address.checked_add(load.file_size)?;
            let offset = load.offset.checked_sub(before)?;
            let begins = (from..end).contains(&address);
            begins.then(|| offset + (address - from)..offset + (end - from))
        })
    }
}

impl Memory for MappedFile<'_> {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let Some(bytes) = self.within(address) else {
            return 0;
        };
        let length = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
        let length = length.min(to.len());
        read_at(self.file, bytes.start, &mut to[..length]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Image;
    use crate::memory::ProcessMemory;
    use crate::modules::Modules;
    use std::cell::Cell;

    #[test]
    fn a_file_that_is_open_has_the_same_tables_as_memory() {
        let pid = std::process::id();
        let modules = Modules::of(pid).unwrap();
        let here = a_file_that_is_open_has_the_same_tables_as_memory as *const () as u64;
        let code = modules.code_at(here).unwrap();
        let module = modules.at(here).unwrap();
        let place = || (pid, code.range.clone());
        assert!(Held::open(&module.file, module.inode + 1, (pid, 0..0)).is_none());
        let held = Held::open(&module.file, module.inode, place()).unwrap();
        let file = held.mapped(code.range.start, code.offset).unwrap();
        assert_eq!(file.start, module.start());
        let budget = Cell::new(u64::MAX);
        let from_file = Image::read(&file, file.start, &budget).unwrap();
        let memory = ProcessMemory::of(pid);
        let from_memory = modules.image(module, &memory).unwrap();
        assert_eq!(from_file.bias, from_memory.bias);
        assert_eq!(from_file.build_id, from_memory.build_id);
        let tables = from_file.tables.unwrap();
        assert!(tables.sections().unwrap().entry(here).is_some());
        let by_number = held.path(Path::new("/nowhere"), module.inode);
        assert!(by_number.starts_with("/proc") && by_number.exists());
    }

    #[test]
    fn what_is_no_program_is_mapped_nowhere() {
        let path = Path::new("/etc/passwd");
        let inode = fs::metadata(path).unwrap().ino();
        let held = Held::open(path, inode, (0, 0..0)).unwrap();
        assert!(held.mapped(0x1000, 0).is_none());
        assert!(Held::open(Path::new("/dev/null"), 1, (0, 0..0)).is_none());
    }
}
