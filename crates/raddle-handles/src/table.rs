//! The safe table: handles to values in [`Arc`]s.

use crate::raw::{Hold, Host, Kind, Owner, RawHandle, RawTable};
use crate::{HandleError, InsertError, OwnerError};
use core::alloc::Layout;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::ptr::NonNull;
use std::alloc::{alloc_zeroed, dealloc};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// A name for a value in a [`Table`]: eight bytes, copied freely, checked at each use.
///
/// ```
/// # use raddle_handles::{Handle, Table};
/// let table = Table::new();
/// let handle = table.insert("value".to_string())?;
/// let number: u64 = handle.to_bits(); // for C, for a kernel's user data, for the wire
/// assert_eq!(Handle::from_bits(number), Some(handle));
/// assert_eq!(Handle::<String>::from_bits(0), None);
/// # Ok::<(), raddle_handles::InsertError>(())
/// ```
pub struct Handle<T>(RawHandle, PhantomData<fn() -> T>);

impl<T> Handle<T> {
    /// Returns the handle as a number, which is never 0.
    ///
    /// ```
    /// let handle = raddle_handles::Table::new().insert(5)?;
    /// assert_ne!(handle.to_bits(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Returns the handle with these bits. Any number is safe: bits of no handle of a table are
    /// [`HandleError::Stale`] there.
    ///
    /// ```
    /// use raddle_handles::{Handle, HandleError, Table};
    /// let table = Table::<u8>::new();
    /// let guessed = Handle::from_bits(12_345).expect("not 0");
    /// assert_eq!(table.get(guessed), Err(HandleError::Stale));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bits(bits: u64) -> Option<Self> {
        RawHandle::from_bits(bits).map(Self::new)
    }

    fn new(raw: RawHandle) -> Self {
        Self(raw, PhantomData)
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Handle<T> {}

impl<T> Hash for Handle<T> {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.0.hash(state);
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.to_bits())
    }
}

/// The global allocator, and targets that are `Arc`s or, for weak handles, `Weak`s.
struct Arcs<T>(PhantomData<T>);

// SAFETY: the memory is the global allocator's, zeroed. `Table` inserts what `release` expects.
unsafe impl<T> Host for Arcs<T> {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: a bucket has slots, so the size isn't 0.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: from `allocate`, by the caller's promise.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    unsafe fn release(&self, target: NonNull<()>, kind: Kind) {
        let target = target.cast::<T>().as_ptr().cast_const();
        // SAFETY: `Table` made the target by the same type's `into_raw`, and has forgotten it.
        unsafe {
            match kind {
                Kind::Weak => drop(Weak::from_raw(target)),
                Kind::Normal | Kind::Pinned => drop(Arc::from_raw(target)),
            }
        }
    }
}

/// A lock-free table of values.
///
/// Inserting, looking up and removing block no thread: no lock is taken, and memory is allocated
/// only if there have never been as many handles at a time. The table keeps that memory: 24 bytes
/// for each handle, at most twice as many as there were at a time.
///
/// ```
/// use raddle_handles::{HandleError, Table};
///
/// let table = Table::new();
/// let handle = table.insert(5)?;
/// assert_eq!(*table.get(handle)?, 5);
/// table.remove(handle)?;
/// assert_eq!(table.get(handle), Err(HandleError::Stale)); // also when the slot is used again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A handle is typed: a handle of another type's table does not compile.
///
/// ```compile_fail
/// # use raddle_handles::Table;
/// let numbers = Table::<u32>::new();
/// let names = Table::<String>::new();
/// let handle = names.insert("five".to_string()).unwrap();
/// numbers.get(handle);
/// ```
///
/// A table is invariant in its type: it does not take values that live longer or shorter.
///
/// ```compile_fail,E0597
/// # use raddle_handles::Table;
/// let names = Table::<&'static str>::new();
/// let short = String::from("short");
/// fn put<'a>(names: &Table<&'a str>, name: &'a str) { names.insert(name).unwrap(); }
/// put(&names, &short);
/// ```
pub struct Table<T>(RawTable<Arcs<T>>, PhantomData<Contents<T>>);

