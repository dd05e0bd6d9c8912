//! Every command and flag, defined once: help, manual pages, completions and the environment
//! twins come from here.

mod bench;
mod core_file;
mod ctl;
mod dump;
mod gdb;
mod locks;
mod metrics;
mod record;
mod report;
mod top;
mod trace;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process;

use anyhow::Result;
use clap::builder::FalseyValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use raddle_inspect::settings::{self, QUANTA_US, THREADS_MAX};

use crate::failure::Failure;
use crate::run::pattern::Pattern;
use crate::run::policy::{Policy, Share};
use crate::stdout::print;
pub(crate) use bench::{BenchArguments, BenchCommand, Group, InsightArguments, ServersArguments};
pub(crate) use core_file::CoreArguments;
pub(crate) use ctl::{Allotment, Change, CtlArguments, Switch};
pub(crate) use dump::StackArguments;
pub(crate) use gdb::GdbArguments;
pub(crate) use locks::LocksArguments;
pub(crate) use metrics::MetricsArguments;
pub(crate) use record::RecordArguments;
pub(crate) use report::ReportArguments;
pub(crate) use top::{SortKey, TopArguments};
pub(crate) use trace::TraceArguments;

pub(crate) const CARRIERS_MAX: u16 = settings::CARRIERS_MAX as u16;
pub(crate) use raddle_inspect::settings::{
    CARRIERS as CARRIERS_VARIABLE, CHAOS as CHAOS_VARIABLE, CPUS as CPUS_VARIABLE,
    EXCLUDE as EXCLUDE_VARIABLE, EXTRA_CARRIERS as EXTRA_CARRIERS_VARIABLE,
    FLIGHT_RECORDER as FLIGHT_RECORDER_VARIABLE, MAX_RUNNABLE as MAX_RUNNABLE_VARIABLE,
    MAX_THREADS as MAX_THREADS_VARIABLE, POLICY as POLICY_VARIABLE, QUANTUM as QUANTUM_VARIABLE,
    SHARE as SHARE_VARIABLE, VERBOSE as VERBOSE_VARIABLE,
    WATCH_DEADLOCKS as WATCH_DEADLOCKS_VARIABLE,
};
/// Between patterns in `RADDLE_EXCLUDE` and rules in `RADDLE_SHARE`.
pub(crate) const EXCLUDE_SEPARATOR: char = ';';

/// Runs every thread of an unmodified program as a green thread
#[derive(Parser)]
#[command(
    name = "raddle",
    version,
    after_help = "\
Examples:
  raddle run -- ./server --port 8080
  raddle run -n 1 -v -- java -jar application.jar
  raddle doctor
  raddle dump $(pidof server)

