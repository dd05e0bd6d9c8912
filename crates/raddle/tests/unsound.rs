//! Programs that would be unsound and don't compile: what they are told is part of the promise.
//!
//! `TRYBUILD=overwrite` writes what the compiler says now.

#[test]
fn what_would_be_unsound_does_not_compile() {
    // The programs are only checked: the runtime that they would carry is this test's.
    let runtime = concat!(env!("OUT_DIR"), "/runtime.so");
    // SAFETY: before this test makes a thread, and the only test of this program.
    unsafe { std::env::set_var("RADDLE_RUNTIME_LIBRARY", runtime) };
    trybuild::TestCases::new().compile_fail("tests/unsound/*.rs");
}