/// The table has `Arc`s, and takes and returns values of exactly this type.
type Contents<T> = (Arc<T>, fn(T) -> T);

// SAFETY: the table hands out and drops `Arc<T>`s on any thread, as `Arc` itself does.
unsafe impl<T: Send + Sync> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T> Table<T> {
    /// Makes an empty table, which allocates nothing yet.
    ///
    /// ```
    /// let table = raddle_handles::Table::<u8>::new();
    /// assert_eq!(table.count(), 0);
    /// ```
    pub fn new() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        // Any odd constant spreads successive tables over the generations: by the golden ratio.
        let salt = TABLES.fetch_add(1, Ordering::Relaxed) as u64;
        let salt = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(RawTable::new(Arcs(PhantomData), salt), PhantomData)
    }

    /// Makes a normal handle: it keeps the value alive until it is removed.
    ///
    /// ```
    /// let table = raddle_handles::Table::new();
    /// let handle = table.insert("value".to_string())?;
    /// assert_eq!(*table.get(handle)?, "value");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InsertError::Full`] or [`InsertError::NoMemory`]; the value is dropped.
    pub fn insert(&self, value: T) -> Result<Handle<T>, InsertError> {
        self.insert_arc(Arc::new(value))
    }

    /// Makes a normal handle to a value that others may share.
    ///
    /// ```
    /// # use raddle_handles::Table;
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let mine = Arc::new(5);
    /// let handle = table.insert_arc(mine.clone())?;
    /// assert!(Arc::ptr_eq(&table.get(handle)?, &mine));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InsertError::Full`] or [`InsertError::NoMemory`]; `value` is dropped.
    pub fn insert_arc(&self, value: Arc<T>) -> Result<Handle<T>, InsertError> {
        self.add(value, Kind::Normal)
    }

    /// Makes a pinned handle: a normal one, and the value's address may be passed on.
    ///
    /// A value in an `Arc` does not move, whatever the handle. A pinned handle adds the promise
    /// that goes with the address ([`Table::address`]): until the handle is removed, C code or the
    /// kernel may read through the address without a lookup, as if it held an `Arc` of its own. And
    /// because the value is in a [`Pin`], no code can take it out of its `Arc`, so that a value
    /// which relies on its place (a list's head, an `io_uring` request) may be in the table.
    ///
    /// ```
    /// # use raddle_handles::Table;
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let buffer = table.insert_pinned(Arc::pin([7u8; 64]))?;
    /// let address = table.address(buffer)?;
    /// // SAFETY: the handle is not removed before the last use of the address.
    /// assert_eq!(unsafe { address.as_ref() }[63], 7);
    /// table.remove(buffer)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InsertError::Full`] or [`InsertError::NoMemory`]; the value is dropped.
    pub fn insert_pinned(&self, value: Pin<Arc<T>>) -> Result<Handle<T>, InsertError> {
        // SAFETY: the table returns the value only as `&T` and as `Pin<Arc<T>>`.
        self.add(unsafe { Pin::into_inner_unchecked(value) }, Kind::Pinned)
    }

    fn add(&self, value: Arc<T>, kind: Kind) -> Result<Handle<T>, InsertError> {
        let target = Arc::into_raw(value);
        let result = self.put(target, kind, Owner::NOBODY);
        if result.is_err() {
            // SAFETY: the table refused the target.
            drop(unsafe { Arc::from_raw(target) });
        }
        result
    }

    fn put(&self, target: *const T, kind: Kind, owner: Owner) -> Result<Handle<T>, InsertError> {
        // SAFETY: `Arc` and `Weak` return no null addresses.
        let target = unsafe { NonNull::new_unchecked(target.cast_mut()) }.cast();
        self.0.insert(hint(), target, kind, owner).map(Handle::new)
    }

    /// Makes a weak handle: it does not keep the value alive. It also expires when its owner ends;
    /// [`Owner::NOBODY`] is no owner.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, Owner, Table};
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let value = Arc::new(5);
    /// let weak = table.insert_weak(&value, Owner::NOBODY)?;
    /// assert_eq!(*table.get(weak)?, 5);
    /// drop(value);
    /// assert_eq!(table.get(weak), Err(HandleError::Expired));
    /// table.remove(weak)?; // it is still a handle
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`InsertError`].
    pub fn insert_weak(&self, value: &Arc<T>, owner: Owner) -> Result<Handle<T>, InsertError> {
        let target = Arc::downgrade(value).into_raw();
        let result = self.put(target, Kind::Weak, owner);
        if result.is_err() {
            // SAFETY: the table refused the target.
            drop(unsafe { Weak::from_raw(target) });
        }
        result
    }

    /// Returns the value.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, Table};
    /// let table = Table::new();
    /// let handle = table.insert(5)?;
    /// let value = table.get(handle)?;
    /// table.remove(handle)?;
    /// assert_eq!((*value, table.get(handle)), (5, Err(HandleError::Stale)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`] if the handle was removed, [`HandleError::Expired`] if it is weak and
    /// its value or owner is gone, [`HandleError::WrongKind`] if it is pinned: see
    /// [`Table::get_pinned`].
    pub fn get(&self, handle: Handle<T>) -> Result<Arc<T>, HandleError> {
        let hold = self.0.hold(handle.0)?;
        match hold.kind() {
            Kind::Normal => Ok(strong(&hold)),
            Kind::Weak => upgrade(&hold),
            Kind::Pinned => Err(HandleError::WrongKind),
        }
    }

    /// Returns the value of a pinned handle.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, Table};
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let pinned = table.insert_pinned(Arc::pin(5))?;
    /// assert_eq!(*table.get_pinned(pinned)?, 5);
    /// assert_eq!(table.get(pinned), Err(HandleError::WrongKind));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`], or [`HandleError::WrongKind`] if the handle isn't pinned.
    pub fn get_pinned(&self, handle: Handle<T>) -> Result<Pin<Arc<T>>, HandleError> {
        let hold = self.0.hold(handle.0)?;
        match hold.kind() {
            // SAFETY: the value was inserted as a `Pin<Arc<T>>`.
            Kind::Pinned => Ok(unsafe { Pin::new_unchecked(strong(&hold)) }),
            _ => Err(HandleError::WrongKind),
        }
    }

    /// Returns the address of a pinned handle's value, which is valid until the handle is removed.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, Table};
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let value = Arc::pin(5);
    /// let pinned = table.insert_pinned(value.clone())?;
    /// assert!(std::ptr::eq(table.address(pinned)?.as_ptr(), &*value));
    /// assert_eq!(table.address(table.insert(5)?), Err(HandleError::WrongKind));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`], or [`HandleError::WrongKind`] if the handle isn't pinned.
    pub fn address(&self, handle: Handle<T>) -> Result<NonNull<T>, HandleError> {
        let look = self.0.peek(handle.0)?;
        match look.kind {
            Kind::Pinned => Ok(look.target.cast()),
            _ => Err(HandleError::WrongKind),
        }
    }

    /// Calls `look` with the value, whatever the handle's kind. For normal and pinned handles this
    /// is the fastest access: the value's reference count isn't touched.
    ///
    /// The value lives until `look` returns, even if the handle is removed meanwhile.
    ///
    /// ```
    /// # use raddle_handles::Table;
    /// let table = Table::new();
    /// let handle = table.insert("five".to_string())?;
    /// assert_eq!(table.with(handle, |text| text.len())?, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`], or [`HandleError::Expired`] for a weak handle.
    pub fn with<R>(&self, handle: Handle<T>, look: impl FnOnce(&T) -> R) -> Result<R, HandleError> {
        let hold = self.0.hold(handle.0)?;
        match hold.kind() {
            // SAFETY: a hold keeps the table's `Arc` from being dropped.
            Kind::Normal | Kind::Pinned => Ok(look(unsafe { hold.target().cast().as_ref() })),
            Kind::Weak => upgrade(&hold).map(|value| look(&value)),
        }
    }

    /// Returns the handle's kind, if it is neither removed nor known to be expired.
    ///
    /// ```
    /// # use raddle_handles::{Kind, Table};
    /// let table = Table::new();
    /// assert_eq!(table.kind(table.insert(5)?)?, Kind::Normal);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`] or [`HandleError::Expired`].
    pub fn kind(&self, handle: Handle<T>) -> Result<Kind, HandleError> {
        self.0.peek(handle.0).map(|look| look.kind)
    }

    /// Removes a handle of any kind. The table's reference to the value is dropped: here, or where
    /// the last [`Table::with`] that is under way ends.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, Table};
    /// let table = Table::new();
    /// let handle = table.insert(5)?;
    /// table.remove(handle)?;
    /// assert_eq!(table.remove(handle), Err(HandleError::Stale));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`HandleError::Stale`]: the handle was removed before. Of several threads that remove a
    /// handle at the same time, one succeeds.
    pub fn remove(&self, handle: Handle<T>) -> Result<(), HandleError> {
        self.0.remove(hint(), handle.0)
    }

    /// Makes an owner for weak handles.
    ///
    /// ```
    /// let table = raddle_handles::Table::<u8>::new();
    /// assert_ne!(table.add_owner()?, table.add_owner()?);
    /// # Ok::<(), raddle_handles::OwnerError>(())
    /// ```
    ///
    /// # Errors
    /// [`OwnerError::TooMany`]: there may be 256 at a time.
    pub fn add_owner(&self) -> Result<Owner, OwnerError> {
        self.0.add_owner()
    }

    /// Ends an owner: all its weak handles expire at one moment. Looks at every slot, to free the
    /// values' memory; blocks no other thread. The handles remain to be removed.
    ///
    /// ```
    /// # use raddle_handles::{HandleError, InsertError, OwnerError, Table};
    /// # use std::sync::Arc;
    /// let table = Table::new();
    /// let pool = table.add_owner()?;
    /// let value = Arc::new(5);
    /// let handle = table.insert_weak(&value, pool)?;
    /// table.end_owner(pool)?;
    /// assert_eq!(table.get(handle), Err(HandleError::Expired)); // though the value lives
    /// assert_eq!(table.insert_weak(&value, pool), Err(InsertError::OwnerExpired));
    /// assert_eq!(table.end_owner(pool), Err(OwnerError::Expired));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`OwnerError::Expired`]: the owner has ended before, or is [`Owner::NOBODY`], which never
    /// ends.
    pub fn end_owner(&self, owner: Owner) -> Result<(), OwnerError> {
        self.0.end_owner(owner)
    }

    /// Returns the number of handles that aren't removed. Looks at every slot.
    ///
    /// ```
    /// let table = raddle_handles::Table::new();
    /// let handle = table.insert(5)?;
    /// assert_eq!(table.count(), 1);
    /// table.remove(handle)?;
    /// assert_eq!(table.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn count(&self) -> usize {
        self.0.count()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("capacity", &self.0.capacity())
            .finish_non_exhaustive()
    }
}