`raddle COMMAND --help` says more about a command."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArguments),
    Doctor(DoctorArguments),
    Dump(DumpArguments),
    Top(TopArguments),
    Core(CoreArguments),
    Gdb(GdbArguments),
    Record(RecordArguments),
    Report(ReportArguments),
    Locks(LocksArguments),
    Trace(TraceArguments),
    Metrics(MetricsArguments),
    Ctl(CtlArguments),
    Bench(BenchArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

/// Runs a program with green threads
///
/// The program replaces this command: process id, exit status, terminal and signals are its own.
/// A program that can't have green threads (static, setuid, musl, 32-bit) runs on kernel threads,
/// and -v says why.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle run -- ./server --port 8080
  raddle run -n 1 -- python3 program.py
  raddle run --exclude 'name:GC*' --exclude lib:libcuda.so* -- ./program
  raddle run --share 'name:batch*=20' -- ./server

Exit status: the program's own; 2 for bad usage, 126 if the program can't be executed, 127 if it
is not found.")]
pub(crate) struct RunArguments {
    /// Kernel threads that run green threads, 1 to 1024 [default: as many as CPUs may be used]
    #[arg(short = 'n', long, env = CARRIERS_VARIABLE, value_parser = parse_carriers)]
    pub carriers: Option<u16>,

    /// Carriers beside those of -n, while other processes leave the program less than a quarter of
    /// its CPUs, 0 to 1024 [default: 62 without -n, 0 with it]
    #[arg(
        long,
        env = EXTRA_CARRIERS_VARIABLE,
        value_name = "CARRIERS",
        value_parser = parse_extra_carriers
    )]
    pub extra_carriers: Option<u16>,

    /// CPUs that the program is shown: as many as carriers, if -n asks for fewer, or the machine's
    /// [default: carriers]
    #[arg(long, env = CPUS_VARIABLE, value_name = "CPUS", value_enum)]
    pub cpus: Option<Cpus>,

    /// Microseconds that a thread may compute while others wait, 50 to 1000000; 0 for no limit
    /// [default: 2000]
    #[arg(long, env = QUANTUM_VARIABLE, value_name = "US", value_parser = parse_quantum)]
    pub quantum: Option<u32>,

    /// Makes rare schedules common, by chances drawn from this seed; 0 for off
    #[arg(long, env = CHAOS_VARIABLE, value_name = "SEED", value_parser = parse_chaos, hide = true)]
    pub chaos: Option<u32>,

    /// Green threads alive at a time, 1 to 1048576; creating one more fails [default: no limit]
    #[arg(
        long,
        env = MAX_THREADS_VARIABLE,
        value_name = "THREADS",
        value_parser = parse_max_threads
    )]
    pub max_threads: Option<u32>,

    /// Threads that run or want to at a time, 1 to 1048576; with as many, creating one more fails
    /// [default: no limit]
    #[arg(
        long,
        env = MAX_RUNNABLE_VARIABLE,
        value_name = "THREADS",
        value_parser = parse_max_runnable
    )]
    pub max_runnable: Option<u32>,

    /// Says on standard error what runs how, and why not with green threads
    #[arg(short, long, env = VERBOSE_VARIABLE, value_parser = FalseyValueParser::new())]
    pub verbose: bool,

    /// Reports deadlocks on standard error, each once, while the program runs
    ///
    /// Another process looks from outside, every so many milliseconds, 10 to 60000, or 400 without
    /// a number; the program does nothing for it. What is reported is as by `raddle dump
    /// --deadlocks`, also of child processes and with Java's locks. A deadlock is found at the
    /// second or third look. 0 is off.
    #[arg(
        long,
        env = WATCH_DEADLOCKS_VARIABLE,
        value_name = "MS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "400",
        value_parser = parse_watch
    )]
    pub watch_deadlocks: Option<u32>,

    /// Keeps the latest 65536 events of each carrier in memory, for `raddle trace --last`
    ///
    /// If a signal ends the program, the events of all carriers are in raddle-PID.events, in the
    /// current folder or in FOLDER, for `raddle trace --from`. A switch takes some tens of
    /// nanoseconds more.
    #[arg(
        long,
        env = FLIGHT_RECORDER_VARIABLE,
        value_name = "FOLDER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = parse_flight_recorder
    )]
    pub flight_recorder: Option<OsString>,

    /// Which runnable thread runs next: fifo, lifo, priority, fair, deadline, or a plug-in's file
    /// [default: fifo, or fair with --share]
    ///
    /// priority and fair go by nice values, priority and deadline by scheduling classes. A plug-in
    /// is a shared object that exports raddle_policy (see raddle_policy.h).
    #[arg(long, env = POLICY_VARIABLE, value_name = "POLICY", value_parser = Policy::parse)]
    pub policy: Option<Policy>,

    /// Gives matching threads together a part of the time; can be repeated, up to 15 times
    ///
    /// 25 is a share of the carriers' time while others want it too, all shares together at most
    /// 100. 30% is a quota: that much of one CPU, whatever else is idle. carriers=N gives the
    /// threads N carriers of their own; with a quota, both: 150%,carriers=2.
    ///
    /// name:GLOB matches a thread's name, lib:GLOB the library that its start function is in. All
    /// other threads have what the rules leave. In the environment, rules are separated by ';'.
    #[arg(
        long,
        env = SHARE_VARIABLE,
        value_name = "PATTERN=PART",
        value_delimiter = EXCLUDE_SEPARATOR,
        value_parser = Share::parse
    )]
    pub share: Vec<Share>,

    /// Gives matching threads a kernel thread of their own; can be repeated
    ///
    /// name:GLOB matches a thread's name, lib:GLOB the library that its start function is in,
    /// start:SYMBOL its start function. In the environment, patterns are separated by ';'.
    #[arg(
        long,
        env = EXCLUDE_VARIABLE,
        value_name = "PATTERN",
        value_delimiter = EXCLUDE_SEPARATOR,
        value_parser = Pattern::parse
    )]
    pub exclude: Vec<Pattern>,

    /// The program, found as a shell finds it, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Checks this machine: what works, what degrades, and the cure
///
/// Exit status: 0, or 1 if no program can have green threads here.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Prints one JSON document instead of lines
    #[arg(long)]
    pub json: bool,
}

/// Shows every green thread of a running program
///
/// Carriers come first, then the green threads: id, name, state, what each waits for and since
/// when, its carrier, its counters, and its stack.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle dump 4242
  raddle dump 4242 --group --name 'worker*'
  raddle dump 4242 --cpu --interval 5 | head -20
  raddle dump 4242 --deadlocks
  raddle dump --from core.4242
  raddle dump 4242 --json | jq '.threads[] | select(.state == \"waiting\") | .wait.kind'

