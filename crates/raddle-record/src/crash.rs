//! The file that a process with a flight recorder leaves when a signal ends it
//! ([`raddle_inspect::CrashHeader`]), as memory.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use raddle_inspect::{
    CRASH_MAGIC, CRASH_MAGIC_BEFORE, CrashHeader, CrashName, CrashPart, Layout, NAME_BYTES, Wire,
};
use raddle_stacks::Memory;

/// The most parts of a file.
const PARTS_MAX: usize = 1 << 14;
/// The most names of a file.
const NAMES_MAX: usize = 1 << 20;

/// Why a file can't be read.
#[derive(Debug)]
pub enum CrashError {
    /// It is another kind of file.
    Other,
    /// It comes from another version of the runtime.
    Version,
    /// It can't be read.
    Io(io::Error),
}

impl fmt::Display for CrashError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CrashError::Other => out.write_str("it is no file of a flight recorder"),
            CrashError::Version => out.write_str("another version of raddle has written it"),
            CrashError::Io(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for CrashError {}

impl From<io::Error> for CrashError {
    fn from(error: io::Error) -> Self {
        CrashError::Io(error)
    }
}

/// A part of the memory in the file.
struct Part {
    address: u64,
    bytes: u64,
    /// Where it is in the file.
    at: u64,
}

/// The file.
pub struct CrashFile {
    pub header: CrashHeader,
    pub layout: Layout,
    /// Threads with their names.
    pub names: Vec<(u32, String)>,
    /// Carriers of bound threads.
    pub bound: Vec<u64>,
    file: File,
    parts: Vec<Part>,
}

impl CrashFile {
    /// Returns whether a file begins as one of a flight recorder.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn is_one(path: &Path) -> io::Result<bool> {
        let mut magic = Vec::new();
        let first = CRASH_MAGIC.len() as u64;
        File::open(path)?.take(first).read_to_end(&mut magic)?;
        Ok(magic == CRASH_MAGIC || magic == CRASH_MAGIC_BEFORE)
    }

    /// Reads all but the memory.
    ///
    /// # Errors
    /// If it is no such file. One that was cut off has what it has.
    pub fn open(path: &Path) -> Result<CrashFile, CrashError> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let header: CrashHeader = read(&mut file)?.ok_or(CrashError::Other)?;
        match header.magic {
            CRASH_MAGIC => {}
            CRASH_MAGIC_BEFORE => return Err(CrashError::Version),
            _ => return Err(CrashError::Other),
        }
        let mut bytes = vec![0; size_of::<Layout>()];
        file.read_exact(&mut bytes)
            .map_err(|_| CrashError::Version)?;
        let layout = Layout::parse(&bytes).ok_or(CrashError::Version)?;
        let mut parts = Vec::new();
        while let Some(part) = read::<CrashPart>(&mut file)? {
            let at = file.stream_position()?;
            let end = at.checked_add(part.bytes).filter(|&end| end <= length);
            if part.bytes == 0 || parts.len() == PARTS_MAX {
                break;
            }
            parts.push(Part {
                address: part.address,
                bytes: end.map_or(length - at, |_| part.bytes),
                at,
            });
            file.seek(SeekFrom::Start(end.unwrap_or(length)))?;
        }
        let (mut names, mut bound) = (Vec::new(), Vec::new());
        while names.len() < NAMES_MAX
            && let Some(name) = read::<CrashName>(&mut file)?
        {
            names.push((name.tid, text(&name.name)));
            bound.extend((name.bound != 0).then_some(name.bound));
        }
        parts.sort_by_key(|part| part.address);
        Ok(CrashFile {
            header,
            layout,
            names,
            bound,
            file,
            parts,
        })
    }
}

impl Memory for CrashFile {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let after = self.parts.partition_point(|part| part.address <= address);
        let Some(part) = after.checked_sub(1).map(|at| &self.parts[at]) else {
            return 0;
        };
        let from = address - part.address;
        let there = part.bytes.saturating_sub(from).min(to.len() as u64);
        let at = part.at + from;
        match self.file.read_exact_at(&mut to[..there as usize], at) {
            Ok(()) => there as usize,
            Err(_) => 0,
        }
    }
}

/// Reads a value; `None` at the end of the file.
fn read<T: Wire>(file: &mut File) -> io::Result<Option<T>> {
    let mut bytes = Vec::with_capacity(size_of::<T>());
    file.take(size_of::<T>() as u64).read_to_end(&mut bytes)?;
    Ok(T::from_prefix(&bytes))
}

fn text(name: &[u8; NAME_BYTES]) -> String {
    let end = name.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(NAME_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Layout>()];
        bytes[..8].copy_from_slice(&raddle_inspect::LAYOUT_MAGIC);
        bytes[8..12].copy_from_slice(&raddle_inspect::LAYOUT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(size_of::<Layout>() as u32).to_le_bytes());
        bytes
    }

    fn whole() -> Vec<u8> {
        let header = CrashHeader {
            magic: CRASH_MAGIC,
            pid: 7,
            signal: 11,
            tid: 8,
            reserved: 0,
        };
        let part = |address, bytes| CrashPart { address, bytes };
        let mut name = [0; NAME_BYTES];
        name[..4].copy_from_slice(b"main");
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(layout());
        bytes.extend(part(0x2000, 4).as_bytes());
        bytes.extend(b"abcd");
        bytes.extend(part(0x1000, 2).as_bytes());
        bytes.extend(b"xy");
        bytes.extend(part(0, 0).as_bytes());
        let thread = |tid, bound| CrashName {
            bound,
            tid,
            reserved: 0,
            name,
        };
        bytes.extend(thread(7, 0).as_bytes());
        bytes.extend(thread(8, 0x5000).as_bytes());
        bytes
    }

    #[test]
    fn parts_are_memory_and_a_file_that_was_cut_off_has_what_it_has() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("raddle-crash-{}", std::process::id()));
        let bytes = whole();
        for length in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let Ok(file) = CrashFile::open(&path) else {
                assert!(length < size_of::<CrashHeader>() + size_of::<Layout>());
                continue;
            };
            let mut to = [0; 8];
            if length == bytes.len() {
                let main = "main".to_owned();
                assert_eq!(file.names, [(7, main.clone()), (8, main)]);
                assert_eq!(file.bound, [0x5000]);
                assert_eq!((file.header.pid, file.header.signal), (7, 11));
                assert_eq!((file.read(0x2001, &mut to), &to[..3]), (3, &b"bcd"[..]));
                assert_eq!((file.read(0x1000, &mut to), &to[..2]), (2, &b"xy"[..]));
            }
            for nowhere in [0, 0xfff, 0x1002, 0x2004, u64::MAX] {
                assert_eq!(file.read(nowhere, &mut to), 0, "{nowhere:#x}");
            }
        }
        let mut before = bytes.clone();
        before[..8].copy_from_slice(&CRASH_MAGIC_BEFORE);
        std::fs::write(&path, &before).unwrap();
        assert!(CrashFile::is_one(&path).unwrap());
        let opened = CrashFile::open(&path);
        assert!(matches!(opened, Err(CrashError::Version)));
        std::fs::write(&path, b"something else").unwrap();
        assert!(!CrashFile::is_one(&path).unwrap());
        assert!(matches!(CrashFile::open(&path), Err(CrashError::Other)));
        std::fs::remove_file(&path).unwrap();
    }
}
