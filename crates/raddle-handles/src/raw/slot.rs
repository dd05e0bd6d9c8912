//! One slot: its state word and every change of it.
//!
//! ```text
//!  63            28 27          6 5  4   3  2   1   0
//! +----------------+-------------+------+------+---+---+
//! |   generation   |    holds    | kind |  0   | V | O |
//! +----------------+-------------+------+------+---+---+
//! ```
//!
//! | O (occupied) | V (valid) | |
//! |---|---|---|
//! | 1 | 1 | a lookup returns the target |
//! | 1 | 0 | the handle has expired |
//! | 0 | 0 | removed; free when the last hold has gone and the generation has been raised |
//!
//! A *hold* keeps the target from being released. A hold is taken only while V is set, except by a
//! thread that clears V or O, which takes one in the same step. So the last hold of a slot without
//! V has the target to itself: its thread takes the target out, and frees the slot if O is clear,
//! too ([`Slot::let_go_last`]). No thread waits: one that is not the last at a slot leaves that
//! work to the last.

use crate::HandleError;
use crate::raw::Kind;
use core::ptr::{NonNull, null_mut};
use raddle_sched::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Bits of a generation. At 20 million reuses a second a slot lasts for an hour; then it is not
/// used again, because a generation never comes back.
pub(super) const GENERATION_BITS: u32 = 36;
pub(super) const LAST_GENERATION: u64 = (1 << GENERATION_BITS) - 1;

const GENERATION: u32 = 64 - GENERATION_BITS;
const HOLD: u64 = 1 << 6;
const HOLDS: u64 = (1 << GENERATION) - HOLD;
/// Less than fit: a thread that removes or expires a handle takes a hold without this check.
const MOST_HOLDS: u64 = HOLDS - 4 * HOLD;
const KIND: u32 = 4;
const VALID: u64 = 2;
const OCCUPIED: u64 = 1;

/// A value of the state word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State(u64);

impl State {
    pub(super) fn generation(self) -> u64 {
        self.0 >> GENERATION
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 >> KIND & 3 {
            1 => Kind::Pinned,
            2 => Kind::Weak,
            _ => Kind::Normal,
        }
    }

    pub(super) fn is_occupied(self) -> bool {
        self.0 & OCCUPIED != 0
    }

    fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    fn holds(self) -> u64 {
        self.0 & HOLDS
    }

    fn check(self, generation: u64) -> Result<(), HandleError> {
        if self.generation() != generation || !self.is_occupied() {
            return Err(HandleError::Stale);
        }
        if !self.is_valid() {
            return Err(HandleError::Expired);
        }
        Ok(())
    }
}

/// What the thread that lets go of a slot must still do, if it was the last.
#[must_use]
pub(super) struct Rest {
    /// A target to release.
    pub target: Option<NonNull<()>>,
    /// True if the slot is free and only the caller uses it; false if others do, or it is used up.
    pub free: bool,
}

/// All zeroes is a free slot of generation 0.
pub(super) struct Slot {
    /// See the module. Written by compare-and-swap; by stores with release where a thread has an
    /// unoccupied slot to itself.
    state: AtomicU64,
    /// Null without a target. Written by the thread that has the slot to itself. Release and
    /// acquire: if [`Slot::peek`] reads what a later handle wrote, it must see that the state has
    /// changed, too.
    target: AtomicPtr<()>,
    /// The next free slot's number while the slot is free, else the owner. Ordered as the target
    /// is, for [`Slot::expire_if_owned`].
    link: AtomicU32,
}

