//! Threads of Rust that sort, look up and wait, for the seconds of the first argument: iterators
//! and closures, which compilers inline.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

static TURN: Mutex<u64> = Mutex::new(0);
static TURNED: Condvar = Condvar::new();

fn sorts(end: Instant) -> usize {
    let mut sum = 0;
    while Instant::now() < end {
        let numbers = (0..2000u32).map(|it| it.wrapping_mul(2_654_435_761));
        let mut words: Vec<String> = numbers.map(|it| it.to_string()).collect();
        words.sort_by(|a, b| b.cmp(a));
        sum += words.iter().filter(|word| word.ends_with('7')).count();
    }
    sum
}

fn looks_up(end: Instant) -> usize {
    let mut counts: HashMap<String, usize> = HashMap::new();
    while Instant::now() < end {
        (0..1000).for_each(|it: u32| *counts.entry((it % 500).to_string()).or_default() += 1);
    }
    counts.values().sum()
}

fn waits(me: u64, end: Instant, done: &mpsc::Sender<u64>) {
    while Instant::now() < end {
        let guard = TURN.lock().unwrap();
        let limit = Duration::from_millis(20);
        let (mut guard, _) = TURNED
            .wait_timeout_while(guard, limit, |turn| *turn % 2 != me)
            .unwrap();
        thread::sleep(Duration::from_millis(1));
        *guard += 1;
        TURNED.notify_all();
    }
    done.send(me).unwrap();
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(2.0, |it| it.parse().unwrap());
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let (done, ends) = mpsc::channel();
    let mut threads = vec![thread::spawn(move || sorts(end)), thread::spawn(move || looks_up(end))];
    for me in 0..2 {
        let done = done.clone();
        let run = move || {
            waits(me, end, &done);
            0
        };
        threads.push(thread::spawn(run));
    }
    drop(done);
    let waited: u64 = ends.iter().sum();
    let sum: usize = threads.into_iter().map(|it| it.join().unwrap()).sum();
    assert!(waited == 1 && sum > 0);
}
