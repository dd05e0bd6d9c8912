//! Yields of native threads, of UMS workers and of fibers: 10, 100 and 1000 of them, with one
//! scheduler and with two.
//!
//! The program makes its own green threads, so it is started natively only: it is an example of the
//! `raddle` crate, and lies beside this command in a build folder.

use super::harness::{Case, Work};
use super::process::Way;
use super::programs::{Workshop, skipped};

const THREADS: [u32; 3] = [10, 100, 1000];
const YIELDS: [u32; 4] = [100, 1000, 10_000, 100_000];
/// Yields of all threads together; more take minutes natively.
const MOST: u32 = 1_000_000;
const WAYS: [Way; 2] = [Way::NativeAll, Way::NativeOne];

pub fn cases(workshop: &Workshop) -> Vec<Case> {
    let beside = std::env::current_exe().map(|path| path.with_file_name("examples/ums_bench"));
    let Some(program) = beside.ok().filter(|path| path.is_file()) else {
        let how = "cargo build --release --package raddle --example ums_bench";
        skipped("ums", &format!("its program is not there; {how} makes it"));
        return Vec::new();
    };
    let most = (f64::from(MOST) * workshop.fraction()) as u32;
    let sizes = THREADS.iter().flat_map(|&t| YIELDS.map(|y| (t, y)));
    let sizes = sizes.filter(|&(threads, yields)| threads * yields <= most);
    let case = |(threads, yields): (u32, u32), schedulers: u32| Case {
        title: format!("{threads} x {yields}, {schedulers}"),
        toolchain: "rustc, as this command".into(),
        command: [threads, yields, schedulers, 1].iter().fold(
            vec![program.clone().into()],
            |mut command, number| {
                command.push(number.to_string().into());
                command
            },
        ),
        work: Work::Prints,
        ways: &WAYS,
    };
    sizes
        .flat_map(|size| [case(size, 1), case(size, 2)])
        .collect()
}