The process goes on while its stacks are read. A frame is marked as guessed where no unwind table
says how it was called. docs/observability.md has examples, and docs/dump.schema.json the fields of
the JSON document.")]
pub(crate) struct DumpArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid, required_unless_present = "from")]
    pub pid: Option<u32>,

    /// Shows the threads of a core file, which the kernel or `raddle core` has written
    #[arg(long, value_name = "CORE", conflicts_with_all = ["pid", "stats", "cpu"])]
    pub from: Option<PathBuf>,

    /// Prints one JSON document instead of a table
    #[arg(long)]
    pub json: bool,

    /// Shows carriers and how long runnable threads wait for one, instead of the green threads
    #[arg(long)]
    pub stats: bool,

    /// Shows the CPU time of each green thread, those that use most first. The process counts
    /// meanwhile, and each switch reads the clock
    #[arg(long, conflicts_with = "stats")]
    pub cpu: bool,

    /// Shows waits that can't end: cycles, locks of threads that have ended, and a process in which
    /// all threads wait and nothing can wake one. Exit status 3 if there are any
    #[arg(long, conflicts_with_all = ["stats", "cpu"])]
    pub deadlocks: bool,

    /// For how many seconds --cpu looks
    #[arg(
        long,
        default_value = "1",
        requires = "cpu",
        allow_negative_numbers = true,
        value_parser = parse_interval
    )]
    pub interval: f64,

    #[command(flatten)]
    pub stacks: StackArguments,
}

/// Prints a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Example:
  raddle completions bash > ~/.local/share/bash-completion/completions/raddle")]
pub(crate) struct CompletionsArguments {
    pub shell: clap_complete::Shell,
}

/// Writes the manual pages into a folder
#[derive(Args)]
pub(crate) struct ManArguments {
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// The definition of the whole command line.
pub(crate) fn definition() -> clap::Command {
    Arguments::command()
}

/// Parses the command line. `--help` and `--version` print and end the process.
pub(crate) fn parse() -> Result<Command> {
    let definition = definition().mut_subcommand("run", without_empty_variables);
    let matches = definition.try_get_matches();
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => Ok(arguments.command),
        Err(error) if !error.use_stderr() => {
            if io::stdout().is_terminal() {
                error.print()?; // with colours
            } else {
                print(&error.render().to_string())?;
            }
            process::exit(0)
        }
        Err(error) => Err(sentence(&error).into()),
    }
}

/// The CPUs that a program sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Cpus {
    /// As many as carriers.
    Carriers,
    /// The machine's.
    Machine,
}

/// Makes a variable with an empty value count as not set.
fn without_empty_variables(run: clap::Command) -> clap::Command {
    run.mut_args(|argument| {
        let value = argument.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) {
            argument.env(None::<&str>)
        } else {
            argument
        }
    })
}

fn parse_carriers(text: &str) -> Result<u16, String> {
    let carriers = text.parse().ok();
    let allowed = carriers.filter(|carriers| (1..=CARRIERS_MAX).contains(carriers));
    allowed
        .ok_or_else(|| format!("give -n or {CARRIERS_VARIABLE} a number from 1 to {CARRIERS_MAX}"))
}

fn parse_extra_carriers(text: &str) -> Result<u16, String> {
    let allowed = text.parse().ok().filter(|most| *most <= CARRIERS_MAX);
    let (flag, variable) = ("--extra-carriers", EXTRA_CARRIERS_VARIABLE);
    allowed.ok_or_else(|| format!("give {flag} or {variable} a number from 0 to {CARRIERS_MAX}"))
}

fn parse_max_threads(text: &str) -> Result<u32, String> {
    parse_limit(text, "--max-threads", MAX_THREADS_VARIABLE)
}

fn parse_max_runnable(text: &str) -> Result<u32, String> {
    parse_limit(text, "--max-runnable", MAX_RUNNABLE_VARIABLE)
}

fn parse_limit(text: &str, flag: &str, variable: &str) -> Result<u32, String> {
    let threads = text.parse().ok();
    let allowed = threads.filter(|threads| (1..=THREADS_MAX).contains(threads));
    allowed.ok_or_else(|| format!("give {flag} or {variable} a number from 1 to {THREADS_MAX}"))
}

/// Seconds.
fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let allowed = seconds.filter(|seconds| (0.01..=3600.0).contains(seconds));
    allowed.ok_or_else(|| "give a number of seconds from 0.01 to 3600".into())
}

/// 1, 0, or a folder: as a path that a program understands that changes its folder.
fn parse_flight_recorder(text: &str) -> Result<OsString, String> {
    if matches!(text, "0" | "1") {
        return Ok(text.into());
    }
    let folder = std::fs::canonicalize(text).ok().filter(|it| it.is_dir());
    let (flag, variable) = ("--flight-recorder", FLIGHT_RECORDER_VARIABLE);
    let folder = folder.map(PathBuf::into_os_string);
    folder.ok_or_else(|| format!("give {flag} or {variable} an existing folder, or 0 or 1"))
}

