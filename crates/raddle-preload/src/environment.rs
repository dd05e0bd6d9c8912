//! The process's environment and auxiliary vector, read from the stack; and lines for people.

use core::ffi::{CStr, c_char};
use core::fmt;

/// What the kernel left above the arguments.
#[derive(Clone, Copy)]
pub struct Environment {
    variables: *const *const c_char,
    initial: *const *const c_char,
}

impl Environment {
    /// The environment as it is now, and as the kernel left it.
    ///
    /// # Safety
    /// Both must be environments; the auxiliary vector must be behind `initial`.
    pub const unsafe fn new(
        variables: *const *const c_char,
        initial: *const *const c_char,
    ) -> Self {
        Self { variables, initial }
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&'static [u8]> {
        let mut at = self.variables;
        // SAFETY: the environment is a null-terminated array of strings that live for ever.
        unsafe {
            while !(*at).is_null() {
                let entry: &'static [u8] = CStr::from_ptr(*at).to_bytes();
                if let Some(rest) = entry.strip_prefix(name)
                    && let Some(value) = rest.strip_prefix(b"=")
                {
                    return Some(value);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// True if the user wants to hear what runs how.
    pub fn is_verbose(&self) -> bool {
        self.get(b"RADDLE_VERBOSE")
            .is_some_and(|value| value != b"0" && !value.is_empty())
    }

    /// A decimal number in a variable.
    pub fn number(&self, name: &[u8]) -> Option<u32> {
        core::str::from_utf8(self.get(name)?).ok()?.parse().ok()
    }

    /// An entry of the auxiliary vector, or 0.
    pub fn auxiliary(&self, kind: usize) -> usize {
        let mut at = self.initial;
        // SAFETY: the vector follows the environment's final null.
        unsafe {
            while !(*at).is_null() {
                at = at.add(1);
            }
            let mut entry = at.add(1).cast::<[usize; 2]>();
            while (*entry)[0] != 0 {
                if (*entry)[0] == kind {
                    return (*entry)[1];
                }
                entry = entry.add(1);
            }
        }
        0
    }
}

/// One line of text on the stack; what doesn't fit is cut.
pub struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Self {
            text: [0; 256],
            len: 0,
        }
    }

    /// The text so far.
    pub fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for &byte in s.as_bytes() {
            if let Some(slot) = self.text.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}
