//! The table without types: addresses in, addresses out, memory by a [`Host`].
//!
//! Protocol of a handle's life, each step at most one compare-and-swap unless threads meet:
//!
//! 1. *Insert*: take a slot's number from the free list (or put new slots into use), write target
//!    and owner, then the state, with release. The slot's generation and number are the handle.
//! 2. *Hold*: raise the count of holds if the generation is right and the handle is valid. The
//!    target is not released while it is held.
//! 3. *Expire* (weak handles): clear the valid bit; no new hold succeeds.
//! 4. *Remove*: clear both bits. The last thread to let go releases the target, raises the
//!    generation, and puts the slot's number onto the free list.
//!
//! No thread waits for another one, so a thread that is preempted anywhere stops no other.
//!
//! Rejected: hazard pointers and epochs (each thread with a hold would need a record, and a
//! runtime's threads come and go); the whole state in the pointer's low bits, as in Mono (no room
//! for a generation, and nothing keeps the target of a removed handle alive while it is in use); a
//! lock for growing (a preempted holder would stop all threads).

mod buckets;
mod free_list;
mod owners;
mod slot;

use crate::{HandleError, InsertError, OwnerError};
use buckets::{Buckets, FIRST};
use core::alloc::Layout;
use core::num::NonZeroU64;
use core::ptr::NonNull;
use free_list::FreeList;
use owners::Owners;
use raddle_sched::sync::{AtomicUsize, Ordering};
use slot::{LAST_GENERATION, Rest, Slot, State};

pub use owners::Owner;

/// Bits of a slot's number in a handle.
const NUMBER_BITS: u32 = 64 - slot::GENERATION_BITS;
/// The number of slots that handles have room for.
const MAX_SLOTS: usize = 1 << NUMBER_BITS;

/// What a handle promises of its value. See the [crate] for the meaning.
///
/// ```
/// use raddle_handles::{Kind, Table};
/// use std::sync::Arc;
/// let table = Table::new();
/// let (normal, pinned) = (table.insert(5)?, table.insert_pinned(Arc::pin(6))?);
/// assert_eq!(table.kind(normal), Ok(Kind::Normal));
/// assert_eq!(table.kind(pinned), Ok(Kind::Pinned));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The value lives at least until the handle is removed.
    Normal = 0,
    /// As normal, and the value's address may be used without looking the handle up again.
    Pinned = 1,
    /// The handle expires when its value, or its owner, is gone.
    Weak = 2,
}

/// Where a table's memory comes from, and what the end of a target means.
///
/// ```
/// use raddle_handles::raw::{Host, RawTable};
/// use raddle_handles::{Kind, Owner};
/// use std::alloc::{Layout, alloc_zeroed, dealloc};
/// use std::ptr::NonNull;
///
/// /// Targets are boxes of numbers.
/// struct Boxes;
///
/// // SAFETY: the global allocator's memory is zeroed and the caller's alone.
/// unsafe impl Host for Boxes {
///     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
///         // SAFETY: the size isn't 0.
///         NonNull::new(unsafe { alloc_zeroed(layout) })
///     }
///     unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
///         // SAFETY: it came from `allocate`.
///         unsafe { dealloc(at.as_ptr(), layout) }
///     }
///     unsafe fn release(&self, target: NonNull<()>, _: Kind) {
///         // SAFETY: only boxes of numbers are inserted.
///         drop(unsafe { Box::from_raw(target.cast::<u32>().as_ptr()) });
///     }
/// }
///
/// let table = RawTable::new(Boxes, 0);
/// let target = NonNull::from(Box::leak(Box::new(5u32))).cast();
/// table.insert(0, target, Kind::Normal, Owner::NOBODY)?;
/// drop(table); // releases the target
/// # Ok::<(), raddle_handles::InsertError>(())
/// ```
///
/// # Safety
/// [`Host::allocate`] must return zeroed memory of that layout that no other code uses until it is
/// passed to [`Host::free`].
///
/// Code with access to a table can [insert](RawTable::insert) any address. So the implementer must
/// keep the host's tables to code that inserts only addresses that [`Host::release`] accepts, as
/// [`Table`](crate::Table) does.
pub unsafe trait Host {
    /// Returns zeroed memory, or `None`. Called without any lock, by a thread that needs a bucket.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Takes memory back.
    ///
    /// # Safety
    /// It must have come from [`Host::allocate`] with this layout, and no code may use it.
    unsafe fn free(&self, at: NonNull<u8>, layout: Layout);

