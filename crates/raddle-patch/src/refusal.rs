//! The reasons for which a module is left unchanged.

use core::fmt;

/// Why a module can't be patched. It is unchanged, except after [`Refusal::TextLost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no 64-bit x86-64 ELF header.
    NotElf,
    /// A program header contradicts itself or the memory it describes.
    BadHeaders,
    /// The file isn't position-independent, so its jump tables can't be told from data.
    NotRelocatable,
    /// There is no executable segment.
    NoText,
    /// There is no search table of unwind entries, or one of an unknown format.
    NoUnwindTable,
    /// The array of sites that the caller lent is too short.
    TooManySites,
    /// All stubs are taken.
    NoStubsLeft,
    /// The text is more than 2 GiB away from the stubs.
    TooFar,
    /// The kernel or a security policy forbids changes of text; only a scratch page has been
    /// touched.
    Forbidden { errno: i32 },
    /// The kernel refused to make the stubs or the text writable or executable.
    Protect { errno: i32 },
    /// The text was written but can't be made executable again: the process can't go on.
    TextLost { errno: i32 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => f.write_str("not a loaded x86-64 ELF file; pick another module"),
            Self::BadHeaders => {
                f.write_str("the program headers are malformed; reinstall the library")
            }
            Self::NotRelocatable => f.write_str(
                "the text is linked to fixed addresses; link it as a shared library or PIE",
            ),
            Self::NoText => f.write_str("the module has no executable segment; pick another one"),
            Self::NoUnwindTable => f.write_str(
                "the module has no .eh_frame_hdr search table; link it with --eh-frame-hdr",
            ),
            Self::TooManySites => f.write_str(
                "the module has more system call sites than expected; exclude it from patching",
            ),
            Self::NoStubsLeft => {
                f.write_str("all stubs are taken; exclude libraries from patching")
            }
            Self::TooFar => f.write_str(
                "the module lies more than 2 GiB from the stubs; preload the runtime so that \
                 ld.so places both together",
            ),
            Self::Forbidden { errno } => write!(
                f,
                "the system forbids to change text (errno {errno}); allow execmod in SELinux, or \
                 drop MemoryDenyWriteExecute from the unit"
            ),
            Self::Protect { errno } => write!(
                f,
                "mprotect failed (errno {errno}); raise vm.max_map_count or the memory limit"
            ),
            Self::TextLost { errno } => write!(
                f,
                "text could not be made executable again (errno {errno}); the process must end"
            ),
        }
    }
}

impl core::error::Error for Refusal {}
