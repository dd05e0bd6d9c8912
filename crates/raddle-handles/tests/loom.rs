//! Every interleaving (up to a bound on preemptions) of a table's protocol, under loom.
//!
//! Targets are boxes with a word that a thread may write only while no other uses the target: the
//! checker reports a release that isn't ordered after a use. Buckets and stacks are small, so that
//! growing and taking from another stack are part of the models. A twin that is broken on purpose
//! must be refused.
//!
//! `RUSTFLAGS="--cfg raddle_loom" cargo test -p raddle-handles --release --test loom`
#![cfg(raddle_loom)]

use core::alloc::Layout;
use core::ptr::NonNull;
use loom::cell::UnsafeCell;
use loom::thread;
use raddle_handles::raw::{Host, RawHandle, RawTable};
use raddle_handles::{HandleError, InsertError, Kind, Owner};
use std::alloc::{alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Runs `model` over all interleavings with up to `preemptions` preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicU64::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    assert!(executions > 1, "a model without a choice");
    println!("{executions} executions");
}

/// The target of a handle.
struct Target(UnsafeCell<u32>);

struct Boxes {
    released: Arc<AtomicUsize>,
}

// SAFETY: the global allocator's memory, zeroed.
unsafe impl Host for Boxes {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: a bucket's size isn't 0.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    unsafe fn release(&self, target: NonNull<()>, _: Kind) {
        // SAFETY: the models insert boxes, and the table released this one.
        let target = unsafe { Box::from_raw(target.cast::<Target>().as_ptr()) };
        // SAFETY: no other thread has the target; if one has, the checker reports it.
        target.0.with_mut(|word| unsafe { *word = 0 });
        self.released.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Table {
    raw: Arc<RawTable<Boxes>>,
    released: Arc<AtomicUsize>,
}

impl Table {
    fn new() -> Self {
        let released = Arc::<AtomicUsize>::default();
        let host = Boxes {
            released: released.clone(),
        };
        Self {
            raw: Arc::new(RawTable::new(host, 3)),
            released,
        }
    }

    fn insert(&self, hint: usize, value: u32, owner: Owner) -> Result<RawHandle, InsertError> {
        let target = Box::into_raw(Box::new(Target(UnsafeCell::new(value))));
        let target = NonNull::new(target).expect("a box has an address");
        let kind = match owner {
            Owner::NOBODY => Kind::Normal,
            _ => Kind::Weak,
        };
        let result = self.raw.insert(hint, target.cast(), kind, owner);
        if result.is_err() {
            // SAFETY: the table refused the target.
            drop(unsafe { Box::from_raw(target.as_ptr()) });
        }
        result
    }

    fn read(&self, handle: RawHandle) -> Result<u32, HandleError> {
        let hold = self.raw.hold(handle)?;
        // SAFETY: the hold keeps the target.
        let target = unsafe { hold.target().cast::<Target>().as_ref() };
        // SAFETY: as above; if a thread writes, the checker reports it.
        Ok(target.0.with(|word| unsafe { *word }))
    }

