//! A worker's own queue: the owner pushes and takes at one end, thieves take at the other.
//!
//! The algorithm is Chase and Lev's (SPAA 2005), over a ring that doesn't grow: a job that finds no
//! room goes to the pool's shared lanes, so there is no old ring that a slow thief may still read.
//!
//! One thing differs. In the original a thief copies an entry *before* it owns it, and forgets the
//! copy if the race was lost: a data race when entries are wider than a word. Here a thief first
//! moves `top` over the entry, which makes it the owner, then copies, and last clears the slot's
//! table pointer. The owner of the deque fills only slots that are clear. A thief that loses its
//! CPU between the two costs its slot for that time, and nothing else.
//!
//! Protocol, each with its partner:
//! 1. push: slot clear (acquire, of 4)? write it; raise `bottom` (to 3).
//! 2. pop: lower `bottom`; read `top`. Above `top`, the entry is the owner's. At `top`, the last
//!    entry, owner and thieves race by compare-and-swap on `top`.
//! 3. steal: read `top`; read `bottom` (of 1); move `top` by compare-and-swap.
//! 4. the thief copies the entry and clears the slot (release, to 1).
//!
//! All accesses to `top` and `bottom` that 2 and 3 race by are SeqCst: in their one order either
//! the thief sees the lowered `bottom`, or the owner sees the raised `top`. On x86 that is an
//! exchange for each push and pop, and nothing for a thief's reads; the fences of Lê, Pop, Cohen
//! and Zappa Nardelli (PPoPP 2013) cost twice as much there. A push, being SeqCst, also comes
//! before the owner's next read, which tells whether a worker sleeps.

use super::job::{Job, Payload, Table};
use raddle_sched::sync::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::Arc;

/// Entries of the ring; a power of two.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub const CAPACITY: usize = 512;
/// Small under a model checker, so that the ring wraps round.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub const CAPACITY: usize = 2;

const MASK: usize = CAPACITY - 1;

/// Puts the words of one end on a cache line of their own.
#[repr(align(64))]
struct Line<T>(T);

struct Slot {
    /// Null in a clear slot. Set by the owner before it raises `bottom`; cleared by the taker of
    /// the entry, after copying it (release).
    table: AtomicPtr<Table>,
    /// Written by the owner while the slot is clear, read by the taker of the entry.
    payload: UnsafeCell<Payload>,
}

struct Ring {
    /// The oldest entry. Raised by compare-and-swap, by thieves and, for the last entry, by the
    /// owner.
    top: Line<AtomicUsize>,
    /// One above the newest entry. Written by the owner.
    bottom: Line<AtomicUsize>,
    slots: Box<[Slot]>,
}

// SAFETY: a payload is touched by the owner while its slot is clear, and otherwise by the thread
// that moved an end over it; jobs are `Send`.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

/// The end that pushes and pops: one thread at a time has it.
pub struct Owner {
    ring: Arc<Ring>,
    /// Keeps the owner from being shared by reference.
    alone: PhantomData<*mut ()>,
}

// SAFETY: the owner may move to another thread, as long as there is one of it.
unsafe impl Send for Owner {}

/// The end that steals; there may be any number.
#[derive(Clone)]
pub struct Thief(Arc<Ring>);

/// Makes an empty deque's two ends.
pub fn new() -> (Owner, Thief) {
    let slot = |_| Slot {
        table: AtomicPtr::new(null_mut()),
        payload: UnsafeCell::new(Payload::NONE),
    };
    let ring = Arc::new(Ring {
        top: Line(AtomicUsize::new(0)),
        bottom: Line(AtomicUsize::new(0)),
        slots: (0..CAPACITY).map(slot).collect(),
    });
    let thief = Thief(ring.clone());
    let alone = PhantomData;
    (Owner { ring, alone }, thief)
}

impl Owner {
    /// Appends a job. Returns the job if there is no room.
    #[inline(always)]
    pub fn push(&self, job: Job) -> Result<(), Job> {
        let bottom = self.ring.bottom.0.load(Ordering::Relaxed);
        self.fill(bottom, job)?;
        let above = bottom.wrapping_add(1);
        self.ring.bottom.0.store(above, Ordering::SeqCst);
        Ok(())
    }

    /// Appends jobs until there is no more or no room, all at once. Returns the job that found no
    /// room, and leaves the later ones.
    pub fn push_all(&self, jobs: &mut impl Iterator<Item = Job>) -> Option<Job> {
        let mut bottom = self.ring.bottom.0.load(Ordering::Relaxed);
        let left = jobs.find_map(|job| {
            let full = self.fill(bottom, job).err();
            bottom = bottom.wrapping_add(usize::from(full.is_none()));
            full
        });
        self.ring.bottom.0.store(bottom, Ordering::SeqCst);
        left
    }

