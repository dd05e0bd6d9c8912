//! Chunks that two threads need at once.

use super::explore;

use loom::thread;
use raddle_sched::Chunks;
use raddle_sched::sync::{AtomicPtr, AtomicU32, Ordering, UnsafeCell};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// An entry of a chunk: the thread that maps the chunk writes it before it publishes the chunk.
type Entry = UnsafeCell<u32>;

fn fresh() -> NonNull<Entry> {
    let entry = UnsafeCell::new(0);
    // SAFETY: no other thread knows the entry.
    entry.with_mut(|value| unsafe { *value = 7 });
    NonNull::from(Box::leak(Box::new(entry)))
}

fn free(entry: NonNull<Entry>) {
    // SAFETY: made by `fresh`, and not used any more.
    drop(unsafe { Box::from_raw(entry.as_ptr()) });
}

fn read(entry: &Entry) -> u32 {
    // SAFETY: no thread writes once the chunk is published; otherwise the checker reports it.
    entry.with_mut(|value| unsafe { *value })
}

#[test]
fn a_chunk_is_published_once_and_whole() {
    explore(3, || {
        let shared = Arc::new((Chunks::<Entry, 1, 1>::new(), AtomicU32::new(0)));
        let make = |shared: &(Chunks<Entry, 1, 1>, AtomicU32)| {
            let unmap = |entry| {
                shared.1.fetch_add(1, Ordering::Relaxed);
                free(entry);
            };
            // SAFETY: one entry, which is freed when no thread is left.
            let entry = unsafe { shared.0.make(0, || Some(fresh()), unmap) };
            core::ptr::from_ref(entry.expect("there is memory")).addr()
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || make(&shared))
        };
        let here = make(&shared);
        assert_eq!(here, other.join().unwrap());
        assert!(shared.1.load(Ordering::Relaxed) <= 1);
        let entry = shared.0.get(0).expect("it was made");
        assert_eq!(read(entry), 7);
        free(NonNull::from(entry));
    });
}

/// A reader that sees the chunk sees its entry.
#[test]
fn a_reader_sees_what_was_written_before() {
    explore(3, || {
        let table = Arc::new(Chunks::<Entry, 1, 1>::new());
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.get(0).map(read))
        };
        // SAFETY: one entry, which is freed when no thread is left.
        let entry = unsafe { table.make(0, || Some(fresh()), free) };
        assert!(matches!(reader.join().unwrap(), None | Some(7)));
        free(NonNull::from(entry.expect("there is memory")));
    });
}

/// The broken twin: its swap doesn't release.
#[test]
#[should_panic]
fn a_chunk_that_is_published_early_is_refused() {
    explore(3, || {
        let place = Arc::new(AtomicPtr::new(null_mut::<Entry>()));
        let reader = {
            let place = place.clone();
            thread::spawn(move || {
                // SAFETY: null, or an entry that is freed when no thread is left.
                unsafe { place.load(Ordering::Acquire).as_ref() }.map(read)
            })
        };
        let entry = fresh();
        place.store(entry.as_ptr(), Ordering::Relaxed);
        assert!(matches!(reader.join().unwrap(), None | Some(7)));
        free(entry);
    });
}
