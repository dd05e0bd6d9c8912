//! A ring of samples: a reader copies a slot that the writer fills for the second time.

use super::explore;

use loom::thread;
use raddle_sched::SampleRing;
use raddle_sched::sync::{AtomicU64, Ordering};
use std::sync::Arc;

const CAPACITY: u64 = 2;

/// A sample: its number, and what is copied behind it.
struct Sample([AtomicU64; 2]);

#[test]
fn a_slot_that_is_filled_in_pieces_is_believed_as_a_whole_or_not_at_all() {
    explore(3, || {
        let samples: Vec<Sample> = (0..CAPACITY)
            .map(|_| Sample([AtomicU64::new(0), AtomicU64::new(0)]))
            .collect();
        let ring: SampleRing<Sample> = SampleRing::default();
        let slots = Box::leak(samples.into_boxed_slice()).as_mut_ptr();
        // SAFETY: leaked, so alive for ever.
        unsafe { ring.open(slots, CAPACITY) };
        let ring = Arc::new(ring);
        let copy = |slot: *mut Sample| {
            // SAFETY: as above.
            let Sample([number, stack]) = unsafe { &*slot };
            let number = number.load(Ordering::Relaxed);
            (number, stack.load(Ordering::Relaxed))
        };
        let reader = thread::spawn({
            let ring = ring.clone();
            move || {
                for at in [0, 1] {
                    if let Some(sample) = ring.copy(at, copy) {
                        assert_eq!(sample, (at + 1, 10 * (at + 1)), "two samples in one");
                    }
                }
            }
        });
        for _ in 0..3 {
            ring.write(|at, slot| {
                // SAFETY: a slot of the ring's.
                let Sample([number, stack]) = unsafe { &*slot };
                stack.store(10 * (at + 1), Ordering::Relaxed);
                number.store(at + 1, Ordering::Relaxed);
            });
        }
        reader.join().expect("no panic");
        assert_eq!(ring.copy(2, copy), Some((3, 30)));
        assert_eq!(ring.copy(3, copy), None);
    });
}
