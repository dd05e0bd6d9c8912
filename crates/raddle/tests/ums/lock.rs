//! A user-mode scheduler that hands a lock from worker to worker.

use super::{execute_patiently, on_carriers};
use raddle::ums::{self, CompletionList, Reason};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A lock that its release hands to the longest waiter, which runs next: a waiter yields to the
/// scheduler with the lock's address, and the scheduler keeps the waiter until it has the lock.
mod handed {
    use super::{AtomicBool, Ordering, ums};

    #[derive(Default)]
    pub(super) struct Lock {
        held: AtomicBool,
    }

    pub(super) const WANTS: usize = 1;
    pub(super) const FREES: usize = 2;

    impl Lock {
        pub(super) fn lock(&self) {
            if self.held.swap(true, Ordering::SeqCst) {
                ums::yield_now(WANTS).unwrap(); // executed again as the owner
            }
        }

        /// The scheduler hands the lock on, or sets it free.
        pub(super) fn unlock(&self) {
            ums::yield_now(FREES).unwrap();
        }

        pub(super) fn set_free(&self) {
            self.held.store(false, Ordering::SeqCst);
        }
    }
}

#[test]
fn a_scheduler_hands_a_lock_from_worker_to_worker() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let lock = Arc::new(handed::Lock::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..8)
            .map(|me| {
                let (lock, order) = (Arc::clone(&lock), Arc::clone(&order));
                let work = move || {
                    for _ in 0..100 {
                        lock.lock();
                        order.lock().unwrap().push(me);
                        ums::yield_now(0).unwrap(); // another worker tries meanwhile
                        lock.unlock();
                    }
                };
                ums::spawn(&list, work).unwrap().1
            })
            .collect();
        let (mut ready, mut waiting) = (VecDeque::new(), VecDeque::new());
        let mut left = 8;
        ums::enter_scheduling_mode(&list, |scheduler, reason| {
            match reason {
                Reason::Yielded {
                    worker,
                    parameter: handed::WANTS,
                } => waiting.push_back(worker.release()),
                Reason::Yielded {
                    worker,
                    parameter: handed::FREES,
                } => {
                    match waiting.pop_front() {
                        Some(next) => ready.push_front(next),
                        None => lock.set_free(),
                    }
                    ready.push_back(worker.release());
                }
                Reason::Yielded { worker, .. } => ready.push_back(worker.release()),
                _ => {}
            }
            while left != 0 {
                let wait = (!ready.is_empty()).then_some(Duration::ZERO);
                for item in list.dequeue(wait).into_iter().flatten() {
                    if item.has_ended() {
                        left -= 1
                    } else {
                        ready.push_back(item)
                    }
                }
                if let Some(context) = ready.pop_front() {
                    return execute_patiently(scheduler, context);
                }
            }
            scheduler.leave()
        })
        .unwrap();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        let order = order.lock().unwrap();
        assert_eq!(order.len(), 800);
        for me in 0..8 {
            assert_eq!(order.iter().filter(|&&who| who == me).count(), 100);
        }
    });
}
