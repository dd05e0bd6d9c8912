//! Tests on real programs: what a program does natively it does under raddle.
//!
//! Nouns: a *program* is one file of `programs/`, compiled once; a *case* is one behaviour of it,
//! named by its first argument, and one `#[test]` here; a *mode* is natively or under raddle with
//! 1, 2 or 3 carriers; a *known failure* is a case of `known-failures.toml`.
//!
//! Protocol: (1) a program is compiled unless its text, by hash, already was; (2) the case runs
//! natively, checks itself, ends with the line `ok CASE`, and its status is the expected one;
//! (3) it runs in each other mode and must give the same output and status; (4) a known failure
//! must fail there, and the suite fails when it passes; (5) a case that takes too long is ended
//! with all its processes, after a look at their stacks. A run gets a folder of its own as its
//! working directory, and no variable `RADDLE_*`.
//!
//! `RADDLE_BIN` names the command, `target/release/raddle` otherwise. `RADDLE_TESTS=native` runs
//! nothing under raddle: so a case is written and debugged. `RADDLE_TESTS=build` compiles the
//! programs of cases and runs none of these. `RADDLE_TEST_TIMEOUT_S` is how long a case may take in
//! one mode, 60 otherwise. `RADDLE_TEST_CHAOS` is the seed (`RADDLE_CHAOS`) that the programs run
//! with, `RADDLE_TEST_POLICY` their policy. `RADDLE_TEST_WATCH` makes a report of
//! `--watch-deadlocks` a failure, with so many milliseconds between looks. `RADDLE_TEST_GLIBC` is a
//! folder with the glibc that C and C++ programs run with. A case without its installed tool is
//! skipped with a line, and fails if `CI=true`.
//!
//! Rejected: programs that link a test framework (they would not be unmodified programs of
//! everyday libraries); one process for all cases of a program (a hang would hide the others, and
//! a damaged state would travel); comparing with recorded output (it goes stale, and a machine's
//! own libraries are the authority on what is right).

mod case;
pub mod chains;
mod child;
mod json;
mod known;
mod limit;
mod mode;
mod program;
mod tools;

pub use case::{Case, RunFolder, assert_same, check_list, compare, in_every_mode};
pub use child::{Outcome, Running, status_number};
pub use json::list;
pub use known::{Known, judge};
pub use mode::{Mode, modes, raddle};
pub use program::{Program, shared_object};
pub use tools::{
    Jdk, Missing, find_tool, free_threaded, jdks, on_every_jdk, or_skip, perfetto,
    prometheus_client, py_spy, say, settle,
};

/// Declares one test a case, and one that the program has no case which is not listed.
///
/// `cases! { "threads.c": create_and_join, exit_from_a_thread => 7 }`: the number is the expected
/// exit status where that is not 0; a death by signal N is 128 + N. `"pipes.c", |case| ...;`
/// instead of `"pipes.c":` gives every case what the closure adds.
#[macro_export]
macro_rules! cases {
    ($source:literal: $($name:ident $(=> $status:literal)?),+ $(,)?) => {
        $crate::cases! { $source, |case| case; $($name $(=> $status)?),+ }
    };
    ($source:literal, $with:expr; $($name:ident $(=> $status:literal)?),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                $crate::Case::new(module_path!(), $source, stringify!($name))
                    $(.exits_with($status))?
                    .with($with)
                    .check();
            }
        )+

        #[test]
        fn lists_every_case_of_its_program() {
            $crate::check_list($source, &[$(stringify!($name)),+]);
        }
    };
}
