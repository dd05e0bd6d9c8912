//! Runtimes of other languages, unmodified: CPython, HotSpot, Mono, .NET, Rust's standard library.

mod python {
    raddle_tests::cases! { "python.py":
        threads_and_locks,
        a_thousand_threads,
        queues_hand_over,
        a_queue_has_time_limits,
        producers_and_consumers,
        conditions_and_barriers,
        locals_belong_to_threads,
        identities_differ,
        a_pool_of_threads,
        asyncio_with_threads,
        sockets_with_a_thread_for_each_client,
        select_and_time_limits,
        subprocesses_from_threads,
        fork_with_threads_running,
        a_pool_of_processes,
        processes_with_queues,
        signals_reach_the_main_thread,
        interrupted_by_the_keyboard,
        garbage_is_collected_in_all_threads,
        computing_threads_take_turns,
        daemon_threads_end_with_the_process => 5,
        exit_handlers_run,
    }
}

mod java {
    raddle_tests::cases! { "Threads.java":
        start_and_join,
        interrupt_wakes_every_wait,
        executors,
        fork_join_and_streams,
        wait_and_notify,
        queues_hand_over,
        contended_monitors_and_locks,
        park_and_unpark,
        sockets,
        selectors,
        garbage_collection_with_100_threads,
        stacks_overflow_safely,
        null_pointers_are_exceptions,
        compute_loops_stop_for_the_collector,
        thread_dumps,
        processes,
        exit_with_live_threads => 3,
        an_uncaught_exception_ends_with_1 => 1,
    }
}

mod csharp {
    raddle_tests::cases! { "threads.cs":
        threads_and_locks,
        many_threads,
        monitors_wait_and_pulse,
        two_threads_take_turns,
        events_and_semaphores,
        the_thread_pool,
        tasks_and_await,
        blocking_collections,
        garbage_collection_with_50_threads,
        compute_loops_stop_for_the_collector,
        statics_of_threads,
        null_references_are_exceptions,
        interrupt_wakes_a_sleep,
        sockets,
        processes,
        exit_with_live_threads => 3,
    }
}

mod rust {
    raddle_tests::cases! { "rust_std.rs":
        scoped_threads_and_mutex,
        join_gives_values_and_panics,
        channels,
        rendezvous_channels_take_turns,
        condvars_barriers_and_rwlocks,
        park_and_unpark,
        once_and_lazy_initialise_once,
        thread_locals_are_dropped,
        tcp_with_a_thread_for_each_client,
        udp_and_unix_sockets,
        processes,
        sleeps_and_available_parallelism,
        panics_unwind_in_all_threads,
        compute_loops_share,
    }
}

/// Start-up, output and exit alone, compared with the native run instead of checking themselves.
mod listing {
    #[test]
    fn python_prints_its_cases() {
        let test = "languages::listing::python_prints_its_cases";
        raddle_tests::assert_same(test, "python.py", &["--list"]);
    }

    #[test]
    fn java_prints_its_cases() {
        let test = "languages::listing::java_prints_its_cases";
        raddle_tests::assert_same(test, "Threads.java", &["--list"]);
    }

    #[test]
    fn csharp_prints_its_cases() {
        let test = "languages::listing::csharp_prints_its_cases";
        raddle_tests::assert_same(test, "threads.cs", &["--list"]);
    }

    #[test]
    fn a_wrong_case_ends_with_an_error_in_every_mode() {
        // Java's and C#'s messages differ; C's programs say nothing and end with 2.
        raddle_tests::Case::new(module_path!(), "threads.c", "no_such_case")
            .tested_by("languages::listing::a_wrong_case_ends_with_an_error_in_every_mode")
            .exits_with(2)
            .without_last_line()
            .check();
    }
}
