//! The state that a switch must preserve, and the parts of libc that have threads or locks inside.

mod registers_and_stacks {
    raddle_tests::cases! { "machine.c":
        each_thread_keeps_its_rounding,
        a_new_thread_inherits_the_rounding,
        each_thread_keeps_mxcsr_and_the_x87_control_word,
        a_raw_system_call_preserves_xmm,
        avx_sums_survive_preemption,
        avx512_registers_survive_preemption,
        x87_sums_survive_preemption,
        twenty_threads_use_a_megabyte_of_stack,
        setjmp_and_longjmp_over_yields,
        swapcontext_in_threads,
        malloc_in_32_threads,
    }
}

mod preemption {
    raddle_tests::cases! { "preemption.c":
        every_one_of_forty_gets_its_turns,
        a_sleeper_wakes_among_burners,
        data_from_another_process_is_seen_among_burners,
        the_end_of_a_coroutine_stack_is_enough,
        the_red_zone_survives,
        thread_locals_and_errno_survive,
        spinning_threads_take_turns,
        signals_reach_threads_that_were_preempted,
        a_handler_jumps_out_of_a_loop,
        a_sleeper_wakes_among_burners_where_the_machine_has_hardly_any_time,
        fork_while_others_compute,
        a_lock_that_is_taken_again_at_once_starves_nobody,
    }
}

mod turns {
    raddle_tests::cases! { "turns.c":
        timers_of_the_program_expire_beside_burners,
        a_program_executes_itself_among_burners,
        no_timer_is_left_when_burners_end,
        burners_go_on_when_one_of_them_waits_in_the_kernel,
        a_rhythm_that_is_broken_again_and_again_starves_nobody,
        the_child_of_a_fork_has_a_rhythm_of_its_own,
        a_burner_of_negative_niceness_starves_nobody,
    }
}

mod blocking {
    raddle_tests::cases! { "blocking.c":
        a_raw_read_does_not_stop_who_writes,
        sixteen_raw_reads_do_not_stop_who_writes,
        opening_a_fifo_waits_alone,
        writers_to_a_full_terminal_wait_alone,
        draining_a_terminal_is_seldom_interrupted,
        who_waits_for_a_page_waits_alone,
        sleepers_go_on_beside_a_raw_read,
        who_waits_behind_a_raw_read_runs_beside_threads_that_compute,
        blocked_threads_come_back_and_compute,
        fork_while_others_block,
        a_child_process_waits_for_its_exec_alone,
    }
}

mod own_calls {
    raddle_tests::cases! { "own_calls.c":
        three_threads_take_turns,
        libcs_calls_and_the_programs_meet,
        a_byte_goes_round_fifty_threads,
        signals_and_masks_are_of_the_calling_thread,
        a_signal_ends_a_sleep,
        a_backtrace_passes_the_call,
        registers_outlive_a_call,
        a_child_of_an_own_fork_uses_threads,
        polls_wait_and_time_out,
    }
}

mod degraded {
    raddle_tests::cases! { "degraded.c":
        in_a_container,
        where_asking_for_events_kills,
        where_timers_kill_from_now_on,
        without_more_kernel_threads,
        calls_that_begin_without_more_kernel_threads,
        under_a_debugger,
        where_flags_are_not_told,
    }
}

mod services {
    raddle_tests::cases! { "services.c", |case| case.library("library.c");
        a_library_with_thread_local_variables_is_loaded_by_a_thread,
        twenty_threads_load_a_library_at_once,
        a_library_that_is_loaded_late_may_make_raw_system_calls,
        threads_wait_in_a_library_that_is_loaded_late,
        a_library_is_loaded_and_unloaded_often,
        a_library_comes_and_goes_while_threads_use_it,
        children_unmap_whatever_other_threads_were_doing,
        getaddrinfo_from_50_threads,
        a_timer_runs_a_function_in_a_thread,
        a_timer_sends_a_signal,
        aio_reads,
        streams_of_16_threads,
        directories_and_users,
        memory_is_mapped_and_unmapped_in_10_threads,
        message_queues_block_and_wake,
    }
}
