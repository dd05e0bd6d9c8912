//! Cases that no test can reach from outside in time: slots and numbers that are used up.

use super::*;
use std::alloc::{alloc_zeroed, dealloc};
use std::sync::atomic::AtomicUsize as Count;

/// Counts releases; refuses memory after some buckets.
struct Counting {
    released: Count,
    buckets: Count,
}

// SAFETY: the global allocator's memory, zeroed.
unsafe impl Host for Counting {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let left = self.buckets.load(Ordering::Relaxed).checked_sub(1)?;
        self.buckets.store(left, Ordering::Relaxed);
        // SAFETY: buckets have a size.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    unsafe fn release(&self, _: NonNull<()>, _: Kind) {
        self.released.fetch_add(1, Ordering::Relaxed);
    }
}

fn table(buckets: usize) -> RawTable<Counting> {
    let host = Counting {
        released: Count::new(0),
        buckets: Count::new(buckets),
    };
    RawTable::new(host, 7)
}

fn insert(table: &RawTable<Counting>) -> Result<RawHandle, InsertError> {
    table.insert(0, NonNull::dangling(), Kind::Normal, Owner::NOBODY)
}

#[test]
fn a_slot_whose_generations_are_used_up_is_put_aside() {
    let table = table(1);
    let first = insert(&table).unwrap();
    let (_, number) = first.parts();
    table.remove(0, first).unwrap();
    table.slots.get(number).unwrap().age();
    let last = insert(&table).unwrap();
    assert_eq!(last.parts().1, number, "the slot that was freed last");
    table.remove(0, last).unwrap();
    assert_eq!(table.remove(0, last), Err(HandleError::Stale));
    let others: Vec<_> = (1..FIRST).map(|_| insert(&table).unwrap()).collect();
    assert!(others.iter().all(|handle| handle.parts().1 != number));
    assert_eq!(insert(&table), Err(InsertError::NoMemory));
    assert_eq!(table.count(), FIRST - 1);
}

#[test]
fn without_memory_a_table_stays_as_it_is_and_goes_on_when_a_slot_is_freed() {
    let table = table(2);
    let handles: Vec<_> = (0..3 * FIRST).map(|_| insert(&table).unwrap()).collect();
    assert_eq!(insert(&table), Err(InsertError::NoMemory));
    assert_eq!(table.capacity(), 3 * FIRST);
    table.remove(5, handles[17]).unwrap(); // onto another stack than this thread's
    assert_eq!(table.host.released.load(Ordering::Relaxed), 1);
    assert!(insert(&table).is_ok());
}

#[test]
fn a_full_table_says_so() {
    let table = table(1);
    table.used.store(Buckets::END, Ordering::Relaxed);
    assert_eq!(insert(&table), Err(InsertError::Full));
    table.used.store(0, Ordering::Relaxed);
}

#[test]
fn a_handle_of_any_bits_is_refused_and_harms_nothing() {
    let table = table(1);
    let good = insert(&table).unwrap();
    for bit in 0..64 {
        let Some(bad) = RawHandle::from_bits(good.to_bits() ^ (1 << bit)) else {
            continue;
        };
        assert_eq!(table.hold(bad).err(), Some(HandleError::Stale));
        assert_eq!(table.peek(bad).err(), Some(HandleError::Stale));
        assert_eq!(table.remove(0, bad), Err(HandleError::Stale));
    }
    assert_eq!(RawHandle::from_bits(0), None);
    assert_eq!(RawHandle::from_bits(good.to_bits()), Some(good));
    table.remove(0, good).unwrap();
}

#[test]
fn the_end_of_a_table_releases_what_is_in_it() {
    static RELEASED: Count = Count::new(0);
    struct Leaky(Counting);
    // SAFETY: as `Counting`.
    unsafe impl Host for Leaky {
        fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
            self.0.allocate(layout)
        }
        unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { self.0.free(at, layout) }
        }
        unsafe fn release(&self, _: NonNull<()>, kind: Kind) {
            assert_eq!(kind, Kind::Pinned);
            RELEASED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counting = Counting {
        released: Count::new(0),
        buckets: Count::new(3),
    };
    let table = RawTable::new(Leaky(counting), 0);
    for _ in 0..100 {
        let done = table.insert(0, NonNull::dangling(), Kind::Pinned, Owner::NOBODY);
        done.unwrap();
    }
    drop(table);
    assert_eq!(RELEASED.load(Ordering::Relaxed), 100);
}
