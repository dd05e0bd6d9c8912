//! Processes: fork, vfork, spawn, exec and waiting, from main and from threads.

mod processes {
    raddle_tests::cases! { "processes.c":
        a_child_of_main_uses_threads,
        a_child_of_a_thread_uses_threads,
        fork_while_other_threads_run,
        eight_threads_fork_at_once,
        a_child_forks_a_child,
        a_child_that_waits_for_signals_uses_no_time,
        the_forking_thread_keeps_its_locals_in_the_child,
        atfork_handlers_run_in_order,
        vfork_and_exec,
        a_vfork_child_makes_calls_by_number,
        vfork_from_threads,
        a_thread_that_computes_after_a_spawn_is_preempted,
        a_child_of_vfork_forks,
        posix_spawn_from_ten_threads,
        system_in_main_and_threads,
        popen_from_threads,
        others_run_while_one_waits_for_a_child,
        waiting_tells_what_happened,
        several_threads_wait_for_any_child,
        pipes_between_parent_and_child,
        exec_from_main_keeps_the_process_id => 7,
        exec_from_a_thread_keeps_the_process_id => 7,
        exec_that_fails_returns,
        exec_of_itself_with_threads => 11,
        many_children_at_once,
    }
}

mod children {
    raddle_tests::cases! { "children.c":
        many_threads_wait_each_for_its_child,
        no_end_is_missed,
        children_that_nobody_announces_end,
        who_waits_learns_that_ends_are_ignored_now,
        who_waits_learns_that_nothing_is_left_of_ends,
        a_descriptor_reads_ends_that_are_waited_for,
        one_takes_the_signal_and_another_the_child,
        handlers_interrupt_and_restart_the_wait,
        the_handler_of_another_end_interrupts_the_wait,
        a_wait_is_cancelled,
        stops_are_waited_for,
        groups_and_any_children_are_waited_for,
        a_child_waits_for_its_own,
        ends_are_seen_while_others_compute,
        the_thread_that_made_a_child_hears_of_its_end,
        handlers_interrupt_the_wait_of_the_only_thread,
        the_only_thread_waits_without_using_time,
        the_only_thread_takes_signals_while_it_computes,
        children_of_busy_threads_handle_signals,
        a_wait_returns_the_child_whose_signal_interrupts_it,
    }
}

mod spawning {
    raddle_tests::cases! { "spawning.c":
        spawn_attributes_are_honoured,
        a_new_program_inherits_what_pends,
        a_new_program_gets_no_signal_that_was_meant_for_the_old,
        what_pends_survives_a_failed_execution,
        a_daemon_starts_and_uses_threads,
        children_allocate_whatever_other_threads_were_doing,
        forty_generations_use_threads,
        programs_have_what_their_thread_chose,
        slack_for_a_program_is_taken_back,
        programs_inherit_the_class_of_a_bound_thread,
    }
}

mod credentials {
    raddle_tests::cases! { "credentials.c":
        all_threads_become_nobody,
        threads_that_wait_become_nobody,
        ids_change_while_threads_begin_and_end,
        a_change_that_is_refused_changes_nothing,
        a_change_that_one_thread_cannot_follow_aborts,
        a_raw_call_changes_one_thread,
        an_instruction_of_the_program_changes_one_thread,
        file_ids_are_of_one_thread,
        capabilities_are_of_one_thread,
        a_filter_is_of_one_thread,
        a_filter_can_be_of_all_threads,
        values_are_read_back_on_any_carrier,
        the_folder_is_of_all_threads_but_who_left_them,
        files_that_a_thread_closes_for_itself_stay_open,
        questions_are_answered_while_threads_are_preempted,
    }
}

mod memory_policy {
    raddle_tests::cases! { "memory_policy.c": a_policy_of_memory_is_of_one_thread }
}

mod limits {
    raddle_tests::cases! { "limits.c":
        descriptors_end_at_the_limit,
        a_soft_limit_on_descriptors_leaves_them_all,
        a_hard_limit_on_descriptors_leaves_them_all,
        another_process_sets_the_limit,
        a_limit_of_no_descriptor_delays_no_thread,
        the_limit_on_stacks_is_inherited_as_their_size,
        limits_are_of_all_threads,
    }
}

mod job_control {
    raddle_tests::cases! { "jobs.c":
        a_stop_signal_stops_all_threads,
        a_continuation_runs_its_handler,
        a_handler_stops_its_process_after_all,
        a_thread_that_stops_itself_stops_all,
        stops_and_continuations_discard_each_other,
        keys_of_a_terminal_interrupt_and_stop,
        an_interrupt_without_a_handler_ends_the_process,
        a_background_read_stops_until_it_is_in_the_foreground,
        a_background_write_stops_where_the_terminal_says_so,
    }
}