    /// Writes a job to the slot at `bottom`, above the newest entry, if it is clear.
    #[inline(always)]
    fn fill(&self, bottom: usize, job: Job) -> Result<(), Job> {
        let slot = &self.ring.slots[bottom & MASK];
        if !slot.table.load(Ordering::Acquire).is_null() {
            return Err(job);
        }
        let (table, payload) = job.into_parts();
        // SAFETY: the slot is clear: only its deque's owner touches it.
        slot.payload.with_mut(|place| unsafe { *place = payload });
        let table = std::ptr::from_ref(table).cast_mut();
        slot.table.store(table, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the newest job.
    #[inline(always)]
    pub fn pop(&self) -> Option<Job> {
        let ring = &*self.ring;
        let above = ring.bottom.0.load(Ordering::Relaxed);
        // Thieves only raise `top`: seen empty, it is empty.
        if ring.top.0.load(Ordering::Relaxed) == above {
            return None;
        }
        let bottom = above.wrapping_sub(1);
        ring.bottom.0.store(bottom, Ordering::SeqCst);
        let top = ring.top.0.load(Ordering::SeqCst);
        let left = bottom.wrapping_sub(top) as isize;
        if left > 0 {
            // SAFETY: the entry is above `top`, and every thief sees `bottom` below it.
            return Some(unsafe { ring.take(bottom) });
        }
        let won = left == 0 && ring.raise_top(top);
        ring.bottom.0.store(above, Ordering::Relaxed);
        // SAFETY: the last entry, which is this thread's since it raised `top` over it.
        won.then(|| unsafe { ring.take(bottom) })
    }

    /// Takes the oldest job, like a thief.
    pub fn pop_oldest(&self) -> Option<Job> {
        self.ring.steal()
    }
}

impl Thief {
    /// Takes the oldest job. Returns `None` if there is none.
    pub fn steal(&self) -> Option<Job> {
        self.0.steal()
    }

    /// Returns the number of jobs, as of a moment ago.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Ring {
    fn len(&self) -> usize {
        let top = self.top.0.load(Ordering::SeqCst);
        let bottom = self.bottom.0.load(Ordering::SeqCst);
        // During a pop the owner has `bottom` one below.
        (bottom.wrapping_sub(top) as isize).max(0) as usize
    }

    fn steal(&self) -> Option<Job> {
        loop {
            let top = self.top.0.load(Ordering::SeqCst);
            let bottom = self.bottom.0.load(Ordering::SeqCst);
            if bottom.wrapping_sub(top) as isize <= 0 {
                return None;
            }
            if self.raise_top(top) {
                // SAFETY: the entry is this thread's since it raised `top` over it.
                return Some(unsafe { self.take(top) });
            }
        }
    }

    fn raise_top(&self, top: usize) -> bool {
        let (to, order) = (top.wrapping_add(1), Ordering::SeqCst);
        self.top
            .0
            .compare_exchange(top, to, order, Ordering::Relaxed)
            .is_ok()
    }

    /// # Safety
    /// The caller must have moved an end over the entry at `index`, after a push of it.
    #[inline(always)]
    unsafe fn take(&self, index: usize) -> Job {
        let slot = &self.slots[index & MASK];
        let table = slot.table.load(Ordering::Relaxed);
        // SAFETY: the slot is not clear, so the deque's owner leaves it alone.
        let payload = slot.payload.with_mut(|place| unsafe { *place });
        slot.table.store(null_mut(), Ordering::Release);
        // SAFETY: the words that `push` took apart; the caller's claim makes this the only time.
        unsafe { Job::from_parts(&*table, payload) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.steal().is_some() {}
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize as Count};
    use std::sync::mpsc;

    fn numbered(number: usize, sender: &mpsc::Sender<usize>) -> Job {
        let sender = sender.clone();
        Job::new(move || sender.send(number).unwrap())
    }

    #[test]
    fn the_owner_takes_the_newest_and_thieves_the_oldest() {
        let ((owner, thief), (sender, seen)) = (new(), mpsc::channel());
        for number in 0..4 {
            assert!(owner.push(numbered(number, &sender)).is_ok());
        }
        owner.pop().unwrap().run();
        thief.steal().unwrap().run();
        owner.pop_oldest().unwrap().run();
        owner.pop().unwrap().run();
        assert!(owner.pop().is_none() && thief.steal().is_none());
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), [3, 0, 1, 2]);
    }

    #[test]
    fn a_full_ring_gives_the_job_back_and_what_is_left_is_dropped() {
        let ((owner, thief), (sender, seen)) = (new(), mpsc::channel());
        for number in 0..CAPACITY {
            assert!(owner.push(numbered(number, &sender)).is_ok());
        }
        assert!(owner.push(numbered(CAPACITY, &sender)).is_err());
        let mut more = (0..3).map(|number| numbered(number, &sender));
        assert!(owner.push_all(&mut more).is_some() && more.count() == 2);
        assert_eq!(thief.len(), CAPACITY);
        thief.steal().unwrap().run();
        assert!(owner.push(numbered(CAPACITY, &sender)).is_ok());
        drop((owner, thief, sender));
        assert_eq!(seen.iter().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn every_job_runs_once_under_theft() {
        const JOBS: usize = 200_000;
        let (owner, thief) = new();
        static RUNS: Count = Count::new(0);
        static OVER: AtomicBool = AtomicBool::new(false);
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let thief = thief.clone();
                std::thread::spawn(move || {
                    while !OVER.load(Ordering::Acquire) {
                        match thief.steal() {
                            Some(job) => job.run(),
                            None => std::thread::yield_now(),
                        }
                    }
                })
            })
            .collect();
        for number in 0..JOBS {
            let mut job = Job::new(|| {
                RUNS.fetch_add(1, Ordering::Relaxed);
            });
            while let Err(back) = owner.push(job) {
                job = back;
                if let Some(job) = owner.pop() {
                    job.run();
                }
            }
            if number % 3 == 0 {
                owner.pop().into_iter().for_each(Job::run);
            }
        }
        while let Some(job) = owner.pop() {
            job.run();
        }
        OVER.store(true, Ordering::Release);
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        assert_eq!(RUNS.load(Ordering::Relaxed), JOBS);
    }
}
