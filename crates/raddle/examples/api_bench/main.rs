//! What threads of each kind cost: made and joined, yielding, handing a turn over, waiting, deep
//! stacks, and sockets.
//!
//! `api_bench KIND ROUNDS` prints `METRIC name value unit` lines for one kind: `light`, `green`,
//! `std` (kernel threads), `may` (coroutines of the crate may) or `tokio` (tasks).
//!
//! - `create+join`: one thread made and joined before the next is made.
//! - `switch`: one direct switch from a stack to another and nothing else: what a thread of that
//!   kind costs at least each time that it waits.
//! - `yield`: one yield of two threads that do nothing else.
//! - `hand-over`: one turn of two threads that wait for each other by mutex and condition: a round
//!   trip has two.
//! - `resident`: memory that one more waiting thread takes.

mod switching;

use raddle::light;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok());
    let rounds = rounds.unwrap_or(100_000);
    match kind.as_str() {
        "light" => light::spawn(move || light_threads(rounds)).join().unwrap(),
        "green" => raddle::spawn(move || green_threads(rounds)).join().unwrap(),
        "std" => kernel_threads(rounds / 10),
        "may" => {
            may::config().set_workers(carriers());
            // SAFETY: the coroutine uses no thread-local.
            unsafe { may::coroutine::spawn(move || coroutines(rounds)) }
                .join()
                .unwrap();
        }
        "tokio" => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(carriers()).enable_all().build();
            runtime.unwrap().block_on(async move {
                tokio::spawn(tasks(rounds)).await.unwrap();
            });
        }
        _ => {
            eprintln!("api_bench: name one of light, green, std, may, tokio");
            std::process::exit(2);
        }
    }
}

/// As many as `RADDLE_CARRIERS` says, for every kind.
fn carriers() -> usize {
    let asked = std::env::var("RADDLE_CARRIERS").ok();
    let asked = asked.and_then(|count| count.parse().ok());
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn metric(name: &str, started: Instant, rounds: u32) {
    let each = started.elapsed().as_nanos() as f64 / f64::from(rounds.max(1));
    println!("METRIC {name} {each:.1} ns");
}

/// Resident memory of this process in bytes.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0.0) * 4096.0
}

fn memory(before: f64, count: u32) {
    let each = (resident() - before) / f64::from(count);
    println!("METRIC resident {each:.0} B");
}

/// Uses about a kilobyte of stack in each of `frames` frames.
fn deep(frames: u32) -> u64 {
    let room = std::hint::black_box([u64::from(frames); 16]);
    match frames {
        0 => room[0],
        _ => std::hint::black_box(deep(frames - 1) + room[1]),
    }
}

const FRAMES: u32 = 10_000;
const DEEP_STACK: usize = 4 << 20;
const WAITING: u32 = 10_000;

fn light_threads(rounds: u32) {
    let started = Instant::now();
    (0..rounds).for_each(|_| light::spawn(|| ()).join().unwrap());
    metric("create+join", started, rounds);

    switching::measure(switching::Kind::Light, rounds);

    let started = Instant::now();
    let yields = move || (0..rounds).for_each(|_| light::yield_now());
    let both = [light::spawn(yields), light::spawn(yields)];
    both.into_iter().for_each(|thread| thread.join().unwrap());
    metric("yield", started, 2 * rounds);

    let before = resident();
    let gates = (0..WAITING).map(|_| {
        let (gate, opened) = raddle::completion::pair::<()>();
        (gate, light::spawn(move || opened.wait().unwrap()))
    });
    let gates: Vec<_> = gates.collect();
    (0..100).for_each(|_| light::yield_now());
    memory(before, WAITING);
    for (gate, thread) in gates {
        gate.set(()).unwrap();
        thread.join().unwrap();
    }

    let started = Instant::now();
    let builder = light::Builder::new().stack_size(DEEP_STACK);
    for _ in 0..100 {
        builder.spawn(|| deep(FRAMES)).unwrap().join().unwrap();
    }
    metric("deep-stack", started, 100);
}

/// Two threads that hand a turn to each other: the cost of one hand-over.
fn hand_over(spawn: impl Fn(Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()>, rounds: u32) {
    let turn = Arc::new((Mutex::new(0u32), Condvar::new()));
    let started = Instant::now();
    let player = |me: u32| {
        let turn = Arc::clone(&turn);
        spawn(Box::new(move || {
            let (lock, changed) = &*turn;
            for _ in 0..rounds {
                let mut now = lock.lock().unwrap();
                while *now != me {
                    now = changed.wait(now).unwrap();
                }
                *now = 1 - me;
                changed.notify_one();
            }
        }))
    };
    let both = [player(0), player(1)];
    both.into_iter().for_each(|join| join());
    metric("hand-over", started, 2 * rounds);
}

/// A byte that goes to and fro over a connection of the loopback device.
fn echo(spawn: impl Fn(Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()>, rounds: u32) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = spawn(Box::new(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    }));
    let client = spawn(Box::new(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let started = Instant::now();
        let mut byte = [1];
        for _ in 0..rounds {
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
        metric("socket-round-trip", started, rounds);
    }));
    client();
    server();
}

