//! A pipeline with backpressure: stages are green threads, and bounded channels join them. A stage
//! that is too fast parks until the next one has room, so that memory stays bounded.
//!
//! `cargo run --release --example pipeline`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

/// How many items may wait between two stages.
const ROOM: usize = 16;
const ITEMS: u64 = 10_000;

/// Starts a stage that transforms its input, and returns its output. The stage ends when its input
/// does.
fn stage<T: Send + 'static, U: Send + 'static>(
    input: Receiver<T>,
    work: impl Fn(T) -> U + Send + 'static,
) -> Receiver<U> {
    let (to, output) = sync_channel(ROOM);
    raddle::spawn(move || {
        for item in input {
            if to.send(work(item)).is_err() {
                return; // the receiver is gone
            }
        }
    });
    output
}

pub(crate) fn main() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let (to, numbers) = sync_channel(ROOM);
    raddle::spawn(move || {
        for number in 0..ITEMS {
            if to.send(number).is_err() {
                return;
            }
            MADE.fetch_add(1, Ordering::Relaxed);
        }
    });
    let squares = stage(numbers, |number| number * number);
    let texts = stage(squares, |square| square.to_string());
    let lengths = stage(texts, |text| text.len());

    let (mut sum, mut most_ahead) = (0, 0);
    for (taken, length) in lengths.iter().enumerate() {
        sum += length;
        // A value that was made and not yet taken is in a channel or in a stage's hands.
        most_ahead = most_ahead.max(MADE.load(Ordering::Relaxed).saturating_sub(taken));
    }
    let expected: usize = (0..ITEMS).map(|n| (n * n).to_string().len()).sum();
    assert_eq!(sum, expected);
    assert!(
        most_ahead <= 4 * (ROOM + 1) + 1,
        "{most_ahead} items under way"
    );
    println!("{ITEMS} items went through");
}
