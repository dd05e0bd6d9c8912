//! Threads: their life, their own attributes, and the end of a process with many of them.

mod lifecycle {
    raddle_tests::cases! { "threads.c":
        creates_and_joins_10000_in_turn,
        creates_and_joins_in_batches,
        keeps_10000_alive_at_once,
        detached_threads_run_and_vanish,
        a_thread_detaches_itself,
        pthread_exit_gives_its_value_from_any_depth,
        pthread_self_is_what_create_returned,
        thread_ids_are_unique_and_stable,
        an_id_does_not_come_again_soon,
        the_main_threads_id_is_the_process_id,
        stack_size_is_what_was_asked,
        a_stack_of_the_programs_own_is_used,
        tryjoin_and_timedjoin,
        threads_join_each_other_in_a_chain,
        joining_oneself_is_a_deadlock,
        threads_create_threads,
        each_thread_keeps_its_name,
        sched_yield_lets_everyone_run,
        a_compute_loop_does_not_stop_the_others,
    }
}

mod local {
    raddle_tests::cases! { "thread_local.c":
        errno_and_locals_survive_64000_yields,
        errno_survives_sleeps,
        destructors_run_once_for_each_thread,
        destructors_that_set_again_run_again,
        destructors_may_block,
        two_hundred_keys_in_eight_threads,
        pthread_once_runs_once_and_all_wait_for_it,
        each_thread_has_its_locale,
        strerror_has_a_buffer_for_each_thread,
    }
}

mod exits {
    raddle_tests::cases! { "exits.c":
        main_exits_by_pthread_exit_and_the_last_thread_ends_with_0,
        main_can_be_joined,
        exit_from_a_thread_while_main_joins => 7,
        exit_from_a_thread_while_main_sleeps => 8,
        underscore_exit_from_a_thread => 9,
        return_from_main_with_1000_blocked_threads,
        return_from_main_with_threads_that_compute,
        an_exit_at_the_end_of_a_turn_ends_the_process,
        exit_with_threads_in_read => 5,
        exit_handlers_run_in_reverse_order_and_may_sleep => 4,
        exit_status_is_the_low_byte => 0x34,
        abort_ends_with_its_signal => 134,
        an_unhandled_signal_ends_the_process => 143,
        sigkill_ends_the_process => 137,
        an_unhandled_fault_ends_the_process => 139,
        threads_end_while_the_process_exits => 3,
        exit_flushes_what_another_thread_printed,
    }
}

mod scheduling {
    raddle_tests::cases! { "scheduling.c":
        affinity_is_read_and_written_by_handle,
        affinity_is_read_and_written_by_id,
        scheduling_policy_is_read_and_written,
        priorities_belong_to_threads,
        what_was_set_before_the_first_thread_is_inherited,
        anothers_cpu_clock_advances,
        anothers_name_is_read_and_written,
        procfs_knows_threads_by_their_ids,
        a_signal_is_sent_by_id,
    }
}

mod attributes {
    raddle_tests::cases! { "attributes.c":
        a_new_thread_inherits_policy_and_niceness,
        attributes_are_read_and_written,
        wrong_requests_are_refused,
        an_unprivileged_thread_may_not_have_more,
        a_thread_becomes_real_time,
        real_time_threads_end,
        a_thread_that_computes_becomes_real_time_at_once,
        a_real_time_thread_is_one_from_its_start,
        real_time_threads_get_a_lock_by_priority,
        niceness_of_the_own_group_is_that_of_all_threads,
        calls_about_the_process_take_any_threads_id,
        affinity_is_checked_and_inherited,
        a_threads_stack_is_described,
        names_have_15_bytes,
        every_thread_has_a_tid_address_of_its_own,
        a_forked_child_is_its_own_main_thread,
    }
}

mod rseq {
    raddle_tests::cases! { "rseq.c":
        restartable_sequences_work_or_are_absent,
        the_first_thread_registers_only_if_all_can,
        a_copy_of_the_size_says_the_same,
    }
}

mod procfs {
    raddle_tests::cases! { "procfs.c":
        the_folder_lists_every_thread_once,
        a_small_buffer_lists_in_parts,
        names_are_read_and_written_by_file,
        the_main_threads_name_is_the_processs,
        stat_and_status_tell_of_the_thread,
        a_thread_finds_itself,
        the_rest_of_a_threads_folder_is_there,
    }
}

mod clones {
    raddle_tests::cases! { "clones.c":
        flags_that_do_not_go_together,
        arguments_that_make_no_sense,
        sizes_of_the_structure,
        requests_of_the_older_call,
        places_for_ids_may_be_bad,
        a_thread_with_descriptors_of_its_own,
        a_thread_with_a_folder_of_its_own,
        a_thread_that_undoes_its_own_operations,
        a_descriptor_that_names_a_thread,
        a_thread_on_a_stack_that_is_not_there,
        registers_after_a_fork_by_clone3,
        children_of_the_parents_that_share_memory,
        children_that_share_descriptors_leave_those_of_the_runtime,
    }
}
