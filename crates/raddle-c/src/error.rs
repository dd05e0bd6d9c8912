//! Errors for C.

use libc::c_int;
use raddle::engine;
use raddle::handles::{HandleError, InsertError, OwnerError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub c_int);

/// The result of a function of the ABI: a value that isn't negative, or an error.
pub(crate) type Answer = Result<c_int, Errno>;

/// Runs a function of the ABI: no panic leaves it.
pub(crate) fn guard(call: impl FnOnce() -> Answer) -> c_int {
    // State that a panicking call leaves torn is behind poisoned locks.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(number))) => -number,
        Err(payload) => {
            std::mem::forget(payload); // its destructor might panic, too
            -libc::ENOTRECOVERABLE
        }
    }
}

/// For functions that succeed without a value.
pub(crate) fn done<T, E: Into<Errno>>(result: Result<T, E>) -> Answer {
    result.map(|_| 0).map_err(Into::into)
}

impl From<HandleError> for Errno {
    fn from(error: HandleError) -> Self {
        Self(match error {
            HandleError::Stale => libc::EBADF,
            HandleError::Expired => libc::ESTALE,
            HandleError::Busy => libc::EBUSY,
            _ => libc::EINVAL, // of another kind
        })
    }
}

impl From<InsertError> for Errno {
    fn from(error: InsertError) -> Self {
        Self(match error {
            InsertError::NoMemory => libc::ENOMEM,
            InsertError::OwnerExpired => libc::ESTALE,
            _ => libc::ENOSPC, // full
        })
    }
}

impl From<OwnerError> for Errno {
    fn from(error: OwnerError) -> Self {
        Self(match error {
            OwnerError::TooMany => libc::ENOSPC,
            _ => libc::ESTALE, // ended
        })
    }
}

impl From<engine::Error> for Errno {
    fn from(error: engine::Error) -> Self {
        use engine::Error;
        Self(match error {
            Error::Unsupported => libc::ENOSYS,
            Error::TooManyEngines => libc::ENOSPC,
            Error::NoThreads => libc::EAGAIN,
            Error::ShutDown => libc::ESHUTDOWN,
            Error::WaitsForItself => libc::EDEADLK,
            _ => libc::EINVAL, // carriers or a share out of range
        })
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        let own = error.get_ref().and_then(|own| own.downcast_ref());
        if let Some(&own) = own {
            return engine::Error::into(own);
        }
        let by_kind = match error.kind() {
            io::ErrorKind::OutOfMemory => libc::ENOMEM,
            _ => libc::EAGAIN,
        };
        Self(error.raw_os_error().unwrap_or(by_kind))
    }
}
