//! The examples that people copy, in the modes in which they test themselves.

use std::process::Command;

/// Builds an example as this test was built, runs it, and looks at what it says last.
fn check(example: &str, expected: &str) {
    let mut cargo = Command::new("timeout");
    cargo.args(["-k", "2", "600", env!("CARGO"), "run", "--quiet"]);
    cargo.args(["--package", "raddle", "--example", example]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let output = cargo.output().expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert!(text.ends_with(expected), "{text}{errors}");
}

#[test]
fn echo_server() {
    check("echo_server", "200 clients were echoed\n");
}

#[test]
fn http_hello() {
    check("http_hello", "500 requests were answered\n");
}

#[test]
fn crawler() {
    check("crawler", "364 pages were fetched\n");
}

#[test]
fn pipeline() {
    check("pipeline", "10000 items went through\n");
}
