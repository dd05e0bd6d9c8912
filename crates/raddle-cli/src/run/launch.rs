//! The program's environment, and the `execve` of the program.

use clap::ValueEnum as _;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::ptr;

use super::{inherit, program};
use crate::cli::{
    CARRIERS_VARIABLE, CHAOS_VARIABLE, CPUS_VARIABLE, EXCLUDE_SEPARATOR, EXCLUDE_VARIABLE,
    EXTRA_CARRIERS_VARIABLE, FLIGHT_RECORDER_VARIABLE, MAX_RUNNABLE_VARIABLE, MAX_THREADS_VARIABLE,
    POLICY_VARIABLE, QUANTUM_VARIABLE, RunArguments, SHARE_VARIABLE, VERBOSE_VARIABLE,
};
use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND};
use crate::run::policy::Policy;

const LD_PRELOAD: &str = "LD_PRELOAD";

/// Variables in the order of the caller's environment, new ones last.
pub(super) type Environment = Vec<(OsString, OsString)>;

/// Returns this process's environment with the preload and the flags' variables.
pub(super) fn environment(
    arguments: &RunArguments,
    preload: &Path,
    keep_preload: bool,
) -> Environment {
    let mut environment: Environment = std::env::vars_os().collect();
    let inherited = std::env::var_os(LD_PRELOAD).unwrap_or_default();
    let plug_in = arguments.policy.as_ref().and_then(Policy::file);
    let own: Vec<_> = [Some(preload), plug_in].into_iter().flatten().collect();
    let list = preload_list(&own, &inherited, keep_preload);
    set(
        &mut environment,
        LD_PRELOAD,
        Some(list).filter(|list| !list.is_empty()),
    );
    let numbers = [
        (CARRIERS_VARIABLE, arguments.carriers.map(u32::from)),
        (
            EXTRA_CARRIERS_VARIABLE,
            arguments.extra_carriers.map(u32::from),
        ),
        (QUANTUM_VARIABLE, arguments.quantum),
        (MAX_THREADS_VARIABLE, arguments.max_threads),
        (MAX_RUNNABLE_VARIABLE, arguments.max_runnable),
        (CHAOS_VARIABLE, arguments.chaos),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            set(&mut environment, name, Some(number.to_string().into()));
        }
    }
    if let Some(cpus) = arguments.cpus.and_then(|cpus| cpus.to_possible_value()) {
        set(
            &mut environment,
            CPUS_VARIABLE,
            Some(cpus.get_name().into()),
        );
    }
    if arguments.verbose {
        set(&mut environment, VERBOSE_VARIABLE, Some("1".into()));
    }
    if let Some(folder) = &arguments.flight_recorder {
        set(
            &mut environment,
            FLIGHT_RECORDER_VARIABLE,
            Some(folder.clone()),
        );
    }
    if let Some(policy) = &arguments.policy {
        set(
            &mut environment,
            POLICY_VARIABLE,
            Some(policy.to_string().into()),
        );
    }
    if !arguments.share.is_empty() {
        let rules: Vec<_> = arguments.share.iter().map(ToString::to_string).collect();
        let joined = rules.join(&EXCLUDE_SEPARATOR.to_string());
        set(&mut environment, SHARE_VARIABLE, Some(joined.into()));
    }
    if !arguments.exclude.is_empty() {
        let patterns: Vec<_> = arguments.exclude.iter().map(ToString::to_string).collect();
        let joined = patterns.join(&EXCLUDE_SEPARATOR.to_string());
        set(&mut environment, EXCLUDE_VARIABLE, Some(joined.into()));
    }
    environment
}

/// Returns the `own` files and then the inherited ones, or only the latter. An own file is never in
/// the list twice.
fn preload_list(own: &[&Path], inherited: &OsStr, keep: bool) -> OsString {
    let ours: Vec<_> = own.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let others = inherited
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '));
    let others = others.filter(|entry| !entry.is_empty() && !ours.contains(entry));
    let kept = ours.iter().copied().filter(|_| keep);
    let entries: Vec<_> = kept.chain(others).collect();
    OsString::from_vec(entries.join(&b':'))
}

fn set(environment: &mut Environment, name: &str, value: Option<OsString>) {
    let position = environment.iter().position(|(other, _)| other == name);
    match (position, value) {
        (Some(index), Some(value)) => environment[index].1 = value,
        (Some(index), None) => drop(environment.remove(index)),
        (None, Some(value)) => environment.push((name.into(), value)),
        (None, None) => {}
    }
}

