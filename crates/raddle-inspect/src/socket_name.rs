//! The address of a process's inspection server: the abstract Unix socket `raddle/PID`, or
//! `raddle/PID/INODE` if that one is taken.
//!
//! Abstract names belong to network namespaces, and process ids to PID namespaces: two processes of
//! one network namespace may have the same id. The second name has the inode of the PID namespace,
//! which the kernel shows in `/proc/PID/ns/pid`. A process that has no `/proc` has the first name
//! or none.

/// Digits of the largest process id.
const DIGITS_MAX: usize = 10;
/// Digits of the largest inode.
const INODE_DIGITS_MAX: usize = 20;
const PREFIX: &[u8] = b"raddle/";
const LENGTH_MAX: usize = PREFIX.len() + DIGITS_MAX + 1 + INODE_DIGITS_MAX;

/// The name of a process's inspection socket, without the zero byte that makes it abstract.
///
/// # Examples
/// ```
/// use raddle_inspect::SocketName;
/// assert_eq!(SocketName::of(4242).as_bytes(), b"raddle/4242");
/// assert_eq!(SocketName::in_namespace(7, 4_026_531_836).as_bytes(), b"raddle/7/4026531836");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SocketName {
    bytes: [u8; LENGTH_MAX],
    length: usize,
}

impl SocketName {
    /// Returns the name for process `pid`, as the process sees its own id.
    pub const fn of(pid: u32) -> SocketName {
        let mut name = SocketName {
            bytes: [0; LENGTH_MAX],
            length: 0,
        };
        while name.length < PREFIX.len() {
            name.bytes[name.length] = PREFIX[name.length];
            name.length += 1;
        }
        name.with_number(pid as u64)
    }

    /// Returns the second name, with the inode of the process's PID namespace.
    pub const fn in_namespace(pid: u32, inode: u64) -> SocketName {
        let mut name = SocketName::of(pid);
        name.bytes[name.length] = b'/';
        name.length += 1;
        name.with_number(inode)
    }

    const fn with_number(mut self, number: u64) -> SocketName {
        let begin = self.length;
        self.length += digits(number);
        let mut rest = number;
        let mut end = self.length;
        while end > begin {
            end -= 1;
            self.bytes[end] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self
    }

    /// Returns what follows the zero byte in `sun_path`.
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes.split_at(self.length).0
    }
}

const fn digits(number: u64) -> usize {
    match number.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decimal_without_leading_zeros() {
        for pid in [0, 1, 9, 10, 99, 100, 32_768, 4_194_304, u32::MAX] {
            let expected = std::format!("raddle/{pid}");
            assert_eq!(SocketName::of(pid).as_bytes(), expected.as_bytes());
            for inode in [0, 10, 4_026_531_836, u64::MAX] {
                let expected = std::format!("raddle/{pid}/{inode}");
                let name = SocketName::in_namespace(pid, inode);
                assert_eq!(name.as_bytes(), expected.as_bytes());
            }
        }
    }
}
