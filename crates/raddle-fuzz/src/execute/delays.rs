//! Delays between calls, with the effect of a busy machine: any agent may get the CPU late, before
//! a call, between a call and the line about it, and before it ends.
//!
//! Every result of a case with delays is possible without them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::board::sleep;
use crate::random::Random;

/// The case's seed, 0 for no delay. Written before the case has threads.
static SEED: AtomicU64 = AtomicU64::new(0);

/// The number of places in a hundred with a delay.
const PERCENT: u64 = 15;
const LENGTHS_MS: &[i64] = &[1, 3, 7, 13, 25];

/// Where an agent may be delayed.
#[derive(Clone, Copy)]
pub(super) enum Point {
    BeforeCall,
    AfterCall,
    BeforeLook,
    BeforeEnd,
}

/// Delays the case of this process by a seed.
pub(super) fn begin(seed: u64) {
    SEED.store(seed, Relaxed);
}

/// Delays the calling agent, perhaps.
pub(super) fn at(point: Point, agent: u8, step: usize) {
    let seed = SEED.load(Relaxed);
    if seed == 0 {
        return;
    }
    let place = (step as u64) << 16 | u64::from(agent) << 8 | point as u64;
    let mut random = Random::new(seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if random.chance(PERCENT) {
        sleep(*random.pick(LENGTHS_MS) * 1_000_000);
    }
}

/// The seed of a case's delays, from its server's seed and its name; never 0.
pub(super) fn seed_of(seed: u64, id: &str) -> u64 {
    let mixed = id.bytes().fold(seed, |mixed, byte| {
        (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed | 1
}
