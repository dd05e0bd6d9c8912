//! What can go wrong.

use core::error::Error;
use core::fmt;

/// Why a handle gives no value.
///
/// ```
/// use raddle_handles::{HandleError, Table};
/// let table = Table::new();
/// let handle = table.insert(5)?;
/// table.remove(handle)?;
/// assert_eq!(table.get(handle), Err(HandleError::Stale));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandleError {
    /// The handle was removed, or is no handle of this table.
    Stale,
    /// The handle is weak, and its value or its owner is gone. It still has to be removed.
    Expired,
    /// The handle is of another kind than the call requires.
    WrongKind,
    /// Four million uses of the handle are under way, and no more can be counted.
    Busy,
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "the handle was removed, or is not of this table",
            Self::Expired => "the weak handle has expired",
            Self::WrongKind => "the handle is of another kind",
            Self::Busy => "too many uses of the handle at a time",
        })
    }
}

impl Error for HandleError {}

/// Why a handle could not be made.
///
/// ```
/// use raddle_handles::{InsertError, Table};
/// use std::sync::Arc;
/// let (table, value) = (Table::new(), Arc::new(5));
/// let session = table.add_owner()?;
/// table.end_owner(session)?;
/// assert_eq!(table.insert_weak(&value, session), Err(InsertError::OwnerExpired));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InsertError {
    /// All slots are in use: there are 2^28.
    Full,
    /// There is no memory for another bucket of slots.
    NoMemory,
    /// The owner of the weak handle has expired.
    OwnerExpired,
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the table of handles is full",
            Self::NoMemory => "no memory for more handles",
            Self::OwnerExpired => "the owner of the handle has expired",
        })
    }
}

impl Error for InsertError {}

/// Why an owner could not be made or ended.
///
/// ```
/// use raddle_handles::{OwnerError, Table};
/// let table = Table::<u8>::new();
/// let session = table.add_owner()?;
/// table.end_owner(session)?;
/// assert_eq!(table.end_owner(session), Err(OwnerError::Expired));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OwnerError {
    /// The table has as many owners as it can hold.
    TooMany,
    /// The owner has ended, or is no owner of this table.
    Expired,
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "too many owners of handles",
            Self::Expired => "the owner has expired before",
        })
    }
}

impl Error for OwnerError {}
