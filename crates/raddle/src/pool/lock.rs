//! The lock of a pool's shared state, and the waits of its threads.
//!
//! The lock is taken for a few dozen instructions for each queued item, and half the cost of a
//! mutex is that its release checks for sleepers. This lock has no sleepers in a queue: a waiter
//! spins a little, yields, and then naps for a while at a time, so that a holder that the kernel
//! took off its CPU, or one of lower priority, can go on. Nothing blocks under the lock.

use super::sync::{lock, wait, wait_until};
use crate::futex;
use raddle_sched::SpinLock;
use raddle_sched::spin::SpinGuard;
use raddle_sched::wake::WakeWord;
use std::hint::spin_loop;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Spins of a waiter, looks until which it yields, and the nap after each later look.
const SPINS: u32 = 64;
const YIELDS: u32 = 128;
const NAP: Duration = Duration::from_micros(50);

pub(super) struct Lock<T>(SpinLock<T>);

pub(super) type Guard<'a, T> = SpinGuard<'a, T>;

impl<T> Lock<T> {
    pub(super) fn new(data: T) -> Self {
        Self(SpinLock::new(data))
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.lock_contended(),
        }
    }

    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }

    #[cold]
    fn lock_contended(&self) -> Guard<'_, T> {
        let mut looks = 0u32;
        loop {
            match looks {
                0..SPINS => spin_loop(),
                SPINS..YIELDS => crate::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
            looks = looks.saturating_add(1);
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
    }
}

/// A recurring event under the lock that threads wait for.
///
/// No event is missed: a ticket is taken under the lock, before the event can happen.
#[derive(Default)]
pub(super) struct Signal {
    generation: Mutex<u64>,
    raised: Condvar,
}

impl Signal {
    /// Returns a ticket for `wait`; to be called under the lock.
    pub(super) fn ticket(&self) -> u64 {
        *lock(&self.generation)
    }

    /// Raises the signal; to be called under the lock, or after it.
    pub(super) fn raise(&self) {
        *lock(&self.generation) += 1;
        self.raised.notify_all();
    }

    /// Waits until the signal is raised after the ticket was taken, or the deadline.
    pub(super) fn wait(&self, ticket: u64, deadline: Option<Instant>) {
        let mut generation = lock(&self.generation);
        while *generation == ticket {
            generation = match deadline {
                Some(at) if at <= Instant::now() => return,
                Some(at) => wait_until(&self.raised, generation, at),
                None => wait(&self.raised, generation),
            };
        }
    }
}

/// The wait of one worker.
#[derive(Default)]
pub(super) struct Parker {
    pub(super) word: WakeWord,
}

impl Parker {
    pub(super) fn unpark(&self) {
        if self.word.set() {
            futex::wake(self.word.futex().as_ptr().expose_provenance());
        }
    }

    /// Waits for a wake-up and takes it, or returns without one at the deadline.
    pub(super) fn park(&self, deadline: Option<Instant>) {
        while !self.word.take() {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return;
            }
            futex::wait(self.word.futex(), 0, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_excludes() {
        let count = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50_000).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(*count.lock(), 200_000);
        let _held = count.lock();
        assert!(count.try_lock().is_none());
    }

    #[test]
    fn a_signal_raised_after_the_ticket_is_not_missed() {
        let signal = Signal::default();
        let ticket = signal.ticket();
        signal.raise();
        signal.wait(ticket, None);
        let start = Instant::now();
        signal.wait(signal.ticket(), Some(start + Duration::from_millis(5)));
        assert!(start.elapsed() >= Duration::from_millis(5));
    }
}
