//! Programs that are compiled with Raddle: examples of the crate `raddle`, beside this command in a
//! build folder. They need other crates, so they are not compiled here as the other programs are.

use std::ffi::OsString;
use std::path::PathBuf;

use super::harness::{Case, Work};
use super::process::{EVERY_WAY, Way};
use super::programs::{Workshop, skipped};
use crate::own_path;

const POOL_ITEMS: u32 = 1_000_000;
const POOLS: [&str; 3] = ["raddle", "rayon", "mutex"];
const HANDLE_ROUNDS: u32 = 50_000;
const API_ROUNDS: u32 = 200_000;
const UMS_THREADS: [u32; 3] = [10, 100, 1000];
const UMS_YIELDS: [u32; 4] = [100, 1000, 10_000, 100_000];
/// Yields of all threads together; more take minutes natively.
const UMS_YIELDS_MOST: u32 = 1_000_000;
const KINDS: [&str; 5] = ["light", "green", "std", "may", "tokio"];

/// Thread pools of the API and others, queueing and draining the same work.
pub(super) fn pools(workshop: &Workshop) -> Vec<Case> {
    let case = |pool: &'static str| (pool, vec![pool.into(), workshop.rounds(POOL_ITEMS)]);
    cases("pool", "pool_bench", POOLS.map(case))
}

/// Tables of handles, stressed by ten threads.
pub(super) fn handles(workshop: &Workshop) -> Vec<Case> {
    let arguments = vec![workshop.rounds(HANDLE_ROUNDS)];
    cases("handles", "handles", [("handles", arguments)])
}

/// Threads of the API, and others: made, yielding, handing over, waiting. Peers with schedulers of
/// their own run natively only.
pub(super) fn api(workshop: &Workshop) -> Vec<Case> {
    let case = |kind: &'static str| (kind, vec![kind.into(), workshop.rounds(API_ROUNDS)]);
    let mut cases = cases("api", "api_bench", KINDS.map(case));
    let peers = [
        ("goroutines", workshop.go_program("threads")),
        ("Boost.Fiber", workshop.boost_program("threads")),
    ];
    for (title, made) in peers {
        match made {
            Err(why) => skipped(&format!("api: {title}"), &why),
            Ok((program, toolchain)) => cases.push(Case {
                title: title.into(),
                toolchain,
                command: vec![program, workshop.rounds(API_ROUNDS)],
                work: Work::Prints,
                ways: &[Way::NativeAll, Way::NativeOne],
            }),
        }
    }
    cases
}

/// Yields of native threads, of UMS workers and of fibers: 10, 100 and 1000 of them, with one
/// scheduler and with two. The program makes its own green threads: it runs natively only.
pub(super) fn ums(workshop: &Workshop) -> Vec<Case> {
    let most = (f64::from(UMS_YIELDS_MOST) * workshop.fraction()) as u32;
    let sizes = UMS_THREADS.iter().flat_map(|&t| UMS_YIELDS.map(|y| (t, y)));
    let sizes = sizes.filter(|&(threads, yields)| threads * yields <= most);
    let each = sizes.flat_map(|(threads, yields)| {
        [1, 2].map(|schedulers| {
            let numbers = [threads, yields, schedulers, 1];
            let arguments = numbers.map(|number| number.to_string().into());
            let title = format!("{threads} x {yields}, {schedulers}");
            (title, arguments.into())
        })
    });
    let mut cases = cases("ums", "ums_bench", each);
    for case in &mut cases {
        case.ways = &[Way::NativeAll, Way::NativeOne];
    }
    cases
}

/// Makes a case for each title and its arguments; none, with a message, if the program is not
/// built.
fn cases(
    group: &str,
    example: &str,
    each: impl IntoIterator<Item = (impl Into<String>, Vec<OsString>)>,
) -> Vec<Case> {
    let Some(program) = beside(example) else {
        let how = format!("cargo build --release --package raddle --example {example}");
        skipped(group, &format!("its program is not there; {how} makes it"));
        return Vec::new();
    };
    let mut cases = Vec::new();
    for (title, arguments) in each {
        cases.push(Case {
            title: title.into(),
            toolchain: "rustc, as this command".into(),
            command: [vec![program.clone().into()], arguments].concat(),
            work: Work::Prints,
            ways: &EVERY_WAY,
        });
    }
    cases
}

fn beside(example: &str) -> Option<PathBuf> {
    let executable = own_path::executable().map(|path| own_path::resolved(&path));
    let program = executable.ok()?.parent()?.join("examples").join(example);
    program.is_file().then_some(program)
}
