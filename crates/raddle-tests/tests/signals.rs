//! Signals: their receivers, the calls that they interrupt, waits for them.

mod handlers {
    raddle_tests::cases! { "signals.c":
        a_signal_to_a_blocked_thread_interrupts_its_read,
        sa_restart_restarts_a_read,
        a_handler_runs_while_its_thread_waits_for_a_mutex,
        a_signal_reaches_a_compute_loop,
        kill_reaches_a_thread_that_does_not_block_it,
        raise_runs_the_handler_before_it_returns,
        each_thread_has_its_mask_and_inherits_its_creators,
        a_signal_to_itself_is_delivered_before_kill_returns,
        no_signal_is_lost_to_a_thread_that_gives_way,
        what_pends_for_main_before_the_first_thread_stays_mains,
        a_blocked_signal_is_pending_until_unblocked,
        sigwait_takes_a_signal_to_the_process,
        sigtimedwait_times_out,
        sigsuspend_opens_its_mask_only_while_it_waits,
        pause_ends_after_a_handler,
        alarm_and_interval_timer,
        sigqueue_carries_values_in_order,
        sigchld_comes_and_a_child_is_waited_for,
        sigpipe_goes_to_the_writing_thread,
        handlers_nest,
        a_signal_is_blocked_in_its_own_handler,
        sa_resethand_and_sa_nodefer,
        a_handler_may_sleep_and_yield,
        a_storm_of_signals_disturbs_nothing,
    }
}

mod nested {
    raddle_tests::cases! { "nested_signals.c":
        the_last_of_two_handlers_runs_first,
        nested_handlers_share_the_alternate_stack,
        sigsuspend_handles_all_that_its_mask_opens,
        signals_of_one_number_nest_with_sa_nodefer,
    }
}

mod untaken {
    raddle_tests::cases! { "untaken_signals.c":
        an_interval_timers_signal_writes_nothing_to_a_thread_that_blocks_it,
        a_timer_with_a_thread_writes_nothing_to_another,
        a_signal_that_another_thread_awaits_writes_nothing,
        the_end_of_a_child_writes_nothing_to_a_thread_that_blocks_it,
        each_handler_is_on_its_stack_while_a_timer_expires,
        a_handler_on_the_normal_stack_follows_one_on_the_alternate,
        a_handler_on_the_alternate_stack_follows_one_on_the_normal,
    }
}

mod no_room {
    raddle_tests::cases! { "no_room.c":
        a_faults_handler,
        a_handler_of_a_thread_that_computes,
        a_handler_that_interrupts_a_call,
        a_handler_on_an_alternate_stack_that_is_too_small,
        a_handler_on_an_alternate_stack_that_can_not_be_used,
        without_a_stack_for_sigsegv_the_process_ends,
    }
}

mod contexts {
    raddle_tests::cases! { "changed_contexts.c":
        a_call_that_has_ended_shows_its_result,
        a_call_that_ends_by_the_signal_shows_the_error,
        a_call_that_begins_again_shows_its_number,
        changed_registers_at_the_end_of_a_call,
        changed_registers_of_a_call_that_ends,
        changed_registers_of_a_call_that_begins_again,
        changed_registers_of_waits,
        a_changed_result,
        changed_arguments_of_a_call_that_begins_again,
        another_number_of_a_call_that_begins_again,
        a_call_that_a_handler_pushes,
        the_changes_of_two_handlers,
        a_call_of_code_that_is_not_patched,
        the_child_of_a_handlers_fork_begins_the_call_again,
        a_thread_that_traces_itself,
        forks_that_a_timer_interrupts,
        coroutines_that_exchange_their_contexts,
    }
}

mod cpu_time {
    raddle_tests::cases! { "cpu_time_signals.c":
        a_profiling_timers_signal_goes_to_the_thread_that_computes,
    }
}

mod wide {
    raddle_tests::cases! { "wide_registers.c":
        wide_registers_are_kept_over_calls,
        wide_registers_are_kept_over_calls_that_handlers_interrupt,
    }
}

mod kept {
    raddle_tests::cases! { "kept_registers.c":
        registers_are_kept_over_calls,
        registers_are_kept_over_calls_that_handlers_interrupt,
    }
}

mod many {
    raddle_tests::cases! { "many_signals.c":
        sigwaitinfo_takes_values_in_order_while_more_come,
        no_signal_is_lost_of_many_that_come_at_once,
        ten_thousand_signals_pend,
        no_more_signals_pend_than_the_limit_allows,
        a_handler_gets_values_in_order_while_more_come,
        no_burst_is_lost_while_a_thread_makes_children_that_share_memory,
    }
}