fn green(f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()> {
    let thread = raddle::spawn(f);
    Box::new(move || thread.join().unwrap())
}

fn kernel(f: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce()> {
    let thread = std::thread::spawn(f);
    Box::new(move || thread.join().unwrap())
}

fn green_threads(rounds: u32) {
    let started = Instant::now();
    (0..rounds).for_each(|_| raddle::spawn(|| ()).join().unwrap());
    metric("create+join", started, rounds);

    switching::measure(switching::Kind::Green, rounds);

    let started = Instant::now();
    let yields = || {
        green(Box::new(move || {
            (0..rounds).for_each(|_| raddle::yield_now())
        }))
    };
    let both = [yields(), yields()];
    both.into_iter().for_each(|join| join());
    metric("yield", started, 2 * rounds);
    hand_over(green, rounds);

    let before = resident();
    let gates = (0..WAITING).map(|_| {
        let (gate, opened) = raddle::completion::pair::<()>();
        (gate, raddle::spawn(move || opened.wait().unwrap()))
    });
    let gates: Vec<_> = gates.collect();
    std::thread::sleep(std::time::Duration::from_millis(50));
    memory(before, WAITING);
    for (gate, thread) in gates {
        gate.set(()).unwrap();
        thread.join().unwrap();
    }

    let started = Instant::now();
    for _ in 0..100 {
        let builder = raddle::Builder::new().stack_size(DEEP_STACK);
        builder.spawn(|| deep(FRAMES)).unwrap().join().unwrap();
    }
    metric("deep-stack", started, 100);
    echo(green, rounds / 10);
}

fn kernel_threads(rounds: u32) {
    let started = Instant::now();
    (0..rounds).for_each(|_| std::thread::spawn(|| ()).join().unwrap());
    metric("create+join", started, rounds);

    let started = Instant::now();
    let yields = || {
        kernel(Box::new(move || {
            (0..rounds).for_each(|_| std::thread::yield_now())
        }))
    };
    let both = [yields(), yields()];
    both.into_iter().for_each(|join| join());
    metric("yield", started, 2 * rounds);
    hand_over(kernel, rounds);

    let started = Instant::now();
    for _ in 0..100 {
        let builder = std::thread::Builder::new().stack_size(DEEP_STACK);
        builder.spawn(|| deep(FRAMES)).unwrap().join().unwrap();
    }
    metric("deep-stack", started, 100);
    echo(kernel, rounds);
}

fn coroutines(rounds: u32) {
    use may::coroutine;
    let spawn = |f: Box<dyn FnOnce() + Send>| -> Box<dyn FnOnce()> {
        // SAFETY: the coroutines here use no thread-local and little stack.
        let routine = unsafe { coroutine::spawn(f) };
        Box::new(move || routine.join().unwrap())
    };
    let started = Instant::now();
    for _ in 0..rounds {
        // SAFETY: as above.
        unsafe { coroutine::spawn(|| ()) }.join().unwrap();
    }
    metric("create+join", started, rounds);

    let started = Instant::now();
    let yields = || {
        spawn(Box::new(move || {
            (0..rounds).for_each(|_| coroutine::yield_now())
        }))
    };
    let both = [yields(), yields()];
    both.into_iter().for_each(|join| join());
    metric("yield", started, 2 * rounds);

    let turn = Arc::new((may::sync::Mutex::new(0u32), may::sync::Condvar::new()));
    let started = Instant::now();
    let player = |me: u32| {
        let turn = Arc::clone(&turn);
        spawn(Box::new(move || {
            let (lock, changed) = &*turn;
            for _ in 0..rounds {
                let mut now = lock.lock().unwrap();
                while *now != me {
                    now = changed.wait(now).unwrap();
                }
                *now = 1 - me;
                changed.notify_one();
            }
        }))
    };
    let both = [player(0), player(1)];
    both.into_iter().for_each(|join| join());
    metric("hand-over", started, 2 * rounds);
}

async fn tasks(rounds: u32) {
    let started = Instant::now();
    for _ in 0..rounds {
        tokio::spawn(async {}).await.unwrap();
    }
    metric("create+join", started, rounds);

    let started = Instant::now();
    let yields = || {
        tokio::spawn(async move {
            for _ in 0..rounds {
                tokio::task::yield_now().await;
            }
        })
    };
    let (one, other) = (yields(), yields());
    one.await.unwrap();
    other.await.unwrap();
    metric("yield", started, 2 * rounds);

    let bells = Arc::new([tokio::sync::Notify::new(), tokio::sync::Notify::new()]);
    let started = Instant::now();
    let player = |me: usize| {
        let bells = Arc::clone(&bells);
        tokio::spawn(async move {
            for _ in 0..rounds {
                bells[me].notified().await;
                bells[1 - me].notify_one();
            }
        })
    };
    let (one, other) = (player(0), player(1));
    bells[0].notify_one();
    one.await.unwrap();
    other.await.unwrap();
    metric("hand-over", started, 2 * rounds);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).await.unwrap() == 1 {
            stream.write_all(&byte).await.unwrap();
        }
    });
    let client = tokio::spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let started = Instant::now();
        let mut byte = [1];
        for _ in 0..rounds / 10 {
            stream.write_all(&byte).await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
        }
        metric("socket-round-trip", started, rounds / 10);
    });
    client.await.unwrap();
    server.await.unwrap();
}
