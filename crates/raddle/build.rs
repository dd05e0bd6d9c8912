//! Builds the runtime's library, which the crate contains.
//!
//! It must be a shared library ([`raddle_interface`] says why), it is always built for speed, and
//! cargo can't depend on one: so this calls cargo once more, with a folder of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the library.
const PARTS: [&str; 9] = [
    "sys",
    "arch",
    "sched",
    "inspect",
    "engine",
    "kernel",
    "patch",
    "interface",
    "preload",
];

/// The variable that names a finished library to contain instead.
const FINISHED: &str = "RADDLE_RUNTIME_LIBRARY";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={FINISHED}");
    let out = PathBuf::from(variable("OUT_DIR"));
    let to = out.join("runtime.so");
    let is_checked = ["CARGO_CFG_RADDLE_LOOM", "CARGO_CFG_RADDLE_SHUTTLE"]
        .iter()
        .any(|name| env::var_os(name).is_some());
    if is_checked {
        fs::write(&to, []).expect("the build folder is writable"); // model checks run no thread
        return;
    }
    let library = match env::var_os(FINISHED) {
        Some(path) => PathBuf::from(path),
        None => build(&out),
    };
    fs::copy(&library, &to)
        .unwrap_or_else(|error| panic!("{} can't be copied: {error}", library.display()));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Builds the library. Returns its path.
fn build(out: &Path) -> PathBuf {
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    for part in PARTS {
        let folder = crates.join(format!("raddle-{part}"));
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    // TARGET/PROFILE/build/PACKAGE/out: all profiles share one build of the runtime.
    let target = out.ancestors().nth(4).unwrap_or(out).join("runtime");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--release", "--package", "raddle-preload"])
        .arg("--manifest-path")
        .arg(crates.join("raddle-preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // Variables of the outer build would mislead the inner one.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "RUSTC_WORKSPACE_WRAPPER",
    ] {
        cargo.env_remove(name);
    }
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the runtime's library can't be built");
    target.join("release/libraddle_preload.so")
}
