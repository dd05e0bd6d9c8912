//! The same for tokio's tasks, which wait by `await`.

use crate::{DEPTHS, WAITING, metric, resident};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

pub(crate) async fn all(rounds: u32) {
    let started = Instant::now();
    for _ in 0..rounds {
        tokio::spawn(async {}).await.unwrap();
    }
    metric("create+join", started, rounds);
    create().await;
    reuse(rounds).await;
    yields(rounds).await;
    resume(rounds).await;
    for depth in DEPTHS {
        let started = Instant::now();
        for _ in 0..rounds / 10 {
            black_box(wait_at(depth).await);
        }
        metric(&format!("wait-{depth}"), started, rounds / 10);
    }
    hand_over(rounds).await;
    echo(rounds / 10).await;
}

async fn create() {
    static REACHED: AtomicU32 = AtomicU32::new(0);
    let before = resident();
    let started = Instant::now();
    let gates = (0..WAITING).map(|_| {
        let (setter, waiter) = oneshot::channel::<()>();
        let waits = async move {
            REACHED.fetch_add(1, Ordering::Relaxed);
            waiter.await.unwrap();
        };
        (setter, tokio::spawn(waits))
    });
    let gates: Vec<_> = gates.collect();
    while REACHED.load(Ordering::Relaxed) < WAITING {
        yield_now().await;
    }
    metric("create", started, WAITING);
    let memory = (resident() - before) / f64::from(WAITING);
    println!("METRIC resident {memory:.0} B");
    for (setter, handle) in gates {
        setter.send(()).unwrap();
        handle.await.unwrap();
    }
}

async fn reuse(rounds: u32) {
    /// Not an `async fn`: it would be part of its own type.
    fn link(left: u32, end: oneshot::Sender<()>) {
        match left {
            0 => end.send(()).unwrap(),
            _ => drop(tokio::spawn(async move { link(left - 1, end) })),
        }
    }
    let (setter, waiter) = oneshot::channel();
    let started = Instant::now();
    link(rounds, setter);
    waiter.await.unwrap();
    metric("reuse", started, rounds);
}

async fn yields(rounds: u32) {
    let started = Instant::now();
    let yields = || {
        tokio::spawn(async move {
            for _ in 0..rounds {
                yield_now().await;
            }
        })
    };
    let (one, other) = (yields(), yields());
    one.await.unwrap();
    other.await.unwrap();
    metric("yield", started, 2 * rounds);
}

async fn resume(rounds: u32) {
    let slot = Arc::new(Mutex::new(None));
    let place = Arc::clone(&slot);
    let started = Instant::now();
    let waits = tokio::spawn(async move {
        for _ in 0..rounds {
            let (setter, waiter) = oneshot::channel::<()>();
            *place.lock().unwrap() = Some(setter);
            waiter.await.unwrap();
        }
    });
    let sets = tokio::spawn(async move {
        for _ in 0..rounds {
            let setter = loop {
                let found = slot.lock().unwrap().take();
                match found {
                    Some(setter) => break setter,
                    None => yield_now().await,
                }
            };
            setter.send(()).unwrap();
        }
    });
    waits.await.unwrap();
    sets.await.unwrap();
    metric("resume", started, rounds);
}

/// Waits for a new task from below `depth` futures.
fn wait_at(depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        match depth {
            0 => {
                tokio::spawn(async {}).await.unwrap();
                0
            }
            _ => black_box(wait_at(depth - 1).await) + 1,
        }
    })
}

async fn hand_over(rounds: u32) {
    let bells = Arc::new([Notify::new(), Notify::new()]);
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
}

async fn echo(rounds: u32) {
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
        for _ in 0..rounds {
            stream.write_all(&byte).await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
        }
        metric("socket-round-trip", started, rounds);
    });
    client.await.unwrap();
    server.await.unwrap();
}
