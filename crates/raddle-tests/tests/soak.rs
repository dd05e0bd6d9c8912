//! The programs that found the most, repeated: `RADDLE_SOAK=N` times in every mode, 3 by default.

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
    mono_ping_pong: "mono.cs" two_threads_take_turns;
    mono_garbage: "mono.cs" garbage_collection_with_50_threads;
    rust_channels: "rust_std.rs" rendezvous_channels_take_turns;
}

/// How often, in hundreds: `RADDLE_LEAKS`, 3 by default; 10000 is a million.
fn hundreds() -> String {
    env::var("RADDLE_LEAKS").unwrap_or_else(|_| "3".to_owned())
}

mod leaks {
    raddle_tests::cases! { "leaks.c", |case| case.argument(&super::hundreds());
        forks_leave_nothing_behind,
        spawned_programs_leave_nothing_behind,
        threads_leave_nothing_behind,
        signals_leave_nothing_behind,
    }
}
