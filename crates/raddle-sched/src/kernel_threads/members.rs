//! The members: the ids of all kernel threads of the process, so that a change can reach each.
//!
//! 1. A kernel thread is made, and entered, under the lock. So the maker holds the lock between its
//!    own state, which the new one inherits, and the entry.
//! 2. A kernel thread leaves under the lock, before it ends.
//! 3. The thread that changes all of them holds the lock ([`Members::hold`]) from its own change
//!    until all have followed ([`crate::orders`]). So a new one has either inherited the change or
//!    is among those that follow, and none of these ends before it has.
//! 4. A member's handler finds the *place* of its own id without the lock, which its kernel thread
//!    may be waiting for. It finds the place if an order is meant for it: the entry came before the
//!    order, and the order before its signal.
//! 5. The process is about to end: the members are *closed*, and *quiet* once the lock was free.
//!    The next maker takes the lock after that and sees that they are closed.

use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::{AtomicU32, Ordering};

/// See the module.
pub struct Members<const PLACES: usize> {
    /// How many of `ids` were ever in use.
    used: SpinLock<usize>,
    /// 0 for a free place. Written under the lock.
    ids: [AtomicU32; PLACES],
    /// 1 once no more are made.
    closed: AtomicU32,
}

impl<const PLACES: usize> Members<PLACES> {
    /// No members.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            used: SpinLock::new(0),
            ids: [const { AtomicU32::new(0) }; PLACES],
            closed: AtomicU32::new(0),
        }
    }

    /// No members.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            used: SpinLock::new(0),
            ids: core::array::from_fn(|_| AtomicU32::new(0)),
            closed: AtomicU32::new(0),
        }
    }

    /// Begins anew with the member `id` alone.
    ///
    /// # Safety
    /// No other kernel thread may exist.
    pub unsafe fn begin(&self, id: u32) {
        let Self { used, ids, closed } = self;
        // SAFETY: the only kernel thread, so no other holds the lock.
        unsafe { used.break_lock() };
        let mut used = used.lock();
        for left in &ids[..*used] {
            left.store(0, Ordering::Relaxed);
        }
        // A child writes to as few of its parent's pages as it can.
        if closed.load(Ordering::Relaxed) != 0 {
            closed.store(0, Ordering::Relaxed);
        }
        ids[0].store(id, Ordering::Relaxed);
        *used = 1;
    }

    /// Makes a kernel thread by `make`, which returns its id, and enters it. Returns `None` if
    /// there is no place, or the members are closed.
    #[inline]
    pub fn enter<E>(&self, make: impl FnOnce() -> Result<u32, E>) -> Option<Result<u32, E>> {
        let mut used = self.used.lock();
        if self.is_closed() {
            return None;
        }
        let place = self.find(0, *used).unwrap_or(*used);
        if place == PLACES {
            return None;
        }
        let made = make();
        if let Ok(id) = made {
            self.ids[place].store(id, Ordering::Relaxed);
            *used = (*used).max(place + 1);
        }
        Some(made)
    }

    /// The member `id`, the caller's, is about to end.
    pub fn leave(&self, id: u32) {
        let used = self.used.lock();
        if let Some(place) = self.find(id, *used) {
            self.ids[place].store(0, Ordering::Relaxed);
        }
    }

    /// From here on no kernel thread is made but the one that is being made.
    pub fn close(&self) {
        self.closed.store(1, Ordering::SeqCst);
    }

    /// Returns true from [`Members::close`] on.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed) != 0
    }

    /// Returns true if no kernel thread is being made, and none holds the lock for a change.
    pub fn is_quiet(&self) -> bool {
        self.used.try_lock().is_some()
    }

    /// Returns true if `is_so` is, for the id of any member. Members may come and go meanwhile.
    #[inline]
    pub fn any(&self, is_so: impl Fn(u32) -> bool) -> bool {
        let mut ids = self.ids.iter().map(|id| id.load(Ordering::Relaxed));
        ids.any(|id| id != 0 && is_so(id))
    }

    /// Returns the place of the member `id`, the caller's.
    ///
    /// # Signal safety
    /// Safe: takes no lock.
    #[inline]
    pub fn place_of(&self, id: u32) -> Option<usize> {
        self.find(id, PLACES)
    }

    /// Holds the members as they are: none comes or leaves.
    #[inline]
    pub fn hold(&self) -> Held<'_, PLACES> {
        Held {
            ids: &self.ids,
            used: self.used.lock(),
        }
    }

    #[inline]
    fn find(&self, id: u32, used: usize) -> Option<usize> {
        let mut ids = self.ids[..used].iter();
        ids.position(|other| other.load(Ordering::Relaxed) == id)
    }
}

impl<const PLACES: usize> Default for Members<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The members while none comes or leaves.
pub struct Held<'a, const PLACES: usize> {
    ids: &'a [AtomicU32; PLACES],
    used: SpinGuard<'a, usize>,
}

impl<const PLACES: usize> Held<'_, PLACES> {
    /// The first member's id: the one with which the members began.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        let mut places = self.each();
        places
            .next()
            .filter(|&(place, _)| place == 0)
            .map(|it| it.1)
    }

    /// The members' places and ids.
    #[inline]
    pub fn each(&self) -> impl Iterator<Item = (usize, u32)> + Clone {
        let ids = self.ids[..*self.used].iter().enumerate();
        ids.map(|(place, id)| (place, id.load(Ordering::Relaxed)))
            .filter(|&(_, id)| id != 0)
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    fn enter(members: &Members<2>, id: u32) -> Option<Result<u32, ()>> {
        members.enter(|| Ok(id))
    }

    #[test]
    fn a_place_that_was_left_is_the_next_ones() {
        let members = Members::<2>::new();
        // SAFETY: no other thread uses them.
        unsafe { members.begin(5) };
        assert_eq!(enter(&members, 6), Some(Ok(6)));
        assert_eq!(enter(&members, 7), None);
        members.leave(5);
        members.leave(9);
        assert_eq!(members.place_of(5), None);
        assert_eq!(members.enter(|| Err(11)), Some(Err(11)));
        assert_eq!(enter(&members, 7), Some(Ok(7)));
        assert!(members.hold().each().eq([(0, 7), (1, 6)]));
        assert!(members.any(|id| id == 6) && !members.any(|id| id == 5));
    }

    #[test]
    fn none_is_made_after_the_close() {
        let members = Members::<2>::new();
        let made = members.enter(|| {
            members.close();
            assert!(!members.is_quiet());
            Ok::<_, ()>(6)
        });
        assert_eq!(made, Some(Ok(6)));
        assert!(members.is_quiet() && enter(&members, 7).is_none());
        // SAFETY: no other thread uses them.
        unsafe { members.begin(5) };
        assert!(members.hold().each().eq([(0, 5)]));
        assert_eq!(enter(&members, 7), Some(Ok(7)));
    }
}
