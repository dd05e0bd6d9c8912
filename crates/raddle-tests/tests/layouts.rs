//! Programs with files that are laid out as linkers seldom do, and loaders with other names: these
//! start under raddle as they do natively.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use raddle_tests::{RunFolder, Running, in_every_mode};

const LIMIT: Duration = Duration::from_secs(60);

/// Links the program with these flags.
fn link(folder: &Path, flags: &[&str]) -> Result<PathBuf> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let source = programs.join("layouts.c");
    let program = folder.join("program");
    let made = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-pthread", "-o"])
        .args([&program, &source])
        .args(flags)
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    Ok(program)
}

/// In every mode the program that `make` makes in a folder, run by `line` with the program's path
/// for the word `PROGRAM`, prints its line and exits with its status.
fn starts(name: &str, line: &[&str], make: impl Fn(&Path) -> Result<PathBuf>) {
    in_every_mode(&format!("layouts::{name}"), |mode| {
        let folder = RunFolder::new(&format!("layouts-{name}-{mode}"))?;
        let program = make(folder.path())?;
        let path = program.to_str().context("a path")?;
        let words: Vec<OsString> = line
            .iter()
            .map(|word| word.replace("PROGRAM", path).into())
            .collect();
        let mut command = mode.command(&words)?;
        command.current_dir(folder.path());
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        let is_right = outcome.status.code() == Some(3) && outcome.stdout == "a thread has ended\n";
        ensure!(is_right, "{outcome:?}");
        Ok(())
    });
}

/// glibc's loader.
fn loader() -> Result<PathBuf> {
    Ok(fs::canonicalize("/lib64/ld-linux-x86-64.so.2")?)
}

#[test]
fn other_sections_between_the_tables() {
    let between = |folder: &Path| {
        let script = folder.join("script");
        let text = "SECTIONS { .filler : { KEEP(*(.filler)) } } INSERT AFTER .dynsym;\n";
        fs::write(&script, text)?;
        link(folder, &["-Wl,-T", script.to_str().context("a path")?])
    };
    starts("other_sections_between_the_tables", &["PROGRAM"], between);
}

#[test]
fn no_table_of_gnus_hashes() {
    let sysv = |folder: &Path| link(folder, &["-Wl,--hash-style=sysv"]);
    starts("no_table_of_gnus_hashes", &["PROGRAM"], sysv);
}

/// The file is a shared object, so it has no DT_DEBUG, by which ld.so's list is found else.
#[test]
fn a_shared_object_that_is_executed() {
    let flags = ["-DSHARED", "-shared", "-fPIC", "-Wl,-e,start_here"];
    starts("a_shared_object_that_is_executed", &["PROGRAM"], |folder| {
        link(folder, &flags)
    });
}

/// A table of hashes without a bucket: ld.so finds no symbol there.
#[test]
fn a_table_of_hashes_without_buckets() {
    let emptied = |folder: &Path| {
        let program = link(folder, &[])?;
        let mut file = fs::read(&program)?;
        let at = gnu_hashes(&file).context("the file has a table of hashes")?;
        file[at..at + 4].fill(0);
        fs::write(&program, file)?;
        Ok(program)
    };
    starts("a_table_of_hashes_without_buckets", &["PROGRAM"], emptied);
}

/// The offset of the section of GNU's hashes in a file for 64 bits.
fn gnu_hashes(file: &[u8]) -> Option<usize> {
    const GNU_HASH: u32 = 0x6fff_fff6;
    const ENTRY: usize = 64;
    let word = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?));
    let sections = word(40)? as usize;
    let headers = file.get(sections..)?.chunks_exact(ENTRY);
    let kind = |header: &[u8]| u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let found = headers
        .enumerate()
        .find(|(_, header)| kind(header) == GNU_HASH)?;
    Some(word(sections + found.0 * ENTRY + 24)? as usize)
}

/// ld.so is in its own list by the name that it was called by.
#[test]
fn a_loader_by_another_name() {
    let line = ["sh", "-c", "./loader PROGRAM; exit $?"];
    starts("a_loader_by_another_name", &line, |folder| {
        fs::copy(loader()?, folder.join("loader"))?;
        link(folder, &[])
    });
}

#[test]
fn a_loader_by_the_name_of_a_release() {
    let line = ["sh", "-c", "./ld-2.36.so PROGRAM; exit $?"];
    starts("a_loader_by_the_name_of_a_release", &line, |folder| {
        fs::copy(loader()?, folder.join("ld-2.36.so"))?;
        link(folder, &[])
    });
}
