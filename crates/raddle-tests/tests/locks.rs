//! Locks and waiting: pthread objects, the C and C++ standard libraries, the futex call itself.

mod mutexes {
    raddle_tests::cases! { "mutexes.c":
        normal_excludes_100_threads,
        recursive_excludes,
        errorcheck_excludes,
        adaptive_excludes,
        a_holder_may_yield_and_sleep,
        trylock_says_busy,
        recursive_counts_its_locks,
        errorcheck_knows_its_owner,
        clocklock_times_out_on_both_clocks,
        timedlock_with_a_past_time_still_tries,
        timedlock_gets_the_lock_when_it_is_freed,
        robust_tells_that_its_owner_died,
        robust_wakes_who_waits_when_its_owner_dies,
        priority_inheritance_excludes,
        priority_inheritance_of_other_kinds,
        a_priority_ceiling_excludes,
        shared_between_processes_excludes,
        five_philosophers_dine,
        stdio_locks_keep_lines_whole,
    }
}

mod conditions {
    raddle_tests::cases! { "condvars.c":
        two_threads_take_turns,
        twenty_threads_take_turns_by_broadcast,
        each_signal_lets_one_go,
        broadcast_wakes_1000,
        clockwait_times_out_on_both_clocks_and_holds_the_mutex,
        timedwait_uses_the_clock_of_its_attributes,
        a_hundred_timed_waits_on_one_condition_all_end,
        a_timed_wait_that_is_signalled_does_not_time_out,
        an_invalid_or_past_time_is_told,
        destroy_after_broadcast,
        producers_and_consumers_lose_nothing,
        a_wait_releases_an_errorcheck_mutex,
    }
}

mod deadlines {
    raddle_tests::cases! { "deadlines.c":
        a_condition_wait_until_a_negative_time_has_timed_out,
        a_condition_wait_checks_nanoseconds_and_clocks,
        a_condition_wait_needs_the_mutex_that_it_checks,
        a_recursive_mutex_of_another_thread_is_refused,
        a_semaphore_wait_checks_nanoseconds_before_it_takes,
        a_semaphore_wait_until_a_negative_time_takes_or_has_timed_out,
        the_end_of_time_is_far_away,
        a_semaphore_holds_no_more_than_it_can,
        semaphore_waits_act_on_a_cancellation_that_has_come,
        a_bad_address_of_a_time_is_a_fault,
    }
}

mod interrupted_waits {
    raddle_tests::cases! { "interrupted_waits.c":
        a_handler_does_not_end_a_wait,
        a_handler_does_not_end_a_wait_with_a_time_limit,
        a_wake_up_during_a_handler_ends_the_wait,
        a_broadcast_during_handlers_ends_all_waits,
        a_handler_that_signals_its_own_condition_ends_the_wait,
        a_time_limit_is_kept_while_signals_come,
        a_handler_may_wait_for_another_condition,
        a_cancellation_during_a_handler_ends_the_wait_with_its_mutex,
        no_token_is_lost_in_a_storm_of_signals,
    }
}

mod objects {
    raddle_tests::cases! { "sync_objects.c":
        rwlock_writers_exclude_readers,
        rwlock_readers_share,
        rwlock_try,
        rwlock_time_limits,
        rwlock_that_prefers_writers,
        rwlock_that_prefers_readers,
        barrier_lets_16_pass_together,
        spin_lock_excludes,
        spinners_do_not_starve_the_holder,
        semaphore_counts,
        semaphores_take_turns,
        main_posts_to_500_waiters,
        semaphore_time_limits,
        c11_threads,
    }
}

mod futexes {
    raddle_tests::cases! { "futex.c":
        wait_with_another_value_says_again,
        a_wait_that_looks_like_a_join_is_woken_by_a_call,
        wait_times_out_relative,
        wait_bitset_times_out_absolute_on_both_clocks,
        invalid_arguments_are_told,
        an_address_that_is_not_mapped_is_a_fault,
        wake_counts_whom_it_woke,
        to_wake_none_wakes_one,
        bitsets_select_whom_to_wake,
        requeue_moves_waiters_to_another_word,
        cmp_requeue_checks_the_value,
        a_requeued_wait_still_times_out,
        wake_op_changes_the_second_word_and_wakes_both,
        wake_op_compares_the_old_value,
        two_threads_take_turns,
        a_mutex_of_the_programs_own_excludes,
        a_shared_futex_crosses_processes,
        a_futex_without_the_private_flag_works_between_threads,
        waitv_tells_which_word_woke_it,
        a_storm_of_waits_wakes_and_requeues_ends,
    }
}

mod waits_on_several {
    raddle_tests::cases! { "waitv.c":
        the_last_of_128_words_wakes,
        a_word_that_is_named_twice_wakes_once,
        time_limits_are_absolute_on_both_clocks,
        nonsense_is_told,
        private_and_shared_words_in_one_wait,
        a_shared_word_is_woken_by_another_process,
        a_handler_without_restart_ends_the_wait,
        no_wake_is_lost_or_counted_twice,
    }
}

mod inheritance {
    raddle_tests::cases! { "pi_futex.c":
        errors_are_told,
        unlock_hands_over_to_who_waits,
        who_waits_inherits_from_the_dead,
        a_signal_does_not_end_the_wait,
        twenty_threads_exclude_each_other,
        requeue_to_a_lock_that_is_held,
        requeue_to_a_lock_that_is_free,
        a_requeued_wait_times_out,
        shared_words_are_requeued_to_a_lock_that_is_held,
        shared_words_are_requeued_to_a_lock_that_is_free,
        a_requeued_wait_on_a_shared_word_times_out,
    }
}

mod robustness {
    raddle_tests::cases! { "robust.c":
        a_thread_dies_with_several,
        a_thread_dies_with_recursive_ones,
        a_thread_dies_with_those_that_inherit,
        a_waiter_is_woken,
        a_waiter_of_one_that_inherits_is_woken,
        what_is_not_made_consistent_is_lost,
        a_process_exits,
        a_process_aborts,
        a_process_crashes,
        a_process_is_killed_whose_main_thread_holds_them,
        lists_may_be_circles_or_end_nowhere,
    }
}

mod between_processes {
    raddle_tests::cases! { "shared_locks.c":
        two_hundred_wait_on_a_condition_of_another_process,
        another_process_posts_to_two_hundred,
        threads_of_two_processes_exclude_each_other,
        recursive_across_processes,
        errorcheck_across_processes,
        priority_inheritance_across_processes,
        a_rwlock_between_processes,
        a_barrier_between_processes,
        time_limits_pass,
        waits_are_cancelled,
        a_signal_ends_a_wait,
        a_signal_with_restart_does_not_end_a_wait,
        a_signal_ends_a_private_wait,
        a_signal_with_restart_does_not_end_a_private_wait,
        private_and_shared_waits_of_one_word_are_two_queues,
        sequence_numbers_of_any_size_cross_processes,
    }
}

mod cplusplus {
    raddle_tests::cases! { "sync.cc":
        threads_and_mutex,
        scoped_lock_of_several_does_not_deadlock,
        timed_mutex_times_out,
        condition_variable_queue,
        condition_variable_wait_for_times_out,
        shared_mutex_shares_and_excludes,
        latch_and_barrier,
        counting_semaphore,
        atomic_wait_and_notify,
        jthread_stops_on_request,
        futures_promises_and_async,
        a_future_carries_an_exception,
        call_once_retries_after_an_exception,
        thread_local_objects_are_destroyed,
        static_initialisation_happens_once,
        threads_sleep_until,
        thread_ids_differ,
    }
}