    /// Ends a target that the table has forgotten. Called once for each inserted target, when its
    /// handle was removed or has expired and has no hold. May use the table, and may unwind.
    ///
    /// # Safety
    /// The target must have been given to the table with this kind.
    unsafe fn release(&self, target: NonNull<()>, kind: Kind);
}

/// A handle without a type: its bits. Never 0, so that C has a value for none.
///
/// ```
/// use raddle_handles::raw::RawHandle;
/// let handle = RawHandle::from_bits(7).expect("not 0");
/// assert_eq!(handle.to_bits(), 7);
/// assert_eq!(RawHandle::from_bits(0), None);
/// assert_eq!(size_of::<Option<RawHandle>>(), size_of::<u64>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RawHandle(NonZeroU64);

impl RawHandle {
    /// Returns the handle as a number, for interfaces that have no types.
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Returns the handle with these bits. Bits of no handle are stale when they are used.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Generation above, number + 1 below.
    #[inline(always)]
    fn new(generation: u64, number: usize) -> Self {
        let bits = generation << NUMBER_BITS | (number as u64 + 1);
        // The number is less than the largest that fits, so the sum is neither 0 nor too large.
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MAX))
    }

    #[inline(always)]
    fn parts(self) -> (u64, usize) {
        let number = (self.0.get() as usize & (MAX_SLOTS - 1)).wrapping_sub(1);
        (self.0.get() >> NUMBER_BITS, number)
    }
}

/// The state of a handle at one moment.
///
/// ```
/// use raddle_handles::raw::{Look, RawTable};
/// use raddle_handles::{Kind, Owner};
/// use std::ptr::NonNull;
/// # use raddle_handles::raw::Host;
/// # use std::alloc::{Layout, alloc_zeroed, dealloc};
/// # struct Boxes;
/// # // SAFETY: the global allocator's memory is zeroed and the caller's alone.
/// # unsafe impl Host for Boxes {
/// #     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
/// #         // SAFETY: the size isn't 0.
/// #         NonNull::new(unsafe { alloc_zeroed(layout) })
/// #     }
/// #     unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
/// #         // SAFETY: it came from `allocate`.
/// #         unsafe { dealloc(at.as_ptr(), layout) }
/// #     }
/// #     unsafe fn release(&self, target: NonNull<()>, _: Kind) {
/// #         // SAFETY: only boxes of numbers are inserted.
/// #         drop(unsafe { Box::from_raw(target.cast::<u32>().as_ptr()) });
/// #     }
/// # }
/// let table = RawTable::new(Boxes, 0); // as in `Host`'s example
/// let target = NonNull::from(Box::leak(Box::new(5u32))).cast();
/// let handle = table.insert(0, target, Kind::Pinned, Owner::NOBODY)?;
/// let expected = Look { target, kind: Kind::Pinned, owner: Owner::NOBODY };
/// assert_eq!(table.peek(handle), Ok(expected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The value's address. Without a hold it may be released already.
    pub target: NonNull<()>,
    /// The handle's kind.
    pub kind: Kind,
    /// The owner of a weak handle.
    pub owner: Owner,
}

