//! Programs that are compiled with Raddle: examples of the crate `raddle`, beside this command in a
//! build folder. They need other crates, so they are not compiled here as the other programs are.

use std::ffi::OsString;
use std::path::PathBuf;

use super::harness::{Case, Work};
use super::process::EVERY_WAY;
use super::programs::{Workshop, skipped};

const POOL_ITEMS: u32 = 1_000_000;
const POOLS: [&str; 3] = ["raddle", "rayon", "mutex"];
const HANDLE_ROUNDS: u32 = 50_000;
const API_ROUNDS: u32 = 200_000;
const KINDS: [&str; 5] = ["light", "green", "std", "may", "tokio"];

/// Thread pools of the API and others, queueing and draining the same work.
pub fn pools(workshop: &Workshop) -> Vec<Case> {
    let case = |pool: &'static str| (pool, vec![pool.into(), workshop.rounds(POOL_ITEMS)]);
    cases("pool", "pool_bench", POOLS.map(case))
}

/// Tables of handles, stressed by ten threads.
pub fn handles(workshop: &Workshop) -> Vec<Case> {
    let arguments = vec![workshop.rounds(HANDLE_ROUNDS)];
    cases("handles", "handles", [("handles", arguments)])
}

/// Threads of the API, and others: made, yielding, handing over, waiting.
pub fn api(workshop: &Workshop) -> Vec<Case> {
    let case = |kind: &'static str| (kind, vec![kind.into(), workshop.rounds(API_ROUNDS)]);
    cases("api", "api_bench", KINDS.map(case))
}

/// A case for each title and its arguments; none, aloud, if the program is not built.
fn cases<'a>(
    group: &str,
    example: &str,
    each: impl IntoIterator<Item = (&'a str, Vec<OsString>)>,
) -> Vec<Case> {
    let Some(program) = beside(example) else {
        let how = format!("cargo build --release --package raddle --example {example}");
        skipped(group, &format!("its program is not there; {how} makes it"));
        return Vec::new();
    };
    let case = |(title, arguments): (&str, Vec<OsString>)| Case {
        title: title.into(),
        toolchain: "rustc, as this command".into(),
        command: std::iter::once(program.clone().into())
            .chain(arguments)
            .collect(),
        work: Work::Prints,
        ways: &EVERY_WAY,
    };
    each.into_iter().map(case).collect()
}

fn beside(example: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize());
    let program = executable.ok()?.parent()?.join("examples").join(example);
    program.is_file().then_some(program)
}
