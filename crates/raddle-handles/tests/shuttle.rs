//! A table used by many threads, under random schedules.
//!
//! `RUSTFLAGS="--cfg raddle_shuttle" cargo test -p raddle-handles --release --test shuttle`
#![cfg(raddle_shuttle)]

use raddle_handles::{Handle, HandleError, Table};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::Arc;

const SCHEDULES: usize = 3_000;

fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES / 4, 3);
}

#[test]
fn threads_that_remove_each_others_handles_leave_nothing_behind() {
    explore(|| {
        let values: Vec<_> = (0..4).map(Arc::new).collect();
        let table = Arc::new(Table::<usize>::new());
        let mail = Arc::new(Mutex::new(Vec::<(Handle<usize>, usize)>::new()));
        let threads: Vec<_> = (0..4)
            .map(|n| {
                let (table, mail, value) = (table.clone(), mail.clone(), values[n].clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let handle = table.insert_arc(value.clone()).unwrap();
                        mail.lock().unwrap().push((handle, n));
                        let taken = mail.lock().unwrap().swap_remove(0);
                        assert_eq!(*table.get(taken.0).unwrap(), taken.1);
                        table.remove(taken.0).unwrap();
                        assert_eq!(table.get(taken.0), Err(HandleError::Stale));
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(table.count(), 0);
        assert!(values.iter().all(|value| Arc::strong_count(value) == 1));
    });
}

#[test]
fn owners_end_while_their_handles_are_made_and_used() {
    explore(|| {
        let value = Arc::new(5);
        let table = Arc::new(Table::new());
        let owner = table.add_owner().unwrap();
        let users: Vec<_> = (0..3)
            .map(|_| {
                let (table, value) = (table.clone(), value.clone());
                thread::spawn(move || {
                    let handles: Vec<_> = (0..3)
                        .filter_map(|_| table.insert_weak(&value, owner).ok())
                        .collect();
                    for handle in handles {
                        let found = table.with(handle, |value| *value);
                        assert!(matches!(found, Ok(5) | Err(HandleError::Expired)));
                        table.remove(handle).unwrap();
                    }
                })
            })
            .collect();
        table.end_owner(owner).unwrap();
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!(table.count(), 0);
        assert_eq!((Arc::strong_count(&value), Arc::weak_count(&value)), (1, 0));
    });
}
