//! Owners of weak handles.
//!
//! An owner is a place in an array and a generation, which is odd while the owner exists. One store
//! ends the owner, after which no lookup of its handles succeeds; the slots are cleaned afterwards.

use crate::OwnerError;
use raddle_sched::sync::{AtomicU32, Ordering};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
const OWNERS: usize = 256;
#[cfg(any(raddle_loom, raddle_shuttle))]
const OWNERS: usize = 2;

const PLACE_BITS: u32 = 8;
/// The last generation that an owner can have: the place isn't used again after it.
const LAST: u32 = (1 << (32 - PLACE_BITS)) - 1;

/// The owner of a weak handle.
///
/// ```
/// use raddle_handles::{HandleError, Owner, Table};
/// use std::sync::Arc;
/// let (table, value) = (Table::new(), Arc::new(5));
/// let session = table.add_owner()?;
/// let (its, free) = (
///     table.insert_weak(&value, session)?,
///     table.insert_weak(&value, Owner::NOBODY)?,
/// );
/// table.end_owner(session)?;
/// assert_eq!(table.get(its), Err(HandleError::Expired));
/// assert_eq!(*table.get(free)?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u32);

impl Owner {
    /// No owner, for handles that expire only with their values. It never ends.
    pub const NOBODY: Owner = Owner(0);

    /// Returns the owner as a number: 0 for [`Owner::NOBODY`] only.
    ///
    /// ```
    /// use raddle_handles::{Owner, Table};
    /// assert_eq!(Owner::NOBODY.to_bits(), 0);
    /// assert_ne!(Table::<u8>::new().add_owner()?.to_bits(), 0);
    /// # Ok::<(), raddle_handles::OwnerError>(())
    /// ```
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// Returns the owner with this number. A number of no owner counts as one that has ended.
    ///
    /// ```
    /// use raddle_handles::{Owner, OwnerError, Table};
    /// let table = Table::<u8>::new();
    /// let owner = table.add_owner()?;
    /// assert_eq!(Owner::from_bits(owner.to_bits()), owner);
    /// assert_eq!(table.end_owner(Owner::from_bits(12_345)), Err(OwnerError::Expired));
    /// # Ok::<(), OwnerError>(())
    /// ```
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    fn parts(self) -> (usize, u32) {
        (
            (self.0 & ((1 << PLACE_BITS) - 1)) as usize,
            self.0 >> PLACE_BITS,
        )
    }
}

pub(super) struct Owners([AtomicU32; OWNERS]);

impl Owners {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub(super) const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; OWNERS])
    }

    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU32::new(0)))
    }

    pub(super) fn add(&self) -> Result<Owner, OwnerError> {
        let claimed = self.0.iter().enumerate().find_map(|(at, place)| {
            let generation = place.load(Ordering::Relaxed);
            let usable = generation % 2 == 0 && generation < LAST;
            let claimed = usable
                && place
                    .compare_exchange(
                        generation,
                        generation + 1,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                    .is_ok();
            claimed.then(|| Owner(at as u32 | (generation + 1) << PLACE_BITS))
        });
        claimed.ok_or(OwnerError::TooMany)
    }

    #[inline(always)]
    pub(super) fn is_alive(&self, owner: Owner) -> bool {
        let (at, generation) = owner.parts();
        owner == Owner::NOBODY
            || (generation % 2 == 1
                && self
                    .0
                    .get(at)
                    .is_some_and(|place| place.load(Ordering::Acquire) == generation))
    }

    pub(super) fn end(&self, owner: Owner) -> Result<(), OwnerError> {
        let (at, generation) = owner.parts();
        let place = self.0.get(at).filter(|_| generation % 2 == 1);
        let place = place.ok_or(OwnerError::Expired)?;
        // The last odd generation is followed by an even one that no owner starts from.
        let ended = place.compare_exchange(
            generation,
            generation + 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        ended.map(drop).map_err(|_| OwnerError::Expired)
    }
}
