//! Deadlocks of locks of Rust's library, which note no owner. Prints "ready" before the last wait.

use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::thread;

fn main() {
    let locks = Arc::new((Mutex::new(0), RwLock::new(0)));
    let both = Arc::new(Barrier::new(2));
    let (our_locks, our_barrier) = (locks.clone(), both.clone());
    let first = thread::spawn(move || {
        let guard = our_locks.0.lock().unwrap();
        our_barrier.wait();
        *our_locks.1.write().unwrap() + *guard
    });
    let second = thread::spawn(move || {
        let guard = locks.1.read().unwrap();
        both.wait();
        *locks.0.lock().unwrap() + *guard
    });
    println!("ready");
    println!("{}", first.join().unwrap() + second.join().unwrap());
}