/// Milliseconds, or 0.
fn parse_watch(text: &str) -> Result<u32, String> {
    let allowed = text
        .parse()
        .ok()
        .filter(|ms| *ms == 0 || (10..=60_000).contains(ms));
    let (flag, variable) = ("--watch-deadlocks", WATCH_DEADLOCKS_VARIABLE);
    allowed.ok_or_else(|| format!("give {flag} or {variable} 0 or a number from 10 to 60000"))
}

fn parse_quantum(text: &str) -> Result<u32, String> {
    let us = text.parse().ok();
    us.filter(|us| *us == 0 || QUANTA_US.contains(us))
        .ok_or_else(|| {
            format!("give --quantum or {QUANTUM_VARIABLE} 0 or a number from 50 to 1000000")
        })
}

fn parse_chaos(text: &str) -> Result<u32, String> {
    let seed = text.parse();
    seed.map_err(|_| {
        format!(
            "give --chaos or {CHAOS_VARIABLE} a number from 0 to {}",
            u32::MAX
        )
    })
}

fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text
        .parse()
        .ok()
        .filter(|&pid| pid > 0 && pid <= i32::MAX as u32);
    pid.ok_or_else(|| "give the number of a process, as pidof or ps print it".into())
}

/// clap's error as one sentence with its cure.
fn sentence(error: &clap::Error) -> Failure {
    let context = |kind| error.get(kind).map(plain).unwrap_or_default();
    let argument = context(ContextKind::InvalidArg);
    let value = context(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = context(ContextKind::InvalidSubcommand);
            Failure::input(format!("there is no command {name}"), commands())
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::input("no command given", commands())
        }
        ErrorKind::MissingRequiredArgument => missing(&argument),
        ErrorKind::InvalidValue if value.is_empty() => Failure::input(
            format!("{argument} has no value"),
            "see raddle COMMAND --help",
        ),
        ErrorKind::InvalidValue => Failure::input(
            format!("{argument} {value}"),
            format!(
                "name one of {}",
                context(ContextKind::ValidValue) + bench::beside(&argument)
            ),
        ),
        ErrorKind::ValueValidation => {
            let cure = std::error::Error::source(error).map(ToString::to_string);
            Failure::input(format!("{argument} {value}"), cure.unwrap_or_default())
        }
        ErrorKind::UnknownArgument => Failure::input(
            format!("there is no flag or argument {argument} here"),
            "see raddle COMMAND --help; a program's own flags follow its name",
        ),
        _ => Failure::input(first_line(error), "see raddle COMMAND --help"),
    }
}

fn missing(argument: &str) -> Failure {
    match argument {
        "CMD" => Failure::input(
            "no program given",
            "write it behind --, as in raddle run -- ./server",
        ),
        _ => Failure::input(
            format!("{argument} is missing"),
            "see raddle COMMAND --help",
        ),
    }
}

fn commands() -> String {
    let definition = definition();
    let names: Vec<_> = definition
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    format!("name one of {}", names.join(", "))
}

/// `--carriers <CARRIERS>` as `--carriers`, `<CMD>...` as `CMD`; several with commas.
fn plain(value: &ContextValue) -> String {
    let name = |text: &str| {
        let first = text.split(' ').next().unwrap_or_default();
        let first = first.split("[=").next().unwrap_or_default();
        first
            .trim_end_matches("...")
            .trim_matches(['<', '>', '[', ']'])
            .to_owned()
    };
    match value {
        ContextValue::String(text) if text.starts_with(['-', '<', '[']) => name(text),
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts
            .iter()
            .map(|text| name(text))
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        assert_eq!(parse_carriers("1024"), Ok(1024));
        for text in ["0", "1025", "-1", "two", "", "99999999999"] {
            assert!(parse_carriers(text).is_err(), "{text}");
        }
        assert_eq!(parse_chaos("4294967295"), Ok(u32::MAX));
        assert!(parse_chaos("-1").is_err() && parse_chaos("seed").is_err());
        assert!(parse_pid("0").is_err() && parse_pid("4294967295").is_err());
    }

    #[test]
    fn a_programs_own_flags_are_left_to_it() {
        let parse = |line: &[&str]| {
            let arguments = Arguments::try_parse_from(line).map(|arguments| arguments.command);
            let Ok(Command::Run(run)) = arguments else {
                panic!("{line:?}");
            };
            run
        };
        let run = parse(&[
            "raddle", "run", "-n", "2", "prog", "-n", "9", "-v", "--", "x",
        ]);
        assert_eq!((run.carriers, run.verbose), (Some(2), false));
        assert_eq!(run.command, ["prog", "-n", "9", "-v", "--", "x"]);
        let run = parse(&["raddle", "run", "-v", "--", "-odd", "--help"]);
        assert!(run.verbose);
        assert_eq!(run.command, ["-odd", "--help"]);
    }
}