    fn released(&self) -> usize {
        self.released.load(Ordering::Relaxed)
    }
}

/// Runs `body` in another thread.
fn go(table: &Table, body: impl FnOnce(Table) + 'static) -> thread::JoinHandle<()> {
    let table = table.clone();
    thread::spawn(move || body(table))
}

#[test]
fn a_value_is_not_released_while_it_is_looked_at() {
    explore(3, || {
        let table = Table::new();
        let handle = table.insert(0, 5, Owner::NOBODY).unwrap();
        let reader = go(&table, move |table| match table.read(handle) {
            Ok(value) => assert_eq!(value, 5),
            Err(error) => assert_eq!(error, HandleError::Stale),
        });
        table.raw.remove(0, handle).unwrap();
        reader.join().unwrap();
        assert_eq!(table.released(), 1);
        assert_eq!(table.read(handle), Err(HandleError::Stale));
    });
}

#[test]
fn of_two_that_remove_one_succeeds() {
    explore(3, || {
        let table = Table::new();
        let handle = table.insert(0, 5, Owner::NOBODY).unwrap();
        let won = Arc::new(AtomicUsize::new(0));
        let count = won.clone();
        let other = go(&table, move |table| {
            count.fetch_add(
                table.raw.remove(1, handle).is_ok().into(),
                Ordering::Relaxed,
            );
        });
        won.fetch_add(
            table.raw.remove(0, handle).is_ok().into(),
            Ordering::Relaxed,
        );
        other.join().unwrap();
        assert_eq!((won.load(Ordering::Relaxed), table.released()), (1, 1));
    });
}

#[test]
fn readers_and_a_remover_leave_the_slot_free_once() {
    explore(2, || {
        let table = Table::new();
        let handle = table.insert(0, 5, Owner::NOBODY).unwrap();
        let readers = [(); 2].map(|()| {
            go(&table, move |table| {
                let _ = table.read(handle);
            })
        });
        table.raw.remove(0, handle).unwrap();
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        // Both slots of the first bucket are free, each once.
        let next: Vec<_> = (0..2)
            .map(|n| table.insert(0, n, Owner::NOBODY).unwrap())
            .collect();
        assert_eq!(table.raw.capacity(), 2);
        assert_eq!((table.read(next[0]), table.read(next[1])), (Ok(0), Ok(1)));
    });
}

#[test]
fn a_slot_that_is_used_again_is_not_taken_for_the_old_one() {
    explore(3, || {
        let table = Table::new();
        let old = table.insert(0, 5, Owner::NOBODY).unwrap();
        let reader = go(&table, move |table| {
            assert!(matches!(table.read(old), Ok(5) | Err(HandleError::Stale)));
            if let Ok(look) = table.raw.peek(old) {
                assert_eq!(look.kind, Kind::Normal, "what the old handle stood for");
            }
        });
        let owner = table.raw.add_owner().unwrap();
        table.raw.remove(0, old).unwrap();
        let new = table.insert(0, 6, owner).unwrap();
        assert_eq!(table.read(new), Ok(6));
        reader.join().unwrap();
        assert_eq!(table.read(new), Ok(6));
    });
}

#[test]
fn two_that_insert_at_once_grow_the_table_and_get_different_slots() {
    explore(2, || {
        let table = Table::new();
        let other = go(&table, |table| {
            let handles = [0, 1].map(|n| table.insert(1, n, Owner::NOBODY).unwrap());
            assert_eq!(handles.map(|handle| table.read(handle)), [Ok(0), Ok(1)]);
        });
        let handles = [2, 3].map(|n| table.insert(0, n, Owner::NOBODY).unwrap());
        assert_eq!(handles.map(|handle| table.read(handle)), [Ok(2), Ok(3)]);
        other.join().unwrap();
        assert_eq!(table.raw.count(), 4);
    });
}

#[test]
fn slots_that_come_and_go_are_never_given_out_twice() {
    explore(2, || {
        let table = Table::new();
        let turn = |hint: usize| {
            move |table: Table| {
                for n in 0..2 {
                    let value = (10 * hint + n) as u32;
                    let handle = table.insert(hint, value, Owner::NOBODY).unwrap();
                    assert_eq!(table.read(handle), Ok(value));
                    table.raw.remove(hint, handle).unwrap();
                }
            }
        };
        // The same stack, so that one thread may take what the other has just put back.
        let other = go(&table, turn(2));
        turn(0)(table.clone());
        other.join().unwrap();
        assert_eq!((table.raw.count(), table.released()), (0, 4));
    });
}

#[test]
fn expiry_and_removal_release_the_target_once() {
    explore(3, || {
        let table = Table::new();
        let owner = table.raw.add_owner().unwrap();
        let handle = table.insert(0, 5, owner).unwrap();
        let other = go(&table, move |table| table.raw.end_owner(owner).unwrap());
        let read = table.read(handle);
        assert!(matches!(read, Ok(5) | Err(HandleError::Expired)));
        table.raw.remove(0, handle).unwrap();
        other.join().unwrap();
        assert_eq!(table.released(), 1);
    });
}

#[test]
fn after_the_end_of_an_owner_its_handles_give_nothing() {
    explore(3, || {
        let table = Table::new();
        let owner = table.raw.add_owner().unwrap();
        let handles = [5, 6].map(|n| table.insert(0, n, owner).unwrap());
        let other = go(&table, move |table| {
            let read = handles.map(|handle| table.read(handle));
            // At one moment: if the handle read first has expired, the one read next has, too.
            assert!(read[0].is_ok() || read[1].is_err(), "{read:?}");
        });
        table.raw.end_owner(owner).unwrap();
        assert_eq!(handles.map(|handle| table.read(handle).is_ok()), [false; 2]);
        other.join().unwrap();
        assert_eq!(table.released(), 2);
        assert_eq!(table.raw.count(), 2);
    });
}

#[test]
fn a_handle_that_is_inserted_while_its_owner_ends_gives_nothing_afterwards() {
    explore(3, || {
        let table = Table::new();
        let owner = table.raw.add_owner().unwrap();
        let other = go(&table, move |table| table.raw.end_owner(owner).unwrap());
        let handle = table.insert(0, 5, owner);
        other.join().unwrap();
        if let Ok(handle) = handle {
            assert_eq!(table.read(handle), Err(HandleError::Expired));
            table.raw.remove(0, handle).unwrap();
            assert_eq!(table.released(), 1);
        }
    });
}

#[test]
fn an_expiring_hold_and_another_one_release_the_target_once() {
    explore(3, || {
        let table = Table::new();
        let owner = table.raw.add_owner().unwrap();
        let handle = table.insert(0, 5, owner).unwrap();
        let expire = move |table: Table| {
            if let Ok(hold) = table.raw.hold(handle) {
                hold.expire();
            }
        };
        let other = go(&table, expire);
        expire(table.clone());
        other.join().unwrap();
        assert_eq!(table.released(), 1);
        assert_eq!(table.read(handle), Err(HandleError::Expired));
    });
}

/// The canary: without a hold, a target is read while it is released.
#[test]
#[should_panic]
fn a_look_without_a_hold_is_refused() {
    explore(3, || {
        let table = Table::new();
        let handle = table.insert(0, 5, Owner::NOBODY).unwrap();
        let reader = go(&table, move |table| {
            if let Ok(look) = table.raw.peek(handle) {
                // SAFETY: none; loom runs one thread at a time and tracks the access.
                let target = unsafe { look.target.cast::<Target>().as_ref() };
                // SAFETY: none.
                assert_eq!(target.0.with(|word| unsafe { *word }), 5);
            }
        });
        table.raw.remove(0, handle).unwrap();
        reader.join().unwrap();
    });
}
