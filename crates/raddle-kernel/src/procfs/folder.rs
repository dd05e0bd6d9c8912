//! The folder of threads: its marked descriptors, its entries, its links.
//!
//! The descriptor is the kernel's, open on the kernel's own folder; its file offset counts the
//! runtime's entries: ".", "..", then one for each slot of the table of threads. So it is rewound,
//! duplicated and closed like any other.

use crate::frame::{Frame, Outcome};
use crate::mode::are_known;
use crate::user::User;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use raddle_engine::PROCESS;
use raddle_engine::pump::Kind;
use raddle_engine::thread::Life;
use raddle_sys::{err, errno, is_err, nr, sys};

use crate::line::Line;

const DOTS: usize = 2;

/// Returns the thread that the descriptor is the folder of, 0 for the folder of threads; `None` for
/// any other descriptor.
#[inline(always)]
pub(super) fn marked(fd: u32) -> Option<u32> {
    let entry = PROCESS.pump.entry(fd)?;
    (entry.kind() == Kind::TaskFolder).then(|| entry.tid.load(Ordering::Relaxed))
}

/// Programs count threads by the links of the folder: a link of its own, one from above, one from
/// each folder in it.
pub(super) fn links() -> u64 {
    (PROCESS.threads.live() + DOTS) as u64
}

/// `getdents64(2)`.
pub extern "C" fn getdents64(frame: &Frame) -> Outcome {
    const SET: usize = 0;
    const CURRENT: usize = 1;
    let fd = frame.word(0);
    if marked(fd) != Some(0) || !are_known() {
        return Outcome::PASS;
    }
    // SAFETY: moves or asks for an offset only.
    let at = unsafe { sys!(nr::__NR_lseek, fd, 0usize, CURRENT) };
    if is_err(at) {
        return Outcome::of(at);
    }
    let mut to = Entries {
        at: frame.user(1),
        left: (frame.word(2) as i32).max(0) as usize, // as the kernel counts
        written: 0,
    };
    let end = PROCESS.threads.slots() + DOTS;
    let mut next = at as usize;
    let mut failure = None;
    while next < end && failure.is_none() {
        match to.put(next) {
            Ok(()) => next += 1,
            Err(errno) => failure = Some(errno),
        }
    }
    if let Some(errno) = failure.filter(|_| to.written == 0) {
        return Outcome::of(errno); // not even one entry fits
    }
    // SAFETY: as above.
    unsafe { sys!(nr::__NR_lseek, fd, next, SET) };
    Outcome::of(to.written as isize)
}

/// Bytes of an entry before its name: inode, offset, length, type.
const HEAD: usize = 19;
/// The longest entry: the name is a number.
const MOST: usize = HEAD + 21;

/// The program's buffer as it fills.
struct Entries {
    at: User<u8>,
    left: usize,
    written: usize,
}

impl Entries {
    /// Appends entry `index`, if there is one.
    ///
    /// # Errors
    /// EINVAL if it doesn't fit, EFAULT; negated.
    fn put(&mut self, index: usize) -> Result<(), isize> {
        const FOLDER: u8 = 4;
        let mut name = Line::new();
        let inode = match index.checked_sub(DOTS) {
            None => {
                let _ = name.write_str(if index == 0 { "." } else { ".." });
                1
            }
            Some(slot) => match PROCESS.threads.in_slot(slot) {
                Some(thread) if thread.life() != Life::Free => {
                    let _ = write!(name, "{}", thread.tid());
                    u64::from(thread.tid())
                }
                _ => return Ok(()),
            },
        };
        let size = (HEAD + name.len + 1).next_multiple_of(8);
        if self.left < size {
            return Err(err(errno::EINVAL));
        }
        let mut entry = [0u8; MOST];
        entry[..8].copy_from_slice(&inode.to_le_bytes());
        entry[8..16].copy_from_slice(&(index as u64 + 1).to_le_bytes());
        entry[16..18].copy_from_slice(&(size as u16).to_le_bytes());
        entry[18] = FOLDER;
        entry[HEAD..HEAD + name.len].copy_from_slice(&name.bytes[..name.len]);
        self.at.write_all(&entry[..size])?;
        self.at = self.at.byte_add(size);
        self.left -= size;
        self.written += size;
        Ok(())
    }
}
