//! The examples, which check themselves.

use crate::support::{MODES, everywhere, folder, has, in_mode, prefix, succeeds};
use std::path::Path;

#[test]
fn ping_pong_in_c() {
    everywhere("examples/ping_pong.c", &[], "1000 round trips\n");
}

#[test]
fn a_user_mode_scheduler_in_c() {
    everywhere("examples/ums_scheduler.c", &[], "3 workers, turns 4 4 4\n");
}

#[test]
fn a_pool_in_c() {
    everywhere("examples/pool.c", &[], "sum 4500000, by workers\n");
}

#[test]
fn engines_in_c() {
    everywhere(
        "examples/engines.c",
        &[],
        "they ran in this order: 10 20 30 40 50\n",
    );
}

#[test]
fn engines_in_cxx() {
    everywhere(
        "examples/engines.cc",
        &[],
        "sums 4950 4950, by 20 threads\n",
    );
}

#[test]
fn threads_in_cxx() {
    everywhere(
        "examples/threads.cc",
        &[],
        "sum 4950, from 100 threads, and one that was woken\n",
    );
}

#[test]
fn callbacks_in_python() {
    if !has("python3") {
        return;
    }
    let library = prefix().join("lib/libraddle.so");
    for mode in MODES {
        let mut python = in_mode(mode, Path::new("python3"));
        python
            .arg(folder().join("examples/callbacks.py"))
            .env("RADDLE_LIBRARY", &library);
        let output = succeeds(&mut python);
        assert!(
            output.ends_with("sum of squares: 285, of cubes: 2025\n"),
            "{mode:?}: {output}"
        );
    }
}
