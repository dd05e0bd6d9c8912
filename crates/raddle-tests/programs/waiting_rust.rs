//! Threads of Rust's standard library that wait for a lock, a channel and a condition variable.
//! Prints "ready" once all have begun.

use std::io::Write;
use std::sync::{Condvar, Mutex, mpsc};
use std::thread::{self, Builder};
use std::time::Duration;

static LOCK: Mutex<u32> = Mutex::new(0);
static CONDITION: Condvar = Condvar::new();

#[inline(never)]
fn wait_for_lock() -> u32 {
    *LOCK.lock().unwrap() + 1
}

#[inline(never)]
fn wait_for_message(from: &mpsc::Receiver<u32>) -> u32 {
    from.recv().map_or(1, |it| it + 1)
}

#[inline(never)]
fn wait_for_condition() -> u32 {
    static OTHER: Mutex<u32> = Mutex::new(0);
    let guard = OTHER.lock().unwrap();
    let guard = CONDITION.wait_while(guard, |it| *it == 0).unwrap();
    *guard + 1
}

fn main() {
    let _held = LOCK.lock().unwrap();
    let (sender, receiver) = mpsc::channel();
    let start = |name: &str, body: Box<dyn FnOnce() -> u32 + Send>| {
        Builder::new().name(name.into()).spawn(body).unwrap()
    };
    let _threads = [
        start("lock", Box::new(wait_for_lock)),
        start("message", Box::new(move || wait_for_message(&receiver))),
        start("condition", Box::new(wait_for_condition)),
    ];
    thread::sleep(Duration::from_millis(300));
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        thread::sleep(Duration::from_secs(1000));
        let _ = sender.send(0);
    }
}
