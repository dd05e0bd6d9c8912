//! Real threads at one table, and the errors of wrong use.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

use raddle_handles::{Handle, HandleError, InsertError, Kind, Owner, OwnerError, Table};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

const THREADS: usize = 4;

/// Counts its drop, and checks that it is dropped once.
struct Counted<'a> {
    drops: &'a AtomicUsize,
    alive: AtomicBool,
}

impl<'a> Counted<'a> {
    fn new(drops: &'a AtomicUsize) -> Self {
        Self {
            drops,
            alive: AtomicBool::new(true),
        }
    }

    fn check(&self) {
        assert!(
            self.alive.load(Ordering::Relaxed),
            "a value was dropped while in use"
        );
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Ordering::Relaxed), "dropped twice");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn race(body: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                start.wait();
                body(thread);
            });
        }
    });
}

#[test]
fn of_many_that_remove_a_handle_one_succeeds_and_the_value_goes_once() {
    let drops = AtomicUsize::new(0);
    let table = Table::new();
    for round in 1..=500 {
        let handle = table.insert(Counted::new(&drops)).unwrap();
        let removed = AtomicUsize::new(0);
        race(|_| {
            while table.with(handle, Counted::check).is_ok() {
                if table.remove(handle).is_ok() {
                    removed.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        assert_eq!(removed.into_inner(), 1);
        assert_eq!(drops.load(Ordering::Relaxed), round);
    }
}

#[test]
fn handles_that_go_round_between_threads_are_all_different_and_leak_nothing() {
    let drops = AtomicUsize::new(0);
    let table = Table::new();
    let mail: Mutex<Vec<Handle<Counted>>> = Mutex::default();
    const ROUNDS: usize = 5_000;
    race(|thread| {
        for round in 0..ROUNDS {
            let handle = table.insert(Counted::new(&drops)).unwrap();
            mail.lock().unwrap().push(handle);
            if round % 2 == thread % 2 {
                let others: Vec<_> = mail.lock().unwrap().drain(..).collect();
                for handle in others {
                    table.with(handle, Counted::check).unwrap();
                    table.remove(handle).unwrap();
                    assert_eq!(table.with(handle, Counted::check), Err(HandleError::Stale));
                }
            }
        }
    });
    let rest = mail.into_inner().unwrap();
    assert_eq!(table.count(), rest.len());
    drop(table);
    assert_eq!(drops.load(Ordering::Relaxed), THREADS * ROUNDS);
}

#[test]
fn weak_handles_expire_while_they_are_looked_up() {
    let drops = AtomicUsize::new(0);
    let table = Table::new();
    for _ in 0..500 {
        let value = Mutex::new(Some(Arc::new(Counted::new(&drops))));
        let owner = table.add_owner().unwrap();
        let handle = {
            let value = value.lock().unwrap();
            table.insert_weak(value.as_ref().unwrap(), owner).unwrap()
        };
        race(|thread| match thread {
            0 => drop(value.lock().unwrap().take()),
            1 => table.end_owner(owner).unwrap(),
            _ => while table.with(handle, Counted::check).is_ok() {},
        });
        assert_eq!(
            table.with(handle, Counted::check),
            Err(HandleError::Expired)
        );
        table.remove(handle).unwrap();
    }
    assert_eq!(drops.load(Ordering::Relaxed), 500);
    assert_eq!(table.count(), 0);
}

#[test]
fn slots_that_one_thread_fills_and_another_frees_are_used_again() {
    let table = Table::new();
    let capacity = |table: &Table<usize>| {
        let text = format!("{table:?}");
        let digits = text
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| !part.is_empty());
        digits.unwrap().parse::<usize>().unwrap()
    };
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel(100);
        let table = &table;
        scope.spawn(move || {
            for handle in receive {
                table.remove(handle).unwrap();
            }
        });
        for value in 0..20_000 {
            send.send(table.insert(value).unwrap()).unwrap();
        }
    });
    assert!(capacity(&table) < 1_000, "{table:?}");
}

#[test]
fn a_value_may_use_the_table_when_it_is_dropped() {
    struct Reentrant(Arc<Table<Reentrant>>, Option<Handle<Reentrant>>);
    impl Drop for Reentrant {
        fn drop(&mut self) {
            if let Some(next) = self.1 {
                self.0.remove(next).unwrap();
            }
        }
    }
    let table = Arc::new(Table::new());
    let mut next = None;
    for _ in 0..100 {
        next = Some(table.insert(Reentrant(table.clone(), next)).unwrap());
    }
    table.remove(next.unwrap()).unwrap();
    assert_eq!(table.count(), 0);
}

#[test]
fn a_value_whose_drop_panics_leaves_the_table_whole() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a bomb");
        }
    }
    let table = Table::new();
    let handle = table.insert(Bomb).unwrap();
    let removed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.remove(handle)));
    assert!(removed.is_err());
    assert_eq!(table.remove(handle), Err(HandleError::Stale));
    assert_eq!(table.count(), 0);
}

#[test]
fn a_handle_of_another_table_is_stale() {
    let (one, other) = (Table::new(), Table::new());
    for value in 0..100 {
        one.insert(value).unwrap();
        let handle = other.insert(value).unwrap();
        assert_eq!(one.get(handle), Err(HandleError::Stale));
    }
}

#[test]
fn every_error_says_what_it_is() {
    let table = Table::new();
    let normal = table.insert(5).unwrap();
    assert_eq!(table.address(normal), Err(HandleError::WrongKind));
    assert_eq!(table.get_pinned(normal), Err(HandleError::WrongKind));
    assert_eq!(table.end_owner(Owner::NOBODY), Err(OwnerError::Expired));
    assert_eq!(
        table.end_owner(Owner::from_bits(77)),
        Err(OwnerError::Expired)
    );
    let weak = table.insert_weak(&Arc::new(5), Owner::from_bits(u32::MAX));
    assert_eq!(weak, Err(InsertError::OwnerExpired));
    let owners: Vec<_> = (0..256).map(|_| table.add_owner().unwrap()).collect();
    assert_eq!(table.add_owner(), Err(OwnerError::TooMany));
    table.end_owner(owners[100]).unwrap();
    assert_ne!(table.add_owner().unwrap(), owners[100]);
    assert_eq!(table.kind(normal), Ok(Kind::Normal));
    for (text, expected) in [
        (
            HandleError::Stale.to_string(),
            "the handle was removed, or is not of this table",
        ),
        (
            InsertError::Full.to_string(),
            "the table of handles is full",
        ),
        (
            OwnerError::TooMany.to_string(),
            "too many owners of handles",
        ),
    ] {
        assert_eq!(text, expected);
    }
}

#[test]
fn a_table_is_for_threads_if_its_values_are() {
    fn is_sync<T: Sync + Send>(_: &T) {}
    is_sync(&Table::<String>::new());
    is_sync(&Handle::<std::rc::Rc<u8>>::from_bits(1));
}
