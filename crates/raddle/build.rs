//! Builds the runtime's library, which the crate carries in itself.
//!
//! It must be a shared library ([`raddle_interface`] says why), it is always built for speed, and
//! cargo can't depend on one: so cargo is called once more, with a folder of its own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that the library is made of.
const PARTS: [&str; 8] = [
    "sys",
    "context",
    "sched",
    "engine",
    "kernel",
    "patch",
    "interface",
    "preload",
];

/// Names a finished library to carry instead.
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

/// Builds the library and says where it is.
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
    // What the outer build was told is not about this one.
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
