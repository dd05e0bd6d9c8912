//! A case as a reader of C would write it.

use std::fmt::Write as _;

use super::text::value_text;
use super::{Call, Case, Data, FILES, PATHS, Page, Value, agent_name};
use crate::calls::{Argument, Names, SIGNALS};

const ERRORS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::ENXIO, "ENXIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::ENOEXEC, "ENOEXEC"),
    (libc::EBADF, "EBADF"),
    (libc::ECHILD, "ECHILD"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::ENOTBLK, "ENOTBLK"),
    (libc::EBUSY, "EBUSY"),
    (libc::EEXIST, "EEXIST"),
    (libc::EXDEV, "EXDEV"),
    (libc::ENODEV, "ENODEV"),
    (libc::ENOTDIR, "ENOTDIR"),
    (libc::EISDIR, "EISDIR"),
    (libc::EINVAL, "EINVAL"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOTTY, "ENOTTY"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ESPIPE, "ESPIPE"),
    (libc::EROFS, "EROFS"),
    (libc::EPIPE, "EPIPE"),
    (libc::EDOM, "EDOM"),
    (libc::ERANGE, "ERANGE"),
    (libc::EDEADLK, "EDEADLK"),
    (libc::ENAMETOOLONG, "ENAMETOOLONG"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOTEMPTY, "ENOTEMPTY"),
    (libc::ELOOP, "ELOOP"),
    (libc::ENOMSG, "ENOMSG"),
    (libc::ENOTSOCK, "ENOTSOCK"),
    (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::EPROTOTYPE, "EPROTOTYPE"),
    (libc::ENOPROTOOPT, "ENOPROTOOPT"),
    (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::EISCONN, "EISCONN"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EALREADY, "EALREADY"),
    (libc::EINPROGRESS, "EINPROGRESS"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EIDRM, "EIDRM"),
    (libc::EOWNERDEAD, "EOWNERDEAD"),
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (516, "ERESTART_RESTARTBLOCK"),
];

/// The name of an error by its positive number.
pub fn error_name(number: i32) -> Option<&'static str> {
    let found = ERRORS.iter().find(|(error, _)| *error == number);
    found.map(|(_, name)| *name)
}

/// The case, a line a fact.
pub fn listing(case: &Case) -> String {
    let mut text = String::new();
    for thread in 1..=case.threads {
        let _ = writeln!(text, "thread a{thread};");
    }
    for resource in &case.resources {
        let [first, second] = resource.numbers;
        let numbers = match second {
            0 => first.to_string(),
            _ => format!("{first}, {second}"),
        };
        let state: Vec<_> = resource.state.iter().map(|state| state.word()).collect();
        let _ = writeln!(
            text,
            "{numbers} = {} {}",
            resource.kind.word(),
            state.join(" ")
        );
    }
    for handler in &case.handlers {
        let signal = name_of(SIGNALS, handler.signal.into());
        let action = if handler.ignore { "SIG_IGN" } else { "handler" };
        let _ = writeln!(
            text,
            "sigaction({signal}, {action}, flags {:#x});",
            handler.flags
        );
    }
    if case.blocked != 0 {
        let _ = writeln!(text, "sigprocmask(SIG_SETMASK, {:#x});", case.blocked);
    }
    for (index, step) in case.steps.iter().enumerate() {
        for put in &step.puts {
            let at = value_text(Value::Place(put.at));
            let _ = match &put.data {
                Data::Number(bytes, value) => {
                    writeln!(
                        text,
                        "      *(u{}*){at} = {};",
                        bytes * 8,
                        value_text(*value)
                    )
                }
                Data::Bytes(bytes) => writeln!(text, "      {at} = {bytes:02x?};"),
                Data::Deadline(clock, ms) => {
                    writeln!(
                        text,
                        "      *(timespec*){at} = now(clock {clock}) + {ms} ms;"
                    )
                }
            };
        }
        let _ = writeln!(text, "{index:3}: {};", call(&step.call));
        for event in &step.events {
            let _ = writeln!(
                text,
                "      after {} ms: {};",
                event.after_ms,
                call(&event.call)
            );
        }
    }
    text
}

fn call(call: &Call) -> String {
    let kinds = call
        .spec
        .arguments
        .iter()
        .map(Some)
        .chain(std::iter::repeat(None));
    let arguments = call.arguments.iter().zip(kinds);
    let arguments: Vec<_> = arguments
        .map(|(&value, kind)| argument(value, kind))
        .collect();
    format!(
        "{:<4} {}({})  /* {:?} */",
        agent_name(call.agent),
        call.spec.name,
        arguments.join(", "),
        call.site
    )
}

fn argument(value: Value, kind: Option<&Argument>) -> String {
    match (value, kind) {
        (Value::Int(number), Some(Argument::Flags(names))) => flags(names, number),
        (Value::Int(number), Some(Argument::OneOf(names))) => name_of(names, number),
        (Value::Int(number), Some(Argument::Signal)) => name_of(SIGNALS, number),
        (Value::Place(place), _) if place.page == Page::NAMES && place.offset % 64 == 0 => {
            let names = FILES.iter().chain(PATHS);
            let name = names.copied().nth(place.offset as usize / 64);
            name.map_or_else(|| value_text(value), |name| format!("{name:?}"))
        }
        _ => value_text(value),
    }
}

fn name_of(names: &Names, number: u64) -> String {
    let found = names.iter().find(|(_, value)| *value == number);
    found.map_or_else(
        || value_text(Value::Int(number)),
        |(name, _)| (*name).into(),
    )
}

fn flags(names: &Names, number: u64) -> String {
    let mut rest = number;
    let mut words = Vec::new();
    for (name, bits) in names.iter().filter(|(_, bits)| *bits != 0) {
        if rest & bits == *bits {
            words.push((*name).to_owned());
            rest &= !bits;
        }
    }
    if rest != 0 || words.is_empty() {
        words.push(value_text(Value::Int(rest)));
    }
    words.join("|")
}
