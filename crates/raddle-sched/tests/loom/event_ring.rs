//! An event ring: a reader copies a slot that the writer uses for the second time.

use super::explore;

use loom::thread;
use raddle_sched::event_ring::{EVENT_WORDS, EventRing, Slot};
use raddle_sched::sync::{AtomicU64, Ordering};
use std::sync::Arc;

const CAPACITY: u64 = 2;

/// Makes a ring with memory, which the model leaks.
fn ring() -> EventRing {
    let ring = EventRing::default();
    #[repr(align(64))]
    struct Aligned([Slot; CAPACITY as usize]);
    let slots = Box::new(Aligned(std::array::from_fn(|_| Slot::empty())));
    // SAFETY: leaked, so alive for ever.
    unsafe { ring.open(Box::leak(slots).0.as_mut_ptr(), CAPACITY) };
    ring
}

#[test]
fn a_copy_that_is_good_is_one_event() {
    explore(3, || {
        let ring = Arc::new(ring());
        // The second thread begins late, as a reader does: the first one would be done by then.
        let reader = thread::spawn({
            let ring = ring.clone();
            move || {
                for at in [0, 1] {
                    if let Some(event) = ring.read(at) {
                        assert_eq!(event, [at + 1; EVENT_WORDS], "two events in one");
                    }
                }
            }
        });
        for event in 1..=3 {
            ring.push([event; EVENT_WORDS]);
        }
        reader.join().expect("no panic");
        assert_eq!(ring.read(2), Some([3; EVENT_WORDS]));
    });
}

/// The same with a reader that doesn't look at the number again.
#[test]
#[should_panic(expected = "two events in one")]
fn without_the_second_look_a_copy_is_two_events() {
    explore(3, || {
        let slot = Arc::new([AtomicU64::new(1), AtomicU64::new(1)]);
        let written = Arc::new(AtomicU64::new(1));
        let writer = thread::spawn({
            let (slot, written) = (slot.clone(), written.clone());
            move || {
                slot.iter()
                    .for_each(|word| word.store(2, Ordering::Relaxed));
                written.store(2, Ordering::Release);
            }
        });
        if written.load(Ordering::Acquire) == 1 {
            let [first, second] = [0, 1].map(|word: usize| slot[word].load(Ordering::Relaxed));
            assert_eq!(first, second, "two events in one");
        }
        writer.join().expect("no panic");
    });
}