/// A lock-free table of targets.
///
/// The `hint` of some methods picks one of a few lists of free slots: threads with different hints
/// disturb each other less. Any number is correct; that of the carrier or thread is good.
///
/// ```
/// use raddle_handles::raw::RawTable;
/// use raddle_handles::{HandleError, Kind, Owner, OwnerError};
/// use std::ptr::NonNull;
/// # use raddle_handles::raw::Host;
/// # use std::alloc::{Layout, alloc_zeroed, dealloc};
/// # #[derive(PartialEq, Debug)]
/// # struct Boxes;
/// # // SAFETY: the global allocator's memory is zeroed and the caller's alone.
/// # unsafe impl Host for Boxes {
/// #     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
/// #         // SAFETY: the size isn't 0.
/// #         NonNull::new(unsafe { alloc_zeroed(layout) })
/// #     }
/// #     unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
/// #         // SAFETY: it came from `allocate`.
/// #         unsafe { dealloc(at.as_ptr(), layout) }
/// #     }
/// #     unsafe fn release(&self, target: NonNull<()>, _: Kind) {
/// #         // SAFETY: only boxes of numbers are inserted.
/// #         drop(unsafe { Box::from_raw(target.cast::<u32>().as_ptr()) });
/// #     }
/// # }
///
/// static TABLE: RawTable<Boxes> = RawTable::new(Boxes, 0); // as in `Host`'s example
/// assert_eq!((TABLE.host(), TABLE.capacity()), (&Boxes, 0));
/// let number = |n: u32| NonNull::from(Box::leak(Box::new(n))).cast();
/// let handle = TABLE.insert(0, number(5), Kind::Normal, Owner::NOBODY)?;
/// let hold = TABLE.hold(handle)?;
/// TABLE.remove(0, handle)?;
/// // SAFETY: the hold keeps the target.
/// assert_eq!(unsafe { *hold.target().cast::<u32>().as_ref() }, 5);
/// drop(hold); // releases it
/// assert_eq!(TABLE.peek(handle), Err(HandleError::Stale));
///
/// let owner = TABLE.add_owner()?;
/// let weak = [number(6), number(7)].map(|at| TABLE.insert(0, at, Kind::Weak, owner).unwrap());
/// TABLE.expire(weak[0])?; // releases 6
/// assert_eq!(TABLE.peek(weak[0]), Err(HandleError::Expired));
/// TABLE.end_owner(owner)?; // releases 7
/// assert_eq!(TABLE.peek(weak[1]), Err(HandleError::Expired));
/// assert_eq!(TABLE.end_owner(owner), Err(OwnerError::Expired));
/// assert_eq!(TABLE.count(), 2); // expired, but not removed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawTable<H: Host> {
    slots: Buckets,
    free: FreeList,
    owners: Owners,
    /// Slots ever in use, counted from the first. Raised before their numbers are freed.
    used: AtomicUsize,
    /// Added to generations in handles, so that another table's handles are hardly ever valid.
    salt: u64,
    host: H,
}

