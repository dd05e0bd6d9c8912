//! The `siginfo_t` of a signal that a program queues, checked as the kernel checks it.

use super::SI_TKILL;
use crate::user::User;
use raddle_sys::abi::SigInfo;
use raddle_sys::{err, errno};

/// Bytes that the kernel copies of the structure.
const COPIED: usize = 48;
/// Words behind the copied bytes.
const REST: usize = (size_of::<SigInfo>() - COPIED) / size_of::<u64>();

/// Copies a `siginfo_t` in, for `signal`. The part that the kernel doesn't keep is zero, and isn't
/// looked at if the code's fields are known.
///
/// # Errors
/// EFAULT, or E2BIG if that part holds something; negated.
pub(super) fn read(at: User<SigInfo>, signal: u32) -> Result<SigInfo, isize> {
    let mut info = at.read_start(COPIED, SigInfo::EMPTY)?;
    info.signo = signal as i32;
    if !is_known(signal, info.code) {
        let rest = at.byte_add(COPIED).cast::<[u64; REST]>().read()?;
        if rest != [0; REST] {
            return Err(err(errno::E2BIG));
        }
    }
    Ok(info)
}

/// Returns true for a signal that claims to come from the kernel, `kill` or `tgkill`: a thread may
/// send such a signal to itself only.
pub(super) fn is_restricted(info: &SigInfo) -> bool {
    info.code >= 0 || info.code == SI_TKILL
}

/// Returns true if the kernel knows which fields go with a code (`known_siginfo_layout`).
fn is_known(signal: u32, code: i32) -> bool {
    const SI_USER: i32 = raddle_sys::nr::SI_USER as i32;
    const SI_KERNEL: i32 = raddle_sys::nr::SI_KERNEL as i32;
    const LOWEST: i32 = -7; // SI_DETHREAD
    const ASYNC_NAMES: i32 = -60;
    match code {
        SI_KERNEL | ASYNC_NAMES => true,
        code if code > SI_USER => code <= highest_code(signal),
        code => code >= LOWEST,
    }
}

/// Returns the highest code that the kernel sends a signal with; a signal without codes of its own
/// has those of `SIGIO`.
fn highest_code(signal: u32) -> i32 {
    const ILL: u32 = 4;
    const TRAP: u32 = 5;
    const BUS: u32 = 7;
    const FPE: u32 = 8;
    const SEGV: u32 = 11;
    const SYS: u32 = 31;
    match signal {
        ILL => 11,
        TRAP => 6,
        BUS => 5,
        FPE => 15,
        SEGV => 10,
        SYS => 2,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_known, is_restricted};
    use raddle_sys::abi::SigInfo;

    #[test]
    fn codes_with_known_fields_are_told_from_others() {
        const USR1: u32 = 10;
        const BUS: u32 = 7;
        for code in [0, -1, -6, -7, -60, 1, 6, 0x80] {
            assert!(is_known(USR1, code), "{code}");
        }
        for code in [-8, -61, 7, i32::MIN, i32::MAX] {
            assert!(!is_known(USR1, code), "{code}");
        }
        assert!(is_known(BUS, 5) && !is_known(BUS, 6));
    }

    #[test]
    fn what_only_the_kernel_says_is_restricted() {
        let of = |code| SigInfo {
            code,
            ..SigInfo::EMPTY
        };
        assert!(is_restricted(&of(0)) && is_restricted(&of(2)) && is_restricted(&of(-6)));
        assert!(!is_restricted(&of(-1)) && !is_restricted(&of(-7)));
    }
}
