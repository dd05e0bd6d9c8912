//! The process that a descriptor of `pidfd_open(2)` names, as `/proc` tells it.

use core::fmt::Write;
use raddle_engine::cpus;
use raddle_sys::{is_err, nr, sys};

use crate::line::Line;

/// Returns true if a descriptor of the calling thread names this process. `/proc` may count in
/// another namespace than the process, but counts both in the same one. Opens a descriptor.
pub(super) fn is_own(fd: u32) -> bool {
    let mut path = Line::new();
    if write!(path, "/proc/thread-self/fdinfo/{fd}\0").is_err() {
        return false;
    }
    let (mut text, mut own) = ([0u8; 256], [0u8; 16]);
    let named = cpus::read_file(&path.bytes, &mut text).and_then(named);
    // SAFETY: a path that ends with a zero, and a live array.
    let len = unsafe {
        let path = c"/proc/self".as_ptr();
        sys!(nr::__NR_readlink, path, own.as_mut_ptr(), own.len())
    };
    !is_err(len) && named == own.get(..len as usize)
}

/// Returns the number in the field `Pid` of a file of `fdinfo`, which only a pidfd's has.
fn named(text: &[u8]) -> Option<&[u8]> {
    const FIELD: &[u8] = b"Pid:\t";
    let mut lines = text.split(|&byte| byte == b'\n');
    lines.find_map(|line| line.strip_prefix(FIELD))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::os::fd::AsRawFd;

    fn descriptor_of(process: u32) -> u32 {
        // SAFETY: a plain query.
        let fd = unsafe { sys!(nr::__NR_pidfd_open, process, 0usize) };
        assert!(!is_err(fd));
        fd as u32
    }

    #[test]
    fn a_descriptor_of_the_own_process_is_told_from_others() {
        assert!(is_own(descriptor_of(std::process::id())));
        assert!(!is_own(descriptor_of(std::os::unix::process::parent_id())));
        let file = std::fs::File::open("/proc/self/status").expect("a file");
        assert!(!is_own(file.as_raw_fd() as u32));
        assert!(!is_own(u32::MAX));
    }

    #[test]
    fn the_field_is_a_line_of_its_own() {
        let text = b"pos:\t0\nflags:\t02000002\nPid:\t17\nNSpid:\t17\t3\n";
        assert_eq!(named(text), Some(b"17".as_slice()));
        assert_eq!(named(b"pos:\t0\nNSpid:\t17\n"), None);
    }
}
