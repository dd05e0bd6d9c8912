//! From the file on the command line to the ELF image that the kernel will start: scripts name an
//! interpreter, which may be a script again, or `env` with the real one behind it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::elf::{self, Obstacle};
use super::{privilege, resolve};

/// The kernel reads this much of a file to find `#!`, and follows so many interpreters.
const HEAD_BYTES: usize = 256;
const INTERPRETERS_MAX: usize = 5;

const VALGRIND: &str = "valgrind";

/// The shell that shells run a text file without `#!` with.
pub(super) const SHELL: &str = "/bin/sh";

/// The program that will run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The ELF file, as far as it could be followed.
    pub image: PathBuf,
    pub obstacle: Option<Obstacle>,
}

/// The kind of a file by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Elf,
    /// A script for this interpreter, with this one argument if there is one.
    Script(PathBuf, Option<OsString>),
    /// Text without `#!`.
    Text,
    /// A format that a handler registered with the kernel may know (binfmt_misc).
    Unknown,
}

pub(super) fn examine(file: &Path) -> Start {
    let mut image = file.to_path_buf();
    if file.file_name() == Some(OsStr::new(VALGRIND)) {
        // A script, and then a static program that hands its environment to another.
        let obstacle = Some(Obstacle::Valgrind);
        return Start { image, obstacle };
    }
    for _ in 0..INTERPRETERS_MAX {
        match kind(&image) {
            Kind::Elf => {
                let obstacle = privilege::obstacle(&image).or_else(|| elf::obstacle(&image));
                return Start { image, obstacle };
            }
            Kind::Script(interpreter, argument) => image = behind_env(interpreter, argument),
            Kind::Text => image = SHELL.into(),
            Kind::Unknown => break,
        }
    }
    Start {
        image,
        obstacle: None,
    }
}

/// Reads the head of `file`; an unreadable file is `Unknown`.
pub(super) fn kind(file: &Path) -> Kind {
    let mut head = Vec::new();
    let read =
        File::open(file).and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut head));
    match read {
        Ok(_) => kind_of(&head),
        Err(_) => Kind::Unknown,
    }
}

fn kind_of(head: &[u8]) -> Kind {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if head.starts_with(b"\x7fELF") {
        return Kind::Elf;
    }
    let Some(rest) = line.strip_prefix(b"#!") else {
        return if line.contains(&0) {
            Kind::Unknown
        } else {
            Kind::Text
        };
    };
    let rest = rest.trim_ascii();
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\t'))
        .unwrap_or(rest.len());
    let (interpreter, argument) = rest.split_at(end);
    let argument = OsStr::from_bytes(argument.trim_ascii()).to_owned();
    if interpreter.is_empty() {
        Kind::Unknown
    } else {
        Kind::Script(
            OsString::from_vec(interpreter.to_vec()).into(),
            Some(argument).filter(|argument| !argument.is_empty()),
        )
    }
}

/// Returns the program behind env: `#!/usr/bin/env python3` means python3, since env becomes it.
/// The kernel passes `env` all that follows its name as one argument, and `-S` makes env split
/// that.
fn behind_env(interpreter: PathBuf, argument: Option<OsString>) -> PathBuf {
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return interpreter;
    }
    let argument = argument.unwrap_or_default();
    let (split, words) = match argument.as_bytes().strip_prefix(b"-S") {
        Some(words) => (true, words),
        None => (false, argument.as_bytes()),
    };
    let name = words
        .split(|byte| split && byte.is_ascii_whitespace())
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='));
    let path = std::env::var_os("PATH");
    name.and_then(|name| resolve::resolve(OsStr::from_bytes(name), path.as_deref()).ok())
        .unwrap_or(interpreter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(interpreter: &str, argument: Option<&str>) -> Kind {
        Kind::Script(interpreter.into(), argument.map(OsString::from))
    }

    #[test]
    fn the_first_bytes_decide() {
        assert_eq!(kind_of(b"\x7fELF\x02\x01"), Kind::Elf);
        assert_eq!(kind_of(b"#!/bin/sh\necho"), script("/bin/sh", None));
        assert_eq!(
            kind_of(b"#! /bin/sed -n -f \n"),
            script("/bin/sed", Some("-n -f"))
        );
        assert_eq!(kind_of(b"#!/bin/sh\t-e"), script("/bin/sh", Some("-e")));
        assert_eq!(kind_of(b"echo hello\n"), Kind::Text);
        assert_eq!(kind_of(b""), Kind::Text);
        assert_eq!(kind_of(b"#!\n"), Kind::Unknown);
        assert_eq!(kind_of(b"MZ\0\x01"), Kind::Unknown);
    }

    #[test]
    fn env_stands_for_what_it_starts() {
        let behind = |argument: &str| behind_env("/usr/bin/env".into(), Some(argument.into()));
        let shell = resolve::resolve(OsStr::new("sh"), std::env::var_os("PATH").as_deref());
        let shell = shell.unwrap();
        assert_eq!(behind("sh"), shell);
        assert_eq!(behind("-S sh -e"), shell);
        assert_eq!(behind("-S -i A=1 sh"), shell);
        assert_eq!(behind("no such program"), PathBuf::from("/usr/bin/env"));
        assert_eq!(
            behind_env("/bin/sed".into(), Some("sh".into())),
            PathBuf::from("/bin/sed")
        );
    }
}
