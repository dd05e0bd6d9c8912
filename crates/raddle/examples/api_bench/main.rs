//! What threads of each kind cost: made and used again, yielding, handing a turn over, waiting from
//! deep stacks, and sockets.
//!
//! `api_bench KIND ROUNDS` prints `METRIC name value unit` lines for one kind: `light`, `green`,
//! `std` (kernel threads), `may` (coroutines of the crate may) or `tokio` (tasks).
//!
//! - *create+join*: one after the other. *create*: a thread made while all before it wait, until
//!   the last one waits, too. *reuse*: each starts its successor and ends.
//! - *switch*: one direct switch from a stack to another and nothing else: the least cost of each
//!   wait of such a thread.
//! - *yield*: two threads that yield to each other. *resume*: one waits again and again for a
//!   completion that another one sets when it finds it. *hand-over*: one turn of two threads that
//!   pass it by a lock and a condition; a round trip has two.
//! - *resident*: the memory of one waiting thread.
//! - *deep-create*, *deep-reuse*: as create and create+join, for threads that call to a depth of
//!   10,000 frames.
//! - *wait-N*: at a depth of N calls, make one and wait for its end; then return to the top. Tasks
//!   have no stacks: there each call is a future of its own, and the wait an `await`.
//! - *socket-round-trip*: a byte there and back between two, over the loopback device.

mod kinds;
mod shapes;
mod switching;
mod tasks;

use kinds::{Coroutine, Green, Kernel, Kind, Light};
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok());
    let rounds = rounds.unwrap_or(100_000);
    match kind.as_str() {
        "light" => in_one::<Light>(move || {
            shapes::all::<Light>(rounds);
            switching::measure(switching::Kind::Light, rounds);
            shapes::fair::<Light>(rounds);
            shapes::stacks::<Light>();
        }),
        "green" => in_one::<Green>(move || {
            shapes::all::<Green>(rounds);
            switching::measure(switching::Kind::Green, rounds);
            shapes::fair::<Green>(rounds);
            shapes::stacks::<Green>();
            shapes::hand_over::<Green>(rounds);
            shapes::echo::<Green>(rounds / 10);
        }),
        "std" => {
            let rounds = rounds / 10;
            shapes::all::<Kernel>(rounds);
            shapes::fair::<Kernel>(rounds);
            shapes::stacks::<Kernel>();
            shapes::hand_over::<Kernel>(rounds);
            shapes::echo::<Kernel>(rounds);
        }
        "may" => {
            may::config().set_workers(carriers());
            in_one::<Coroutine>(move || {
                shapes::all::<Coroutine>(rounds);
                kinds::coroutines_hand_over(rounds);
            });
        }
        "tokio" => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(carriers()).enable_all().build();
            runtime.unwrap().block_on(async move {
                tokio::spawn(tasks::all(rounds)).await.unwrap();
            });
        }
        _ => {
            eprintln!("api_bench: name one of light, green, std, may, tokio");
            std::process::exit(2);
        }
    }
}

/// Measures from within a thread of the measured kind.
fn in_one<K: Kind>(measure: impl FnOnce() + Send + 'static) {
    K::join(K::spawn(measure));
}

/// The number of carriers that `RADDLE_CARRIERS` gives, for every kind.
fn carriers() -> usize {
    let asked = std::env::var("RADDLE_CARRIERS").ok();
    let asked = asked.and_then(|count| count.parse().ok());
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Prints how long each of the rounds took since then.
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

/// How many threads wait at a time.
const WAITING: u32 = 10_000;
/// Depths to wait at.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];
