//! Tables of handles, stressed by ten threads. The program is Rust and needs other crates, so it is
//! not compiled here: it is an example of the crate `raddle`, built beside this command.

use std::path::{Path, PathBuf};

use super::harness::{Case, Work};
use super::process::EVERY_WAY;
use super::programs::{Workshop, skipped};

const ROUNDS: u32 = 50_000;
const BUILD: &str = "cargo build --release --package raddle --example handles";

pub fn cases(workshop: &Workshop) -> Vec<Case> {
    let executable = std::env::current_exe().and_then(|path| path.canonicalize());
    match executable.ok().and_then(|path| program_beside(&path)) {
        Some(program) => vec![Case {
            title: "handles".into(),
            toolchain: program.display().to_string(),
            command: vec![program.into(), workshop.rounds(ROUNDS)],
            work: Work::Prints,
            ways: &EVERY_WAY,
        }],
        None => {
            skipped("handles", &format!("it is not built: {BUILD}"));
            Vec::new()
        }
    }
}

fn program_beside(executable: &Path) -> Option<PathBuf> {
    let program = executable.parent()?.join("examples/handles");
    program.is_file().then_some(program)
}