mod fatal {
    raddle_tests::cases! { "fatal_signals.c":
        kill_of_the_own_process_does_not_return,
        a_signal_to_another_thread_does_not_return,
        a_signal_to_the_own_group_does_not_return,
        a_signal_to_the_own_descriptor_does_not_return,
        a_signal_that_dumps_core_ends_the_process,
        a_signal_that_is_blocked_ends_nothing,
        a_signal_that_is_waited_for_ends_nothing,
        a_signal_that_only_another_thread_waits_for_ends_the_process,
        a_thread_that_stops_itself_goes_on_after_the_continuation,
        a_handler_for_a_signal_to_the_own_group_runs_before_kill_returns,
        a_descriptor_of_the_own_process_names_its_threads,
    }
}

mod prompt {
    raddle_tests::cases! { "prompt_signals.c":
        a_signal_from_outside_does_not_wait_for_one_that_computes,
        sigwait_does_not_wait_for_one_that_computes,
        a_signal_does_not_wait_for_its_sender_to_wait,
    }
}

mod call_masks {
    raddle_tests::cases! { "call_masks.c":
        a_mask_for_a_call_lets_signals_through,
        a_mask_for_a_call_of_a_thread_with_a_kernel_thread,
    }
}

mod passed_on {
    raddle_tests::cases! { "passed_on.c":
        no_signal_is_lost_to_threads_that_end,
        no_signal_is_lost_to_masks_that_close,
        a_signal_that_has_come_is_handled_before_the_mask_closes,
        what_a_waiter_leaves_pends_for_the_process,
        a_handler_leaves_the_next_signal_to_another_thread,
        what_a_thread_had_not_taken_pends_after_its_end,
        what_was_sent_to_one_thread_ends_with_it,
        what_is_ignored_is_not_waited_for_unless_it_is_blocked,
    }
}

mod just_before {
    raddle_tests::cases! { "just_before.c":
        the_only_thread_sleeps_over_no_signal,
        a_thread_that_had_others_sleeps_over_no_signal,
        the_child_of_one_that_had_others_sleeps_over_no_signal,
        a_signal_right_after_a_fork_is_handled,
        a_signal_right_after_a_fork_ends_the_child,
    }
}

mod sigpipe {
    raddle_tests::cases! { "sigpipe.c":
        a_handler_runs_on_the_writing_thread_before_the_call_returns,
        ten_threads_write_and_each_gets_its_own,
        a_blocked_one_pends_for_its_thread_alone,
        after_a_part_a_socket_raises_none,
        by_default_it_ends_the_process,
    }
}

mod while_binding {
    raddle_tests::cases! { "signals_while_binding.c":
        a_file_system_of_its_own,
        a_cpu_clock,
        a_priority_for_disks,
    }
}

mod faults {
    raddle_tests::cases! { "faults.c":
        faults_are_handled_on_alternate_stacks_of_ten_threads,
        stacks_overflow_into_handlers_in_ten_threads,
        a_fault_handler_mends_and_the_instruction_is_repeated,
        a_handler_changes_the_registers_it_returns_to,
        a_breakpoint_is_its_threads_own_before_the_next_instruction,
        a_breakpoint_that_is_blocked_ends_the_process,
    }
}

mod descriptors {
    raddle_tests::cases! { "signalfd.c":
        a_descriptor_from_before_the_first_thread_is_read,
        a_descriptor_is_made_and_read_in_a_thread,
        epoll_and_poll_see_signals,
        what_is_pending_already_is_read,
        what_a_thread_sends_to_itself_is_there_at_once,
        what_is_sent_while_the_first_thread_sits_in_the_kernel_is_there,
        others_run_while_a_sender_waits_for_the_first_thread,
        a_signal_that_is_unblocked_goes_to_its_handler,
        a_signal_that_a_call_has_blocked_goes_to_its_handler_after_the_call,
        sigwait_takes_what_a_descriptor_could_read,
        children_that_end_are_read,
        several_readers_share_a_stream_of_signals,
        a_signal_to_the_own_group_runs_its_handler_before_kill_returns,
    }
}

mod arguments {
    raddle_tests::cases! { "signal_arguments.c":
        flags_of_alternate_stacks,
        a_stack_is_kept_while_its_handler_runs,
        a_stack_disarms_itself,
        what_a_handler_sets_ends_with_it,
        sizes_of_sets,
        flags_of_actions_that_do_not_exist,
        what_may_be_said_of_a_queued_signal,
    }
}
