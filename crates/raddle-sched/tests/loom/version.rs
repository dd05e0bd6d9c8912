//! A version: time moves from one word to another, and a reader adds both.

use super::explore;

use loom::thread;
use raddle_sched::sync::{AtomicU64, Ordering};
use raddle_sched::version::Version;
use std::sync::Arc;

const ALL: u64 = 3;

struct Moved {
    version: Version,
    from: AtomicU64,
    to: AtomicU64,
}

impl Moved {
    fn step(&self) {
        self.from
            .store(self.from.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        self.to
            .store(self.to.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.from.load(Ordering::Relaxed) + self.to.load(Ordering::Relaxed)
    }
}

fn a_reader_meets_a_writer(looks_at_version: bool) {
    explore(3, move || {
        let moved = Arc::new(Moved {
            version: Version::default(),
            from: AtomicU64::new(ALL),
            to: AtomicU64::new(0),
        });
        let writer = thread::spawn({
            let moved = moved.clone();
            move || {
                for _ in 0..2 {
                    moved.version.change(|| moved.step());
                }
            }
        });
        let reader = thread::spawn({
            let moved = moved.clone();
            move || match looks_at_version {
                true => moved.version.read(|| moved.sum()),
                false => moved.sum(),
            }
        });
        assert_eq!(reader.join().expect("no panic"), ALL, "half a change");
        writer.join().expect("no panic");
    });
}

#[test]
fn a_reader_sees_no_half_of_a_change() {
    a_reader_meets_a_writer(true);
}

#[test]
#[should_panic(expected = "half a change")]
fn words_alone_are_not_enough() {
    a_reader_meets_a_writer(false);
}
