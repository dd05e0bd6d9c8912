//! The stubs: slots in our own text that the jumps from sites lead to.
//!
//! Slots are reserved at link time, filled with `int3`, in pages that hold nothing else. So the
//! assembler makes an unwind entry for each, and a stack trace passes through it in libgcc,
//! libunwind, gdb and all other readers of `.eh_frame`. [`apply`](crate::apply) fills slots in, at
//! least a page at a time: a page that has been executed is not written again while its library is
//! loaded, so that libraries loaded later can be patched while other threads run.
//!
//! A slot of a handled call, 64 bytes; CFA is the value of rsp at the site:
//!
//! ```text
//!   0  the window's instructions before the site, ending at 16;
//!      the jump from the site leads to the first            CFA = rsp        rip by expression
//!  16  lea RA(%rip), %rcx     where the window ends; rcx is a system call's to destroy
//!  23  lea -128(%rsp), %rsp   over the red zone
//!  28  push %rcx                                            CFA = rsp + 128
//!  29  call ENTRY             keeps all but rax, rcx, r11   CFA = rsp + 136  rip at CFA - 136
//!  34  pop %rcx
//!  35  lea 128(%rsp), %rsp    `lea`, for flags must live    CFA = rsp + 128  rip by expression
//!  43  the instructions behind the site                     CFA = rsp
//!      jmp RA
//!  62  the lengths of both parts, in bytes
//! ```
//!
//! A slot of a clone-like call, 128 bytes, may have to execute the real instruction with an
//! unchanged stack: the child of `vfork` shares the stack, and another child has a new one.
//!
//! ```text
//!  16  as above, calling CLONE_BEFORE, which answers in r11: 1, handled, rax is the result;
//!      0, not handled, all registers are as they were
//!  43  lea -1(%r11), %rcx
//!  47  jrcxz 78               no flag changes
//!  49  syscall                the child, too, goes on from here
//!  51  lea, lea, push, call CLONE_AFTER, pop, lea           as at 16
//!  78  the instructions behind the site, jmp RA
//! 126  the lengths
//! ```
//!
//! A *far* slot, 128 bytes, is for a site that no 32-bit distance reaches, such as one in a
//! program's own text. It is like a slot of a clone-like call, but keeps RA as an address at 112:
//! `mov 112(slot), %rcx` takes the place of `lea RA`, and `jmp *112(slot)` that of `jmp RA`. With a
//! single call of an entry, a jump at 43 leads to 78. The jump from the site leads to an *island*
//! near it, 16 bytes of fresh memory without unwind information:
//!
//! ```text
//!   0  jmp *8(island)          to the slot's first instruction
//!   8  its address
//! ```
//!
//! RA is the window's end, not the byte behind the site, which may be inside our jump: a debugger
//! may put a breakpoint at a return address. Where RA isn't on the stack, unwind entries compute it
//! from the operand of the first `lea`, which is at a fixed place in each slot. So unwinders pass a
//! signal that interrupts a stub anywhere, too.

pub(crate) mod fill;

pub use fill::Stubs;

/// The longest instructions before a site, in bytes, that a stub has room for.
pub(crate) const PREFIX_MAX: usize = 16;
/// The longest instructions behind a site, in bytes, that a stub has room for.
pub(crate) const SUFFIX_MAX: usize = 14;

const PLAIN_LEN: usize = 64;
const CLONE_LEN: usize = 128;
const PLAIN_COUNT: usize = 2048;
const CLONE_COUNT: usize = 512;
const FAR_COUNT: usize = 512;

raddle_arch::stubs! {
    plain_count: PLAIN_COUNT,
    clone_count: CLONE_COUNT,
    far_count: FAR_COUNT,
}

unsafe extern "C" {
    static raddle_patch_plain_stubs: u8;
    static raddle_patch_clone_stubs: u8;
    static raddle_patch_far_stubs: u8;
    static raddle_patch_stubs_end: u8;
}

/// An array of slots.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    start: usize,
    slot_len: usize,
    count: usize,
}

impl Array {
    fn plain() -> Self {
        let start = (&raw const raddle_patch_plain_stubs).addr();
        Self {
            start,
            slot_len: PLAIN_LEN,
            count: PLAIN_COUNT,
        }
    }

    fn clone_like() -> Self {
        let start = (&raw const raddle_patch_clone_stubs).addr();
        Self {
            start,
            slot_len: CLONE_LEN,
            count: CLONE_COUNT,
        }
    }

    fn far() -> Self {
        let start = (&raw const raddle_patch_far_stubs).addr();
        Self {
            start,
            slot_len: CLONE_LEN,
            count: FAR_COUNT,
        }
    }

    fn end(self) -> usize {
        self.start + self.slot_len * self.count
    }
}

/// Returns the range of all stubs: the first address, and the one behind the last.
pub fn range() -> (usize, usize) {
    let start = (&raw const raddle_patch_plain_stubs).addr();
    (start, (&raw const raddle_patch_stubs_end).addr())
}

/// A patched site, from the data in its stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patched {
    /// Where the `syscall` instruction was.
    pub site: usize,
    /// The first address of the window, where the jump to the stub is.
    pub window_start: usize,
    /// The address behind the window, to which the stub returns.
    pub window_end: usize,
}

/// Returns the site of the stub that contains `address`; `None` if no stub in use does.
///
/// # Signal safety
/// May be called anywhere, but not while [`apply`](crate::apply) runs.
pub fn find_site(address: usize) -> Option<Patched> {
    let array = [Array::plain(), Array::clone_like(), Array::far()]
        .into_iter()
        .find(|array| (array.start..array.end()).contains(&address))?;
    let slot = array.start + (address - array.start) / array.slot_len * array.slot_len;
    // SAFETY: a slot is always readable, and is written only while `apply` runs.
    let bytes = unsafe { core::slice::from_raw_parts(slot as *const u8, array.slot_len) };
    fill::read(slot, bytes, array.start == Array::far().start)
}
