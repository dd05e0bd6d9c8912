//! The folder of threads: its marked descriptors, its entries, its links.
//!
//! The descriptor is the kernel's, open on the kernel's own folder; its file offset counts the
//! entries of ours: ".", "..", then one for each slot of the table of threads. So it rewinds, is
//! duplicated and is closed as any other.

use crate::boundary::{Frame, Outcome};
use core::fmt::Write;
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::Ordering;
use raddle_engine::ENGINE;
use raddle_engine::pump::Kind;
use raddle_engine::thread::Life;
use raddle_sys::{err, errno, is_err, nr, sys};

use super::Line;

const DOTS: usize = 2;

/// The thread whose folder the descriptor is, 0 for the folder of threads; `None` for any other.
pub fn marked(fd: usize) -> Option<u32> {
    let entry = ENGINE.pump.entry(u32::try_from(fd).ok()?)?;
    (entry.kind() == Kind::TaskFolder).then(|| entry.tid.load(Ordering::Relaxed))
}

/// Programs count threads by the links of the folder: a link of its own, one from above, one from
/// each folder in it.
///
/// # Safety
/// There must be a count at `address`, of eight bytes if `wide`, else of four.
pub unsafe fn set_links(address: usize, wide: bool) {
    let links = (ENGINE.threads.live() + DOTS) as u64;
    // SAFETY: the caller's promise.
    unsafe {
        if wide {
            with_exposed_provenance_mut::<u64>(address).write_unaligned(links);
        } else {
            with_exposed_provenance_mut::<u32>(address).write_unaligned(links as u32);
        }
    }
}

/// `getdents64(2)`.
pub extern "C" fn getdents64(frame: &Frame) -> Outcome {
    const SET: usize = 0;
    const CURRENT: usize = 1;
    let fd = frame.arg(0);
    if marked(fd) != Some(0) || !ENGINE.is_started() {
        return Outcome::PASS;
    }
    // SAFETY: moves or asks for an offset only.
    let at = unsafe { sys!(nr::__NR_lseek, fd, 0usize, CURRENT) };
    if is_err(at) {
        return Outcome::of(at);
    }
    let mut to = Entries {
        at: frame.arg(1),
        end: frame.arg(1) + frame.arg(2),
    };
    let end = ENGINE.threads.slots() + DOTS;
    let mut next = at as usize;
    while next < end && to.put(next) {
        next += 1;
    }
    if to.at == frame.arg(1) && next < end {
        return Outcome::of(err(errno::EINVAL)); // not even one entry fits
    }
    // SAFETY: as above.
    unsafe { sys!(nr::__NR_lseek, fd, next, SET) };
    Outcome::of((to.at - frame.arg(1)) as isize)
}

/// The program's buffer as it fills.
struct Entries {
    at: usize,
    end: usize,
}

impl Entries {
    /// Appends entry `index`, if there is one; false if it doesn't fit.
    fn put(&mut self, index: usize) -> bool {
        const FOLDER: u8 = 4;
        const HEAD: usize = 19; // inode, offset, length, type
        let mut name = Line::new();
        let inode = match index.checked_sub(DOTS) {
            None => {
                let _ = name.write_str(if index == 0 { "." } else { ".." });
                1
            }
            Some(slot) => match ENGINE.threads.in_slot(slot) {
                Some(thread) if thread.life() != Life::Free => {
                    let _ = write!(name, "{}", thread.tid());
                    u64::from(thread.tid())
                }
                _ => return true,
            },
        };
        let size = (HEAD + name.len + 1).next_multiple_of(8);
        if self.end - self.at < size {
            return false;
        }
        let to = with_exposed_provenance_mut::<u8>(self.at);
        // SAFETY: `size` bytes of the program's buffer.
        unsafe {
            to.write_bytes(0, size);
            to.cast::<u64>().write_unaligned(inode);
            to.add(8).cast::<u64>().write_unaligned(index as u64 + 1);
            to.add(16).cast::<u16>().write_unaligned(size as u16);
            to.add(18).write(FOLDER);
            core::ptr::copy_nonoverlapping(name.bytes.as_ptr(), to.add(HEAD), name.len);
        }
        self.at += size;
        true
    }
}
