//! The file that a process leaves when a signal ends it while its flight recorder is on.
//!
//! A [`CrashHeader`], a [`Layout`](crate::Layout), parts of the process's memory, and the threads:
//!
//! 1. Each part is a [`CrashPart`] and so many bytes. A part of no bytes ends the list.
//! 2. The rest is one [`CrashName`] for each thread.
//!
//! So a reader of the process's memory reads the file in the same way, as far as the file goes.

use crate::records::{NAME_BYTES, Wire};

/// The first eight bytes of the file.
pub const CRASH_MAGIC: [u8; 8] = *b"RADDLE\0F";

/// The first eight bytes of a file that an earlier version has written.
pub const CRASH_MAGIC_BEFORE: [u8; 8] = *b"RADDLE\0E";

/// The start of the file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashHeader {
    /// [`CRASH_MAGIC`].
    pub magic: [u8; 8],
    /// The process's id.
    pub pid: u32,
    /// The signal that ends the process.
    pub signal: u32,
    /// The green thread that gets it; 0 for none.
    pub tid: u32,
    /// Zero.
    pub reserved: u32,
}

/// A part of the process's memory, of which the bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPart {
    pub address: u64,
    pub bytes: u64,
}

/// A thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashName {
    /// The address of the carrier that runs this thread and nothing else, or 0.
    pub bound: u64,
    pub tid: u32,
    /// Zero.
    pub reserved: u32,
    /// With zeros behind it.
    pub name: [u8; NAME_BYTES],
}

// SAFETY: integers and arrays of integers; `_SIZES` checks that no byte is padding.
unsafe impl Wire for CrashHeader {}
// SAFETY: as for `CrashHeader`.
unsafe impl Wire for CrashPart {}
// SAFETY: as for `CrashHeader`.
unsafe impl Wire for CrashName {}

const _SIZES: () = {
    assert!(size_of::<CrashHeader>() == 8 + 4 * 4);
    assert!(size_of::<CrashPart>() == 2 * 8);
    assert!(size_of::<CrashName>() == 16 + NAME_BYTES);
};
