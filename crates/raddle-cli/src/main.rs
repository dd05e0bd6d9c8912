//! The `raddle` command. It works outside the process: it starts programs, looks at machines,
//! reads snapshots and measures; the green threads are made by the library it preloads.
//!
//! One module for each command; `cli` defines every flag once, `failure` the end of a failed
//! command. libc calls [`main`]: see [`run::inherit`].
#![cfg_attr(not(test), no_main)]

mod bench;
mod cli;
mod core_file;
mod doctor;
mod dump;
mod failure;
mod gdb;
mod machine;
mod metrics;
mod output;
mod own_path;
mod pages;
mod peers;
mod record;
mod recording;
mod report;
mod run;
mod stack;
mod stdout;
mod table;
mod top;
mod trace;

use std::ffi::{c_char, c_int};
use std::process::ExitCode;

use crate::cli::Command;

/// What libc calls. Tests have a `main` of their own.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    if run::filtered::find().is_none() {
        run::inherit::prepare();
    }
    let status = stack::call(execute);
    let number = (0..=u8::MAX).find(|&number| ExitCode::from(number) == status);
    // Unlike a return to libc, it writes what standard output has kept.
    std::process::exit(number.map_or(1, c_int::from))
}

fn execute() -> ExitCode {
    // The tool's own child; no command of the user's.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|it| it == raddle_stacks::SERVE_NAMES)
    {
        let served = raddle_stacks::serve_names();
        return ExitCode::from(u8::from(served.is_err()));
    }
    let outcome = cli::parse().and_then(|command| match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Core(arguments) => core_file::run(&arguments),
        Command::Gdb(arguments) => gdb::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Locks(arguments) => record::locks_command::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Ctl(arguments) => dump::control(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Completions(arguments) => pages::completions(&arguments),
        Command::Man(arguments) => pages::manual(&arguments),
    });
    outcome.unwrap_or_else(|error| failure::report(&error))
}
