//! Cancellation for C: one request for many tasks, listeners and waiting threads.

use crate::call::{Out, Value};
use crate::completion::{Listen, tell};
use crate::error::{Errno, done, guard};
use libc::c_int;
use raddle::handles::{Handle, Table};
use raddle::pool::{CancelSource, CancelToken};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

static SOURCES: LazyLock<Table<CancelSource>> = LazyLock::new(Table::new);

fn source(cancel: u64) -> Result<(Handle<CancelSource>, Arc<CancelSource>), Errno> {
    let handle = Handle::from_bits(cancel).ok_or(Errno(libc::EBADF))?;
    Ok((handle, SOURCES.get(handle)?))
}

/// Returns the token of a request; 0 names none, which is never cancelled.
pub(crate) fn token(cancel: u64) -> Result<Option<CancelToken>, Errno> {
    match cancel {
        0 => Ok(None),
        cancel => Ok(Some(source(cancel)?.1.token())),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_create(cancel: Out<u64>) -> c_int {
    guard(|| {
        let place = cancel.required()?;
        place.put(SOURCES.insert(CancelSource::new())?.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_request(cancel: u64) -> c_int {
    guard(|| {
        if source(cancel)?.1.cancel() {
            Ok(0)
        } else {
            Err(Errno(libc::EALREADY))
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_is_requested(cancel: u64) -> c_int {
    guard(|| Ok(source(cancel)?.1.is_cancelled().into()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_wait_for(cancel: u64, timeout_ns: i64) -> c_int {
    guard(|| {
        let timeout = u64::try_from(timeout_ns).map_err(|_| Errno(libc::EINVAL))?;
        let token = source(cancel)?.1.token(); // the handle may be freed meanwhile
        if token.wait_timeout(Duration::from_nanos(timeout)) {
            Ok(0)
        } else {
            Err(Errno(libc::ETIMEDOUT))
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_then(
    cancel: u64,
    listen: Option<Listen>,
    argument: Value,
) -> c_int {
    guard(|| {
        let source = source(cancel)?.1;
        let listen = listen.ok_or(Errno(libc::EFAULT))?;
        let end = (libc::ECANCELED, Value::NULL);
        let registration = source
            .token()
            .on_cancel(move || tell(listen, argument, end));
        registration.keep(); // C takes no listener back
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_cancel_free(cancel: u64) -> c_int {
    guard(|| done(SOURCES.remove(source(cancel)?.0)))
}
