//! The address of a process's inspection server: the abstract Unix socket `raddle/PID`.

/// Digits of the largest process id.
const DIGITS_MAX: usize = 10;
const PREFIX: &[u8] = b"raddle/";

/// The name of a process's inspection socket, without the zero byte that makes it abstract.
///
/// # Examples
/// ```
/// use raddle_inspect::SocketName;
/// assert_eq!(SocketName::of(4242).as_bytes(), b"raddle/4242");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SocketName {
    bytes: [u8; PREFIX.len() + DIGITS_MAX],
    length: usize,
}

impl SocketName {
    /// Returns the name for process `pid`, as the process sees its own id.
    pub const fn of(pid: u32) -> SocketName {
        let mut name = SocketName {
            bytes: [0; PREFIX.len() + DIGITS_MAX],
            length: PREFIX.len() + digits(pid),
        };
        let mut index = 0;
        while index < PREFIX.len() {
            name.bytes[index] = PREFIX[index];
            index += 1;
        }
        let mut rest = pid;
        let mut end = name.length;
        while end > PREFIX.len() {
            end -= 1;
            name.bytes[end] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        name
    }

    /// Returns what follows the zero byte in `sun_path`.
    pub const fn as_bytes(&self) -> &[u8] {
        self.bytes.split_at(self.length).0
    }
}

const fn digits(number: u32) -> usize {
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
        }
    }
}