impl Slot {
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            target: AtomicPtr::new(null_mut()),
            link: AtomicU32::new(0),
        }
    }

    /// The state a moment ago.
    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    /// Returns the owner of a slot that is held, or the next free slot of a free one.
    #[inline(always)]
    pub(super) fn link(&self) -> u32 {
        self.link.load(Ordering::Acquire)
    }

    /// Sets the link of a free slot that the caller has to itself.
    #[inline(always)]
    pub(super) fn set_link(&self, link: u32) {
        self.link.store(link, Ordering::Release);
    }

    /// Returns the target of a slot that is held, or that the caller has to itself.
    #[inline(always)]
    pub(super) fn target(&self) -> Option<NonNull<()>> {
        NonNull::new(self.target.load(Ordering::Acquire))
    }

    /// Fills a free slot that the caller has to itself; returns its generation.
    #[inline(always)]
    pub(super) fn occupy(&self, target: NonNull<()>, kind: Kind, owner: u32) -> u64 {
        let generation = State(self.state.load(Ordering::Relaxed)).generation();
        self.target.store(target.as_ptr(), Ordering::Release);
        self.set_link(owner);
        let state = generation << GENERATION | (kind as u64) << KIND | VALID | OCCUPIED;
        // Release: a hold that sees this state sees the target and the owner.
        self.state.store(state, Ordering::Release);
        generation
    }

    /// Changes the state to what `next` returns, if that is a state. Returns the state before.
    #[inline(always)]
    fn change(
        &self,
        mut next: impl FnMut(State) -> Result<u64, HandleError>,
    ) -> Result<State, HandleError> {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let wanted = next(State(state))?;
            // Acquire: this thread sees the target, the owner and what earlier holds did; on
            // failure, the end of the owner that expired the handle. Release: what this thread did
            // with the target comes before the end of the last hold.
            match self
                .state
                .compare_exchange(state, wanted, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Ok(State(state)),
                Err(other) => state = other,
            }
        }
    }

    /// Takes a hold; the target is there until [`Slot::let_go`].
    #[inline(always)]
    pub(super) fn hold(&self, generation: u64) -> Result<State, HandleError> {
        self.change(|state| {
            state.check(generation)?;
            if state.holds() >= MOST_HOLDS {
                return Err(HandleError::Busy);
            }
            Ok(state.0 + HOLD)
        })
    }

    /// Expires the handle and takes a hold, even of a slot that others hold.
    pub(super) fn expire(&self, generation: u64) -> Result<State, HandleError> {
        self.change(|state| {
            state.check(generation)?;
            Ok((state.0 & !VALID) + HOLD)
        })
    }

    /// As [`Slot::expire`], if this is a weak handle of the owner. Returns true if it expired now.
    pub(super) fn expire_if_owned(&self, owner: u32) -> bool {
        let state = self.state();
        // The owner is read between two reads of the same state, so it belongs to that state.
        state.kind() == Kind::Weak
            && self.link() == owner
            && self.expire(state.generation()).is_ok()
    }

    /// Removes the handle and lets go at once. Returns the state before.
    #[inline(always)]
    pub(super) fn remove(&self, generation: u64) -> Result<(State, Rest), HandleError> {
        let before = self.change(|state| {
            if state.generation() != generation || !state.is_occupied() {
                return Err(HandleError::Stale);
            }
            Ok((state.0 & !(VALID | OCCUPIED)) + HOLD)
        })?;
        let rest = match before.holds() {
            0 => Rest {
                target: self.take(),
                free: self.next_generation(before.generation()),
            },
            _ => self.let_go_last(),
        };
        Ok((before, rest))
    }

    /// Ends a hold. Returns what is left to do, unless others remain.
    #[inline(always)]
    pub(super) fn let_go(&self) -> Option<Rest> {
        let state = self.state.load(Ordering::Relaxed);
        let alive = State(state).is_valid()
            && self
                .state
                .compare_exchange(state, state - HOLD, Ordering::Release, Ordering::Relaxed)
                .is_ok();
        (!alive).then(|| self.let_go_last())
    }

    /// Ends a hold, perhaps the last one.
    #[cold]
    #[inline(never)]
    pub(super) fn let_go_last(&self) -> Rest {
        let mut target = None;
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let last = State(state).holds() == HOLD && !State(state).is_valid();
            if last {
                target = self.take().or(target);
                if !State(state).is_occupied() {
                    let free = self.next_generation(State(state).generation());
                    return Rest { target, free };
                }
            }
            // Acquire on failure: if it is the last, this thread touches what other holds touched.
            match self.state.compare_exchange(
                state,
                state - HOLD,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    let free = false;
                    return Rest { target, free };
                }
                Err(other) => state = other,
            }
        }
    }

    /// Takes the target out; the caller has it to itself.
    fn take(&self) -> Option<NonNull<()>> {
        let target = NonNull::new(self.target.load(Ordering::Relaxed))?;
        self.target.store(null_mut(), Ordering::Release);
        Some(target)
    }

    /// Frees a removed slot after its last hold. Returns false if the slot is used up.
    fn next_generation(&self, generation: u64) -> bool {
        if generation == LAST_GENERATION {
            return false; // stays as it is: not occupied, and in no list
        }
        let state = (generation + 1) << GENERATION;
        self.state.store(state, Ordering::Release);
        true
    }

    /// Returns what the handle stood for at one moment, without a hold: target, kind, owner.
    #[inline(always)]
    pub(super) fn peek(&self, generation: u64) -> Result<(NonNull<()>, Kind, u32), HandleError> {
        let state = self.state();
        state.check(generation)?;
        let (target, owner) = (self.target(), self.link());
        // If either was written after the state was read, the state had changed before that, and
        // the acquire loads make this load see the change.
        fence(Ordering::Acquire);
        State(self.state.load(Ordering::Relaxed)).check(generation)?;
        let target = target.ok_or(HandleError::Expired)?;
        Ok((target, state.kind(), owner))
    }

    /// Makes the slot's next generation its last one.
    #[cfg(test)]
    pub(super) fn age(&self) {
        self.state
            .store(LAST_GENERATION << GENERATION, Ordering::Release);
    }
}
