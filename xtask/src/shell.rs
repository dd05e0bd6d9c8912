//! Starting other programs: each command is echoed, and its output can be read as it appears.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

/// Returns the Cargo that runs this program, in `folder`.
pub(crate) fn cargo(folder: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(folder);
    command
}

/// Echoes and runs `command`; anything but success is an error that names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    echo(command);
    let status = command
        .status()
        .with_context(|| format!("{} did not start", line(command)))?;
    ensure!(status.success(), "{} failed: {status}", line(command));
    Ok(())
}

/// Echoes and runs `command`, giving each line of its standard output to `each`.
pub(crate) fn stream(command: &mut Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    echo(command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} did not start", line(command)))?;
    let stdout = child
        .stdout
        .take()
        .context("the child has no standard output")?;
    for text in BufReader::new(stdout).split(b'\n') {
        each(&String::from_utf8_lossy(&text?));
    }
    Ok(child.wait()?)
}

/// Returns the first file called `name` in PATH or in the folders for administrators' programs.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(administrators)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn echo(command: &Command) {
    eprintln!("+ {}", line(command));
}

/// Returns the command as it would be typed; Cargo's full path is shortened to its name.
fn line(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        Some(format!(
            "{}={:?}",
            name.to_string_lossy(),
            value?.to_string_lossy()
        ))
    });
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    set.chain(words.map(|word| word.to_string_lossy().into_owned()))
        .collect::<Vec<_>>()
        .join(" ")
}
