//! Forty programs in good health, of which neither `raddle dump --deadlocks` nor
//! `raddle run --watch-deadlocks` reports one.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle, status_number};

/// How long a program may take, on a machine that is shared.
const PATIENCE: Duration = Duration::from_secs(60);
const DEADLOCK: i32 = 3;
/// Milliseconds between two looks of the watch.
const INTERVAL: &str = "20";
/// Programs that run at once: they mostly wait.
const AT_ONCE: usize = 5;

/// Programs that look like deadlocks for a moment, or to a careless eye.
const SUSPICIOUS: &str = "\
    timed_cycle idle_pool signal_wakes timer_wakes timer_thread_wakes sigwait_wakes process_wakes \
    pipe_wakes child_wakes contended backing_off ping_pong long_chain readers_and_writers barriers \
    owner_dies inherited chain_of_joins event_wakes computing";

/// Cases of the other tests in which threads wait for locks and for each other.
const ORDINARY: [(&str, &str); 20] = [
    ("mutexes.c", "normal_excludes_100_threads"),
    ("mutexes.c", "recursive_excludes"),
    ("mutexes.c", "a_holder_may_yield_and_sleep"),
    ("mutexes.c", "timedlock_gets_the_lock_when_it_is_freed"),
    ("mutexes.c", "robust_tells_that_its_owner_died"),
    ("mutexes.c", "robust_wakes_who_waits_when_its_owner_dies"),
    ("mutexes.c", "priority_inheritance_excludes"),
    ("mutexes.c", "shared_between_processes_excludes"),
    ("mutexes.c", "five_philosophers_dine"),
    ("mutexes.c", "stdio_locks_keep_lines_whole"),
    ("condvars.c", "two_threads_take_turns"),
    ("condvars.c", "broadcast_wakes_1000"),
    ("condvars.c", "producers_and_consumers_lose_nothing"),
    (
        "condvars.c",
        "a_hundred_timed_waits_on_one_condition_all_end",
    ),
    ("interrupted_waits.c", "a_handler_does_not_end_a_wait"),
    (
        "interrupted_waits.c",
        "no_token_is_lost_in_a_storm_of_signals",
    ),
    ("sync_objects.c", "rwlock_writers_exclude_readers"),
    ("sync_objects.c", "rwlock_readers_share"),
    ("sync_objects.c", "rwlock_that_prefers_writers"),
    ("sync_objects.c", "rwlock_that_prefers_readers"),
];

/// A program and its arguments.
type Line = (&'static str, Vec<&'static str>);

fn programs() -> Vec<Line> {
    let suspicious = SUSPICIOUS.split_whitespace();
    let suspicious = suspicious.map(|kind| ("no_deadlocks.c", vec![kind, "2"]));
    let ordinary = ORDINARY.iter().map(|&(source, case)| (source, vec![case]));
    suspicious.chain(ordinary).collect()
}

/// Runs a program to its end, and looks at it again and again. A report of the watch fails the
/// program ([`Running::wait`]).
fn run(mode: Mode, (source, arguments): &Line) -> Result<()> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(Into::into));
    let mut command = mode.command(&line)?;
    command.env("RADDLE_WATCH_DEADLOCKS", INTERVAL);
    let running = Running::start(mode, command, None)?;
    let mut looks = 0;
    while !running.has_ended_within(Duration::from_millis(200))? {
        let mut dump = Command::new(raddle()?);
        dump.arg("dump").arg(running.pid().to_string());
        // It may end meanwhile, and have one thread yet.
        let status = status_number(dump.arg("--deadlocks").output()?.status);
        ensure!(status != DEADLOCK, "a deadlock is reported");
        looks += 1;
    }
    let outcome = running.wait(PATIENCE)?;
    ensure!(status_number(outcome.status) == 0, "{outcome:?}");
    ensure!(
        looks != 0 || *source != "no_deadlocks.c",
        "it was not looked at"
    );
    Ok(())
}

#[test]
fn forty_programs_in_good_health_are_not_reported() {
    let name = "healthy::forty_programs_in_good_health_are_not_reported";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let programs = programs();
        ensure!(programs.len() == 40, "{}", programs.len());
        let run = |line: &Line| run(mode, line).with_context(|| format!("{line:?}"));
        for lines in programs.chunks(AT_ONCE) {
            thread::scope(|scope| {
                let threads: Vec<_> = lines.iter().map(|line| scope.spawn(|| run(line))).collect();
                let mut results = threads.into_iter().map(|it| it.join());
                results.try_for_each(|result| result.unwrap_or_else(|_| bail!("a panic")))
            })?;
        }
        Ok(())
    });
}
