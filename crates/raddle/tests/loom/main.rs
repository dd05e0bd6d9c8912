//! Every interleaving (up to a bound on preemptions) of the crate's lock-free code, under loom.
//!
//! A model never blocks: each thread does its part once, and the end state is judged.
//!
//! `RUSTFLAGS="--cfg raddle_loom" cargo test -p raddle --release --test loom`
#![cfg(raddle_loom)]

mod completion;
mod ends;
mod hand_over;
mod inbox;
mod pool;
mod pool_deque;
mod pool_summons;
mod token;

/// Runs `model` over all interleavings with up to `preemptions` preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}
