//! Programs: a source file of `programs/` made into something that can be run, once.
//!
//! The product's folder carries a hash of the source, the headers beside it and the command, so
//! that a product can't be stale. A lock file lets test processes that run at once compile once;
//! a product appears by one rename, so that a killed compiler leaves nothing that looks whole.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::mode::target_folder;
use crate::tools::{dotnet, find_tool, jdks, python};

/// Names a folder with a glibc: C and C++ programs run with that instead of the machine's.
const GLIBC: &str = "RADDLE_TEST_GLIBC";

/// How to run a program: one line of arguments for each runtime that can run it.
#[derive(Clone, Debug)]
pub struct Program {
    pub source: String,
    pub variants: Vec<Variant>,
}

#[derive(Clone, Debug)]
pub struct Variant {
    /// Tells the variant from others in messages: `java 25`; empty if there is one only.
    pub label: String,
    pub command: Vec<OsString>,
}

impl Variant {
    /// Adds the variant's name to `error`, if there are several.
    pub fn name(&self, error: anyhow::Error) -> anyhow::Error {
        if self.label.is_empty() {
            error
        } else {
            error.context(self.label.clone())
        }
    }
}

impl Program {
    /// Compiles `programs/SOURCE` if need be; its extension says with what.
    pub fn build(source: &str) -> Result<Program> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("programs")
            .join(source);
        ensure!(path.is_file(), "there is no program {source}");
        let (stem, extension) = source
            .rsplit_once('.')
            .context("a program has an extension")?;
        let variants = match extension {
            "c" => vec![plain(native("cc", &["-std=gnu11"], &path)?)],
            "cc" => vec![plain(native("c++", &["-std=c++20"], &path)?)],
            "rs" => vec![plain(rust(&path)?)],
            "py" => vec![line("", vec![python()?.into(), path.into()])],
            "java" => java(stem, &path)?,
            "cs" => csharp(&path)?,
            _ => bail!("no rule runs a program in .{extension}"),
        };
        Ok(Program {
            source: source.to_owned(),
            variants,
        })
    }
}

fn line(label: &str, command: Vec<OsString>) -> Variant {
    Variant {
        label: label.to_owned(),
        command,
    }
}

fn plain(path: PathBuf) -> Variant {
    line("", vec![path.into()])
}

/// Warnings are errors: a program with a mistake of its own proves nothing.
fn native(compiler: &str, standard: &[&str], source: &Path) -> Result<PathBuf> {
    let mut command = Command::new(find_tool(compiler)?);
    command.args(["-O2", "-g", "-pthread", "-Wall", "-Werror"]);
    command.args(standard).arg("-o").arg("program").arg(source);
    if let Some(folder) = env::var_os(GLIBC) {
        let folder = PathBuf::from(folder);
        let loader = folder.join("ld-linux-x86-64.so.2");
        // The old kind of path, because it also holds for the libraries of libraries.
        command.args(["-Wl,--disable-new-dtags", "-Xlinker", "-rpath", "-Xlinker"]);
        command.arg(folder);
        command.args(["-Xlinker", "--dynamic-linker", "-Xlinker"]);
        command.arg(loader);
    }
    // A program's shared object is compiled like a program, and the program finds it beside itself.
    command.args(["-ldl", "-lrt", "-lm"]);
    if fs::read_to_string(source)?.contains("<libunwind.h>") {
        command.arg("-lunwind");
    }
    Ok(product(source, command)?.join("program"))
}

/// Compiles a shared object for a program that loads it; gives its path.
pub fn shared_object(source: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(source);
    let mut command = Command::new(find_tool("cc")?);
    command
        .args(["-O2", "-g", "-shared", "-fPIC", "-fno-stack-protector"])
        .args(["-o", "library.so"])
        .arg(&path);
    Ok(product(&path, command)?.join("library.so"))
}

fn rust(source: &Path) -> Result<PathBuf> {
    let mut command = Command::new(find_tool("rustc")?);
    command
        .args(["--edition", "2024", "-O", "-g", "-o", "program"])
        .arg(source);
    Ok(product(source, command)?.join("program"))
}

/// Compiled by the first `javac`, for the oldest version that is tested; run by every JDK.
fn java(class: &str, source: &Path) -> Result<Vec<Variant>> {
    let mut command = Command::new(find_tool("javac")?);
    command.args(["--release", "11", "-d", "."]).arg(source);
    let classes = product(source, command)?;
    let variant = |jdk: crate::tools::Jdk| {
        let label = format!("java {}", jdk.version);
        line(
            &label,
            vec![
                jdk.java.into(),
                "-cp".into(),
                (&classes).into(),
                class.into(),
            ],
        )
    };
    Ok(jdks()?.into_iter().map(variant).collect())
}

/// Compiled by Mono; the same file runs on Mono and on .NET.
fn csharp(source: &Path) -> Result<Vec<Variant>> {
    let mut command = Command::new(find_tool("mcs")?);
    command
        .args(["-optimize+", "-r:System.Core", "-out:program.exe"])
        .arg(source);
    let program = product(source, command)?.join("program.exe");
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("dotnet.json");
    let on_dotnet = vec![
        dotnet()?.into(),
        "exec".into(),
        "--runtimeconfig".into(),
        config.into(),
        (&program).into(),
    ];
    let on_mono = vec![find_tool("mono")?.into(), program.into()];
    Ok(vec![line("mono", on_mono), line("dotnet", on_dotnet)])
}

/// The folder with what `command` makes of `source`; runs it if that is not there yet.
fn product(source: &Path, mut command: Command) -> Result<PathBuf> {
    let folder = folder("programs")?;
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let finished = folder.join(format!("{stem}-{:016x}", fingerprint(source, &command)?));
    let lock = File::create(folder.join(format!("{stem}.lock")))?;
    lock.lock()?;
    if finished.is_dir() {
        return Ok(finished);
    }
    let unfinished = folder.join(format!("{stem}.unfinished"));
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished)?;
    let output = command.current_dir(&unfinished).output()?;
    ensure!(
        output.status.success(),
        "{} does not compile:\n{}{}",
        source.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(&unfinished, &finished)?;
    Ok(finished)
}

fn fingerprint(source: &Path, command: &Command) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    format!("{command:?}").hash(&mut hasher);
    fs::read(source)?.hash(&mut hasher);
    let mut headers: Vec<_> = fs::read_dir(source.parent().context("a source has a folder")?)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect();
    headers.sort();
    for header in headers {
        fs::read(header)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// A folder of this crate below the target folder.
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let folder = target_folder()?.join("raddle-tests").join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
