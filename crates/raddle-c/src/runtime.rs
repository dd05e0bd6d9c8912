//! The runtime: its state, its carriers, and the library's version.

use crate::engine::built_in;
use crate::error::{Errno, guard};
use libc::{c_char, c_int};
use raddle::runtime::{self, Status};

/// The library's version as in `RADDLE_VERSION`: major, minor and patch take a byte each.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_version() -> u32 {
    const fn number(text: &str) -> u32 {
        let (bytes, mut at, mut value) = (text.as_bytes(), 0, 0);
        while at < bytes.len() {
            value = value * 10 + (bytes[at] - b'0') as u32;
            at += 1;
        }
        value
    }
    const MAJOR: u32 = number(env!("CARGO_PKG_VERSION_MAJOR"));
    const MINOR: u32 = number(env!("CARGO_PKG_VERSION_MINOR"));
    const PATCH: u32 = number(env!("CARGO_PKG_VERSION_PATCH"));
    MAJOR << 16 | MINOR << 8 | PATCH
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_status() -> c_int {
    guard(|| {
        Ok(match runtime::status() {
            Status::Green => 1,
            Status::LoadedLate => 2,
            _ => 0,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_carriers() -> c_int {
    guard(|| Ok(runtime::carriers() as c_int))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_set_carriers(count: c_int) -> c_int {
    guard(|| {
        let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
        runtime::set_carriers(count);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_set_policy(name: *const c_char) -> c_int {
    guard(|| {
        runtime::set_policy(built_in(name)?.ok_or(Errno(libc::EFAULT))?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_policy_name() -> *const c_char {
    runtime::policy().map_or(std::ptr::null(), |policy| policy.c_name().as_ptr())
}
