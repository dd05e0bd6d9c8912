//! Measurements of threads that block by calls.

use crate::kinds::Kind;
use crate::{DEPTHS, metric, resident};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

const FRAMES: u32 = 10_000;
const DEEP_STACK: usize = 4 << 20;
/// Deep threads that there are at a time, and those that come one after the other.
const DEEP: u32 = 50;
const DEEP_ROUNDS: u32 = 100;

/// The operations of every kind.
pub(crate) fn all<K: Kind>(rounds: u32) {
    let started = Instant::now();
    (0..rounds).for_each(|_| K::join(K::spawn(|| ())));
    metric("create+join", started, rounds);
    reuse::<K>(rounds);
    yields::<K>(rounds);
    for depth in DEPTHS {
        let started = Instant::now();
        (0..rounds / 10).for_each(|_| _ = black_box(wait_at::<K>(depth)));
        metric(&format!("wait-{depth}"), started, rounds / 10);
    }
}

/// Operations with a yield that lets all others run: not every scheduler has one.
pub(crate) fn fair<K: Kind>(rounds: u32) {
    let before = resident();
    let all_wait = |name: &str| {
        let memory = (resident() - before) / f64::from(K::WAITING);
        println!("METRIC {name} {memory:.0} B");
    };
    create::<K>("create", K::WAITING, all_wait, |f| K::spawn(f));
    resume::<K>(rounds);
}

/// Makes `count` threads that all wait at once.
fn create<K: Kind>(
    name: &str,
    count: u32,
    all_wait: impl FnOnce(&str),
    spawn: impl Fn(Box<dyn FnOnce() + Send>) -> K::Handle,
) {
    static REACHED: AtomicU32 = AtomicU32::new(0);
    REACHED.store(0, Ordering::Relaxed);
    let started = Instant::now();
    let gates = (0..count).map(|_| {
        let (setter, waiter) = K::pair();
        let body = move || {
            REACHED.fetch_add(1, Ordering::Relaxed);
            K::wait(waiter);
        };
        (setter, spawn(Box::new(body)))
    });
    let gates: Vec<_> = gates.collect();
    while REACHED.load(Ordering::Relaxed) < count {
        K::yield_now();
    }
    metric(name, started, count);
    all_wait("resident");
    for (setter, handle) in gates {
        K::set(setter);
        K::join(handle);
    }
}

fn reuse<K: Kind>(rounds: u32) {
    fn link<K: Kind>(left: u32, end: K::Setter) {
        match left {
            0 => K::set(end),
            _ => drop(K::spawn(move || link::<K>(left - 1, end))),
        }
    }
    let (setter, waiter) = K::pair();
    let started = Instant::now();
    link::<K>(rounds, setter);
    K::wait(waiter);
    metric("reuse", started, rounds);
}

fn yields<K: Kind>(rounds: u32) {
    let yields = move || (0..rounds).for_each(|_| K::yield_now());
    let started = Instant::now();
    let both = [K::spawn(yields), K::spawn(yields)];
    both.into_iter().for_each(K::join);
    metric("yield", started, 2 * rounds);
}

fn resume<K: Kind>(rounds: u32) {
    let slot = Arc::new(Mutex::new(None));
    let place = Arc::clone(&slot);
    let started = Instant::now();
    let waits = K::spawn(move || {
        for _ in 0..rounds {
            let (setter, waiter) = K::pair();
            *place.lock().unwrap() = Some(setter);
            K::wait(waiter);
        }
    });
    let sets = K::spawn(move || {
        for _ in 0..rounds {
            let setter = loop {
                if let Some(setter) = slot.lock().unwrap().take() {
                    break setter;
                }
                K::yield_now();
            };
            K::set(setter);
        }
    });
    [waits, sets].into_iter().for_each(K::join);
    metric("resume", started, rounds);
}

/// Waits for a new thread from below `depth` calls.
#[inline(never)]
fn wait_at<K: Kind>(depth: u32) -> u32 {
    match depth {
        0 => {
            K::join(K::spawn(|| ()));
            0
        }
        _ => black_box(wait_at::<K>(depth - 1)) + 1,
    }
}

/// Uses some two hundred bytes of stack in each of `frames` frames.
#[inline(never)]
fn deep(frames: u32) -> u64 {
    let room = black_box([u64::from(frames); 16]);
    match frames {
        0 => room[0],
        _ => black_box(deep(frames - 1) + room[1]),
    }
}

/// Operations of kinds with stacks of any size.
pub(crate) fn stacks<K: Kind>() {
    let below = |f: Box<dyn FnOnce() + Send>| {
        K::spawn_with_stack(DEEP_STACK, move || {
            deep(FRAMES);
            f();
        })
    };
    create::<K>("deep-create", DEEP, |_| (), below);
    let started = Instant::now();
    for _ in 0..DEEP_ROUNDS {
        K::join(K::spawn_with_stack(DEEP_STACK, || _ = deep(FRAMES)));
    }
    metric("deep-reuse", started, DEEP_ROUNDS);
}

/// Two threads that hand a turn to each other: the cost of one hand-over.
pub(crate) fn hand_over<K: Kind>(rounds: u32) {
    let turn = Arc::new((Mutex::new(0u32), Condvar::new()));
    let started = Instant::now();
    let player = |me: u32| {
        let turn = Arc::clone(&turn);
        K::spawn(move || {
            let (lock, changed) = &*turn;
            for _ in 0..rounds {
                let mut now = lock.lock().unwrap();
                while *now != me {
                    now = changed.wait(now).unwrap();
                }
                *now = 1 - me;
                changed.notify_one();
            }
        })
    };
    let both = [player(0), player(1)];
    both.into_iter().for_each(K::join);
    metric("hand-over", started, 2 * rounds);
}

/// A byte that goes to and fro over a connection of the loopback device.
pub(crate) fn echo<K: Kind>(rounds: u32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = K::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    });
    let client = K::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let started = Instant::now();
        let mut byte = [1];
        for _ in 0..rounds {
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
        metric("socket-round-trip", started, rounds);
    });
    [client, server].into_iter().for_each(K::join);
}
