//! The programs that found the most errors, repeated `RADDLE_SOAK=N` times in every mode, 3 by
//! default.

use std::env;

use raddle_tests::Case;

fn rounds() -> u32 {
    let wanted = env::var("RADDLE_SOAK").ok();
    wanted.map_or(3, |text| text.parse().expect("RADDLE_SOAK is a number"))
}

macro_rules! soak {
    ($($name:ident: $source:literal $case:ident;)+) => {
        $(
            #[test]
            fn $name() {
                let case = Case::new(module_path!(), $source, stringify!($case));
                let case = case.tested_by(concat!(module_path!(), "::", stringify!($name)));
                for _ in 0..rounds() {
                    case.check();
                }
            }
        )+
    };
}

soak! {
    ping_pong_by_condition: "condvars.c" two_threads_take_turns;
    ping_pong_by_semaphore: "sync_objects.c" semaphores_take_turns;
    ping_pong_by_futex: "futex.c" two_threads_take_turns;
    producers_and_consumers: "condvars.c" producers_and_consumers_lose_nothing;
    futex_storm: "futex.c" a_storm_of_waits_wakes_and_requeues_ends;
    signal_storm: "signals.c" a_storm_of_signals_disturbs_nothing;
    tcp_echo: "sockets.c" tcp_echo_with_200_clients_and_a_thread_for_each;
    many_threads: "threads.c" creates_and_joins_in_batches;
    forks: "processes.c" eight_threads_fork_at_once;
    java_ping_pong: "Threads.java" queues_hand_over;
    java_garbage: "Threads.java" garbage_collection_with_100_threads;
    python_ping_pong: "python.py" queues_hand_over;
    csharp_ping_pong: "threads.cs" two_threads_take_turns;
    csharp_garbage: "threads.cs" garbage_collection_with_50_threads;
    rust_channels: "rust_std.rs" rendezvous_channels_take_turns;
}

/// Resources that a long run must not use up: the figures of each run are printed.
mod leaks {
    use std::env;
    use std::time::Duration;

    use anyhow::{Result, ensure};
    use raddle_tests::{Mode, Program, Running, check_list, in_every_mode, say, status_number};

    const CASES: [(&str, u32); 4] = [
        ("forks_leave_nothing_behind", 100),
        ("spawned_programs_leave_nothing_behind", 10),
        ("threads_leave_nothing_behind", 10_000),
        ("signals_leave_nothing_behind", 10_000),
    ];

    /// How often a case repeats itself, in hundreds: as often as the list says with
    /// `RADDLE_LEAKS=full`.
    fn hundreds(case: &str) -> u32 {
        let is_full = env::var_os("RADDLE_LEAKS").is_some_and(|value| value == "full");
        let listed = CASES.iter().find(|(name, _)| *name == case);
        listed.map_or(3, |(_, full)| if is_full { *full } else { 3 })
    }

    fn run(mode: Mode, case: &str, hundreds: u32, rules: &str) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(3600);
        let program = Program::build("leaks.c")?;
        let mut line = program.variants[0].command.clone();
        line.extend([case.into(), hundreds.to_string().into()]);
        let mut command = mode.command(&line)?;
        if !rules.is_empty() {
            command.env("RADDLE_EXCLUDE", rules);
        }
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        let figures = outcome.stderr.lines().last().unwrap_or_default();
        say(&format!("{mode}: {case}: {figures}"));
        let status = status_number(outcome.status);
        ensure!(status == 0, "status {status}: {}", outcome.stdout);
        Ok(())
    }

    fn check(case: &str) {
        let test = format!("soak::leaks::{case}");
        in_every_mode(&test, |mode| run(mode, case, hundreds(case), ""));
    }

    #[test]
    fn forks_leave_nothing_behind() {
        check("forks_leave_nothing_behind");
    }

    #[test]
    fn spawned_programs_leave_nothing_behind() {
        check("spawned_programs_leave_nothing_behind");
    }

    #[test]
    fn threads_leave_nothing_behind() {
        check("threads_leave_nothing_behind");
    }

    #[test]
    fn signals_leave_nothing_behind() {
        check("signals_leave_nothing_behind");
    }

    /// More threads than there are slots for carriers.
    #[test]
    fn bound_threads_leave_nothing_behind() {
        let case = "threads_leave_nothing_behind";
        in_every_mode("soak::leaks::bound_threads_leave_nothing_behind", |mode| {
            run(mode, case, 50, "lib:program")
        });
    }

    #[test]
    fn lists_every_case_of_its_program() {
        check_list("leaks.c", &CASES.map(|(name, _)| name));
    }
}