/// Executes `file` with `command` as its arguments, the first of them as it was typed. Returns only
/// the failure.
pub(super) fn exec(file: &Path, command: &[OsString], environment: &Environment) -> Failure {
    let entries: Vec<_> = environment
        .iter()
        .map(|(name, value)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            entry
        })
        .collect();
    let mut error = execve(file, command, &entries);
    if error.raw_os_error() == Some(libc::ENOEXEC) && program::kind(file) == program::Kind::Text {
        let mut shell_command = vec![OsString::from("sh"), file.into()];
        shell_command.extend_from_slice(&command[1..]);
        error = execve(Path::new(program::SHELL), &shell_command, &entries);
    }
    refusal(file, &error)
}

fn execve(file: &Path, arguments: &[OsString], environment: &[OsString]) -> io::Error {
    let strings = |list: &[OsString]| -> Result<Vec<CString>, _> {
        list.iter()
            .map(|text| CString::new(text.as_bytes()))
            .collect()
    };
    let path = CString::new(file.as_os_str().as_bytes());
    let (Ok(path), Ok(arguments), Ok(environment)) =
        (path, strings(arguments), strings(environment))
    else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    inherit::restore();
    // SAFETY: three valid strings or null-terminated arrays of such, alive until the call returns.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    io::Error::last_os_error()
}

/// Returns the shell's status for an error of `execve`, and the sentence.
fn refusal(file: &Path, error: &io::Error) -> Failure {
    let shown = file.display();
    let not_executable = |what: String, cure: &str| Failure::new(NOT_EXECUTABLE, what, cure);
    match (error.raw_os_error(), program::kind(file)) {
        (Some(libc::ENOENT), program::Kind::Script(interpreter, _)) => not_executable(
            format!(
                "{shown}: its interpreter {} is not there",
                interpreter.display()
            ),
            "install that, or mend the first line of the script",
        ),
        (Some(libc::ENOENT), program::Kind::Elf) => Failure::new(
            NOT_FOUND,
            format!("{shown}: the loader (ld.so) that it names is not there"),
            "install the libc that it was built for",
        ),
        (Some(libc::ENOENT), _) => Failure::new(
            NOT_FOUND,
            format!("{shown}: no such file"),
            "check the path",
        ),
        (Some(libc::ENOEXEC), _) => not_executable(
            format!("{shown}: this kernel can't execute it"),
            "name a program for this machine",
        ),
        (Some(libc::E2BIG), _) => not_executable(
            format!("{shown}: arguments and environment are too long"),
            "pass fewer, or raise the stack limit: ulimit -s",
        ),
        (Some(libc::EACCES), _) => not_executable(
            format!("{shown}: permission denied"),
            "make it and its interpreter executable: chmod +x",
        ),
        (Some(libc::ETXTBSY), _) => not_executable(
            format!("{shown}: it is being written"),
            "try again when that is done",
        ),
        _ => not_executable(format!("{shown}: {error}"), "see execve(2) for this error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(inherited: &str, keep: bool) -> OsString {
        preload_list(&[Path::new("/lib/ours.so")], OsStr::new(inherited), keep)
    }

    #[test]
    fn the_preload_goes_first_and_stays_single() {
        assert_eq!(list("", true), "/lib/ours.so");
        assert_eq!(list("a.so b.so:c.so", true), "/lib/ours.so:a.so:b.so:c.so");
        assert_eq!(list("a.so:/lib/ours.so", true), "/lib/ours.so:a.so");
    }

    #[test]
    fn a_program_without_it_keeps_what_its_caller_preloads() {
        assert_eq!(list("/lib/ours.so", false), "");
        assert_eq!(list("a.so /lib/ours.so", false), "a.so");
    }

    #[test]
    fn a_variable_is_set_once_and_in_its_place() {
        let mut environment = vec![("A".into(), "1".into()), ("B".into(), "2".into())];
        set(&mut environment, "A", Some("3".into()));
        set(&mut environment, "C", Some("4".into()));
        set(&mut environment, "B", None);
        set(&mut environment, "D", None);
        let expected: Environment = vec![("A".into(), "3".into()), ("C".into(), "4".into())];
        assert_eq!(environment, expected);
    }
}