/// Returns the value of a normal or pinned handle.
#[inline(always)]
fn strong<T>(hold: &Hold<'_, Arcs<T>>) -> Arc<T> {
    let target = hold.target().cast::<T>().as_ptr().cast_const();
    // SAFETY: the target is an `Arc`'s address, and the hold keeps the table's reference.
    unsafe {
        Arc::increment_strong_count(target);
        Arc::from_raw(target)
    }
}

/// Returns the value of a weak handle. Expires the handle of a value that is gone.
#[inline(always)]
fn upgrade<T>(hold: &Hold<'_, Arcs<T>>) -> Result<Arc<T>, HandleError> {
    let target = hold.target().cast::<T>().as_ptr().cast_const();
    // SAFETY: a `Weak`'s address; the hold keeps the table's reference, which isn't dropped here.
    let weak = ManuallyDrop::new(unsafe { Weak::from_raw(target) });
    weak.upgrade().ok_or_else(|| {
        hold.expire();
        HandleError::Expired
    })
}

/// Returns a number that mostly no other thread has.
#[inline(always)]
fn hint() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HINT: Cell<usize> = const { Cell::new(0) };
    }
    #[cold]
    fn draw() -> usize {
        THREADS.fetch_add(1, Ordering::Relaxed) + 1
    }
    let own = HINT.get();
    if own != 0 {
        return own;
    }
    let own = draw();
    HINT.set(own);
    own
}
