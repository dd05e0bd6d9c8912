//! The set of sleeping carriers: a sleeper enters itself, a poster of work takes one out.
//!
//! A carrier is *running*, *searching*, *polling* (asleep in the event pump) or *asleep* on its
//! wake word. Only the last are in the [`IdleSet`]: a thread that takes an id out of it must wake
//! that carrier once.
//!
//! A carrier sleeps and is woken by the [protocol of the room](crate::wake): it announces itself by
//! its bit in the set, its word is a [`WakeWord`](super::WakeWord), and what it looks at again is
//! the injector, the poller's place in the event pump, and signals. Work pushed to a carrier's own
//! run queue is not posted in this sense: that carrier is awake, and sysmon handles backlogs that
//! last.
//!
//! A carrier that finds its bit cleared was taken: the wake-up has come or will come. Nothing
//! depends on that, because the carrier looks at all queues now.
//!
//! Rejected: a list under a lock (a poster would wait for a sleeper that the kernel descheduled
//! inside it); a lock-free stack (needs an ABA tag, and can't take a given carrier out). Lowest id
//! first keeps the same few carriers busy while there is little work, so the others sleep long.

use super::Announce;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// The bound on ids: 2048, the carriers of bound threads included.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub const MAX_IDS: usize = 2048;
/// Two words under a model checker: enough to cross from one to the next.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub const MAX_IDS: usize = 128;

const WORDS: usize = MAX_IDS / 64;

/// See the module.
pub struct IdleSet {
    /// At least the number of set bits: raised before a bit is set, lowered after it was cleared.
    /// Written by sleepers and takers; a poster that reads 0 skips the words.
    count: AtomicUsize,
    /// One bit a carrier. Set by the carrier itself, cleared by the thread that takes it.
    words: [AtomicU64; WORDS],
}

impl IdleSet {
    /// Offset of the words with a bit for each carrier.
    pub const BITS: usize = core::mem::offset_of!(IdleSet, words);

    /// An empty set: no carrier sleeps.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// An empty set: no carrier sleeps.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns the entry of carrier `id`, which isn't made yet.
    ///
    /// # Panics
    /// At its use, if `id` isn't below [`MAX_IDS`].
    #[inline(always)]
    pub fn entry(&self, id: usize) -> IdleEntry<'_> {
        IdleEntry { set: self, id }
    }

    /// Publishes that carrier `id` is about to sleep. The carrier must look at the queues between
    /// this and its sleep. Without effect if it is in the set.
    ///
    /// # Panics
    /// If `id` isn't below [`MAX_IDS`].
    pub fn insert(&self, id: usize) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.words[id / 64].fetch_or(bit(id), Ordering::SeqCst) & bit(id) != 0 {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Takes the sleeping carrier with the lowest id; the caller must wake it. Call it after the
    /// push of the work for that carrier.
    #[must_use]
    pub fn take_one(&self) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        for (index, word) in self.words.iter().enumerate() {
            let mut bits = word.load(Ordering::SeqCst);
            while bits != 0 {
                let id = index * 64 + bits.trailing_zeros() as usize;
                if self.take(id) {
                    return Some(id);
                }
                bits = word.load(Ordering::SeqCst);
            }
        }
        None
    }

    /// Takes carrier `id`. Returns true if it was in the set: then no other thread has taken it.
    ///
    /// # Panics
    /// If `id` isn't below [`MAX_IDS`].
    pub fn take(&self, id: usize) -> bool {
        let taken = self.words[id / 64].fetch_and(!bit(id), Ordering::SeqCst) & bit(id) != 0;
        if taken {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        taken
    }

    /// Returns true if carrier `id` is in the set.
    ///
    /// # Panics
    /// If `id` isn't below [`MAX_IDS`].
    pub fn contains(&self, id: usize) -> bool {
        self.words[id / 64].load(Ordering::SeqCst) & bit(id) != 0
    }

    /// Returns the number of sleeping carriers a moment ago; an unfinished take counts still.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Returns true if no carrier slept a moment ago. After a push, this is as reliable as
    /// [`IdleSet::take_one`]: a sleeper that either misses sees the push.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all sleepers: in the child of a fork, where they don't exist.
    pub fn reset(&self) {
        let Self { count, words } = self;
        for word in words {
            word.store(0, Ordering::SeqCst);
        }
        count.store(0, Ordering::SeqCst);
    }
}

impl Default for IdleSet {
    fn default() -> Self {
        Self::new()
    }
}

/// The entry of one carrier in an [`IdleSet`], while it sleeps.
pub struct IdleEntry<'a> {
    set: &'a IdleSet,
    id: usize,
}

impl Announce for IdleEntry<'_> {
    #[inline(always)]
    fn announce(&mut self) -> bool {
        self.set.insert(self.id);
        true
    }

    #[inline(always)]
    fn withdraw(&mut self) {
        self.set.take(self.id);
    }
}

const fn bit(id: usize) -> u64 {
    1 << (id % 64)
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn takes_the_lowest_id_first() {
        let set = IdleSet::new();
        for id in [700, 3, 64, MAX_IDS - 1, 63] {
            set.insert(id);
        }
        assert_eq!(set.len(), 5);
        let taken: Vec<_> = std::iter::from_fn(|| set.take_one()).collect();
        assert_eq!(taken, [3, 63, 64, 700, MAX_IDS - 1]);
        assert!(set.is_empty());
    }

    #[test]
    fn an_id_is_taken_once() {
        let set = IdleSet::new();
        set.insert(5);
        set.insert(5);
        assert_eq!(set.len(), 1);
        assert!(set.take(5));
        assert!(!set.take(5));
        assert_eq!((set.take_one(), set.len()), (None, 0));
    }

    #[test]
    fn reset_forgets_everybody() {
        let set = IdleSet::new();
        set.insert(1);
        set.insert(100);
        set.reset();
        assert_eq!((set.take_one(), set.len(), set.take(100)), (None, 0, false));
    }
}
