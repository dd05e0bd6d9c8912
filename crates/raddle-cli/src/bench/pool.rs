//! Thread pools of the explicit interface and others, queueing and draining the same work.
//!
//! Unlike the other programs this one is compiled with Raddle: it is an example of the `raddle`
//! crate, and lies beside this command in a build folder.

use super::harness::{Case, Work};
use super::process::EVERY_WAY;
use super::programs::{Workshop, skipped};

const ITEMS: u32 = 1_000_000;
const POOLS: [&str; 3] = ["raddle", "rayon", "mutex"];

pub fn cases(workshop: &Workshop) -> Vec<Case> {
    let beside = std::env::current_exe().map(|path| path.with_file_name("examples/pool_bench"));
    let Some(program) = beside.ok().filter(|path| path.is_file()) else {
        let how = "cargo build --release --package raddle --example pool_bench";
        skipped("pool", &format!("its program is not there; {how} makes it"));
        return Vec::new();
    };
    let case = |pool: &str| Case {
        title: pool.into(),
        toolchain: "rustc, as this command".into(),
        command: vec![program.clone().into(), pool.into(), workshop.rounds(ITEMS)],
        work: Work::Prints,
        ways: &EVERY_WAY,
    };
    POOLS.map(case).into()
}
