//! Tables of handles for C's own values.
//!
//! A value is an address, with a function of C's that is called when no handle and no lookup keeps
//! the value any more. A weak handle follows another handle's value.

use crate::call::{Out, Value};
use crate::error::{Answer, Errno, done, guard};
use libc::{c_int, c_void};
use raddle::handles::{Handle, HandleError, Kind, Owner, Table};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

/// Releases a value.
type Release = unsafe extern "C-unwind" fn(*mut c_void);
/// A lookup: gets the value and its argument.
type Look = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> *mut c_void;

/// RADDLE_NORMAL, RADDLE_PINNED, RADDLE_WEAK.
const NORMAL: c_int = 0;
const PINNED: c_int = 1;
const WEAK: c_int = 2;

/// A value of C's, as long as a handle or a lookup keeps it.
struct Stored {
    value: Value,
    release: Option<Release>,
}

impl Drop for Stored {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: C promises that the function may be called with the table's values, on any
            // thread.
            unsafe { release(self.value.0) }
        }
    }
}

/// A table of C's.
struct Values {
    table: Table<Stored>,
    release: Option<Release>,
}

static TABLES: LazyLock<Table<Values>> = LazyLock::new(Table::new);

fn values(table: u64) -> Result<Arc<Values>, Errno> {
    let handle = Handle::from_bits(table).ok_or(Errno(libc::EBADF))?;
    Ok(TABLES.get(handle)?)
}

fn named(handle: u64) -> Result<Handle<Stored>, Errno> {
    Handle::from_bits(handle).ok_or(Errno(libc::EBADF))
}

impl Values {
    /// Returns the value of a handle of any kind.
    fn get(&self, handle: Handle<Stored>) -> Result<Arc<Stored>, HandleError> {
        match self.table.get(handle) {
            Err(HandleError::WrongKind) => self.table.get_pinned(handle).map(Pin::into_inner),
            got => got,
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_table_create(table: Out<u64>, release: Option<Release>) -> c_int {
    guard(|| {
        let place = table.required()?;
        let table = Table::new();
        place.put(TABLES.insert(Values { table, release })?.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_table_free(table: u64) -> c_int {
    guard(|| {
        let handle = Handle::from_bits(table).ok_or(Errno(libc::EBADF))?;
        done(TABLES.remove(handle))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_table_count(table: u64) -> c_int {
    guard(|| Ok(values(table)?.table.count() as c_int))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_create(
    table: u64,
    kind: c_int,
    value: Value,
    handle: Out<u64>,
) -> c_int {
    guard(|| {
        let place = handle.required()?;
        let values = values(table)?;
        if kind != NORMAL && kind != PINNED {
            return Err(Errno(libc::EINVAL));
        }
        let stored = Arc::new(Stored {
            value,
            release: values.release,
        });
        let table = &values.table;
        let made = match kind {
            NORMAL => table.insert_arc(Arc::clone(&stored)),
            _ => table.insert_pinned(Pin::new(Arc::clone(&stored))),
        };
        match made {
            Ok(made) => place.put(made.to_bits()),
            Err(error) => {
                std::mem::forget(stored); // the value stays C's
                return Err(error.into());
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_weak(
    table: u64,
    of: u64,
    owner: u32,
    handle: Out<u64>,
) -> c_int {
    guard(|| {
        let place = handle.required()?;
        let values = values(table)?;
        let stored = values.get(named(of)?)?;
        let weak = values.table.insert_weak(&stored, Owner::from_bits(owner))?;
        place.put(weak.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_keep(
    table: u64,
    handle: u64,
    stored: Out<u64>,
    value: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let place = stored.required()?;
        let values = values(table)?;
        let target = values.get(named(handle)?)?;
        let address = target.value.0;
        place.put(values.table.insert_arc(target)?.to_bits());
        value.put(address);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_with(
    table: u64,
    handle: u64,
    look: Option<Look>,
    argument: Value,
    result: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let look = look.ok_or(Errno(libc::EFAULT))?;
        let values = values(table)?;
        // SAFETY: C promises that the function may be called with these arguments.
        let call = |stored: &Stored| unsafe { look(stored.value.0, argument.0) };
        result.put(values.table.with(named(handle)?, call)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_address(
    table: u64,
    handle: u64,
    value: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let place = value.required()?;
        let pinned = values(table)?.table.get_pinned(named(handle)?)?;
        place.put(pinned.value.0);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_kind(table: u64, handle: u64) -> c_int {
    guard(|| -> Answer {
        Ok(match values(table)?.table.kind(named(handle)?)? {
            Kind::Normal => NORMAL,
            Kind::Pinned => PINNED,
            Kind::Weak => WEAK,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_handle_free(table: u64, handle: u64) -> c_int {
    guard(|| done(values(table)?.table.remove(named(handle)?)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_owner_create(table: u64, owner: Out<u32>) -> c_int {
    guard(|| {
        let place = owner.required()?;
        place.put(values(table)?.table.add_owner()?.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_owner_end(table: u64, owner: u32) -> c_int {
    guard(|| done(values(table)?.table.end_owner(Owner::from_bits(owner))))
}
