//! Threads that live. Each has a place, so that an event finds a thread once: by its id, or at the
//! place of the thread that its carrier ran.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::names::Known;
use super::sched::Command;

/// Where a thread is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

/// What is known of a thread.
#[derive(Default)]
pub(super) struct ThreadState {
    pub(super) tid: u32,
    /// The number of its engine or share.
    pub(super) group: u32,
    pub(super) name: Option<Box<str>>,
    /// It has a track.
    pub(super) is_shown: bool,
    /// An event has told of it, since recording goes on.
    pub(super) is_seen: bool,
    pub(super) is_running: bool,
    /// It was woken while it ran: by an event that overtook the one of the wait's begin.
    pub(super) is_woken: bool,
    pub(super) is_waiting: bool,
    pub(super) is_in_kernel: bool,
    /// Of a bound thread: the track of its share of time in the kernel, or 0, and the last value.
    pub(super) kernel_share: (u64, u8),
    /// The program's spans that are open.
    pub(super) spans: u32,
    /// What ended its wait, as annotations.
    pub(super) woken_by: Option<Rc<[u8]>>,
    /// The name of its last wait.
    pub(super) waited: Known,
    /// Where the last packets have its name: that of CPUs with even numbers, and with odd ones.
    pub(super) commands: [Command; 2],
}

impl ThreadState {
    /// The thread's carrier leaves it. Returns true if the thread is woken already, and does not
    /// wait.
    #[inline]
    pub(super) fn stop_running(&mut self) -> bool {
        (self.is_running, self.is_seen) = (false, true);
        std::mem::take(&mut self.is_woken)
    }

    /// What it does is not known any more. Its slices have ended.
    pub(super) fn forget(&mut self) {
        (self.is_seen, self.is_running, self.is_woken) = (false, false, false);
        self.woken_by = None;
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Threads {
    places: FxHashMap<u32, Place>,
    all: Vec<ThreadState>,
    free: Vec<Place>,
}

impl Threads {
    pub(super) fn find(&self, tid: u32) -> Option<Place> {
        self.places.get(&tid).copied()
    }

    /// Returns the place of a thread, which begins if it is not known.
    #[inline]
    pub(super) fn add(&mut self, tid: u32) -> Place {
        match self.find(tid) {
            Some(place) => place,
            None => self.begin(tid),
        }
    }

    /// As [`Threads::add`], of a thread that is likely the one at a place.
    #[inline]
    pub(super) fn add_at(&mut self, likely: Option<Place>, tid: u32) -> Place {
        // At a place that is free is thread 0, which has no place of its own then.
        let is_it = |place: &Place| tid != 0 && self.at(*place).tid == tid;
        match likely.filter(is_it) {
            Some(place) => place,
            None => self.add(tid),
        }
    }

    #[cold]
    fn begin(&mut self, tid: u32) -> Place {
        let thread = ThreadState {
            tid,
            ..ThreadState::default()
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.all[place.0 as usize] = thread;
                place
            }
            None => {
                self.all.push(thread);
                Place(self.all.len() as u32 - 1)
            }
        };
        self.places.insert(tid, place);
        place
    }

    #[inline]
    pub(super) fn at(&self, place: Place) -> &ThreadState {
        &self.all[place.0 as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, place: Place) -> &mut ThreadState {
        &mut self.all[place.0 as usize]
    }

    /// Forgets a thread that has ended.
    pub(super) fn remove(&mut self, place: Place) {
        let thread = std::mem::take(self.at_mut(place));
        self.places.remove(&thread.tid);
        self.free.push(place);
    }

    /// Returns the places of all threads, in the order of their ids.
    pub(super) fn in_order(&self) -> Vec<Place> {
        let mut all: Vec<_> = self.places.iter().collect();
        all.sort_unstable_by_key(|&(tid, _)| *tid);
        all.into_iter().map(|(_, &place)| place).collect()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}
