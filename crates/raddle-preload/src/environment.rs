//! The process's environment and auxiliary vector, read from the stack; and lines for people.

use core::ffi::{CStr, c_char};
use core::fmt;
use core::ptr::null;
use raddle_inspect::settings;
use raddle_sched::SpinLock;

pub(crate) const AT_PHDR: usize = 3;
pub(crate) const AT_PHNUM: usize = 5;
pub(crate) const AT_BASE: usize = 7;
pub(crate) const AT_SECURE: usize = 23;
pub(crate) const AT_HWCAP2: usize = 26;
pub(crate) const AT_EXECFN: usize = 31;
pub(crate) const AT_SYSINFO_EHDR: usize = 33;

/// Variables of the runtime's at most.
const MOST: usize = 16;
/// Bytes of these variables at most.
const ROOM: usize = 4096;

/// The runtime's variables, and what the kernel left behind the environment.
#[derive(Clone, Copy)]
pub(crate) struct Environment {
    /// Up to a null.
    variables: [*const c_char; MOST + 1],
    auxiliary: *const [usize; 2],
}

// SAFETY: strings and a vector that live for ever and are never written.
unsafe impl Send for Environment {}

/// Room for copies of strings.
static COPIES: SpinLock<[u8; ROOM]> = SpinLock::new([0; ROOM]);

impl Environment {
    /// The runtime's variables among `variables`, the first ones if there are too many.
    ///
    /// # Safety
    /// Both must be environments of strings that live for ever; the auxiliary vector must be behind
    /// `initial`.
    pub(crate) unsafe fn new(
        variables: *const *const c_char,
        initial: *const *const c_char,
    ) -> Self {
        const PREFIX: [u8; 7] = *b"RADDLE_";
        let mut own = [null(); MOST + 1];
        let mut count = 0;
        let (mut at, mut behind) = (variables, initial);
        // SAFETY: null-terminated arrays; a string is not read behind its end, since the comparison
        // ends with the first byte that differs.
        unsafe {
            while !(*at).is_null() && count < MOST {
                let text = (*at).cast::<u8>();
                if (0..PREFIX.len()).all(|i| *text.add(i) == PREFIX[i]) {
                    own[count] = *at;
                    count += 1;
                }
                at = at.add(1);
            }
            while !(*behind).is_null() {
                behind = behind.add(1);
            }
            Self {
                variables: own,
                auxiliary: behind.add(1).cast(),
            }
        }
    }

    /// The same from copies of the strings: programs write their titles where the kernel put the
    /// originals. `None` if they are too long. Once.
    pub(crate) fn copied(&self) -> Option<Self> {
        let mut copy = *self;
        let mut copies = COPIES.lock();
        let mut used = 0;
        for variable in copy.variables.iter_mut().take_while(|at| !at.is_null()) {
            // SAFETY: a string of the environment.
            let text = unsafe { CStr::from_ptr(*variable) }.to_bytes_with_nul();
            let room = copies.get_mut(used..used + text.len())?;
            room.copy_from_slice(text);
            used += text.len();
            *variable = room.as_ptr().cast();
        }
        Some(copy)
    }

    /// The value of a variable of the runtime's.
    pub(crate) fn get(&self, name: &str) -> Option<&'static [u8]> {
        self.variables
            .iter()
            .take_while(|at| !at.is_null())
            .find_map(|&at| {
                // SAFETY: a string that lives for ever.
                let entry: &'static [u8] = unsafe { CStr::from_ptr(at) }.to_bytes();
                entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
            })
    }

    /// True if the user wants to hear what runs how.
    pub(crate) fn is_verbose(&self) -> bool {
        self.get(settings::VERBOSE)
            .is_some_and(|value| value != b"0" && !value.is_empty())
    }

    /// A decimal number in a variable.
    #[unsafe(link_section = ".text.raddle_start")] // see `raddle_preload::start`
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let text = self.get(name)?;
        let digits = text.strip_prefix(b"+").unwrap_or(text);
        let append = |number: u32, &digit: &u8| {
            let digit = u32::from(digit.wrapping_sub(b'0'));
            number
                .checked_mul(10)?
                .checked_add(digit)
                .filter(|_| digit < 10)
        };
        let number = digits.iter().try_fold(0, append)?;
        (!digits.is_empty()).then_some(number)
    }

    /// An entry of the auxiliary vector, or 0.
    pub(crate) fn auxiliary(&self, kind: usize) -> usize {
        let mut entry = self.auxiliary;
        // SAFETY: the vector ends with a zero entry.
        unsafe {
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
pub(crate) struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    /// An empty line.
    pub(crate) const fn new() -> Self {
        Self {
            text: [0; 256],
            len: 0,
        }
    }

    /// The text so far.
    pub(crate) fn bytes(&self) -> &[u8] {
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
