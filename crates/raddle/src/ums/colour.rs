//! Different places for workers' frames.
//!
//! Stacks end at page boundaries, and threads of one kind lay the same frames below: the lines that
//! a switch touches of a thousand stacks would lie in a few sets of the CPU's caches, which hold a
//! dozen lines each. So workers begin at different distances from their stack's end.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More than a yielding worker touches of its stack, in bytes.
const STEP: usize = 192;

/// Runs `run` at another distance from the stack's end than the last few workers.
pub(super) fn spread(run: &mut dyn FnMut()) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    match NEXT.fetch_add(1, Ordering::Relaxed) % 8 {
        0 => below::<0>(run),
        1 => below::<{ 4 * STEP }>(run),
        2 => below::<STEP>(run),
        3 => below::<{ 5 * STEP }>(run),
        4 => below::<{ 2 * STEP }>(run),
        5 => below::<{ 6 * STEP }>(run),
        6 => below::<{ 3 * STEP }>(run),
        _ => below::<{ 7 * STEP }>(run),
    }
}

#[inline(never)]
fn below<const BYTES: usize>(run: &mut dyn FnMut()) {
    let room = [const { MaybeUninit::<u8>::uninit() }; BYTES];
    black_box(&room);
    run();
    black_box(&room);
}