impl<H: Host> RawTable<H> {
    /// An empty table, without memory. A table most probably finds the handles of a table with
    /// another salt stale.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new(host: H, salt: u64) -> Self {
        Self {
            slots: Buckets::new(),
            free: FreeList::new(),
            owners: Owners::new(),
            used: AtomicUsize::new(0),
            salt,
            host,
        }
    }

    /// An empty table.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new(host: H, salt: u64) -> Self {
        Self {
            slots: Buckets::new(),
            free: FreeList::new(),
            owners: Owners::new(),
            used: AtomicUsize::new(0),
            salt,
            host,
        }
    }

    /// The table's host.
    pub fn host(&self) -> &H {
        &self.host
    }

    #[inline(always)]
    fn find(&self, handle: RawHandle) -> Result<(&Slot, usize, u64), HandleError> {
        let (generation, number) = handle.parts();
        let slot = self.slots.get(number).ok_or(HandleError::Stale)?;
        let generation = generation.wrapping_sub(self.salt) & LAST_GENERATION;
        Ok((slot, number, generation))
    }

    /// Makes a handle. The table owns the target until [`Host::release`].
    ///
    /// # Errors
    /// Those of [`InsertError`]; the caller keeps the target then.
    #[inline]
    pub fn insert(
        &self,
        hint: usize,
        target: NonNull<()>,
        kind: Kind,
        owner: Owner,
    ) -> Result<RawHandle, InsertError> {
        if !self.owners.is_alive(owner) {
            return Err(InsertError::OwnerExpired);
        }
        let number = match self.free.pop(&self.slots, hint) {
            Some(number) => number,
            None => self.use_more(hint)?,
        };
        let slot = self.slots.get(number).ok_or(InsertError::NoMemory)?;
        let generation = slot.occupy(target, kind, owner.to_bits());
        let salted = generation.wrapping_add(self.salt) & LAST_GENERATION;
        Ok(RawHandle::new(salted, number))
    }

    /// Puts new slots into use: returns the first, and frees the others.
    #[cold]
    fn use_more(&self, hint: usize) -> Result<usize, InsertError> {
        loop {
            let first = self.used.load(Ordering::Relaxed);
            if first >= Buckets::END {
                return Err(InsertError::Full);
            }
            // A bucket's size is a multiple of the step, so one bucket holds all new slots.
            self.slots.grow(first, &self.host)?;
            let used = first + FIRST;
            let raised =
                self.used
                    .compare_exchange(first, used, Ordering::AcqRel, Ordering::Relaxed);
            if raised.is_err() {
                continue;
            }
            for number in first + 1..used - 1 {
                if let Some(slot) = self.slots.get(number) {
                    slot.set_link(number as u32 + 2);
                }
            }
            self.free.push(&self.slots, hint, first + 1, used - 1);
            return Ok(first);
        }
    }

    /// Holds a handle's target: it isn't released before the result is dropped.
    ///
    /// # Errors
    /// Those of [`HandleError`] but `WrongKind`.
    #[inline]
    pub fn hold(&self, handle: RawHandle) -> Result<Hold<'_, H>, HandleError> {
        let (slot, number, generation) = self.find(handle)?;
        let state = slot.hold(generation)?;
        let hold = Hold {
            table: self,
            slot,
            number,
            state,
        };
        if hold.kind() == Kind::Weak && !self.owners.is_alive(hold.owner()) {
            hold.expire();
            return Err(HandleError::Expired);
        }
        Ok(hold)
    }

    /// Returns what the handle stood for a moment ago, without a hold and without a write. For
    /// targets that may be read after their release, and for questions.
    ///
    /// # Errors
    /// `Stale` or `Expired`.
    #[inline]
    pub fn peek(&self, handle: RawHandle) -> Result<Look, HandleError> {
        let (slot, _, generation) = self.find(handle)?;
        let (target, kind, owner) = slot.peek(generation)?;
        let owner = Owner::from_bits(owner);
        if kind == Kind::Weak && !self.owners.is_alive(owner) {
            return Err(HandleError::Expired);
        }
        Ok(Look {
            target,
            kind,
            owner,
        })
    }

    /// Removes a handle, which is stale from then on. Its holds stay valid; the last one to end
    /// releases the target.
    ///
    /// # Errors
    /// `Stale`: the handle was removed before. An expired handle is removed like any other.
    #[inline]
    pub fn remove(&self, hint: usize, handle: RawHandle) -> Result<(), HandleError> {
        let (slot, number, generation) = self.find(handle)?;
        let (state, rest) = slot.remove(generation)?;
        self.finish(hint, number, state.kind(), rest);
        Ok(())
    }

    /// Does what the last user of a slot has to do.
    #[inline(always)]
    fn finish(&self, hint: usize, number: usize, kind: Kind, rest: Rest) {
        if rest.free {
            self.free.push(&self.slots, hint, number, number);
        }
        if let Some(target) = rest.target {
            // SAFETY: the target was inserted with this kind, and only this thread has taken it
            // out.
            unsafe { self.host.release(target, kind) };
        }
    }

    /// Expires a weak handle.
    ///
    /// # Errors
    /// `WrongKind` if it isn't weak; `Stale`; `Expired` if it had expired before.
    pub fn expire(&self, handle: RawHandle) -> Result<(), HandleError> {
        let hold = self.hold(handle)?;
        if hold.kind() != Kind::Weak {
            return Err(HandleError::WrongKind);
        }
        hold.expire();
        Ok(())
    }

    /// Makes an owner of weak handles.
    ///
    /// # Errors
    /// `TooMany`: there may be 256.
    pub fn add_owner(&self) -> Result<Owner, OwnerError> {
        self.owners.add()
    }

    /// Ends an owner. All its weak handles expire at one moment; then their targets are released,
    /// which takes a look at every slot. The handles themselves remain to be removed.
    ///
    /// # Errors
    /// `Expired`: the owner had ended before.
    pub fn end_owner(&self, owner: Owner) -> Result<(), OwnerError> {
        self.owners.end(owner)?;
        for (number, slot) in self.numbered() {
            if slot.expire_if_owned(owner.to_bits()) {
                self.finish(number / FIRST, number, Kind::Weak, slot.let_go_last());
            }
        }
        Ok(())
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let used = self.used.load(Ordering::Acquire);
        (0..used).filter_map(|number| Some((number, self.slots.get(number)?)))
    }

    /// Returns the number of handles that aren't removed, expired ones included. Looks at every
    /// slot; concurrent inserts and removes make the number inexact.
    pub fn count(&self) -> usize {
        self.numbered()
            .filter(|(_, slot)| slot.state().is_occupied())
            .count()
    }

    /// Returns the number of slots, used or free. They stay until the table's end.
    pub fn capacity(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl<H: Host> Drop for RawTable<H> {
    fn drop(&mut self) {
        for (_, slot) in self.numbered() {
            if let Some(target) = slot.target() {
                // SAFETY: no other thread uses the table; the slot still had the target.
                unsafe { self.host.release(target, slot.state().kind()) };
            }
        }
        // SAFETY: no thread uses the table any more.
        unsafe { self.slots.release(&self.host) };
    }
}

/// A handle in use: keeps its target from being released.
///
/// A leaked one keeps its target and its slot until the table's end.
///
/// ```
/// use raddle_handles::raw::RawTable;
/// use raddle_handles::{HandleError, Kind, Owner};
/// use std::ptr::NonNull;
/// # use raddle_handles::raw::Host;
/// # use std::alloc::{Layout, alloc_zeroed, dealloc};
/// # struct Boxes;
/// # // SAFETY: the global allocator's memory is zeroed and the caller's alone.
/// # unsafe impl Host for Boxes {
/// #     fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
/// #         // SAFETY: the size isn't 0.
/// #         NonNull::new(unsafe { alloc_zeroed(layout) })
/// #     }
/// #     unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
/// #         // SAFETY: it came from `allocate`.
/// #         unsafe { dealloc(at.as_ptr(), layout) }
/// #     }
/// #     unsafe fn release(&self, target: NonNull<()>, _: Kind) {
/// #         // SAFETY: only boxes of numbers are inserted.
/// #         drop(unsafe { Box::from_raw(target.cast::<u32>().as_ptr()) });
/// #     }
/// # }
/// let table = RawTable::new(Boxes, 0); // as in `Host`'s example
/// let target = NonNull::from(Box::leak(Box::new(5u32)));
/// let handle = table.insert(0, target.cast(), Kind::Normal, Owner::NOBODY)?;
/// let hold = table.hold(handle)?;
/// assert_eq!((hold.kind(), hold.owner()), (Kind::Normal, Owner::NOBODY));
/// hold.expire();
/// assert_eq!(table.hold(handle).err(), Some(HandleError::Expired)); // for others
/// // SAFETY: this hold keeps the target.
/// assert_eq!(unsafe { *hold.target().cast::<u32>().as_ref() }, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hold<'a, H: Host> {
    table: &'a RawTable<H>,
    slot: &'a Slot,
    number: usize,
    /// The state when the hold was taken.
    state: State,
}

impl<H: Host> Hold<'_, H> {
    /// Returns the target that was inserted.
    #[inline(always)]
    pub fn target(&self) -> NonNull<()> {
        // A valid handle had a target, which stays while this hold does.
        self.slot.target().unwrap_or(NonNull::dangling())
    }

    /// Returns the handle's kind.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        self.state.kind()
    }

    /// Returns the handle's owner.
    pub fn owner(&self) -> Owner {
        Owner::from_bits(self.slot.link())
    }

    /// Expires the handle, of any kind, unless it has expired: new holds fail, and the last hold
    /// releases the target.
    #[cold]
    pub fn expire(&self) {
        if self.slot.expire(self.state.generation()).is_ok() {
            self.finish(self.slot.let_go_last());
        }
    }

    #[cold]
    fn finish(&self, rest: Rest) {
        self.table
            .finish(self.number / FIRST, self.number, self.kind(), rest);
    }
}

impl<H: Host> Drop for Hold<'_, H> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(rest) = self.slot.let_go() {
            self.finish(rest);
        }
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests;
