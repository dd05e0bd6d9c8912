//! A short text that is written piece by piece, as paths below `/proc` are.

use core::fmt::Write;

/// The longest path of ours, with its final zero.
const CAPACITY: usize = 128;

/// A short text without allocation.
pub(crate) struct Line {
    pub bytes: [u8; CAPACITY],
    pub len: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len());
        to.ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
